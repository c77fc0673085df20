"""Compares every minGRU kernel with plain autograd, and tests resets within the sequence and the core.

On a GPU the Triton kernels run there; else under Triton's interpreter, in a process of its own, as it is chosen at
import:

    TRITON_INTERPRET=1 python -m pytest tests/policy/test_mingru.py
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metta_fast.policy.cores import HORIZON, MinGRUCore
from metta_fast.policy.mingru.scan import mingru, mingru_grad, reference
from tests.interpreter import ON_GPU, elsewhere, gpu, kernels, run_interpreted
from tests.one_thread import one_torch_thread  # noqa: F401
from tests.policy.cores import check_a_reset_forgets, check_row_by_row

HALVES = {torch.bfloat16: 0.02, torch.float16: 0.004}

SHAPES = [
    (1, 2, 16),
    (2, 1, 1),
    (11, 2, 40),
    (3, 1, 130),
    pytest.param(32, 1024, 128, marks=gpu),
    pytest.param(1, 8192, 128, marks=gpu),
    pytest.param(64, 33, 256, marks=gpu),
]


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__, "-k", "triton")


def case(
    rows: int, agents: int, size: int, resets: float = 0.2, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """(gates, x, state), reset as the buffers hand it out, with strides of its own, and gradients of (y, last)."""
    g = torch.Generator().manual_seed(seed)
    wide = torch.promote_types(dtype, torch.float32)

    def normal(*shape: int, dtype: torch.dtype = dtype, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=g) * scale).to(dtype)

    inputs = [
        normal(rows, agents, 3 * size, scale=2.0),
        normal(rows, agents, size),
        normal(agents, size, dtype=wide),
    ]
    reset = (torch.rand(agents, rows + 1, generator=g) < resets).t()[:rows]
    return inputs, reset, [normal(rows, agents, size), normal(agents, size, dtype=wide)]


def exact(inputs: list[Tensor], reset: Tensor, grads: list[Tensor]) -> tuple[Tensor, ...]:
    """y, last and the gradients of gates, x and state: `reference` in float64 and autograd."""
    into = [tensor.double().requires_grad_() for tensor in inputs]
    results = reference(*into, reset)
    return *results, *torch.autograd.grad(results, into, [grad.double() for grad in grads])


def close(found: tuple[Tensor, ...], want: tuple[Tensor, ...], tolerance: float) -> None:
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours.double().cpu(), theirs, rtol=tolerance, atol=tolerance)


@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 20),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([torch.float32, torch.float64, *HALVES]),
)
def test_forward_and_backward_are_the_references(
    rows: int, agents: int, size: int, resets: float, dtype: torch.dtype
) -> None:
    """By the C kernel in float32, by torch's operators in the other types."""
    inputs, reset, grads = case(rows, agents, size, resets, dtype)
    into = [tensor.requires_grad_() for tensor in inputs]
    y, last, _ = mingru(*into, reset, True)
    found = torch.autograd.grad([y, last], into, grads)
    assert [tensor.dtype for tensor in (y, last, *found)] == [tensor.dtype for tensor in (*grads, *inputs)]
    tolerance = HALVES.get(dtype, 2e-6 if dtype == torch.float32 else 1e-12)
    close((y, last, *found), exact(inputs, reset, grads), tolerance * 4)


def test_gradcheck() -> None:
    (gates, x, state), reset, _ = case(5, 3, 4, dtype=torch.float64)
    inputs = [tensor.requires_grad_() for tensor in (gates, x, state)]
    assert torch.autograd.gradcheck(lambda *given: mingru(*given, reset, True)[:2], inputs)


@pytest.mark.parametrize("learning", [False, True])
def test_torch_knows_the_operator(learning: bool) -> None:
    """Fake tensors, autograd's registration, tracing."""
    (gates, x, state), reset, (grad, grad_last) = case(4, 3, 8)
    inputs = [tensor.requires_grad_(learning) for tensor in (gates, x, state)]
    torch.library.opcheck(mingru.overload, (*inputs, reset, learning))
    if learning:
        h = mingru(*inputs, reset, True)[2].detach()
        plain = [tensor.detach() for tensor in inputs]
        for last in (grad_last, None):
            torch.library.opcheck(mingru_grad.overload, (*plain, reset, h, grad, last))


def test_only_the_last_state_or_only_the_output_may_be_wanted() -> None:
    inputs, reset, grads = case(4, 3, 8)
    for wanted in (0, 1):
        into = [tensor.detach().requires_grad_() for tensor in inputs]
        mingru(*into, reset, True)[wanted].backward(grads[wanted])
        masked = [grad if i == wanted else torch.zeros_like(grad) for i, grad in enumerate(grads)]
        close(tuple(t.grad for t in into), exact(inputs, reset, masked)[2:], 1e-5)  # type: ignore[misc]


def test_what_does_not_fit_is_refused() -> None:
    (gates, x, state), reset, _ = case(4, 3, 8)
    for wrong in (
        (gates[..., 1:], x, state, reset),
        (gates, x, state[1:], reset),
        (gates, x, state, reset.t()),
        (gates, x, state, reset.float()),
        (gates.half(), x, state, reset),
        (gates.half(), x.half(), state.half(), reset),
    ):
        with pytest.raises(ValueError, match=r"expected \[T, B, "):
            mingru(*wrong, True)


# ---- Triton ----


def on_kernels(
    inputs: list[Tensor], reset: Tensor, grads: list[Tensor], last: bool = True
) -> tuple[Tensor, ...]:
    from metta_fast.policy.mingru import triton_scan as gpu_scan

    device = "cuda" if ON_GPU else "cpu"
    moved, reset = [tensor.to(device) for tensor in inputs], reset.to(device)
    grad, grad_last = (tensor.to(device) for tensor in grads)
    y, after, h = gpu_scan.forward(*moved, reset, True)
    again = gpu_scan.forward(*moved, reset, False)
    assert torch.equal(again[0], y)
    assert torch.equal(again[1], after)
    return y, after, *gpu_scan.backward(*moved, reset, h, grad, grad_last if last else None)


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize(("rows", "agents", "size"), SHAPES)
def test_triton_gives_the_references_numbers(rows: int, agents: int, size: int, dtype: torch.dtype) -> None:
    inputs, reset, grads = case(rows, agents, size, dtype=dtype)
    close(on_kernels(inputs, reset, grads), exact(inputs, reset, grads), 4 * HALVES.get(dtype, 2e-5))


@kernels
@pytest.mark.parametrize("resets", [0.0, 1.0])
def test_triton_at_the_ends_of_resets(resets: float) -> None:
    inputs, reset, grads = case(9, 2, 24, resets)
    grads[1].zero_()
    close(on_kernels(inputs, reset, grads, last=False), exact(inputs, reset, grads), 1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_triton_all_rows_at_once_equal_one_row_at_a_time(dtype: torch.dtype) -> None:
    """Products of other shapes may round bf16 otherwise; states stay float32."""
    torch.manual_seed(0)
    core = MinGRUCore(128).cuda()
    x, reset = torch.randn(32, 512, 128, device="cuda"), torch.rand(32, 512, device="cuda") < 0.05
    state = torch.randn(1, 512, 128, device="cuda")
    with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
        together, last = core(x, state, reset)
        with torch.inference_mode():
            rows = []
            for t in range(32):
                y, state = core(x[t : t + 1], state, reset[t : t + 1])
                rows.append(y)
    assert together.dtype == dtype
    assert last.dtype == state.dtype == torch.float32
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-3  # TF32 may be on
    torch.testing.assert_close(torch.cat(rows), together, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(state, last, rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_triton_in_a_cuda_graph(compiled: bool, dtype: torch.dtype) -> None:
    """Forward and backward of the core, eager or compiled, captured once and replayed on other numbers."""
    torch.manual_seed(0)
    core = MinGRUCore(64).cuda()
    static = torch.randn(8, 16, 64, device="cuda")
    state = torch.randn(1, 16, 64, device="cuda")
    reset = torch.rand(8, 16, device="cuda") < 0.2
    losses = torch.zeros((), device="cuda")

    def plain(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            y, last = core(x, state, reset)
        return y.float().square().sum() + last.sum()

    run = torch.compile(plain, dynamic=False) if compiled else plain

    def work() -> None:
        for p in core.parameters():
            p.grad = None
        loss = run(static)
        loss.backward()
        losses.copy_(loss.detach())

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    found = [p.grad for p in core.parameters()]
    for _ in range(2):
        static.normal_()
        reset.copy_(torch.rand(8, 16, device="cuda") < 0.2)
        graph.replay()
        got = [losses.clone(), *(grad.clone() for grad in found if grad is not None)]
        for p in core.parameters():
            p.grad = None
        loss = plain(static)
        loss.backward()
        want = [loss.detach(), *(p.grad for p in core.parameters() if p.grad is not None)]
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


# ---- the core ----


def core_case(
    rows: int, agents: int, resets: float, seed: int = 0
) -> tuple[MinGRUCore, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    core = MinGRUCore(12)
    reset = torch.rand(rows, agents) < resets
    return core, torch.randn(rows, agents, 12), torch.randn(1, agents, 12), reset


@given(st.integers(1, 9), st.integers(1, 5), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 99))
def test_all_rows_at_once_equal_one_row_at_a_time(rows: int, agents: int, resets: float, seed: int) -> None:
    check_row_by_row(*core_case(rows, agents, resets, seed))


def test_a_reset_forgets_everything_before_it() -> None:
    core, x, state, _ = core_case(6, 3, 0.0)
    check_a_reset_forgets(core, x, state, same_bits=True)


def test_under_bf16_the_state_stays_float32_and_gradients_flow() -> None:
    core, x, state, reset = core_case(5, 4, 0.2)
    want, _ = core(x, state, reset)
    with torch.autocast("cpu", torch.bfloat16):
        out, last = core(x, state, reset)
    assert (out.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(out.float(), want, atol=0.05, rtol=0.05)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in core.parameters())


def test_it_starts_nearly_feed_forward_with_memories_of_one_row_up_to_the_horizon() -> None:
    core, x, state, reset = core_case(5, 4, 0.2)
    assert (core(x, state, reset)[0] - x).abs().mean() < 0.1
    renewed = MinGRUCore(128).input.bias[:128].detach().sigmoid()
    assert float(renewed[0]) == pytest.approx(1 / 2)
    assert float(renewed[-1]) == pytest.approx(1 / (1 + HORIZON), rel=1e-4)


def remembered(core: MinGRUCore, steps: int = 120) -> float:
    """Cross entropy after training to tell, in each row, which of four signs the episode's first row showed."""
    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    size, rows, agents = core.state_shape[1], 8, 24
    into, out = torch.nn.Linear(6, size), torch.nn.Linear(size, 4)
    parameters = [p for part in (core, into, out) for p in part.parameters()]
    adam = torch.optim.Adam(parameters, lr=5e-3)
    losses = []
    for _ in range(steps):
        reset = torch.rand(rows, agents, generator=g) < 0.1
        reset[0] = True
        signs = torch.randint(0, 4, (rows, agents), generator=g)
        for t in range(1, rows):
            signs[t] = torch.where(reset[t], signs[t], signs[t - 1])
        shown = torch.nn.functional.one_hot(signs, 4) * reset.unsqueeze(-1)
        x = torch.cat([shown, torch.randn(rows, agents, 2, generator=g)], -1)
        y, _ = core(into(x).relu(), torch.zeros(1, agents, size), reset)
        loss = torch.nn.functional.cross_entropy(out(y).flatten(0, 1), signs.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


def test_it_learns_what_only_memory_can_tell() -> None:
    """Without memory it would be ln 4 = 1.39 in all rows but the first of an episode."""
    torch.manual_seed(0)
    assert remembered(MinGRUCore(32)) < 0.1
