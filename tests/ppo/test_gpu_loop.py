"""Compares environments, policy and update on the GPU, with and without CUDA graphs, with the CPU's.

python -m pytest -m gpu tests/ppo/test_gpu_loop.py
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.device_ppo import DevicePPO
from metta_fast.algorithms.ppo.schedule import clip_coef
from metta_fast.config.keys import EnvConfig, PolicyConfig
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.envs import make_factory
from metta_fast.features import gradient_stats, make_features
from metta_fast.policy import make_policy
from metta_fast.vector import make_vector
from tests.ppo.stand_in import make_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
ROLLOUT = ("mask", "reset", "action", "reward", "terminal", "truncation", "logprob", "value")


def gpu_ppo(
    *,
    backend: str = "gpu",
    graphs: bool = True,
    compiled: bool = False,
    core: str = "none",
    features: dict[str, Any] | None = None,
    envs: int = 64,
    horizon: int = 16,
    bptt: int = 8,
    minibatches: int = 2,
    ahead: bool = False,
    blocks: int = 1,
    **keys: Any,
) -> PPO:
    """64 grid worlds of 4 agents that end every 24 steps."""
    factory = make_factory(
        EnvConfig(agents_per_env=4, max_steps=24, params={"map": "arena", "room_size": [8, 8]})
    )
    spec = factory.spec
    batch = envs * spec.agents_per_env * horizon
    settings = {"device": "cuda", "compile": compiled, "cuda_graphs": graphs, "normalize_reward": True} | keys
    config = make_config(batch_size=batch, minibatch_size=batch // minibatches, bptt_horizon=bptt, **settings)
    device = torch.device("cuda")
    vec = make_vector(factory, envs, backend=backend, num_blocks=blocks, device=device)
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(core=core, hidden_size=64), spec).to(device)
    kind = DevicePPO if backend == "gpu" else PPO
    ppo = kind(config, spec, vec, policy, device=device, hooks=make_features(features or {}))
    if isinstance(ppo, DevicePPO):
        ppo._may_go_ahead = ahead  # False: the buffers can be looked at after an update
    return ppo


def epoch(ppo: PPO) -> None:
    ppo.collect()
    ppo.update()


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


def apart(one: PPO, other: PPO) -> float:
    """‖difference‖ / ‖weights‖. (A weight whose gradient is nearly 0 moves by a whole step of Adam or not at all.)"""
    return float((weights(one) - weights(other)).norm() / weights(other).norm())


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_first_rollout_is_that_of_environments_on_the_cpu(core: str) -> None:
    gpu, cpu = gpu_ppo(graphs=False, core=core), gpu_ppo(backend="serial", graphs=False, core=core)
    for ppo in (gpu, cpu):
        ppo.collect()
    torch.cuda.synchronize()
    for name in ROLLOUT:
        torch.testing.assert_close(
            getattr(gpu.buffers, name), getattr(cpu.buffers, name), rtol=1e-5, atol=1e-5, msg=name
        )
    assert torch.equal(gpu.buffers.obs["obs"], cpu.buffers.obs["obs"])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_graphs_change_nothing(core: str, compiled: bool) -> None:
    keys: dict[str, Any] = {"core": core, "compiled": compiled, "update_epochs": 2}
    graphed, plain = gpu_ppo(graphs=True, **keys), gpu_ppo(graphs=False, **keys)
    for _ in range(4):
        epoch(graphed)
        epoch(plain)
        torch.testing.assert_close(
            weights(graphed), weights(plain), rtol=1e-4, atol=1e-2 if compiled else 1e-5
        )
        for name in () if compiled else ROLLOUT:  # compiled: rounding may tip the choice of an action
            torch.testing.assert_close(
                getattr(graphed.buffers, name), getattr(plain.buffers, name), rtol=1e-3, atol=1e-4, msg=name
            )
    assert graphed.notes == []
    assert graphed.rollout._run.captured
    assert graphed.learner._run.captured
    a, b = graphed.metrics(), plain.metrics()
    assert a["train/steps"] == b["train/steps"]
    assert a["env/length"] == pytest.approx(b["env/length"])


@pytest.mark.parametrize("core", ["none", "mingru"])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_environments_on_either_side_learn_the_same_with_graphs(core: str, precision: str) -> None:
    """The rollout's kernel (bf16) and the update's, whoever steps the environments."""
    gpu = gpu_ppo(core=core, precision=precision)
    cpu = gpu_ppo(core=core, precision=precision, backend="threads", blocks=2)
    for number in range(4):
        for ppo in (gpu, cpu):
            ppo.collect()
        torch.cuda.synchronize()
        if not number:
            for name in ROLLOUT:
                torch.testing.assert_close(
                    getattr(gpu.buffers, name), getattr(cpu.buffers, name), rtol=1e-5, atol=1e-5, msg=name
                )
        for ppo in (gpu, cpu):
            ppo.update()
    assert cpu.notes == []
    assert cpu.learner._run.captured
    assert all(step.row.captured and step.last.captured for step in cpu.rollout._steps)
    assert (cpu.rollout._acts.fused is not None) == (precision == "bf16")
    assert apart(gpu, cpu) < (2e-2 if precision == "bf16" else 1e-3)
    cpu.vec.close()


@pytest.mark.parametrize(
    "keys",
    [
        {"advantage": "vtrace"},
        {"recompute": "minibatch"},
        {"gradient_accumulation": 2},
        {"precision": "bf16"},
        {"max_grad_norm": 0.0},
    ],
)
def test_settings_that_graphs_take(keys: dict[str, Any]) -> None:
    graphed, plain = gpu_ppo(**keys), gpu_ppo(graphs=False, **keys)
    for _ in range(4):
        epoch(graphed)
        epoch(plain)
    assert graphed.notes == []
    assert graphed.learner._run.captured
    assert apart(graphed, plain) < (2e-2 if "precision" in keys else 1e-3)


def test_the_schedule_reaches_captured_steps() -> None:
    ppo = gpu_ppo(ahead=True, schedule="linear", total_timesteps=4 * 64 * 4 * 16)
    for _ in range(6):
        before = weights(ppo).clone()
        epoch(ppo)
        after = weights(ppo)
    assert ppo.metrics()["train/learning_rate"] == 0.0
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    "keys", [{"precision": "bf16"}, {"precision": "bf16", "core": "mingru"}, {"compiled": True}]
)
def test_the_clip_schedule_reaches_captured_steps(keys: dict[str, Any]) -> None:
    """A replayed update is that of a learner built with the coefficient of that moment, and of no other."""
    keys |= {"learning_rate": 0.01, "schedule": "constant", "update_epochs": 3, "deterministic": True}
    size = 64 * 4 * 16
    ppo = gpu_ppo(ahead=True, clip_schedule="linear", total_timesteps=4 * size, **keys)
    for _ in range(3):
        epoch(ppo)
    state, env, clip = ppo.state_dict(), ppo.env_state()(), clip_coef(ppo.config.trainer, ppo.steps)
    epoch(ppo)
    assert ppo.learner._run.captured
    assert ppo.metrics()["train/clip_coef"] == clip < 0.1
    built = []
    for other in (clip, 0.2):
        fresh = gpu_ppo(ahead=True, clip_coef=other, total_timesteps=4 * size, **keys)
        fresh.rollout.vec.load_state_dict(env)
        fresh.load_state_dict(state)
        epoch(fresh)
        built.append(fresh)
    assert apart(ppo, built[0]) < 1e-5
    assert apart(ppo, built[1]) > 1e-3


def test_target_kl_stops_captured_steps() -> None:
    keys: dict[str, Any] = {"update_epochs": 6, "learning_rate": 0.05, "target_kl": 1e-3}
    ppo = gpu_ppo(**keys)
    for _ in range(3):
        epoch(ppo)
    steps = int(ppo.learner.sums[-1])
    assert ppo.learner._run.captured
    assert 0 < steps < 12
    taken = float(next(iter(ppo.learner.step.optimizer.state.values()))["step"])
    assert taken < 3 * 12


def test_nothing_is_learnt_from_nan() -> None:
    ppo = gpu_ppo()
    for _ in range(3):
        epoch(ppo)
    good = weights(ppo).clone()
    ppo.collect()
    ppo.buffers.reward[3] = float("nan")
    with pytest.raises(NonFiniteError):
        ppo.update()
    assert torch.equal(weights(ppo), good)


def test_a_state_goes_on_bit_for_bit() -> None:
    keys: dict[str, Any] = {"core": "lstm", "deterministic": True, "ahead": True}
    one, two = gpu_ppo(**keys), gpu_ppo(**keys)
    for _ in range(3):
        epoch(one)
    state, env = one.state_dict(), one.env_state()()
    for _ in range(2):
        epoch(one)
    two.rollout.vec.load_state_dict(env)
    two.load_state_dict(state)
    for _ in range(2):
        epoch(two)
    assert torch.equal(weights(one), weights(two))
    assert one.steps == two.steps


def test_a_gpu_state_goes_on_with_environments_on_the_cpu() -> None:
    gpu, cpu = gpu_ppo(), gpu_ppo(backend="serial", graphs=False)
    for _ in range(3):
        epoch(gpu)
    cpu.rollout.vec.load_state_dict(gpu.env_state()())
    cpu.load_state_dict(gpu.state_dict())
    for ppo in (gpu, cpu):
        ppo.collect()
    torch.cuda.synchronize()
    assert torch.equal(gpu.buffers.obs["obs"], cpu.buffers.obs["obs"])
    assert torch.equal(gpu.buffers.action, cpu.buffers.action)


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_watched_updates_run_beside_the_graph_and_change_nothing(core: str) -> None:
    """Every third update is watched and not replayed; the others replay the graph."""
    bare, watched = gpu_ppo(core=core, ahead=True), gpu_ppo(core=core, ahead=True)
    gradient_stats.add(watched.hooks, interval_epochs=3, min_s=0.0, max_grad_norm=0.5)
    make = make_features({"weight_analysis": {"interval_epochs": 4}, "profiler": {"interval_epochs": 2}})
    watched.hooks.on_collect += make.on_collect
    watched.hooks.on_epoch += make.on_epoch
    for number in range(1, 13):
        for ppo in (bare, watched):
            epoch(ppo)
        row = watched.metrics()
        assert ("gradient/norm" in row) == (number % 3 == 0)
        assert ("weights/heads/effective_rank" in row) == (number % 4 == 0)
        assert ("profile/epoch" in row) == (number % 2 == 0)
    assert watched.learner._run.captured
    assert torch.equal(weights(bare), weights(watched))
    assert watched.notes == []


def test_what_cannot_be_captured_is_said() -> None:
    ppo = gpu_ppo(features={"prioritized_replay": {}})
    for _ in range(3):
        epoch(ppo)
    assert ppo.rollout._run.captured
    assert not ppo.learner._run.captured
    assert len(ppo.notes) == 1
    assert "segments" in ppo.notes[0]


def test_a_policy_that_cannot_be_captured_is_said() -> None:
    ppo = gpu_ppo()
    encoder = ppo.policy.encoder
    forward = encoder.forward
    encoder.forward = lambda obs: forward(obs) * float(forward(obs).isfinite().all().item())
    for _ in range(3):
        epoch(ppo)
    assert [("captured" in note) for note in ppo.notes] == [True, True]
