"""Defines the parts of a minGRU update that `--gpu` measures: the scan over a minibatch's rows, with given gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from metta_fast.bench.gpu.clock import Call
from metta_fast.bench.gpu.measured_run import MeasuredRun, Part
from metta_fast.policy.mingru.scan import mingru, reference


def _scan_forms(run: MeasuredRun, *, backward: bool) -> dict[str, Call]:
    trainer, size = run.training.config.trainer, run.policy.heads.in_features
    shape = (trainer.bptt_horizon, len(run.segments[0]))
    dtype = torch.get_autocast_dtype(run.device.type) if trainer.precision != "fp32" else torch.float32
    gates = torch.randn(*shape, 3 * size, device=run.device, dtype=dtype, requires_grad=True)
    x = torch.randn(*shape, size, device=run.device, dtype=dtype, requires_grad=True)
    state = torch.randn(shape[1], size, device=run.device, requires_grad=True)
    reset = torch.rand(shape, device=run.device) < 0.001
    gradient = torch.randn(*shape, size, device=run.device)

    def kernel(gates: Tensor, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, ...]:
        return mingru(gates, x, state, reset, backward)

    def using(forward: Callable[..., tuple[Tensor, ...]]) -> Call:
        def call(_: int) -> None:
            with torch.set_grad_enabled(backward):
                y = forward(gates, x, state, reset)[0]
            if backward:
                torch.autograd.grad(y, [gates, x, state], gradient.to(y.dtype))

        return call

    compiled = torch.compile(reference, dynamic=False)
    return {"ours": using(kernel), "eager": using(reference), "compiled": using(compiled)}


def scan_forward(run: MeasuredRun) -> Part:
    """Measures the scan's forward pass."""
    return Part("minGRU scan, forward", run.minibatches, _scan_forms(run, backward=False))


def scan(run: MeasuredRun) -> Part:
    """Measures the scan's forward and backward pass."""
    return Part("minGRU scan, forward and backward", run.minibatches, _scan_forms(run, backward=True))
