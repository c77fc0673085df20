"""Steps a vector environment of Gymnasium in numpy, EnvPool included, and writes the rows of all its environments.

    autoreset_mode   rows
    NextStep         next-step: the environment's own reset step is the masked row (metta_fast.contracts.env)
    SameStep         same-step; info["final_obs"] goes to `final`
    Disabled         same-step: we reset what has ended at once, by reset(options={"reset_mask": …})

Place in the flow: factory.py makes one; host_vector.py copies its rows to the learner's device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from metta_fast.contracts.env import Array, Rows
from metta_fast.envs.actions import ActionDecoder, action_spec
from metta_fast.envs.actions.masks import MaskSource, refuse, unexpected
from metta_fast.envs.batched.described import FINAL, Described, privileged
from metta_fast.envs.batched.interface import autoreset_mode, count, metadata, seek, unwrapped
from metta_fast.envs.batched.sums import Sums, add_arrays
from metta_fast.envs.episode_length import episode_length, reward_threshold
from metta_fast.envs.observed.dropped_leaves import without_leaves
from metta_fast.envs.python_batch import env_seed
from metta_fast.envs.python_checks import reset_result, step_result
from metta_fast.envs.python_slot import DISABLED, NEXT_STEP
from metta_fast.envs.spaces import FieldError, Part, observation_parts

FIXED_SEED = (
    "EnvPool's seed is fixed when it is made: the run's seed has no effect on it, pass seed=… to envpool.make"
)


def described(env: Any, drop: Any = ()) -> Described:
    """Describes a vector environment of Gymnasium's interface, in numpy or in tensors.

    Args:
        drop: leaves of a Dict observation that are left out.

    Raises:
        UserError: spaces that are not supported, or an unknown autoreset_mode.
    """
    space = seek(env, "single_action_space")
    parts = observation_parts(without_leaves(seek(env, "single_observation_space"), drop))
    given = metadata(env)
    return Described(
        parts,
        action_spec(space),
        space,
        count(env),
        autoreset_mode(env, NEXT_STEP),
        bool(given.get("has_final_obs", True)),
        _limit(env),
        reward_threshold(env),
        declared_kinds=given.get("kinds", {}),
        privileged=privileged(parts, given.get("privileged")),
    )


def _limit(env: Any) -> int:
    """Returns the time limit of an episode; 0: none is stated."""
    inside = getattr(env, "envs", None)  # SyncVectorEnv's
    if isinstance(inside, list) and inside and (found := episode_length(inside[0])):
        return found
    config = getattr(env, "config", None)  # EnvPool's
    stated = config.get("max_episode_steps") if isinstance(config, dict) else None
    return int(stated) if isinstance(stated, int) and stated > 0 else episode_length(env)


class GymBatch:
    """Steps `env`, N environments of one agent each.

    Attributes:
        final: {leaf: [N, *shape]} last observations of the environments that ended in the last step; same-step alone.
        sums: statistics of episodes.
    """

    rows: Rows

    def __init__(
        self,
        env: Any,
        about: Described,
        parts: tuple[Part, ...],
        mask: MaskSource | None,
        *,
        final: bool,
        refuses: bool,
        first_env: int = 0,
    ) -> None:
        """parts: the leaves. mask: where the action mask is. final: read last observations. refuses: a mask in info is
        an error."""
        self.env, self.about, self.parts, self.mask = env, about, parts, mask
        self.size, self.first_env = about.num_envs, first_env
        self.sums = Sums()
        self._notes: dict[str, str] = {}
        self._last: dict[int, dict[str, Array]] = {}
        self.ended = np.zeros(self.size, np.bool_)
        self.final: dict[str, Array] | None = None
        self._refuses, self._reads_final = refuses, final
        self._decoder = ActionDecoder(about.action_space)
        self._agents = (self.size,)
        self._next_step = about.autoreset == NEXT_STEP
        self._disabled = about.autoreset == DISABLED
        self._seeds = isinstance(unwrapped(env), (SyncVectorEnv, AsyncVectorEnv))
        self._fixed = any(kind.__module__.partition(".")[0] == "envpool" for kind in type(env).__mro__)

    def bind(self, rows: Rows) -> None:
        """Takes the rows to write to, and makes `final` where it is needed."""
        self.rows = rows
        self._views = [part.view(rows.obs[part.name], self._agents) for part in self.parts]
        if not self._next_step and self._reads_final:
            self.final = {part.name: np.zeros_like(rows.obs[part.name]) for part in self.parts}
            self._finals = [part.view(self.final[part.name], self._agents) for part in self.parts]

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Restarts all environments. Environment i gets the seed of (seed, first_env + i) where the vector environment
        takes one for each, as Gymnasium's own do; else it is seeded as a whole."""
        if self._fixed:
            self._notes["seed"] = FIXED_SEED
            result = self.env.reset()
        elif self._seeds:
            result = self.env.reset(seed=[env_seed(seed, self.first_env + i) for i in range(self.size)])
        else:
            result = self.env.reset(seed=env_seed(seed, self.first_env))
        obs, rows = reset_result(result), self.rows
        self._write(obs, self._views)
        self._write_mask(obs, result[1])
        rows.reward[:] = 0.0
        rows.terminal[:] = rows.truncation[:] = self.ended[:] = False
        rows.mask[:] = rows.reset[:] = True

    def step(self) -> None:
        """Steps all environments by rows.action and writes their rows."""
        rows = self.rows
        obs, reward, terminal, truncation, info = step_result(
            self.env.step(self._decoder.decode(rows.action))
        )
        reward = self._array("rewards", reward, "biuf")
        terminal, truncation = (
            self._array("terminations", terminal, "b"),
            self._array("truncations", truncation, "b"),
        )
        if self._next_step:
            live = ~self.ended
            rows.reset[:] = self.ended
            rows.reward[:] = np.where(live, reward, 0.0)
            rows.terminal[:], rows.truncation[:] = terminal & live, truncation & live
            np.logical_or(rows.terminal, rows.truncation, out=self.ended)
            np.logical_not(self.ended, out=rows.mask)
            done = self.ended
        else:
            rows.reward[:], rows.terminal[:], rows.truncation[:] = reward, terminal, truncation
            done = np.logical_or(terminal, truncation, out=rows.reset)
        self._write(obs, self._views)
        if done.any():
            obs, info = self._end(obs, info, done)
        self._write_mask(obs, info)

    def _end(self, obs: Any, info: Any, done: Array) -> tuple[Any, Any]:
        """Takes the statistics and last observations of environments that ended. Returns obs and info of the rows."""
        last = info.get("final_info", info) if isinstance(info, dict) else {}
        for env, name, value in add_arrays(self.sums, last, done):
            self._last.setdefault(env, {})[name] = np.array([value])
        if self._next_step:
            return obs, info
        if not self._disabled:
            if self.final is not None:
                self._write_final(info, done)
            return obs, info
        if self.final is not None:
            for to, view in zip(self._finals, self._views):
                to[done] = view[done]
        kept = [view[~done] for view in self._views]
        result = self.env.reset(options={"reset_mask": done.copy()})
        obs = reset_result(result)
        self._write(obs, self._views)
        for view, rest in zip(self._views, kept):
            view[~done] = rest
        return obs, {}

    def _write(self, obs: Any, views: list[Array]) -> None:
        for part, view in zip(self.parts, views):
            part.write(obs, view, self._agents)

    def _write_final(self, info: Any, done: Array) -> None:
        """Writes last observations: an array of one observation for each environment that ended, as Gymnasium gives
        them, or a whole batch of them."""
        found = next((info[name] for name in FINAL if name in info), None)
        if found is None:
            raise FieldError(
                "an episode ended and info has no 'final_obs', although autoreset_mode is same-step; give it, or "
                "say metadata['has_final_obs'] = False"
            )
        if not (isinstance(found, np.ndarray) and found.dtype == object):
            self._write(found, self._finals)
            return
        for i in np.flatnonzero(done).tolist():
            for part, view in zip(self.parts, self._finals):
                part.write(found[i], view[i, ...], ())

    def _write_mask(self, obs: Any, info: Any) -> None:
        """Writes the action mask; masked rows, whose mask is not read, may have none."""
        if self.mask is None:
            if self._refuses and unexpected(info):
                refuse()
            return
        to = self.rows.action_mask
        self.mask.write(self.mask.find(obs, info, None), to, self._agents)
        to[self.ended] = True

    def _array(self, name: str, value: Any, kinds: str) -> Array:
        value = np.asarray(value)
        if value.shape != self._agents or value.dtype.kind not in kinds:
            raise FieldError(
                f"{name} are {value.dtype} {list(value.shape)}, expected {'bool' if kinds == 'b' else 'a number'} "
                f"for each of {self.size} environments"
            )
        return value

    def native_job(self) -> None:
        return None

    def notes(self) -> dict[str, str]:
        """Returns messages for the user, by their kind."""
        return self._notes

    def info_sums(self) -> dict[str, tuple[float, int]]:
        """Returns the means since the last call, each as one value."""
        return {name: (mean, 1) for name, mean in self.sums.means().items()}

    def last_info(self) -> dict[int, dict[str, Array]]:
        """Returns the numbers of each environment's last episode since the last call."""
        found, self._last = self._last, {}
        return found

    def state_dict(self) -> dict[str, Any]:
        raise ValueError("vector environments cannot be saved")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise ValueError("vector environments cannot be loaded")

    def close(self) -> None:
        self.env.close()
