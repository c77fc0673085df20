"""Functions of tensors as torch operators: autograd and torch.compile take each as one piece.

    @operator("double", "cuda")
    def double(x: Tensor) -> Tensor: …

    double.register_fake(lambda x: torch.empty_like(x))
    double(x)                             # also torch.ops.metta_fast.double(x)

As torch.library.custom_op, which at its first call imports torch._dynamo: seconds that only torch.compile needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def operator(name: str, *devices: str) -> Callable[[Callable[..., Any]], Operator]:
    """Of a typed function that neither changes nor returns its arguments.

    Args:
        devices: where it works; none: everywhere but where `register_kernel` names another.
    """
    return lambda function: Operator(name, function, devices or ("default",))


class Operator:
    """metta_fast::`name`; use `operator`."""

    def __init__(self, name: str, function: Callable[..., Any], devices: tuple[str, ...]) -> None:
        self.name = f"metta_fast::{name}"
        schema = torch.library.infer_schema(function, mutates_args=())
        torch.library.define(self.name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(self.name, devices, function)
        self.overload: Any = getattr(torch.ops.metta_fast, name).default
        """As torch's own tools want it."""

    def __call__(self, *args: Any) -> Any:
        return self.overload(*args)

    def register_kernel(self, device: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The function for a device."""
        return lambda function: torch.library.impl(self.name, device, function) or function

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Empty results of the right shapes and dtypes, for torch.compile."""
        return torch.library.register_fake(self.name, function)

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """See torch.library.register_autograd."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context)
