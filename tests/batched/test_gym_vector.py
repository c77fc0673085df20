"""Gymnasium's vector environments as rows: against plain loops over single environments, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.ppo.advantage import Inputs
from metta_fast.algorithms.ppo.advantage.reference import advantage_reference
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorError
from metta_fast.envs.batched.factory import BatchedEnvFactory
from metta_fast.envs.python_batch import env_seed
from metta_fast.runtime.keyed_random import env_seed as epoch_seed
from metta_fast.vector import make_vector
from tests.batched.envs import Guess, Masked, Tally, vector, vector_of
from tests.rollout.test_device_envs import made
from tests.vector.device_suite import (
    HORIZON,
    attached,
    check_attach,
    check_ends,
    check_ids,
    check_seeds,
    play,
    shown,
    tape_for,
)

MODES = ("NextStep", "SameStep", "Disabled")


def leaves(obs: Any) -> dict[str, np.ndarray]:
    """Tally's observation as leaves, by hand."""
    one_hot = np.zeros(3, np.uint8)
    one_hot[obs["kind"] - 1] = 1
    return {"kind": one_hot, "one": np.array([obs["one"]], np.float32), "seen": obs["seen"]}


def plain_loop(kind: Callable[[], Any], seed: int, tape: Tensor, same_step: bool) -> list[dict[str, Any]]:
    """One environment along its actions [length, 1]: row i is what step i gives, by DESIGN.md's table."""
    env, ended, rows = kind(), False, []
    env.reset(seed=seed)
    for action in tape[:, 0].tolist():
        row: dict[str, Any] = {
            "reward": 0.0,
            "terminal": False,
            "truncation": False,
            "mask": True,
            "reset": ended,
        }
        if ended:
            obs, ended = env.reset()[0], False
        else:
            obs, row["reward"], row["terminal"], row["truncation"], _ = env.step(np.int64(action + 2))
            done = row["terminal"] or row["truncation"]
            if done and same_step:
                row["final"], row["reset"] = leaves(obs), True
                obs = env.reset()[0]
            elif done:
                row["mask"], ended = False, True
        rows.append(row | {"obs": leaves(obs)})
    return rows


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copy", [True, False])
def test_rows_are_those_of_a_plain_loop(mode: str, copy: bool) -> None:
    envs, same = 5, mode != "NextStep"
    vec = vector_of(BatchedEnvFactory(vector(Tally, envs, mode, copy=copy)), envs)
    assert vec.spec.autoreset == ("same_step" if same else "next_step")
    b = attached(vec)
    vec.async_reset(11)
    tape = tape_for(vec.spec, envs, 8 * HORIZON)
    rows = play(vec, b, tape)
    ends = 0
    for n in range(envs):
        for want, found in zip(plain_loop(Tally, env_seed(11, n), tape[:, n], same), rows):
            for name, leaf in want["obs"].items():
                assert np.array_equal(found[name][n].numpy(), leaf), name
            for name in ("reward", "terminal", "truncation", "mask", "reset"):
                assert found[name][n].item() == want[name], name
            if "final" in want:
                at = int(found["done"][:n].sum())  # `play` keeps the rows of those that ended
                for name, leaf in want["final"].items():
                    assert np.array_equal(found[f"final {name}"][at].numpy(), leaf), name
            ends += want["terminal"] or want["truncation"]
    assert ends > 15
    assert vec.info_stats().keys() == {"score"}
    vec.close()


@pytest.mark.parametrize("mode", MODES)
def test_the_contract(mode: str) -> None:
    """Of a function that makes any number of environments."""
    factory = BatchedEnvFactory(lambda num_envs: vector(Tally, num_envs, mode))
    make = partial(vector_of, factory)
    check_attach(make, 4)
    check_seeds(make, 4 * HORIZON, 4)
    check_ids(make, 4 * HORIZON, 5)
    check_ends(make, 4 * HORIZON, 4)


def test_blocks_of_environments_give_the_same_rows() -> None:
    """A function of their number makes batches for the CPU as well: for evaluations."""
    factory = BatchedEnvFactory(lambda num_envs: vector(Tally, num_envs))
    vec, blocks = vector_of(factory, 4), make_vector(factory, 4, backend="serial", num_blocks=2)  # type: ignore[arg-type]
    b, tape = attached(vec), tape_for(vec.spec, 4, 20)
    vec.async_reset(3)
    blocks.async_reset(3)
    for actions, row in zip(tape, play(vec, b, tape)):
        for block in blocks.hold_all():
            blocks.send(block, actions[block.start : block.stop].numpy())
        blocks.hold_all()
        for name, leaf in blocks.rows.obs.items():
            assert np.array_equal(row[name].numpy(), leaf)
        for name in ("reward", "terminal", "truncation", "mask", "reset"):
            assert np.array_equal(row[name].numpy(), getattr(blocks.rows, name)), name
    blocks.close()


def seen(b: Any, t: int) -> dict[str, Tensor]:
    return {name: leaf[t] for name, leaf in b.obs.items()}


@pytest.mark.parametrize("mode", MODES)
def test_bootstraps_are_values_of_true_last_observations(mode: str) -> None:
    """And advantages are those of the reference."""
    envs, same = 6, mode != "NextStep"
    ppo = made(BatchedEnvFactory(vector(Tally, envs, mode)), envs, horizon=24, bptt=24)  # type: ignore[arg-type]
    ppo.collect()
    ppo.learner._advantage()
    b, cuts = ppo.buffers, 0
    assert (b.bootstrap is not None) == same
    for n in range(envs):
        seed = env_seed(epoch_seed(0, 0), n)
        for t, want in enumerate(plain_loop(Tally, seed, b.action[:, n], same)):
            assert b.reward[t, n] == want["reward"]
            if not same or not want["truncation"] or want["terminal"]:
                continue
            obs = {name: torch.from_numpy(leaf).view(1, 1, -1) for name, leaf in want["final"].items()}
            with torch.no_grad():
                out = ppo.policy(obs, ppo.policy.initial_state(1), torch.zeros(1, 1, dtype=torch.bool))
            assert b.bootstrap is not None
            assert float(b.bootstrap[t, n]) == pytest.approx(float(out.value), abs=1e-5)
            cuts += 1
    assert cuts > 3 or not same
    reference = Inputs.of(b, ppo.config.trainer).with_arrays(lambda array: array.numpy())
    for found, right in zip((b.advantage, b.returns), advantage_reference(reference)):
        np.testing.assert_allclose(found.numpy(), right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_masks_of_legal_actions(mode: str) -> None:
    """Of a leaf; the network does not see it, and no illegal action is chosen."""
    envs = 8
    factory = BatchedEnvFactory(vector(Masked, envs, mode))
    assert set(factory.spec.obs) == {"kind", "one", "seen"}
    ppo = made(factory, envs, horizon=16, bptt=16)  # type: ignore[arg-type]
    ppo.collect()
    b = ppo.buffers
    assert b.action_mask is not None
    for t in range(b.horizon):
        even = b.obs["seen"][t, :, 0] % 2 == 0
        live = b.mask[t]
        assert torch.equal(b.action_mask[t, live, 2], even[live])
        assert (even | (b.action[t, :, 0] != 2))[live].all()


def test_what_it_is_made_of() -> None:
    made_vec = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    factory = BatchedEnvFactory(made_vec, name="pole")
    assert factory.fixed_num_envs() == 3
    assert factory.spec.max_steps == 500
    assert factory.spec.reward_threshold == 475
    assert factory.spec.obs["obs"].shape == (4,)
    own = BatchedEnvFactory(
        gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    )
    vec = vector_of(own, 3)
    b = attached(vec)
    vec.async_reset(1)
    play(vec, b, tape_for(vec.spec, 3, 20))
    assert shown(b, HORIZON)["obs"].abs().max() > 0
    with pytest.raises(ValueError, match="expected no state"):
        vec.load_state_dict({})
    assert vec.state_dict() == {}


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match=r"batched is int: expected a Gymnasium VectorEnv"):
        BatchedEnvFactory(3)
    with pytest.raises(UserError, match=r"a batch of 2 environments could not be made: ValueError: no luck"):
        BatchedEnvFactory(_raise)
    with pytest.raises(UserError, match=r"has_final_obs=False is for .* is NextStep"):
        BatchedEnvFactory(vector(Guess, 2), has_final_obs=False)
    with pytest.raises(UserError, match=r"env\.num_envs=4, but batched has 2; leave env\.num_envs out"):
        vector_of(BatchedEnvFactory(vector(Guess, 2)), 4)
    with pytest.raises(UserError, match=r"env\.num_envs=4, but the function made 2 environments"):
        vector_of(BatchedEnvFactory(lambda num_envs: vector(Guess, 2)), 4)
    with pytest.raises(UserError, match="autoreset_mode'] is 'sometimes'"):
        BatchedEnvFactory(Stating("sometimes"))


def _raise(num_envs: int) -> Any:
    raise ValueError("no luck")


class Stating(gymnasium.vector.VectorWrapper):
    """States a mode and may lose last observations."""

    def __init__(self, mode: str, breaks: str = "") -> None:
        super().__init__(vector(Guess, 2, "SameStep"))
        self.metadata = {"autoreset_mode": mode}
        self.breaks = breaks

    def step(self, actions: Any) -> Any:
        obs, reward, terminal, truncation, infos = self.env.step(actions)
        infos.pop("final_obs", None)
        if self.breaks == "reward":
            reward = reward[:1]
        if self.breaks == "raise":
            raise RuntimeError("no luck")
        return obs, reward, terminal, truncation, infos


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        ("", "batched gave a wrong value: an episode ended and info has no 'final_obs'"),
        ("reward", r"rewards are float64 \[1\], expected a number for each of 2 environments"),
        ("raise", "batched raised RuntimeError: no luck"),
    ],
)
def test_wrong_values_are_named(breaks: str, message: str) -> None:
    vec = vector_of(BatchedEnvFactory(Stating("SameStep", breaks)), 2)
    b = attached(vec)
    vec.async_reset(1)
    with pytest.raises(EnvError, match=message):
        play(vec, b, tape_for(vec.spec, 2, 10))


def test_one_that_cannot_be_closed_is_named() -> None:
    env = vector(Guess, 2)
    env.close = lambda: 1 / 0  # type: ignore[method-assign]
    vec = vector_of(BatchedEnvFactory(env), 2)
    with pytest.raises(VectorError, match="batched raised ZeroDivisionError"):
        vec.close()
    vec.close()


def test_last_observations_can_be_done_without() -> None:
    vec = vector_of(BatchedEnvFactory(Stating("SameStep"), has_final_obs=False), 2)
    b = attached(vec)
    assert b.final_obs is None
    vec.async_reset(1)
    assert any(row["done"].any() for row in play(vec, b, tape_for(vec.spec, 2, 10)))
