"""The update in C is torch's, up to rounding: weights, moments, statistics.

Of grids (a sparse first layer, one network, discrete actions, several threads) and of robots (two dense networks,
continuous actions, one core), and of what lies between them.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.c import mlp_update
from metta_fast.algorithms.ppo.c.mlp_update import MLPUpdate, why_not
from metta_fast.algorithms.ppo.fast_paths import situation_of
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import Leaf
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.envs.grid.env import GridFactory
from metta_fast.policy import make_policy
from tests.policy.specs import flat_spec, random_obs
from tests.ppo.envs import counted, seen, tickers
from tests.ppo.one_update import one_update
from tests.ppo.stand_in import make_config, make_ppo

CPU = torch.device("cpu")
NEAR = 3e-5
"""Between weights after one epoch, which moves them by some hundredths. (Later a unit so near to 0 that rounding turns
it off makes more of a difference.)"""
GRIDS, ROBOTS = ("compact", "dense", "tokens"), ("robot", "robot that reads more", "ticker")
POLICIES: dict[str, dict[str, Any]] = {
    "grid": {"hidden_size": 40},
    "robot": {
        "hidden_size": 24,
        "shared": False,
        "activation": "tanh",
        "normalize_obs": True,
        "initial_log_std": -0.5,
    },
}


def grids(kind: str) -> GridFactory:
    """Episodes of 8 steps: many masked rows."""
    return counted(GridFactory(observation=kind, num_agents=4, room_size=[10, 10], max_steps=8), 3)


def world(kind: str, policy: dict[str, Any]) -> tuple[Any, PolicyConfig]:
    """A factory, and the policy of the kind's family with changes. ticker: a robot's network, discrete actions."""
    if kind in GRIDS:
        name = "tokens" if kind == "tokens" else "mlp"
        return grids(kind), PolicyConfig(name=name, **POLICIES["grid"] | policy)
    factory = (seen if kind == "robot that reads more" else tickers)(6, box=kind != "ticker")
    return factory, PolicyConfig(**POLICIES["robot"] | policy)


def trained(
    epochs: int = 3,
    *,
    native: bool,
    kind: str = "compact",
    policy: dict[str, Any] | None = None,
    **trainer: Any,
) -> tuple[PPO, list[list[float]]]:
    """A PPO after so many epochs, and each epoch's sums."""
    factory, config = world(kind, policy or {})
    torch.manual_seed(0)
    made = make_policy(config, factory.spec)
    keys = {"learning_rate": 3e-3, "update_epochs": 3, "entropy_coef": 0.01}
    if kind in GRIDS:
        keys["normalize_reward"] = True
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made, **keys | trainer)
    assert isinstance(ppo.learner._cpu_update, MLPUpdate)
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
    monkeypatch.setattr(mlp_update, "LEAST_ROWS", 1)
    torch.set_num_threads(3)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("compact", {}),
        ("dense", {"vf_clip_coef": 0.02, "max_grad_norm": 0.05, "policy": {"hidden_size": 128}}),
        ("tokens", {"normalize_advantage": False, "policy": {"hidden_size": 8}}),
        ("compact", {"recompute": "pass", "max_grad_norm": 0.0, "schedule": "adaptive", "clip_coef": 0.02}),
        ("compact", {"policy": {"shared": False}}),
        ("dense", {"policy": {"shared": False, "activation": "tanh"}}),
        ("compact", {"policy": {"activation": "elu"}}),
        ("robot", {}),
        (
            "robot",
            {
                "policy": {"activation": "relu", "hidden_size": 8, "normalize_obs": False},
                "normalize_advantage": False,
            },
        ),
        (
            "robot",
            {
                "policy": {"activation": "elu", "hidden_size": 72},
                "vf_clip_coef": 0.02,
                "max_grad_norm": 0.05,
            },
        ),
        ("robot", {"recompute": "pass", "max_grad_norm": 0.0, "schedule": "adaptive", "clip_coef": 0.02}),
        ("robot", {"policy": {"shared": True}}),
        ("robot that reads more", {}),  # the value reads two leaves, the actions one
        (
            "robot that reads more",
            {"policy": {"actor_obs": ["critic", "obs"], "critic_obs": ["obs"], "normalize_obs": False}},
        ),
        ("ticker", {}),
        ("ticker", {"policy": {"shared": True, "activation": "relu"}}),
        ("ticker", {"policy": {"shared": True, "normalize_obs": False}, "vf_clip_coef": 0.02}),
    ],
)
def test_it_is_torchs_update(kind: str, keys: dict[str, Any], three_threads: None) -> None:
    epochs = 1 if kind in GRIDS else 3
    (ours, our_sums), (theirs, their_sums) = (
        trained(epochs, native=native, kind=kind, **keys) for native in (True, False)
    )
    assert ours.learner._cpu_update._slots == (3 if kind in GRIDS else 1)
    for (name, one), (_, other) in zip(ours.policy.named_parameters(), theirs.policy.named_parameters()):
        torch.testing.assert_close(
            one,
            other,
            rtol=1e-3,
            atol=NEAR if kind in GRIDS else 2e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    torch.testing.assert_close(torch.tensor(our_sums), torch.tensor(their_sums), rtol=1e-3, atol=1e-4)
    assert our_sums[-1][SUMS.index("optimizer_steps")] == 9
    one, other = (ppo.learner.step.optimizer.state_dict()["state"] for ppo in (ours, theirs))
    for number, state in other.items():
        for key, value in state.items():
            torch.testing.assert_close(one[number][key], value, rtol=1e-3, atol=1e-6)


def filled(nvec: tuple[int, ...], segments: int, seed: int, share: float, flat: bool) -> tuple[Any, Buffers]:
    """A policy's spec, and buffers of random rows, of which about `share` are masked. flat: floats, not a grid's."""
    leaf = Leaf((5,), "float32") if flat else Leaf((387,), "uint8")
    spec = flat_spec(nvec, **{"obs" if flat else "compact": leaf})
    b = Buffers.allocate(
        spec, num_agents=4, horizon=3 * segments, bptt_horizon=3, state_shape=(0, 0), device=CPU
    )
    g = torch.Generator().manual_seed(seed)
    for name, rows in b.obs.items():
        if flat:
            rows.normal_(generator=g)
        else:
            rows.copy_(random_obs(spec, 3 * segments + 1, b.num_agents, seed=seed)[name])
    b.mask.copy_(torch.rand(b.mask.shape, generator=g) >= share)
    for head, choices in enumerate(nvec):
        b.action[..., head].copy_(torch.randint(0, choices, b.action.shape[:2], generator=g))
    for array in (b.logprob, b.value, b.advantage, b.returns):
        array.normal_(generator=g)
    b.logprob.sub_(sum(torch.tensor(float(n)).log() for n in nvec))
    return spec, b


@settings(max_examples=30, deadline=None)
@given(
    nvec=st.lists(st.integers(1, 11), min_size=1, max_size=4).map(tuple),
    hidden=st.integers(1, 20).map(lambda n: 8 * n),
    segments=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.0, 0.4, 1.0]),
    slots=st.integers(1, 3),
    shared=st.booleans(),
    flat=st.booleans(),
)
def test_a_step_of_any_size_is_torchs(
    nvec: tuple[int, ...],
    hidden: int,
    segments: int,
    seed: int,
    share: float,
    slots: int,
    shared: bool,
    flat: bool,
) -> None:
    """One minibatch of all rows: statistics, the gradients' norm, and Adam's first moments, which are the gradients."""
    spec, b = filled(nvec, segments, seed, share, flat)
    whole = make_config(minibatch_size=3 * segments * b.num_agents, learning_rate=1e-3)
    moments, sums = [], []
    for native in (True, False):
        torch.manual_seed(seed)
        policy: Any = make_policy(PolicyConfig(hidden_size=hidden, shared=shared), spec)
        with torch.no_grad():
            policy.heads.weight.mul_(100)
            policy.heads.bias.normal_()
        stats, gradients = one_update(native, policy, b, whole, spec, slots=slots)
        moments.append(gradients)
        sums.append(stats)
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


@pytest.mark.parametrize("kind", ["compact", "robot"])
def test_target_kl_stops_before_the_step(kind: str, three_threads: None) -> None:
    epochs = 1 if kind in GRIDS else 3
    (ours, sums), (theirs, their_sums) = (
        trained(epochs, native=native, kind=kind, target_kl=1e-4, learning_rate=0.02)
        for native in (True, False)
    )
    for one, other in zip(sums, their_sums):
        assert one[-2:] == other[-2:]
        assert 0 < one[-1] < one[-2] < 9
    if kind in GRIDS:
        for a, b in zip(ours.policy.parameters(), theirs.policy.parameters()):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=NEAR)


@pytest.mark.parametrize("kind", ["compact", "robot"])
def test_a_state_of_either_goes_on_with_the_other(kind: str) -> None:
    ppo, _ = trained(native=True, kind=kind)
    after = []
    for native in (True, False):
        again, _ = trained(1, native=native, kind=kind)
        again.learner.load_state_dict(copy.deepcopy(ppo.learner.state_dict()))
        for name in (
            "obs",
            "action",
            "logprob",
            "value",
            "advantage",
            "returns",
            "mask",
            "reward",
            "terminal",
        ):
            own, other = getattr(again.buffers, name), getattr(ppo.buffers, name)
            for one, two in zip(own.values(), other.values()) if name == "obs" else [(own, other)]:
                one.copy_(two)
        again.learner.update(ppo._context(), 0)
        after.append(again.learner.sums[:5])
        assert float(next(iter(again.learner.step.optimizer.state.values()))["step"]) == 36
    torch.testing.assert_close(after[0], after[1], rtol=1e-3, atol=1e-5)


def test_bad_numbers_are_named_as_ever() -> None:
    for kind in ("compact", "robot"):
        ppo, _ = trained(1, native=True, kind=kind)
        ppo.learner.update(ppo._context(), 0)
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
    ("kind", "policy", "trainer"),
    [
        ("compact", {"core": "mingru"}, {}),
        ("compact", {"hidden_size": 20}, {}),
        ("compact", {}, {"advantage": "vtrace"}),
        ("compact", {}, {"recompute": "minibatch"}),
        ("compact", {}, {"gradient_accumulation": 3}),
        ("compact", {}, {"precision": "bf16"}),
        ("compact", {}, {"hooks": Hooks(extra_loss=[lambda batch, output: output.value.mean()])}),
        ("robot", {"core": "lstm"}, {}),
        ("robot", {"squash": True}, {}),
        ("robot", {"state_std": True}, {}),
        ("robot", {"hidden_size": 20}, {}),
        ("robot", {}, {"advantage": "vtrace"}),
        ("robot", {}, {"recompute": "minibatch"}),
        ("robot", {}, {"gradient_accumulation": 3}),
    ],
)
def test_what_it_cannot_do_is_torchs(kind: str, policy: dict[str, Any], trainer: dict[str, Any]) -> None:
    factory, config = world(kind, policy)
    made = make_policy(config, factory.spec)
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made, **trainer)
    assert ppo.learner._cpu_update is None
    assert why_not(situation_of(made, ppo.config, ppo.spec, ppo.device, ppo.hooks))
    ppo.collect()
    ppo.update()
    ppo.rollout.vec.close()


def test_a_grid_beside_other_leaves_and_layers_with_shared_weights_are_torchs() -> None:
    def why(policy: Any, spec: Any) -> str | None:
        return why_not(situation_of(policy, make_config(), spec, CPU, Hooks()))

    spec = flat_spec((3, 2), compact=Leaf((387,), "uint8"), more=Leaf((3,), "float32"))
    assert why(make_policy(PolicyConfig(hidden_size=16), spec), spec) == "an observation beside the grid's"
    spec = flat_spec((3, 2), compact=Leaf((387,), "uint8"))
    policy: Any = make_policy(PolicyConfig(hidden_size=16, shared=False), spec)
    assert why(policy, spec) is None
    policy.critic["encoder"].second = policy.encoder.second
    assert "layers share" in str(why(policy, spec))


@pytest.mark.parametrize("kind", ["compact", "robot"])
def test_a_hook_on_a_layer_is_called(kind: str) -> None:
    """C in place of the whole network would not call it."""
    (factory, config), calls = world(kind, {}), []
    made: Any = make_policy(config, factory.spec)
    made.heads.register_forward_hook(lambda *_: calls.append(1))
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made)
    assert ppo.learner._cpu_update is None
    ppo.collect()
    before = len(calls)
    ppo.update()
    assert len(calls) == before + 3
    ppo.rollout.vec.close()
