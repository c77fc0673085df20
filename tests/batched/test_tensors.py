"""Batched environments in tensors as rows: stand-ins of RSL-RL, Isaac Lab and ManiSkill against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor

from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.envs.batched.factory import BatchedEnvFactory
from metta_fast.envs.python_batch import env_seed
from metta_fast.runtime.keyed_random import env_seed as epoch_seed
from tests.batched.envs import IsaacLabStandIn, ManiSkillStandIn, Numbers, RslRlStandIn, by_size, vector_of
from tests.rollout.test_device_envs import made
from tests.vector.device_suite import HORIZON, Rows, attached, check_attach, check_ends, play

ENVS = 6
KINDS: dict[str, Callable[[], Any]] = {
    "rsl_rl": lambda: RslRlStandIn(ENVS),
    "isaac": lambda: IsaacLabStandIn(ENVS),
    "mani_skill": lambda: ManiSkillStandIn(ENVS),
    "not_reset": lambda: ManiSkillStandIn(ENVS, auto_reset=False),
}
FINAL = ("mani_skill", "not_reset")


def tape_of(kind: str, length: int) -> Tensor:
    """Numbers of four, of which the largest counts; or a choice of four."""
    random = torch.Generator().manual_seed(5)
    if kind in FINAL:
        return torch.randint(4, (length, ENVS, 1), generator=random).int()
    return torch.randn(length, ENVS, 4, generator=random)


def plain_loop(kind: str, tape: Tensor) -> Rows:
    """The game that all stand-ins step, along a tape; row i is what step i gives."""
    game, rows = Numbers(ENVS), []
    if kind != "rsl_rl":  # the others are reset with a seed
        game.random.manual_seed(env_seed(3, 0))
        game.restart(torch.ones(ENVS, dtype=torch.bool))
    for actions in tape:
        guess = actions[:, 0] if kind in FINAL else by_size(actions)
        reward, terminal, late = game.move(guess)
        done, final = terminal | late, game.look()
        if kind not in FINAL or done.any():
            game.restart(done)
        row = {
            "reward": reward,
            "terminal": terminal,
            "truncation": late & ~terminal if kind == "rsl_rl" else late,
        }
        if kind == "rsl_rl":  # its flags are one `done`, and which of them are time-outs
            row["terminal"], row["truncation"] = done & ~late, late
        rows.append({**row, "obs": game.look(), "final": final[done], "reset": done})
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_a_plain_loop(kind: str) -> None:
    vec = vector_of(BatchedEnvFactory(KINDS[kind]()), ENVS)
    b, tape = attached(vec), tape_of(kind, 8 * HORIZON)
    vec.async_reset(3)
    for want, found in zip(plain_loop(kind, tape), play(vec, b, tape)):
        for name in ("reward", "terminal", "truncation", "reset"):
            assert torch.equal(found[name], want[name]), name
        assert found["mask"].all()
        if kind == "rsl_rl":
            assert torch.equal(found["critic"], want["obs"])
            assert torch.equal(found["policy"], want["obs"][:, :4])
        else:
            assert torch.equal(found["policy" if kind == "isaac" else "obs"], want["obs"])
        if kind in FINAL:
            assert torch.equal(found["final obs"], want["final"])
    assert (b.final_obs is not None) == (kind in FINAL) == vec.spec.has_final_obs
    stats = vec.info_stats()
    assert stats == {"rsl_rl": {"Episode/level": 2.0}, "isaac": {"level": 3.0}}.get(kind, stats)
    assert kind not in FINAL or 0 < stats["success"] < 1


def test_what_they_are_made_of() -> None:
    spec = BatchedEnvFactory(RslRlStandIn(ENVS)).spec
    assert {name: leaf.shape for name, leaf in spec.obs.items()} == {"critic": (5,), "policy": (4,)}
    assert spec.privileged == ("critic",)
    assert (spec.action.kind, spec.action.width, spec.max_steps, spec.stagger) == ("box", 4, 8, True)
    assert spec.action.bounded == (False,) * 4
    spec = BatchedEnvFactory(IsaacLabStandIn(ENVS)).spec
    assert (spec.has_final_obs, spec.autoreset, spec.max_steps, spec.privileged) == (
        False,
        "same_step",
        8,
        (),
    )
    wrapped = BatchedEnvFactory(
        gymnasium.wrappers.OrderEnforcing(IsaacLabStandIn(ENVS))
    )  # as gymnasium.make does
    assert (wrapped.interface, wrapped.fixed_num_envs(), wrapped.spec.obs) == ("torch", ENVS, spec.obs)
    vec = vector_of(BatchedEnvFactory(RslRlStandIn(ENVS)), ENVS)
    assert "no reset (RSL-RL's interface)" in vec.notes()[0]
    assert vec.notes() == []


def test_tensor_dicts_of_the_package() -> None:
    tensordict = pytest.importorskip("tensordict")
    factory = BatchedEnvFactory(RslRlStandIn(ENVS, box=tensordict.TensorDict))
    vec = vector_of(factory, ENVS)
    b, tape = attached(vec), tape_of("rsl_rl", 2 * HORIZON)
    vec.async_reset(3)
    for want, found in zip(plain_loop("rsl_rl", tape), play(vec, b, tape)):
        assert torch.equal(found["critic"], want["obs"])


def test_episodes_begin_in_the_middle() -> None:
    """Through episode_length_buf, as RSL-RL does it by chance."""
    env = RslRlStandIn(ENVS)
    vec = vector_of(BatchedEnvFactory(env), ENVS)
    attached(vec)
    vec.async_reset(3, stagger=True)
    assert env.episode_length_buf.tolist() == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize("kind", FINAL)
def test_the_contract(kind: str) -> None:
    def make(num_envs: int, first_env: int, total_envs: int) -> Any:
        factory = BatchedEnvFactory(ManiSkillStandIn(num_envs, auto_reset=kind == "mani_skill"))
        return vector_of(factory, num_envs, first_env, total_envs)

    check_attach(make, 4)
    check_ends(make, 4 * HORIZON, 4)


@pytest.mark.parametrize("kind", [*FINAL, "isaac"])
def test_cut_episodes_bootstrap_where_last_observations_come(kind: str) -> None:
    ppo = made(BatchedEnvFactory(KINDS[kind]()), ENVS, horizon=32, bptt=32)  # type: ignore[arg-type]
    ppo.collect()
    ppo.learner._advantage()
    b = ppo.buffers
    if kind == "isaac":
        assert b.bootstrap is None
        for t, n in b.truncation.nonzero().tolist():
            assert float(b.returns[t, n]) == pytest.approx(float(b.reward[t, n]), abs=1e-5)
        return
    game = Numbers(ENVS)
    game.random.manual_seed(env_seed(epoch_seed(0, 0), 0))
    game.restart(torch.ones(ENVS, dtype=torch.bool))
    cuts = 0
    for t in range(b.horizon):
        _, terminal, late = game.move(b.action[t, :, 0])
        final = game.look()
        with torch.no_grad():
            value = ppo.policy(
                {"obs": final[None]}, ppo.policy.initial_state(ENVS), b.reset[:1] & False
            ).value[0]
        assert b.bootstrap is not None
        want = torch.where(late & ~terminal, value, 0.0)
        torch.testing.assert_close(b.bootstrap[t], want, atol=1e-6, rtol=1e-5)
        cuts += int((want != 0).sum())
        if (terminal | late).any():
            game.restart(terminal | late)
    assert cuts > 2


def test_mistakes_are_named() -> None:
    cuda = BatchedEnvFactory(RslRlStandIn(ENVS))
    object.__setattr__(cuda.about, "device", "cuda")
    with pytest.raises(
        UserError, match=r"gives tensors on cuda, and the learner is on cpu; .*trainer\.device=cuda"
    ):
        vector_of(cuda, ENVS)
    old = RslRlStandIn(ENVS)
    old.get_observations = lambda: torch.zeros(ENVS, 4)  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"get_observations\(\) gave Tensor: expected a TensorDict"):
        BatchedEnvFactory(old)
    env = RslRlStandIn(ENVS)
    vec = vector_of(BatchedEnvFactory(env), ENVS)
    attached(vec)
    vec.async_reset(1)
    env.step = lambda actions: (env.get_observations(), torch.zeros(ENVS), torch.zeros(ENVS))  # type: ignore[method-assign]
    with pytest.raises(
        EnvError, match=r"step\(\) gave tuple of 3, expected \(observations, rewards, dones, extras\)"
    ):
        vec.step_row(0)
    env.step = lambda actions: (env.get_observations(), torch.zeros(2), torch.zeros(ENVS), {})  # type: ignore[method-assign]
    with pytest.raises(EnvError, match=rf"rewards are \[2\], expected a tensor \[{ENVS}\]"):
        vec.step_row(0)
