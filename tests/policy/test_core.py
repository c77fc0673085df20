"""Tests the LSTM: resets within the sequence, one row at a time or all at once, its hand-written gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metta_fast.policy.cores import LSTMCore
from tests.policy.cores import check_a_reset_forgets, check_row_by_row

SIZE = 6


def case(seed: int, rows: int, agents: int, resets: float) -> tuple[LSTMCore, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    core = LSTMCore(SIZE)
    x = torch.randn(rows, agents, SIZE, generator=g)
    return core, x, torch.randn(2, agents, SIZE, generator=g), torch.rand(rows, agents, generator=g) < resets


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 5), st.sampled_from([0.0, 0.3, 1.0]))
def test_all_rows_at_once_equal_one_row_at_a_time(seed: int, rows: int, agents: int, resets: float) -> None:
    check_row_by_row(*case(seed, rows, agents, resets))


def test_a_reset_forgets_everything_before_it() -> None:
    core, x, state, _ = case(1, 6, 3, 0.0)
    check_a_reset_forgets(core, x, state, same_bits=False)


def test_without_resets_it_is_torchs_lstm() -> None:
    core, x, state, reset = case(2, 7, 4, 0.0)
    theirs = torch.nn.LSTM(SIZE, SIZE)
    i, f, o, g = (slice(k * SIZE, (k + 1) * SIZE) for k in range(4))

    def theirs_order(x: Tensor) -> Tensor:
        return torch.cat([x[part] for part in (i, f, g, o)])

    with torch.no_grad():
        theirs.weight_ih_l0.copy_(theirs_order(core.input.weight))
        theirs.weight_hh_l0.copy_(theirs_order(core.recurrent.weight))
        theirs.bias_ih_l0.copy_(theirs_order(core.input.bias))
        theirs.bias_hh_l0.zero_()
    out, last = core(x, state, reset)
    expected, (h, c) = theirs(x, (state[:1].contiguous(), state[1:].contiguous()))
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(last, torch.cat([h, c]))


def plain(core: LSTMCore, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence left to autograd."""
    h, c = state
    out = []
    for t in range(len(x)):
        h, c = h * ~reset[t, :, None], c * ~reset[t, :, None]
        i, f, o, g = (core.input(x[t]) + core.recurrent(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        out.append(h)
    return torch.stack(out), torch.stack([h, c])


@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([0.0, 0.3, 1.0]))
def test_its_gradient_is_autograds(seed: int, rows: int, resets: float) -> None:
    core, x, state, reset = case(seed, rows, 3, resets)
    into = [x.requires_grad_(), state.requires_grad_(), *core.parameters()]
    found = []
    for run in (core, lambda *given: plain(core, *given)):
        out, last = run(x, state, reset)
        loss = (out * torch.arange(out.numel()).view_as(out)).sum() + last.square().sum()
        found.append(torch.autograd.grad(loss, into))
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def test_under_bf16_the_state_stays_float32_and_gradients_flow() -> None:
    core, x, state, reset = case(3, 5, 4, 0.2)
    exact, _ = core(x, state, reset)
    with torch.autocast("cpu", torch.bfloat16):
        out, last = core(x, state, reset)
    assert last.dtype == torch.float32
    torch.testing.assert_close(out, exact, atol=0.05, rtol=0.05)
    out.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in core.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_its_state_starts_as_zeros_like_a_reset(dtype: torch.dtype) -> None:
    core, x, state, _ = case(4, 1, 3, 0.0)
    every = torch.ones(1, 3, dtype=torch.bool)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        assert torch.equal(core(x, state, every)[1], core(x, torch.zeros_like(state), ~every)[1])
