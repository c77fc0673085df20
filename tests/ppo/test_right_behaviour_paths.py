"""Tests right behaviour once more on every way to bring an environment: ids, images, masks, mixed actions, C.

Each way is the same line: the observation is the step's number, a step rewards 1, an episode ends after LENGTH steps.
The numbers are those of the list of right behaviour, as in test_right_behaviour.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from metta_fast import folder_factory
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env import EnvFactory
from metta_fast.envs import make_factory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from metta_fast.rollout.finite_checks import NonFiniteError
from metta_fast.scaffold.new_env import new_env
from tests.c_compiler import CC
from tests.ppo.envs import Line
from tests.ppo.stand_in import make_config, make_ppo

GAMMA, LAMBDA, LENGTH, ENVS = 0.9, 0.8, 4, 3
SIDE = 24
"""The smallest picture that is read as an image."""
Flags = dict[str, bool]


class Pictures(gymnasium.Wrapper):
    """The number beside a picture of that brightness; the order of keys changes with every step (16)."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        picture = Box(0, 255, (SIDE, SIDE, 1), np.uint8)
        self.observation_space = Dict({"at": env.observation_space, "picture": picture})

    def shown(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        parts = {"at": obs, "picture": np.full((SIDE, SIDE, 1), int(np.nan_to_num(obs[0])), np.uint8)}
        return dict(reversed(parts.items())) if int(np.nan_to_num(obs[0])) % 2 else parts

    def reset(self, **keys: Any) -> tuple[Any, dict]:
        obs, info = self.env.reset(**keys)
        return self.shown(obs), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        obs, *rest = self.env.step(action)
        return self.shown(obs), *rest


class Symbols(Pictures):
    """A picture of 7×7×3 is no image and not divided by 255 (17)."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.observation_space["picture"] = Box(0, 255, (7, 7, 3), np.uint8)

    def shown(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        return super().shown(obs) | {"picture": np.full((7, 7, 3), int(np.nan_to_num(obs[0])), np.uint8)}


class Masked(gymnasium.Wrapper):
    """Odd steps allow the first action, even ones the second; after the last step none is legal (10)."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert int(action) == self.allowed(), "an illegal action was sent"
        return self.env.step(action)

    def allowed(self) -> int:
        return (self.unwrapped.step_of + 1) % 2

    def action_masks(self) -> np.ndarray:
        if self.unwrapped.step_of == LENGTH:
            return np.zeros(2, bool)
        return np.arange(2) == self.allowed()


class Mixed(gymnasium.Wrapper):
    """Takes {"kind": 5 or 6, "how": (a number, one of three)} (9, 11)."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        how = Tuple((Box(-1, 1, (2,), np.float32), Discrete(3)))
        self.action_space = Dict({"kind": Discrete(2, start=5), "how": how})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        return self.env.step(int(action["kind"]) - 5)


class Told(Line):
    """Line for the registry: nothing but plain arguments."""

    def __init__(self, terminated: bool, truncated: bool, length: int) -> None:
        super().__init__(length, terminated=terminated, truncated=truncated)


def in_python(wrap: Callable[[Any], Any]) -> Callable[..., EnvFactory]:
    def make(flags: Flags, tmp_path: Any, inner: Any = Line) -> EnvFactory:
        return PythonEnvFactory(lambda i: wrap(inner(LENGTH, **flags)))

    return make


def by_id(flags: Flags, tmp_path: Any) -> EnvFactory:
    gymnasium.registry.pop("Told-v0", None)
    gymnasium.register("Told-v0", entry_point=Told)
    return make_factory(
        EnvConfig(factory="gymnasium", id="Told-v0", name="told", kwargs={**flags, "length": LENGTH})
    )


def in_c(flags: Flags, tmp_path: Any) -> EnvFactory:
    """The folder that new-env writes, changed to the line."""
    header = new_env("line", tmp_path)[0].parent / "line.h"
    text = header.read_text()
    for before, after in (
        ("numbers[0] = (float)s->place / (float)p->size", "numbers[0] = (float)s->step"),
        ("s->reward += 1.0f;", ""),
        ("s->reward = p->step_reward;", "s->reward = 1.0f;"),
        (
            "truncation[0] = (uint8_t)(late && !p->limit_is_terminal)",
            f"truncation[0] = (uint8_t)(late && {int(flags['truncated'])})",
        ),
    ):
        assert before in text
        text = text.replace(before, after)
    header.write_text(text)
    return folder_factory(header.parent, max_steps=LENGTH, limit_is_terminal=flags["terminated"])


WAYS = {
    "id": by_id,
    "pictures": in_python(Pictures),
    "symbols": in_python(Symbols),
    "masked": in_python(Masked),
    "mixed": in_python(Mixed),
    "all of them": in_python(lambda env: Pictures(Mixed(env))),
    "C": in_c,
}
no_compiler = pytest.mark.skipif(not CC, reason="no C compiler")
ALL = [pytest.param(way, marks=no_compiler) if way == "C" else way for way in WAYS]
ways = pytest.mark.parametrize("way", ALL)


def made(factory: EnvFactory, *, horizon: int = 8, **keys: Any) -> PPO:
    config = make_config()
    config.policy.hidden_size = 8
    torch.manual_seed(0)
    policy = make_policy(config.policy, factory.spec)
    keys = {"minibatches": 1, "gamma": GAMMA, "gae_lambda": LAMBDA, "bptt": horizon, **keys}
    return make_ppo(factory, ENVS, horizon=horizon, policy=policy, **keys)


def collected(factory: EnvFactory, **keys: Any) -> Any:
    """The buffers of one rollout with its advantages; the value of a row is made to be 10 + 3 · the step's number."""
    ppo = made(factory, **keys)
    ppo.collect()
    ppo.rollout.vec.close()
    b = ppo.buffers
    b.value.copy_(10 + 3 * numbers(b))
    compute_advantage(b, ppo.config.trainer, ppo.spec.has_final_obs)
    return b


def numbers(b: Any) -> torch.Tensor:
    """[T+1, N] the step's number in each observation."""
    return b.obs["at" if "at" in b.obs else "obs"][..., 0].float()


def flags(terminated: bool, truncated: bool) -> Flags:
    return {"terminated": terminated, "truncated": truncated}


@ways
def test_1_3_4_a_time_limit_bootstraps_and_a_reset_is_no_step(way: str, tmp_path: Any) -> None:
    check_time_limit(collected(WAYS[way](flags(False, True), tmp_path)))


@pytest.mark.parametrize("way", ["all of them", pytest.param("C", marks=no_compiler)])
def test_18_workers_need_not_divide_the_environments(way: str, tmp_path: Any) -> None:
    check_time_limit(collected(WAYS[way](flags(False, True), tmp_path), backend="workers", workers=2))


def check_time_limit(b: Any) -> None:
    assert numbers(b)[:, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    assert b.mask[:, 0].tolist() == [True] * 4 + [False] + [True] * 4
    assert b.reset[:, 0].tolist() == [True, False, False, False, False, True, False, False, False]
    assert b.reward[:, 0].tolist() == [1, 1, 1, 1, 0, 1, 1, 1]
    assert b.truncation[:, 0].tolist() == [False] * 3 + [True] + [False] * 4
    assert b.advantage[3, 0] == pytest.approx(1 + GAMMA * 22 - 19), "V of the true last observation"
    assert b.advantage[4, 0] == 0
    assert b.advantage[7, 0] == pytest.approx(1 + GAMMA * 19 - 16), (
        "20: a segment's last step has an advantage"
    )
    if "picture" in b.obs:
        assert torch.equal(b.obs["picture"].flatten(2).float().mean(-1), numbers(b)), "matched by key"


@ways
@pytest.mark.parametrize("truncated", [False, True])
def test_2_terminated_means_no_bootstrap(way: str, truncated: bool, tmp_path: Any) -> None:
    b = collected(WAYS[way](flags(True, truncated), tmp_path))
    assert b.terminal[3, 0]
    assert b.advantage[3, 0] == pytest.approx(1 - 19)


@ways
@pytest.mark.parametrize("ends", [(True, False), (False, True), (True, True)])
def test_5_return_and_length_restart_on_either_flag(way: str, ends: tuple, tmp_path: Any) -> None:
    ppo = made(WAYS[way](flags(*ends), tmp_path), horizon=10)
    for _ in range(2):
        ppo.collect()
        ppo.update()
        assert (ppo.metrics()["env/return"], ppo.metrics()["env/length"]) == (LENGTH, LENGTH)
    ppo.rollout.vec.close()
    assert ppo.steps == 2 * ENVS * 8, "3: steps are counted without resets"
    assert all(math.isfinite(ppo.metrics()[f"loss/{name}"]) for name in ("policy", "value", "entropy"))


class Spoiled(Line):
    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, *rest = super().step(action)
        return (np.full(1, math.nan, np.float32) if self.step_of == 3 else obs), *rest


@pytest.mark.parametrize("way", ["pictures", "masked", "mixed", "all of them"])
def test_12_nan_stops_with_environment_and_field(way: str, tmp_path: Any) -> None:
    ppo = made(WAYS[way](flags(False, True), tmp_path, inner=Spoiled))
    before = [p.detach().clone() for p in ppo.policy.parameters()]
    with pytest.raises(NonFiniteError, match=r"observation.*environment 0"):
        ppo.collect()
    ppo.rollout.vec.close()
    assert all(torch.equal(old, new) for old, new in zip(before, ppo.policy.parameters()))
