"""Small batched environments: of Gymnasium's vector interface, and stand-ins of RSL-RL's, Isaac Lab's and ManiSkill's.

    env=tests.batched.envs:sync env.params.mode=SameStep      # Gymnasium's own vector environment
    env=tests.batched.envs:rsl_rl                             # and isaac, mani_skill, numbers

The stand-ins have the methods and attributes that the libraries' documentation describes, and nothing else.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from metta_fast.envs.batched.factory import BatchedEnvFactory
from metta_fast.vector import make_vector

LIMIT = 7
CPU = torch.device("cpu")


def vector_of(env: Any, num_envs: int, first_env: int = 0, total_envs: int = 0) -> Any:
    """Returns the DeviceVector on the CPU of a factory, or of what a factory is made of."""
    factory = env if isinstance(env, BatchedEnvFactory) else BatchedEnvFactory(env)
    return make_vector(factory, num_envs, first_env, total_envs or num_envs, backend="gpu", device=CPU)


class Tally(gymnasium.Env):
    """Counts its actions; one too many ends the episode by the rules, LIMIT steps cut it. Rewards are exact."""

    observation_space = spaces.Dict(
        {
            "seen": spaces.Box(-9, 99, (3,), np.float32),
            "kind": spaces.Discrete(3, start=1),
            "one": spaces.Box(-1, 1, ()),
        }
    )
    action_space = spaces.Discrete(3, start=2)

    def _look(self) -> Any:
        seen = np.array([self.total, self.steps, self.most], np.float32)
        return {"seen": seen, "kind": 1 + self.total % 3, "one": np.float32(self.np_random.random())}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.total = 0, int(self.np_random.integers(3))
        self.most = int(self.np_random.integers(6, 14))
        return self._look(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.steps += 1
        self.total += int(action) - 2
        fell = self.total > self.most
        return self._look(), self.total / 4, fell, self.steps >= LIMIT, {"score": float(self.total)}


class Masked(Tally):
    """Tally whose largest action is legal at even totals alone; its mask is a leaf."""

    observation_space = spaces.Dict(
        {**Tally.observation_space.spaces, "action_mask": spaces.Box(0, 1, (3,), np.int8)}
    )

    def _look(self) -> Any:
        return super()._look() | {"action_mask": np.array([1, 1, self.total % 2 == 0], np.int8)}


class Guess(gymnasium.Env):
    """Shows one of four numbers; naming it pays 1. Episodes of 8 steps: the best return is 8."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def _look(self) -> Any:
        self.number = int(self.np_random.integers(4))
        return np.eye(4, dtype=np.float32)[self.number]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        reward = float(action == self.number)
        self.steps += 1
        return self._look(), reward, False, self.steps == 8, {}


def vector(kind: type, num_envs: int, mode: str = "NextStep", **keys: Any) -> SyncVectorEnv:
    return SyncVectorEnv([kind] * num_envs, autoreset_mode=AutoresetMode(mode), **keys)


def sync(config: Any) -> Any:
    """Gymnasium's vector environment of Guess, in one of the autoreset modes."""
    return vector(
        Guess, config.params.get("num_envs", config.num_envs), config.params.get("mode", "NextStep")
    )


class Numbers:
    """Guess for N environments in tensors: the state that the stand-ins step."""

    def __init__(self, num_envs: int, device: str = "cpu", limit: int = 8) -> None:
        self.num_envs, self.device, self.limit = num_envs, torch.device(device), limit
        self.random = torch.Generator(self.device).manual_seed(0)
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.shown = torch.zeros_like(self.steps)
        self.draw(torch.ones(num_envs, dtype=torch.bool, device=self.device))

    def draw(self, which: Tensor) -> None:
        drawn = torch.randint(4, (self.num_envs,), generator=self.random, device=self.device)
        self.shown = torch.where(which, drawn, self.shown)

    def restart(self, which: Tensor) -> None:
        self.steps = torch.where(which, 0, self.steps)
        self.draw(which)

    def look(self) -> Tensor:
        one_hot = torch.nn.functional.one_hot(self.shown, 4).float()
        return torch.cat([one_hot, self.steps.unsqueeze(1) / 8], 1)

    def move(self, guess: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """guess [N] → reward, terminated (a wrong 3 in an odd step), truncated."""
        reward = (guess == self.shown).float()
        terminated = (guess == 3) & (self.shown != 3) & (self.steps % 2 == 1)
        self.steps = self.steps + 1
        truncated = self.steps >= self.limit
        self.draw(torch.ones_like(terminated))
        return reward, terminated, truncated


def by_size(actions: Tensor) -> Tensor:
    """[N, 4] numbers → the index of the largest."""
    return actions.argmax(1)


class RslRlStandIn:
    """rsl_rl.env.VecEnv of version 5: groups of observations, time_outs, no reset."""

    def __init__(self, num_envs: int, device: str = "cpu", box: Any = dict) -> None:
        self.game = Numbers(num_envs, device)
        self.num_envs, self.num_actions, self.device = num_envs, 4, device
        self.max_episode_length, self.cfg, self.box = self.game.limit, {}, box

    @property
    def episode_length_buf(self) -> Tensor:
        return self.game.steps

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.game.steps = value

    def get_observations(self) -> Any:
        seen = self.game.look()
        groups = {"policy": seen[:, :4], "critic": seen}
        return groups if self.box is dict else self.box(groups, batch_size=[self.num_envs])

    def step(self, actions: Tensor) -> Any:
        reward, terminated, truncated = self.game.move(by_size(actions))
        done = terminated | truncated
        self.game.restart(done)
        extras: dict[str, Any] = {"time_outs": truncated}
        if bool(done.any()):
            extras["log"] = {"Episode/level": torch.tensor(2.0)}
        return self.get_observations(), reward, done.long(), extras


class IsaacLabStandIn(gymnasium.Env):
    """isaaclab.envs.DirectRLEnv: one gymnasium.Env that is a batch, tensors, same-step resets, no last observations."""

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.game, self.num_envs, self.device = Numbers(num_envs, device), num_envs, device
        self.single_observation_space = spaces.Dict({"policy": spaces.Box(-np.inf, np.inf, (5,), np.float32)})
        self.single_action_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.max_episode_length = self.game.limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.game.random.manual_seed(seed)
        self.game.restart(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))
        return {"policy": self.game.look()}, {}

    def step(self, action: Tensor) -> Any:
        reward, terminated, truncated = self.game.move(by_size(action))
        done = terminated | truncated
        self.game.restart(done)
        return {"policy": self.game.look()}, reward, terminated, truncated, {"log": {"level": 3.0}}


class ManiSkillStandIn(gymnasium.vector.VectorEnv):
    """mani_skill.vector.wrappers.gymnasium.ManiSkillVectorEnv: tensors; final_observation, or no resets of its own."""

    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, num_envs: int, device: str = "cpu", auto_reset: bool = True) -> None:
        self.game, self.num_envs, self.device = Numbers(num_envs, device), num_envs, torch.device(device)
        self.auto_reset = auto_reset
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float32)
        self.single_action_space = spaces.Discrete(4)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.game.random.manual_seed(seed)
        which = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        if options and "env_idx" in options:
            which = torch.zeros_like(which)
            which[options["env_idx"]] = True
        self.game.restart(which)
        return self.game.look(), {}

    def step(self, actions: Tensor) -> Any:
        reward, terminated, truncated = self.game.move(actions)
        obs, infos = self.game.look(), {"success": reward > 0}
        done = terminated | truncated
        if self.auto_reset and bool(done.any()):
            final, last = obs.clone(), {name: value.clone() for name, value in infos.items()}
            obs, infos = self.reset(options={"env_idx": done.nonzero().flatten()})
            infos |= {"final_observation": final, "final_info": last, "_final_observation": done}
        return obs, reward, terminated, truncated, infos


def rsl_rl(config: Any) -> Any:
    return RslRlStandIn(config.num_envs, config.params.get("device", "cpu"))


def isaac(config: Any) -> Any:
    return IsaacLabStandIn(config.num_envs, config.params.get("device", "cpu"))


def mani_skill(config: Any) -> Any:
    return ManiSkillStandIn(config.num_envs, config.params.get("device", "cpu"))


def nothing(config: Any) -> Any:
    """An object of no interface."""
    return object()


def without_jax(config: Any) -> Any:
    """Imports what is not installed."""
    raise ModuleNotFoundError("No module named 'jax'", name="jax")


def four(config: Any) -> Any:
    """Four environments, whatever is asked for."""
    return vector(Guess, 4)


def on_cuda(config: Any) -> Any:
    """Says that its tensors are on a GPU."""
    env = IsaacLabStandIn(2)
    env.device = "cuda"
    return env


def maker_of_vectors(config: Any) -> Any:
    """Gives a maker of environment i that makes a batch."""
    return lambda index: vector(Guess, 2)


def function(config: Any) -> Any:
    """Gives a function of the number of environments."""
    return BatchedEnvFactory(
        lambda num_envs: vector(Guess, num_envs, config.params.get("mode", "NextStep")), name=config.name
    )
