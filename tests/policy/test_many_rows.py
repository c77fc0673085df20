"""Tests kernels on so many rows that a place among all of their numbers takes more than 32 bits.

    python -m pytest -m gpu tests/policy/test_many_rows.py        # 40 to 100 GiB of a GPU's memory

Rows repeat, so that every result is known from those of the first few.
"""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor

from tests.interpreter import DEVICE, ON_GPU, gpu
from tests.policy.test_gpu_act import make, observations

pytestmark = gpu
FEW = 4096

if ON_GPU:
    from metta_fast.policy.fused_act.triton_act import fused_act, pack
    from metta_fast.policy.grid.triton import layer_operator
    from metta_fast.policy.mingru import triton_scan


def needs(gib: int) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0] >> 30
    if free < gib:
        pytest.skip(f"needs {gib} GiB of free GPU memory, {free} are free")


def repeats(x: Tensor, few: int) -> bool:
    """Whether rows few, few + 1, … of x are rows 0, 1, … of it again, within rounding."""
    return all(
        torch.allclose(part, x[: len(part)], rtol=1e-5, atol=1e-5, equal_nan=False) for part in x.split(few)
    )


@pytest.mark.parametrize(
    ("rows", "core", "gib"),
    [(2_600_000, "none", 20), (5_600_000, "none", 40), (17_000_000, "mingru", 100)],
)
def test_the_rollouts_kernel(rows: int, core: str, gib: int) -> None:
    """2^31 numbers: of 2.5 million rows the lists of inputs, of 5.5 million the bytes, of 16.8 million the states."""
    needs(gib)
    rows = rows // FEW * FEW
    policy = make(128, core=core)
    packed = pack(policy, torch.bfloat16)
    obs = observations(FEW).repeat(rows // FEW, 1)
    noise = torch.rand(FEW, 2, device=DEVICE).repeat(rows // FEW, 1)
    action = torch.full((rows, 2), -7, dtype=torch.int32, device=DEVICE)
    logprob, value = torch.full((2, rows), torch.nan, device=DEVICE)
    memory: tuple[Tensor, ...] = ()
    if core != "none":
        state = torch.randn(FEW, 128, device=DEVICE).repeat(rows // FEW, 1)
        memory = state, torch.arange(rows, device=DEVICE) % 8 == 3
    wanted = [x[:FEW].clone() for x in (action, logprob, value, *memory)]
    fused_act(packed, obs[:FEW], noise[:FEW], *wanted)
    fused_act(packed, obs, noise, action, logprob, value, *memory)
    for found, want in zip((action, logprob, value, *memory), wanted):
        torch.testing.assert_close(found[:FEW], want, rtol=1e-5, atol=1e-5)
        assert repeats(found, FEW)


def test_the_scan() -> None:
    """Two rows of 16.8 million agents: the states of one row pass 2^31 numbers."""
    needs(115)
    few, size = 64, 128
    times = 2**31 // size // few + 2
    dtype = torch.bfloat16

    def rows(*shape: int, kind: torch.dtype = dtype) -> tuple[Tensor, Tensor]:
        """(a few, all), the agents on the axis before the last."""
        some = torch.randn(*shape, device=DEVICE).to(kind)
        return some, some.repeat(*[1] * (len(shape) - 2), times, 1)

    few_gates, gates = rows(2, few, 3 * size)
    few_x, x = rows(2, few, size)
    few_state, state = rows(few, size, kind=torch.float32)
    few_reset = torch.rand(2, few, device=DEVICE) < 0.2
    reset = few_reset.repeat(1, times)

    def checked(found: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> None:
        for one, other in zip(found, want, strict=True):
            for row, expected in zip(
                one.view(-1, few * times, one.shape[-1]), other.view(-1, few, one.shape[-1])
            ):
                blocks = row.unflatten(0, (times, few))
                assert all((part == expected).all() for part in blocks.split(times // 16))

    want = triton_scan.forward(few_gates, few_x, few_state, few_reset, True)
    found = triton_scan.forward(gates, x, state, reset, True)
    checked(found, want)
    states = found[2]
    del found
    gc.collect()
    torch.cuda.empty_cache()
    want = triton_scan.backward(few_gates, few_x, few_state, few_reset, want[2], few_x, None)
    checked(triton_scan.backward(gates, x, state, reset, states, x, None), want)


def test_the_first_layers_gradient() -> None:
    """A split of the rows has more than 2^31 bytes. All but a few rows have gradients of 0."""
    needs(60)
    few, width = 1 << 16, 16
    obs = observations(few).repeat(89_000_000 // few, 1)
    weight = torch.randn(2968, width, device=DEVICE)
    bias = torch.zeros(width, device=DEVICE)
    _, seen = layer_operator.forward(obs, weight, bias, torch.bfloat16)
    g = torch.Generator(DEVICE).manual_seed(0)
    chosen = torch.randint(0, len(obs), (5000,), generator=g, device=DEVICE).unique()
    chosen[-1] = len(obs) - 1
    grad = torch.zeros(len(obs), width, dtype=torch.bfloat16, device=DEVICE)
    grad[chosen] = torch.randn(len(chosen), width, generator=g, device=DEVICE).bfloat16()
    found = layer_operator.gradient(obs, grad, seen, len(weight))
    own = obs[chosen]
    _, seen = layer_operator.forward(own, weight, bias, torch.bfloat16)
    for one, other in zip(found, layer_operator.gradient(own, grad[chosen], seen, len(weight)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
