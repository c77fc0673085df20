"""The grid's update in C is torch's, up to rounding: weights, moments, statistics."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.c import grid_update
from metta_fast.algorithms.ppo.c.c_update import native_update
from metta_fast.algorithms.ppo.c.grid_update import GridUpdate, supports
from metta_fast.algorithms.ppo.gradients import Gradients
from metta_fast.algorithms.ppo.step import SUMS, Step
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import Leaf
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.envs.grid.env import GridFactory
from metta_fast.policy import make_policy
from metta_fast.runtime.adam import Adam
from tests.policy.specs import flat_spec, random_obs
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_config, make_ppo

CPU = torch.device("cpu")
NEAR = 3e-5
"""Between weights after one epoch, which moves them by some hundredths. (Later a unit so near to 0 that rounding turns
it off makes more of a difference.)"""


def grids(kind: str) -> GridFactory:
    """Episodes of 8 steps: many masked rows."""
    return GridFactory(3, observation=kind, num_agents=4, room_size=[10, 10], max_steps=8)


def trained(
    epochs: int = 3,
    *,
    native: bool,
    kind: str = "compact",
    policy: dict[str, Any] | None = None,
    **trainer: Any,
) -> tuple[PPO, list[list[float]]]:
    """A PPO after so many epochs, and each epoch's sums."""
    factory = grids(kind)
    torch.manual_seed(0)
    config = PolicyConfig(
        name="tokens" if kind == "tokens" else "mlp", **{"hidden_size": 40} | (policy or {})
    )
    made = make_policy(config, factory.spec)
    keys = {
        "learning_rate": 3e-3,
        "update_epochs": 3,
        "entropy_coef": 0.01,
        "normalize_reward": True,
    } | trainer
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made, **keys)
    assert isinstance(ppo.learner._cpu_update, GridUpdate)
    if not native:
        ppo.learner._cpu_update = None
    sums = []
    for _ in range(epochs):
        ppo.collect()
        assert not ppo.buffers.mask[:24].all()
        ppo.update()
        sums.append(ppo.learner.sums.tolist())
    ppo.rollout.vec.close()
    return ppo, sums


@pytest.fixture
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for small minibatches; the folder's fixture sets one again."""
    monkeypatch.setattr(grid_update, "LEAST_ROWS", 1)
    torch.set_num_threads(3)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("compact", {}),
        ("dense", {"vf_clip_coef": 0.02, "max_grad_norm": 0.05, "policy": {"hidden_size": 128}}),
        ("tokens", {"normalize_advantage": False, "policy": {"hidden_size": 8}}),
        ("compact", {"recompute": "pass", "max_grad_norm": 0.0, "schedule": "adaptive", "clip_coef": 0.02}),
    ],
)
def test_it_is_torchs_update(kind: str, keys: dict[str, Any], three_threads: None) -> None:
    (ours, our_sums), (theirs, their_sums) = (
        trained(1, native=native, kind=kind, **keys) for native in (True, False)
    )
    assert ours.learner._cpu_update._slots == 3
    for (name, one), (_, other) in zip(ours.policy.named_parameters(), theirs.policy.named_parameters()):
        torch.testing.assert_close(
            one, other, rtol=1e-3, atol=NEAR, msg=lambda text, name=name: f"{name}: {text}"
        )
    torch.testing.assert_close(torch.tensor(our_sums), torch.tensor(their_sums), rtol=1e-3, atol=1e-4)
    assert our_sums[-1][SUMS.index("optimizer_steps")] == 9
    one, other = (ppo.learner.step.optimizer.state_dict()["state"] for ppo in (ours, theirs))
    for number, state in other.items():
        for key, value in state.items():
            torch.testing.assert_close(one[number][key], value, rtol=1e-3, atol=1e-6)


def filled(nvec: tuple[int, ...], segments: int, seed: int, share: float) -> tuple[Any, Buffers]:
    """A policy's spec, and buffers of random rows, of which about `share` are masked."""
    spec = flat_spec(nvec, compact=Leaf((387,), "uint8"))
    b = Buffers.allocate(spec, horizon=3 * segments, bptt_horizon=3, state_shape=(0, 0), device=CPU)
    b.obs["compact"].copy_(random_obs(spec, 3 * segments + 1, spec.num_agents, seed=seed)["compact"])
    g = torch.Generator().manual_seed(seed)
    b.mask.copy_(torch.rand(b.mask.shape, generator=g) >= share)
    for head, choices in enumerate(nvec):
        b.action[..., head].copy_(torch.randint(0, choices, b.action.shape[:2], generator=g))
    for array in (b.logprob, b.value, b.advantage, b.returns):
        array.normal_(generator=g)
    b.logprob.sub_(sum(torch.tensor(float(n)).log() for n in nvec))
    return spec, b


@settings(max_examples=25, deadline=None)
@given(
    nvec=st.lists(st.integers(1, 11), min_size=1, max_size=4).map(tuple),
    hidden=st.integers(1, 20).map(lambda n: 8 * n),
    segments=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.4, 1.0]),
    slots=st.integers(1, 3),
)
def test_a_step_of_any_size_is_torchs(
    nvec: tuple[int, ...], hidden: int, segments: int, seed: int, share: float, slots: int
) -> None:
    """One minibatch of all rows: statistics, the gradients' norm, and Adam's first moments, which are the gradients."""
    spec, b = filled(nvec, segments, seed, share)
    config = make_config(minibatch_size=3 * segments * spec.num_agents, learning_rate=1e-3).trainer
    moments, sums = [], []
    for native in (True, False):
        torch.manual_seed(seed)
        policy = make_policy(PolicyConfig(hidden_size=hidden), spec)
        with torch.no_grad():
            policy.heads.weight.mul_(100)  # type: ignore[union-attr, operator]
            policy.heads.bias.normal_()  # type: ignore[union-attr, operator]
        step = Step(list(policy.parameters()), config, CPU, print)
        order = torch.arange(b.num_segments)
        if native:
            update = GridUpdate(policy, b, config, step.optimizer, torch.tensor(0.2), slots=slots)
            assert update.run(order, b.value, step.sums)
        else:
            gradients = Gradients(
                policy, b, config, device=CPU, hooks=Hooks(), scaler=step.scaler, autocast=nullcontext,
                compile_mode=None, graphs=False,
            )  # fmt: skip
            step(gradients(order, None), due=True)
        moments.append([step.optimizer.state[p]["exp_avg"] for p in policy.parameters()])
        sums.append(step.sums)
    torch.testing.assert_close(sums[0], sums[1], rtol=1e-3, atol=1e-4)
    for one, other in zip(*moments):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5)


def test_the_same_again_and_on_every_number_of_threads_nearly(three_threads: None) -> None:
    (one, _), (same, _) = (trained(1, native=True) for _ in range(2))
    torch.set_num_threads(1)
    alone, _ = trained(1, native=True)
    for a, b, c in zip(one.policy.parameters(), same.policy.parameters(), alone.policy.parameters()):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c, rtol=1e-3, atol=NEAR)


def test_target_kl_stops_before_the_step(three_threads: None) -> None:
    (ours, sums), (theirs, their_sums) = (
        trained(1, native=native, target_kl=1e-4, learning_rate=0.02) for native in (True, False)
    )
    for one, other in zip(sums, their_sums):
        assert one[-2:] == other[-2:]
        assert 0 < one[-1] < one[-2] < 9
    for a, b in zip(ours.policy.parameters(), theirs.policy.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=NEAR)


def test_bad_numbers_are_named_as_ever() -> None:
    ppo, _ = trained(1, native=True)
    ppo.buffers.returns[3, 2] = float("inf")
    ppo.buffers.mask[3, 2] = True
    ppo.learner._advantage = lambda: None  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError, match="loss not finite"):
        ppo.update()
    ppo, _ = trained(1, native=True)
    with torch.no_grad():
        ppo.policy.heads.bias[3] = float("nan")
    with pytest.raises(NonFiniteError, match="loss not finite"):
        ppo.update()


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        ({"core": "mingru"}, {}),
        ({"shared": False}, {}),
        ({"activation": "tanh"}, {}),
        ({"hidden_size": 20}, {}),
        ({}, {"advantage": "vtrace"}),
        ({}, {"recompute": "minibatch"}),
        ({}, {"gradient_accumulation": 3}),
        ({}, {"precision": "bf16"}),
        ({}, {"hooks": Hooks(extra_loss=[lambda batch, output: output.value.mean()])}),
    ],
)
def test_what_it_cannot_do_is_torchs(policy: dict[str, Any], trainer: dict[str, Any]) -> None:
    factory = grids("compact")
    made = make_policy(PolicyConfig(**{"hidden_size": 16} | policy), factory.spec)
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made, **trainer)
    assert ppo.learner._cpu_update is None
    ppo.collect()
    ppo.update()
    ppo.rollout.vec.close()


def test_other_observations_and_hooks_on_the_policy_are_torchs() -> None:
    factory, config = tickers(6), make_config().trainer
    policy = make_policy(PolicyConfig(hidden_size=16), factory.spec)
    b = Buffers.allocate(factory.spec, horizon=8, bptt_horizon=4, state_shape=(0, 0), device=CPU)
    assert supports(policy, b, config) == "an observation beside the grid's, or without one"
    spec, b = filled((3, 2), 2, 0, 0.0)
    policy = make_policy(PolicyConfig(hidden_size=16), spec)
    assert supports(policy, b, config) is None
    adam = Adam(policy.parameters())
    arguments = (policy, b, config, CPU, Hooks(), adam, torch.tensor(0.2))
    assert native_update(*arguments) is not None
    policy.register_forward_hook(lambda *_: None)
    assert native_update(*arguments) is None
