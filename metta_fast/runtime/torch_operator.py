"""Registers functions of tensors as torch operators, which autograd and torch.compile treat as one unit.

    @operator("double", "cuda")
    def double(x: Tensor) -> Tensor: …

    double.register_fake(lambda x: torch.empty_like(x))
    double(x)                             # also torch.ops.metta_fast.double(x)

It does the same as torch.library.custom_op without importing torch._dynamo at the first call, which takes seconds.

Kernels for CUDA are called with their tensors' card as the current one: Triton launches on the current card.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def operator(name: str, *devices: str) -> Callable[[Callable[..., Any]], Operator]:
    """Decorates a typed function that neither changes nor returns its arguments.

    Args:
        devices: device types that the function supports; none given: all except those of `register_kernel`.
    """
    return lambda function: Operator(name, function, devices or ("default",))


def on_its_card(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with the card of its first tensor as the current one during a call."""

    @functools.wraps(function)
    def call(*args: Any, **keys: Any) -> Any:
        first = next(value for value in (*args, *keys.values()) if isinstance(value, torch.Tensor))
        with torch.cuda.device(first.device):
            return function(*args, **keys)

    return call


class Operator:
    """The operator metta_fast::`name`; create it with `operator`."""

    def __init__(self, name: str, function: Callable[..., Any], devices: tuple[str, ...]) -> None:
        self.name = f"metta_fast::{name}"
        schema = torch.library.infer_schema(function, mutates_args=())
        torch.library.define(self.name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        for device in devices:
            self.register_kernel(device)(function)
        self.overload: torch._ops.OpOverload = getattr(torch.ops.metta_fast, name).default
        """The operator as torch's own tools (e.g. opcheck) expect it."""

    def __call__(self, *args: Any) -> Any:
        return self.overload(*args)

    def register_kernel(self, device: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorates the function that implements the operator on a device type."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            torch.library.impl(self.name, device, on_its_card(function) if device == "cuda" else function)
            return function

        return register

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Registers a function that returns empty tensors of the results' shapes and dtypes, for torch.compile."""
        return torch.library.register_fake(self.name, function)

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Callable[..., Any]) -> None:
        """Registers the backward pass; see torch.library.register_autograd."""
        torch.library.register_autograd(self.name, backward, setup_context=setup_context)
