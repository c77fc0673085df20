"""Registers functions of tensors as torch operators, which autograd and torch.compile treat as one unit.

    @operator("double", "cuda")
    def double(x: Tensor) -> Tensor: …

    double.register_fake(lambda x: torch.empty_like(x))
    double(x)                             # also torch.ops.metta_fast.double(x)

It does the same as torch.library.custom_op without importing torch._dynamo at the first call, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def operator(name: str, *devices: str) -> Callable[[Callable[..., Any]], Operator]:
    """Decorates a typed function that neither changes nor returns its arguments.

    Args:
        devices: device types that the function supports; none given: all except those of `register_kernel`.
    """
    return lambda function: Operator(name, function, devices or ("default",))


class Operator:
    """The operator metta_fast::`name`; create it with `operator`."""

    def __init__(self, name: str, function: Callable[..., Any], devices: tuple[str, ...]) -> None:
        self.name = f"metta_fast::{name}"
        schema = torch.library.infer_schema(function, mutates_args=())
        torch.library.define(self.name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(self.name, devices, function)
        self.overload: torch._ops.OpOverload = getattr(torch.ops.metta_fast, name).default
        """The operator as torch's own tools (e.g. opcheck) expect it."""

    def __call__(self, *args: Any) -> Any:
        return self.overload(*args)

    def register_kernel(self, device: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorates the function that implements the operator on a device type."""
        return lambda function: torch.library.impl(self.name, device, function) or function

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Registers a function that returns empty tensors of the results' shapes and dtypes, for torch.compile."""
        return torch.library.register_fake(self.name, function)

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """Registers the backward pass; see torch.library.register_autograd."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context)
