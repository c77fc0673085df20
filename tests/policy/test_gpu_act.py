"""Compares the fused act kernel with the network: values, log-probabilities and actions.

On a GPU it runs there in bf16; else under Triton's interpreter, which has no bf16 products, in float32 and fp16, in
a process of its own, as it is chosen at import:

    TRITON_INTERPRET=1 python -m pytest tests/policy/test_gpu_act.py
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metta_fast.buffers.act_row import ActRow
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.policy import make_policy
from metta_fast.policy.fused_act.applies import not_in_triton
from metta_fast.policy.grid.layout import LAYOUTS
from metta_fast.policy.network import Network
from metta_fast.rollout.act import ActInto
from tests.interpreter import DEVICE, INTERPRETED, ON_GPU, RUNS, elsewhere, gpu, kernels, run_interpreted
from tests.policy.specs import flat_spec, grid_obs, grid_spec

DTYPES = [torch.bfloat16, torch.float16] if ON_GPU else [torch.float32, torch.float16]
ROWS = 32 if ON_GPU else 16
TOLERANCE = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}
NEAREST_ONE = 1 - 2.0**-24


if RUNS:
    from metta_fast.policy.fused_act.triton_act import FusedAct, Packed, fused_act, pack


@elsewhere
def test_in_the_interpreter() -> None:
    run_interpreted(__file__)


def make(width: int = 32, nvec: tuple[int, ...] | None = None, seed: int = 0, core: str = "none") -> Network:
    """A network whose biases and heads are as large as after training."""
    torch.manual_seed(seed)
    spec = grid_spec("compact") if nvec is None else flat_spec(nvec, compact=Leaf((387,), "uint8"))
    policy = make_policy(PolicyConfig(name="mlp", hidden_size=width, core=core), spec)
    assert isinstance(policy, Network)
    with torch.no_grad():
        for p in policy.parameters():
            if p.ndim == 1:
                p.normal_(0, 0.2)
        policy.heads.weight.normal_(0, 0.3 / width**0.5)
    return policy.to(DEVICE)


def observations(n: int) -> Tensor:
    """Real ones, each byte in each place, and cells full of agents and converters: uint8 [n, 387]."""
    g = torch.Generator().manual_seed(1)
    full = torch.randint(0, 256, (n, 387), generator=g)
    cells = full[:, :363].view(n, 121, 3)
    cells[..., 0] = torch.randint(0, 18, (n, 121), generator=g) * (torch.rand(n, 121, generator=g) < 0.3)
    cells[n // 2 :, :, 0] *= cells[n // 2 :, :, 0] == 1
    every = (torch.arange(n)[:, None] + 37 * torch.arange(387)) % 256
    parts = [grid_obs("compact", n // 3), every[: n // 3].to(torch.uint8), full.to(torch.uint8)]
    return torch.cat(parts)[:n].to(DEVICE)


def memory(policy: Network, n: int) -> tuple[Tensor, Tensor]:
    """(state [n, H] of any history, reset [n]); NaN where it is to be forgotten."""
    reset = torch.arange(n, device=DEVICE) % 5 == 2
    state = torch.randn(n, policy.heads.in_features, device=DEVICE)
    return torch.where(reset[:, None], torch.nan, state), reset


def reference(
    policy: Network, obs: Tensor, dtype: torch.dtype, state: Tensor | None = None, reset: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(params [n, P], value [n], state [n, H] after the row) by exact sums of rounded numbers.

    float32 is no dtype for use: the kernel then cuts what it lists, cells' inputs, to 20 bits.
    """
    encoder: Any = policy.encoder
    (layer,) = encoder.parts.values()
    second, heads = encoder.second, policy.heads

    def rounded(x: Tensor) -> Tensor:
        return x.detach().to(dtype).double()

    x = LAYOUTS["compact"].decode(obs, torch.float32)
    if dtype == torch.float32:
        cut = (x.view(torch.int32) & -4096).view(torch.float32)
        cut[:, 2904 : 2904 + 39] = x[:, 2904 : 2904 + 39]
        x = cut
    x = rounded(x)
    x = rounded((x @ rounded(layer.weight) + layer.bias.double()).relu())
    x = rounded((x @ rounded(second.weight).t() + rounded(second.bias)).relu())
    if state is not None and reset is not None:
        gates = policy.core.input
        z, p, c = rounded(x @ rounded(gates.weight).t() + rounded(gates.bias)).chunk(3, -1)
        h = torch.where(reset[:, None], 0, state).double()
        h = h + z.sigmoid() * (c - h)
        x, state = rounded(x + p.sigmoid() * (h - x)), h.float()
    out = x @ heads.weight.detach().double().t() + heads.bias.detach().double()
    return out[:, :-1].float(), out[:, -1].float(), state


def act(
    packed: Packed, obs: Tensor, noise: Tensor, *memory: Tensor, rows: int = ROWS
) -> tuple[Tensor, Tensor, Tensor]:
    """memory: state, which is written, and reset."""
    n = len(obs)
    action = torch.full((n + 1, noise.shape[1]), -7, dtype=torch.int32, device=DEVICE)
    logprob, value = (torch.full((n + 1,), 7.5, device=DEVICE) for _ in range(2))
    fused_act(packed, obs, noise, action[:n], logprob[:n], value[:n], *memory, rows=rows)
    past = [action[n, 0].item(), logprob[n].item(), value[n].item()]
    assert past == [-7, 7.5, 7.5]
    return action[:n], logprob[:n], value[:n]


def compare(policy: Network, obs: Tensor, dtype: torch.dtype) -> None:
    noise = torch.rand(len(obs), len(policy.head.nvec), device=DEVICE)
    remembered = memory(policy, len(obs)) if policy.core is not None else ()
    params, want, after = reference(policy, obs, dtype, *remembered)
    action, logprob, value = act(pack(policy, dtype), obs, noise, *remembered)
    tolerance = TOLERANCE[dtype]
    if after is not None:
        # Sums in another order round a gate to the next of its 16 bits here and there (on a card 90 of 179,200 were
        # 0.011 away in fp16, one of 89,600 0.045 in bf16): a step of a gate of 16.
        assert (remembered[0] - after).abs().mean() < tolerance / 10
        tolerance = max(tolerance, 16 * torch.finfo(dtype).eps)
        torch.testing.assert_close(remembered[0], after, rtol=0, atol=tolerance)
    torch.testing.assert_close(value, want, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        logprob, policy.head.logprob_entropy(params, action)[0], rtol=tolerance, atol=tolerance
    )
    # An action may only differ where the noise lies at the edge between two.
    around = [
        policy.head.sample(params, (noise + d).clamp(0, NEAREST_ONE))[0] for d in (-tolerance, tolerance)
    ]
    assert ((action >= around[0]) & (action <= around[1])).all()
    assert (action == policy.head.sample(params, noise)[0]).float().mean() > 1 - 20 * TOLERANCE[dtype]


@kernels
@pytest.mark.parametrize("dtype", DTYPES)
def test_as_the_network_says(dtype: torch.dtype) -> None:
    compare(make(), observations(48), dtype)


@kernels
@pytest.mark.parametrize("width", [16, 48, pytest.param(128, marks=gpu), pytest.param(256, marks=gpu)])
def test_widths(width: int) -> None:
    compare(make(width), observations(16 if INTERPRETED else 700), DTYPES[0])


@kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [16, 48, pytest.param(128, marks=gpu), pytest.param(256, marks=gpu)])
def test_memory(width: int, dtype: torch.dtype) -> None:
    compare(make(width, core="mingru"), observations(18 if INTERPRETED else 700), dtype)


@kernels
def test_the_longest_lists() -> None:
    """Cells of which no input is 0 that can be another, beside rows of nothing."""
    obs = torch.zeros(32, 387, dtype=torch.uint8, device=DEVICE)
    agent, generator = (
        torch.tensor(x, dtype=torch.uint8, device=DEVICE) for x in ([1, 128, 255], [14, 1, 255])
    )
    for row, thing in ((3, agent), (4, generator), (31, agent)):
        obs[row, :363] = thing.repeat(121)
        obs[row, 383:386] = thing
    compare(make(16), obs, DTYPES[0])


@kernels
@pytest.mark.parametrize("nvec", [(5,), (1, 9, 4), (2, 17)])
def test_action_heads(nvec: tuple[int, ...]) -> None:
    compare(make(16, nvec), observations(16), DTYPES[0])


@kernels
def test_rows_may_lie_apart_and_be_few() -> None:
    policy, obs = make(16), observations(19)
    apart = torch.zeros(19, 500, dtype=torch.uint8, device=DEVICE)
    apart[:, 100:487] = obs
    noise = torch.rand(19, 2, device=DEVICE)
    packed = pack(policy, DTYPES[0])
    whole = act(packed, obs, noise)
    for found, want in zip(act(packed, apart[:, 100:487], noise), whole):
        assert torch.equal(found, want)
    for found, want in zip(act(packed, obs[18:], noise[18:]), whole):
        torch.testing.assert_close(found, want[18:], rtol=1e-5, atol=1e-5)


@kernels
def test_values_alone() -> None:
    policy, obs = make(16), observations(16)
    packed = pack(policy, DTYPES[0])
    want = act(packed, obs, torch.rand(16, 2, device=DEVICE))[2]
    value = torch.zeros(16, device=DEVICE)
    fused_act(packed, obs, None, None, None, value, rows=ROWS)
    torch.testing.assert_close(value, want, rtol=1e-5, atol=1e-5)  # sums may run in another order


@kernels
def test_programs_of_any_number_of_rows() -> None:
    policy, obs = make(16), observations(80)
    noise = torch.rand(80, 2, device=DEVICE)
    packed = pack(policy, DTYPES[0])
    want = act(packed, obs, noise, rows=32)
    for found, wanted in zip(act(packed, obs, noise, rows=16), want):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@kernels
def test_sampling_at_its_ends() -> None:
    """The noise's ends, a forbidden choice, one that is all but certain."""
    policy = make(16)
    with torch.no_grad():
        policy.heads.bias[[0, 8, 10, 17]] = -torch.inf
        policy.heads.bias[12] = 60.0
    noise = torch.zeros(16, 2, device=DEVICE)
    noise[8:] = NEAREST_ONE
    action, logprob, _ = act(pack(policy, DTYPES[0]), observations(16), noise)
    assert (action[:8, 0] == 1).all()
    assert (action[8:, 0] == 7).all()
    assert (action[8:, 1] == 3).all()
    assert logprob.isfinite().all()
    assert not ((action == 1) & torch.tensor([False, True], device=DEVICE)).any()


@kernels
def test_nan_is_passed_on() -> None:
    policy = make(16)
    encoder: Any = policy.encoder
    with torch.no_grad():
        encoder.second.bias[3] = torch.nan
    action, logprob, value = act(pack(policy, DTYPES[0]), observations(16), torch.rand(16, 2, device=DEVICE))
    assert (logprob.isnan() & value.isnan()).all()
    assert ((action >= 0) & (action < 9)).all()


def packed_by_torch(
    policy: Network, dtype: torch.dtype, size: int, choices: int, heads: int
) -> dict[str, Tensor]:
    """What `Packed` holds, by slices."""
    encoder: Any = policy.encoder
    (layer,) = encoder.parts.values()
    out, width, nvec = policy.heads, encoder.second.weight.shape[0], policy.head.nvec
    first = torch.zeros(24 * 128 + 64, size)
    own = layer.weight[121 * 24 :]
    for channel in range(24):
        first[128 * channel : 128 * channel + 121, :width] = layer.weight[channel : 121 * 24 : 24]
        first[128 * channel + 121, :width] = own[39 + channel]
    first[24 * 128 : 24 * 128 + 39, :width] = own[:39]
    first[24 * 128 + 39, :width] = own[63]
    second, second_bias = torch.zeros(size, size), torch.zeros(size)
    second[:width, :width], second_bias[:width] = encoder.second.weight.t(), encoder.second.bias.to(dtype)
    first_bias, value = torch.zeros(size), torch.zeros(size)
    first_bias[:width], value[:width] = layer.bias, out.weight[-1]
    left, head_bias = torch.zeros(size, heads, choices), torch.full((heads, choices), -torch.inf)
    head_bias[len(nvec) :, 0] = 0
    start = 0
    for i, count in enumerate(nvec):
        left[:width, i, :count] = out.weight[start : start + count].t()
        head_bias[i, :count] = out.bias[start : start + count]
        start += count
    head = []
    for _ in range(1 if dtype == torch.float32 else 3):
        head.append(left.to(dtype))
        left = left - head[-1].float()
    result = {
        "first": first.to(dtype), "first_bias": first_bias, "second": second.to(dtype), "second_bias": second_bias,
        "head": torch.stack(head).flatten(2), "head_bias": head_bias.flatten(), "value": value,
        "value_bias": out.bias[-1:],
    }  # fmt: skip
    if policy.core is not None:
        given: Any = policy.core.input
        gates, gates_bias = torch.zeros(3, size, size), torch.zeros(3, size)
        gates[:, :width, :width] = given.weight.view(3, width, width).transpose(1, 2)
        gates_bias[:, :width] = given.bias.to(dtype).view(3, width)
        result |= {"gates": gates.to(dtype), "gates_bias": gates_bias}
    return result


@kernels
@pytest.mark.parametrize(
    ("width", "nvec", "core"), [(32, None, "none"), (24, (3,), "none"), (60, (5, 2, 7), "mingru")]
)
def test_weights_are_packed_to_the_bit(width: int, nvec: tuple[int, ...] | None, core: str) -> None:
    for dtype in DTYPES:
        policy = make(width, nvec, core=core)
        packed = pack(policy, dtype)
        size, heads = packed.second.shape[0], len(packed.head_bias) // packed.choices
        with torch.no_grad():
            want = packed_by_torch(policy.cpu(), dtype, size, packed.choices, heads)
        want["own"] = want["first"][24 * 128 :]
        for name, tensor in want.items():
            assert torch.equal(getattr(packed, name).cpu(), tensor), name


@kernels
def test_new_weights_in_the_same_place() -> None:
    policy, other, obs = make(16), make(16, seed=5), observations(16)
    noise = torch.rand(16, 2, device=DEVICE)
    packed = pack(policy, DTYPES[0])
    places = [x.data_ptr() for x in vars(packed).values() if isinstance(x, Tensor)]
    policy.load_state_dict(other.state_dict())
    packed.update()
    assert places == [x.data_ptr() for x in vars(packed).values() if isinstance(x, Tensor)]
    for found, want in zip(act(packed, obs, noise), act(pack(other, DTYPES[0]), obs, noise)):
        assert torch.equal(found, want)


@kernels
def test_what_it_is_for() -> None:
    def why(spec: EnvSpec, dtype: torch.dtype = torch.bfloat16, **config: Any) -> str | None:
        return not_in_triton(make_policy(PolicyConfig(**{"name": "mlp", **config}), spec), dtype)

    compact = grid_spec("compact")
    assert why(compact) is None
    assert why(compact, core="mingru") is None
    assert "recurrent" in str(why(compact, core="lstm"))
    assert "observations" in str(why(grid_spec("dense")))
    assert why(compact, shared=False) == "policy.shared=false"
    assert why(compact, activation="tanh") == "policy.activation=tanh"
    box = EnvSpec("own", 1, compact.obs, ActionSpec("box", low=(-1.0,), high=(1.0,)))
    assert why(box) == "continuous actions"
    assert "TokenEncoder" in str(why(grid_spec("tokens"), name="tokens"))
    assert "observations" in str(why(flat_spec()))
    assert "hidden_size=512" in str(why(compact, hidden_size=512))
    assert "precision" in str(why(compact, torch.float32))
    assert "choices" in str(why(flat_spec((100,), compact=Leaf((387,), "uint8"))))


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("core", ["none", "mingru"])
def test_the_learner_finds_a_ratio_of_one(core: str) -> None:
    """8192 rows in a CUDA graph; the learner's forward under autocast."""
    n = 8192
    policy, obs = make(128, core=core), observations(768).repeat(11, 1)[:n]
    state, reset = policy.initial_state(n, DEVICE), torch.zeros(1, n, dtype=torch.bool, device=DEVICE)
    kept = () if core == "none" else (torch.empty_like(state[0]), reset[0])
    packed = pack(policy, torch.bfloat16)
    noise = torch.rand(n, 2, device=DEVICE)
    action = torch.zeros(n, 2, dtype=torch.int32, device=DEVICE)
    logprob, value = torch.zeros(n, device=DEVICE), torch.zeros(n, device=DEVICE)
    fused_act(packed, obs, noise, action, logprob, value, *kept)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        packed.update()
        if kept:
            kept[0].copy_(state[0])
        fused_act(packed, obs, noise, action, logprob, value, *kept)
    logprob.zero_()
    graph.replay()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        out = policy(obs.unsqueeze(0), state, reset)
        again = policy.head.logprob_entropy(out.params, action.unsqueeze(0))[0][0]
    ratio = (again - logprob).exp()
    assert (ratio - 1).abs().mean() < 1e-3
    assert (ratio - 1).abs().max() < 2e-2
    assert (out.value[0] - value).abs().mean() < 1e-3


@kernels
@pytest.mark.parametrize("core", ["none", "mingru"])
def test_in_the_place_of_a_rollouts_step(core: str) -> None:
    policy, obs = make(16, core=core), observations(16).unsqueeze(0)
    noise = torch.rand(1, 16, 2, device=DEVICE)
    before, reset = policy.initial_state(16, DEVICE), torch.zeros(1, 16, dtype=torch.bool, device=DEVICE)
    results = []
    for step in (FusedAct(policy, DTYPES[0]), ActInto(policy)):
        state = before.clone()
        action = torch.zeros(1, 16, 2, dtype=torch.int32, device=DEVICE)
        logprob, value = torch.zeros(1, 16, device=DEVICE), torch.zeros(1, 16, device=DEVICE)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=ON_GPU):
            step(ActRow({"obs": obs}, state, reset, noise, action, logprob, value))
        results.append((logprob.exp(), value, state, action.float()))
    for found, want in list(zip(*results))[: 3 if ON_GPU else 4]:
        torch.testing.assert_close(found, want, rtol=2e-2, atol=2e-2)
