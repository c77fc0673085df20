"""Reads batched environments whose observations, rewards and flags are torch tensors.

    VectorTensors   Gymnasium's vector interface in tensors: Isaac Lab, ManiSkill
    RslRl           RSL-RL's VecEnv: get_observations(), step(actions) → (obs, rewards, dones, extras), no reset

Place in the flow: factory.py makes one; tensor_vector.py writes rows from what it gives.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError
from metta_fast.envs.batched import gym_batch
from metta_fast.envs.batched.described import FINAL, Described, privileged
from metta_fast.envs.batched.interface import autoreset_mode, count, metadata, seek
from metta_fast.envs.batched.sums import Sums, numbers
from metta_fast.envs.nested import is_nested
from metta_fast.envs.python_batch import env_seed
from metta_fast.envs.python_checks import reset_result, step_result
from metta_fast.envs.python_slot import DISABLED, NEXT_STEP, SAME_STEP
from metta_fast.envs.spaces import FieldError, Part, observation_parts

NO_RESET = "the environment has no reset (RSL-RL's interface): the run's seed has no effect on it"


class Step(NamedTuple):
    """What one step of N environments gave."""

    obs: Any
    """Tensors [N, …], in dicts like the spaces' where there are several."""
    reward: Tensor
    """[N]."""
    terminal: Tensor
    """[N] bool."""
    truncation: Tensor
    """[N] bool."""
    final: Any = None
    """Last observations, as `obs`: rows of environments that ended. None: none ended, or they are not given."""
    begins: Tensor | None = None
    """[N] bool: rows that are an episode's first. None: those of environments that ended."""
    waiting: Tensor | None = None
    """[N] bool: rows to mask, of environments whose next episode is not ready. None: there are none."""


class Means(Protocol):
    """Gives statistics of episodes that ended."""

    def means(self) -> dict[str, float]:
        """Returns the means since the last call."""
        ...


class Source(Protocol):
    """Steps N environments on the learner's device."""

    @property
    def sums(self) -> Means: ...

    notes: dict[str, str]

    def reset(self, seed: int, *, stagger: bool) -> Any:
        """Restarts all environments; returns their observations."""

    def step(self, actions: Tensor) -> Step:
        """Steps all environments. actions: [N, W] int32, or float32 within the bounds."""
        ...

    def close(self) -> None: ...


def describe_vector(env: Any, drop: Any = ()) -> Described:
    """Describes tensors with Gymnasium's vector interface. Raises UserError as gym_batch.described."""
    space = seek(env, "single_action_space")
    if is_nested(space):
        raise UserError(
            f"action space {space}: tensors need Discrete, MultiDiscrete or Box (wrap the environment)"
        )
    about = gym_batch.described(env, drop)
    mode = autoreset_mode(env, SAME_STEP)
    gives = metadata(env).get("has_final_obs", seek(env, "auto_reset") is not None or mode != SAME_STEP)
    return Described(
        about.parts,
        about.action,
        space,
        about.num_envs,
        mode,
        bool(gives),
        about.max_steps or limit(env),
        about.threshold,
        torch.device(seek(env, "device")).type,
        declared_kinds=about.declared_kinds,
        privileged=about.privileged,
    )


def describe_rsl_rl(env: Any, drop: Any = ()) -> Described:
    """Describes an environment of RSL-RL's interface by its present observations.

    Raises:
        UserError: observations that are no tensors, or leaves to drop that are not there.
    """
    import gymnasium

    seen, size = env.get_observations(), count(env)
    space = gymnasium.spaces.Dict({str(name): _space(seen[name], str(name), size) for name in _keys(seen)})
    parts = observation_parts(gym_batch.without_leaves(space, drop))
    width, given = int(seek(env, "num_actions")), metadata(env)
    infinite = (float("inf"),) * width
    buffer = seek(env, "episode_length_buf")
    return Described(
        parts,
        ActionSpec("box", low=tuple(-x for x in infinite), high=infinite),
        None,
        size,
        SAME_STEP,
        bool(given.get("has_final_obs", False)),
        limit(env),
        device=torch.device(seek(env, "device") or "cpu").type,
        stagger=isinstance(buffer, Tensor) and limit(env) > 0,
        declared_kinds=given.get("kinds", {}),
        privileged=privileged(parts, given.get("privileged")),
    )


def _keys(found: Any) -> list[Any]:
    if isinstance(found, Tensor) or not hasattr(found, "keys"):
        raise UserError(
            f"get_observations() gave {type(found).__name__}: expected a TensorDict or dict of tensors by group, "
            "as RSL-RL 4 and later have it"
        )
    return list(found.keys())


def _space(value: Any, name: str, size: int) -> Any:
    """Returns the space of a tensor [N, …], or of a group of them."""
    import gymnasium
    import numpy as np

    if not isinstance(value, Tensor):
        inside = {str(key): _space(value[key], f"{name}/{key}", size) for key in _keys(value)}
        return gymnasium.spaces.Dict(inside)
    if value.shape[:1] != (size,):
        raise UserError(f"observation {name!r} has shape {list(value.shape)}, expected [{size}, …]")
    kind = np.dtype(str(value.dtype).removeprefix("torch."))
    if kind.kind == "f":
        return gymnasium.spaces.Box(-np.inf, np.inf, tuple(value.shape[1:]), kind.type)
    low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    return gymnasium.spaces.Box(low, high, tuple(value.shape[1:]), kind.type)


def limit(env: Any) -> int:
    """Returns max_episode_length, the longest one's if there are several; 0: none is stated."""
    found = seek(env, "max_episode_length")
    if isinstance(found, Tensor):
        return int(found.max())
    return int(found) if isinstance(found, (int, float)) and 0 < found < 2**31 else 0


class VectorTensors:
    """Steps tensors with Gymnasium's vector interface."""

    def __init__(self, env: Any, about: Described, first_env: int) -> None:
        self.env, self.about, self.first_env = env, about, first_env
        self.sums = Sums()
        self.notes: dict[str, str] = {}
        self._start = torch.tensor(about.action.start or [0], device=seek(env, "device"))
        self._keeps = about.autoreset == NEXT_STEP

    def reset(self, seed: int, *, stagger: bool) -> Any:
        return reset_result(self.env.reset(seed=env_seed(seed, self.first_env)))

    def step(self, actions: Tensor) -> Step:
        obs, reward, terminal, truncation, info = step_result(self.env.step(self._given(actions)))
        if self.about.autoreset == DISABLED:
            return self._restarted(obs, reward, terminal, truncation, info)
        add_tensors(self.sums, info.get("final_info", info), terminal, truncation)
        final = next((info[name] for name in FINAL if name in info), None)
        return Step(obs, reward, terminal, truncation, None if self._keeps else final)

    def _given(self, actions: Tensor) -> Any:
        """Returns the actions as the environment takes them, in memory of their own."""
        space = self.about.action_space
        if self.about.action.kind == "discrete":
            return (actions.long() + self._start).view(-1, *space.shape)
        return actions.clone().view(-1, *space.shape)

    def _restarted(self, obs: Any, reward: Tensor, terminal: Tensor, truncation: Tensor, info: Any) -> Step:
        """Resets the environments that ended, where they do not do it themselves."""
        done = terminal | truncation
        add_tensors(self.sums, info, terminal, truncation)
        if not bool(done.any()):
            return Step(obs, reward, terminal, truncation)
        final = copied(obs)
        which = done.nonzero().flatten()
        asked = (
            {"env_idx": which}
            if seek(self.env, "auto_reset") is not None
            else {"reset_mask": done.cpu().numpy()}
        )
        again = reset_result(self.env.reset(options=asked))
        return Step(merged(again, final, done), reward, terminal, truncation, final)

    def close(self) -> None:
        self.env.close()


class RslRl:
    """Steps an environment of RSL-RL's interface, which resets itself in the same step."""

    def __init__(self, env: Any, about: Described, first_env: int, total_envs: int) -> None:
        self.env, self.about = env, about
        self.first_env, self.total_envs = first_env, total_envs
        self.sums = Sums()
        self.notes = {"seed": NO_RESET}
        self._never = torch.zeros(about.num_envs, dtype=torch.bool, device=seek(env, "device") or "cpu")

    def reset(self, seed: int, *, stagger: bool) -> Any:
        """Returns the present observations: there is no reset. stagger: environment i goes on as if it had made
        i / total_envs of its longest episode."""
        if stagger:
            buffer = self.env.episode_length_buf
            ids = torch.arange(self.first_env, self.first_env + self.about.num_envs, device=buffer.device)
            self.env.episode_length_buf = (ids * self.about.max_steps // self.total_envs).to(buffer.dtype)
        return self.env.get_observations()

    def step(self, actions: Tensor) -> Step:
        result = self.env.step(actions.clone())
        if not isinstance(result, tuple) or len(result) != 4:
            raise FieldError(
                f"step() gave {type(result).__name__} of {len(result) if isinstance(result, tuple) else 1}, expected "
                "(observations, rewards, dones, extras)"
            )
        obs, reward, done, extras = result
        late = extras.get("time_outs", self._never)
        for name, value in numbers(extras.get("log", extras.get("episode"))):
            if isinstance(value, (int, float, Tensor)):
                self.sums.add(name, torch.as_tensor(value).float().mean(), 1)
        done, late = done.bool(), late.bool()
        final = next((extras[name] for name in FINAL if name in extras), None)
        return Step(obs, reward, done & ~late, done & late, final)

    def close(self) -> None:
        if callable(close := getattr(self.env, "close", None)):
            close()


def add_tensors(sums: Sums, info: Any, terminal: Tensor, truncation: Tensor) -> None:
    """Adds numbers [N] of the environments whose episode ended, and Isaac Lab's log; on the device."""
    done = terminal | truncation
    for name, value in numbers(info):
        if isinstance(value, Tensor) and value.shape == done.shape:
            sums.add(name, torch.where(done, value.float(), 0.0).sum(), done.sum())
        elif name in ("log", "episode"):
            for inner, number in numbers(value):
                if isinstance(number, Tensor) and number.shape == done.shape:
                    sums.add(inner, torch.where(done, number.float(), 0.0).sum(), done.sum())
                elif isinstance(number, (int, float)) or (isinstance(number, Tensor) and number.numel() == 1):
                    sums.add(inner, torch.as_tensor(number).float().sum(), 1)


def copied(obs: Any) -> Any:
    """Returns a copy of tensors in nested dicts."""
    return obs.clone() if isinstance(obs, Tensor) else {key: copied(obs[key]) for key in obs.keys()}  # noqa: SIM118


def merged(new: Any, old: Any, which: Tensor) -> Any:
    """Returns `new` in the rows `which` [N] bool, `old` in the others."""
    if isinstance(old, Tensor):
        return torch.where(which.view(-1, *[1] * (old.dim() - 1)), new, old)
    return {key: merged(new[key], old[key], which) for key in old}


def leaf_of(part: Part, obs: Any, size: int, device: torch.device) -> Tensor:
    """Returns the leaf's values [N, *leaf.shape] in an observation. Raises FieldError."""
    value = part.find(obs)
    if not isinstance(value, Tensor):
        raise FieldError(f"observation {part.name!r} is {type(value).__name__}, expected a tensor")
    if value.shape != (size, *part.shape):
        raise FieldError(
            f"observation {part.name!r} has shape {list(value.shape)}, expected {[size, *part.shape]}"
        )
    if value.device.type != device.type:
        raise FieldError(f"observation {part.name!r} is on {value.device}, the learner is on {device}")
    if value.dtype.is_floating_point and part.dtype.kind != "f":
        raise FieldError(f"observation {part.name!r} is {value.dtype}, its space says {part.dtype}")
    if not part.nvec:
        return value.view(size, *(part.shape or (1,)))
    start = torch.tensor(part.start, device=value.device)
    first = torch.tensor([sum(part.nvec[:i]) for i in range(len(part.nvec))], device=value.device)
    places = value.view(size, -1).long() - start + first
    return torch.zeros(size, sum(part.nvec), dtype=torch.uint8, device=value.device).scatter_(1, places, 1)


__all__ = ["RslRl", "Source", "Step", "VectorTensors", "describe_rsl_rl", "describe_vector", "leaf_of"]
