"""Tests continuous actions: distributions, bounds, and that PPO learns with them."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.player import uniform
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.inference.players import PolicyPlayer, play
from metta_fast.policy import BoxHead, make_policy
from tests.ppo.envs import counted
from tests.ppo.stand_in import make_ppo, run

INF = math.inf


def head(low: tuple[float, ...], high: tuple[float, ...], *, squash: bool = False) -> BoxHead:
    return BoxHead(ActionSpec("box", low=low, high=high), squash=squash)


def spec(low: float = -1.0, high: float = 1.0) -> EnvSpec:
    return EnvSpec(
        "own", 1, {"obs": Leaf((5,), "float32")}, ActionSpec("box", low=(low,) * 2, high=(high,) * 2)
    )


class Reach(gymnasium.Env):
    """One step: observation is a target in −1 … 1, the action's place is 10 + 2·target; reward −distance²."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Box(8, 12, (1,), np.float32)
        self.steps = 0

    def _obs(self) -> np.ndarray:
        self.target = self.np_random.uniform(-0.9, 0.9, 1).astype(np.float32)
        return self.target

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        reward = -float(((action - 10) / 2 - self.target)[0] ** 2)
        self.steps += 1
        return self._obs(), reward, False, self.steps == 8, {}


def reach() -> PythonEnvFactory:
    return counted(PythonEnvFactory(lambda index: Reach(), name="reach"), 16)


def normals(params: Tensor, squash: bool) -> Any:
    mean, log_std = params.chunk(2, -1)
    normal = Independent(Normal(mean, log_std.exp()), 1)
    return TransformedDistribution(normal, TanhTransform()) if squash else normal


@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 5))
def test_logprob_is_that_of_torch_distributions(seed: int, squash: bool, width: int) -> None:
    g = torch.Generator().manual_seed(seed)
    params = torch.randn(3, 4, 2 * width, generator=g).clamp(-2, 2) * 0.7
    one = head((-1.0,) * width, (1.0,) * width, squash=squash)
    action, logprob = one.sample(params, torch.randn(3, 4, width, generator=g))
    expected = normals(params.double(), squash)
    shown = action.double().tanh() if squash else action.double()
    near = (action.abs() < 4).all(-1)  # torch's own inverse of tanh is not good further out
    torch.testing.assert_close(logprob[near], expected.log_prob(shown)[near].float(), atol=2e-4, rtol=1e-4)
    again, entropy = one.logprob_entropy(params, action)
    assert torch.equal(again, logprob)  # to the bit: the first ratio is 1
    if not squash:
        torch.testing.assert_close(entropy, expected.entropy().float())


def test_the_squashed_entropy_is_that_of_many_samples() -> None:
    one = head((-1.0,), (1.0,), squash=True)
    params = torch.tensor([0.4, -0.3]).expand(200_000, 2)
    _, logprob = one.sample(params, torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0)))
    _, entropy = one.logprob_entropy(params[:1], torch.zeros(1, 1))
    assert entropy.item() == pytest.approx(-logprob.mean().item(), abs=0.01)


def test_the_squashed_entropy_is_that_of_an_integral_at_any_spread() -> None:
    """−∫ p log p of tanh x, by 40,001 points, for log_std −10 … 2 and means up to 6: within 1e-2 everywhere."""
    one = head((-1.0,), (1.0,), squash=True)
    log_std = torch.linspace(-10, 2, 25, dtype=torch.float64)
    for mean in (0.0, 0.3, -1.5, 6.0):
        z = torch.linspace(-10, 10, 40_001, dtype=torch.float64)
        x = mean + log_std.exp()[:, None] * z
        log_slope = 2 * (math.log(2) - x - torch.nn.functional.softplus(-2 * x))
        density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
        right = log_std + 0.5 * math.log(2 * math.pi * math.e) + torch.trapezoid(density * log_slope, z)
        params = torch.stack([torch.full_like(log_std, mean), log_std], -1).float()
        _, entropy = one.logprob_entropy(params, torch.zeros(len(params), 1))
        torch.testing.assert_close(entropy.double(), right, atol=1e-3, rtol=0)


@pytest.mark.parametrize("state_std", [False, True])
@pytest.mark.parametrize("begin", [5.0, -14.0])
def test_a_deviation_beyond_its_bounds_comes_back_and_one_that_would_leave_them_stays(
    begin: float, state_std: bool
) -> None:
    """In the policy and, for a user's network, in the head. A gradient that leads further out has no effect."""
    policy = make_policy(PolicyConfig(hidden_size=8, state_std=state_std), spec())
    leaf = policy.heads.bias if state_std else policy.log_std
    with torch.no_grad():
        (leaf[2:4] if state_std else leaf).fill_(begin)
    obs, state = {"obs": torch.zeros(3, 1, 5)}, policy.initial_state(1)

    def slope(sign: float) -> float:
        policy.zero_grad()
        params = policy(obs, state, torch.zeros(3, 1, dtype=torch.bool)).params
        entropy = policy.head.logprob_entropy(params, torch.zeros(3, 1, 2))[1]
        (sign * entropy.sum()).backward()
        assert leaf.grad is not None
        return float((leaf.grad[2:4] if state_std else leaf.grad).sum())

    back = 1.0 if begin > 0 else -1.0  # descending the entropy leads back from above
    assert slope(back) == back * 6
    assert slope(-back) == 0


@pytest.mark.parametrize("bound", [1e7, float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)])
def test_bounds_that_say_any_number_are_no_scale(bound: float) -> None:
    one = head((-bound, -1e6, 0.0), (bound, 1e6, bound))
    places = one.to_env(torch.tensor([0.5, 0.5, 0.5]))
    assert places.tolist() == [0.5, 0.5e6, 0.5]
    assert one.to_env(torch.tensor([-3.0, -3.0, -3.0])).tolist() == [-3.0, -1e6, 0.0]
    with pytest.raises(UserError, match=r"policy\.squash=true needs finite bounds"):
        head((-bound,), (bound,), squash=True)
    drawn = uniform(ActionSpec("box", low=(-bound,), high=(bound,)), 100, np.random.default_rng(0))
    assert np.abs(drawn).max() <= 1


@pytest.mark.parametrize("squash", [False, True])
def test_bounds_are_kept_and_reached(squash: bool) -> None:
    one = head((8.0, -0.4), (12.0, 0.4), squash=squash)
    places = one.to_env(torch.tensor([[-50.0, 50.0], [0.0, 0.0], [0.5, -0.5]]))
    torch.testing.assert_close(places[:2], torch.tensor([[8.0, 0.4], [10.0, 0.0]]))
    bent = math.tanh(0.5) if squash else 0.5
    torch.testing.assert_close(places[2], torch.tensor([10 + 2 * bent, -0.4 * bent]))


def test_unbounded_entries_stay_in_the_environments_units() -> None:
    one = head((-INF, 0.0), (INF, INF))
    torch.testing.assert_close(one.to_env(torch.tensor([300.0, -7.0])), torch.tensor([300.0, 0.0]))
    with pytest.raises(UserError, match=r"policy\.squash=true needs finite bounds"):
        head((-INF,), (INF,), squash=True)
    with pytest.raises(UserError, match="expected low < high"):
        head((1.0,), (1.0,))


def test_far_from_the_bounds_everything_is_finite() -> None:
    one = head((-1.0,), (1.0,), squash=True)
    params = torch.tensor([[60.0, 9.0], [-60.0, -90.0]], requires_grad=True)
    action, _ = one.sample(params.detach(), torch.tensor([[4.0], [-4.0]]))
    logprob, entropy = one.logprob_entropy(params, action)
    (logprob + entropy).sum().backward()
    assert logprob.isfinite().all()
    assert entropy.isfinite().all()
    assert params.grad is not None
    assert params.grad.isfinite().all()


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("state_std", [False, True])
def test_shapes_and_whose_gradients_are_whose(core: str, shared: bool, state_std: bool) -> None:
    config = PolicyConfig(hidden_size=8, core=core, shared=shared, state_std=state_std, activation="tanh")
    policy = make_policy(config, spec())
    state, reset = policy.initial_state(3), torch.zeros(4, 3, dtype=torch.bool)
    out = policy({"obs": torch.randn(4, 3, 5)}, state, reset)
    assert out.params.shape == (4, 3, 4)
    assert out.value.shape == (4, 3)
    assert out.state.shape == state.shape
    assert torch.equal(out.params[..., 2:], torch.zeros(4, 3, 2)) is not state_std
    out.value.sum().backward()
    assert all((p.grad is None) is not shared for p in policy.encoder.parameters())


@pytest.mark.parametrize("core", ["lstm", "mingru"])
def test_a_separate_critics_memory_goes_on_from_row_to_row(core: str) -> None:
    policy = make_policy(PolicyConfig(hidden_size=8, core=core, shared=False), spec())
    obs, reset = torch.randn(6, 3, 5), torch.zeros(6, 3, dtype=torch.bool)
    reset[2, 1] = True
    whole = policy({"obs": obs}, policy.initial_state(3), reset)
    state, values = policy.initial_state(3), []
    for t in range(6):
        out = policy({"obs": obs[t : t + 1]}, state, reset[t : t + 1])
        state = out.state
        values.append(out.value)
    torch.testing.assert_close(torch.cat(values), whole.value)
    torch.testing.assert_close(state, whole.state)


def test_the_learner_finds_the_rollouts_logprob() -> None:
    policy = make_policy(
        PolicyConfig(hidden_size=16, squash=True, state_std=True, shared=False), reach().spec
    )
    ppo = run(make_ppo(reach(), policy=policy, learning_rate=0.0), 1)
    assert ppo.metrics()["loss/kl"] == pytest.approx(0, abs=1e-6)
    assert ppo.metrics()["loss/clip_fraction"] == 0
    assert ppo.buffers.action.abs().max() > 1  # before tanh


@pytest.mark.parametrize(
    "keys",
    [{}, {"squash": True}, {"state_std": True, "shared": False, "activation": "tanh"}],
    ids=["clipped", "squashed", "separate"],
)
def test_ppo_learns_to_reach(keys: dict[str, Any]) -> None:
    """A random agent has about −8 · 0.6 an episode, standing in the middle −8 · 0.27."""
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=32, **keys), reach().spec)
    ppo = make_ppo(
        reach(), horizon=32, bptt=1, minibatches=2, policy=policy, gamma=0.0, learning_rate=4e-3,
        update_epochs=6, entropy_coef=0.0, total_timesteps=20_480,
    )  # fmt: skip
    run(ppo, 40)
    assert ppo.metrics()["env/return"] > -1.0
    player = PolicyPlayer(policy, reach().spec, torch.device("cpu"), deterministic=True)
    assert play(reach(), player, 16, seed=1).means()["return"] > -0.4


@pytest.mark.parametrize("state_std", [False, True])
def test_the_first_spread(state_std: bool) -> None:
    torch.manual_seed(0)
    config = PolicyConfig(hidden_size=8, state_std=state_std, initial_log_std=-1.5)
    policy = make_policy(config, reach().spec)
    obs = {name: torch.zeros(1, 3, *leaf.shape) for name, leaf in reach().spec.obs.items()}
    params = policy(obs, policy.initial_state(3), torch.zeros(1, 3, dtype=torch.bool)).params
    spread = params[..., policy.head.width :]
    torch.testing.assert_close(spread, torch.full_like(spread, -1.5))
