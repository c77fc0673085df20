"""Makes an `EnvFactory` from any Python environment: Gymnasium's API for one agent; for several PettingZoo's, or the
protocol below.

    factory = PythonEnvFactory(lambda index: gymnasium.make("CartPole-v1"), name="cartpole")

`make_env(index)` gets the environment's global index. cloudpickle pickles it.

Several agents: an environment with the attribute `num_agents` (n), `observation_space` and `action_space` of
one agent, and

    reset(seed=None)  -> obs, info                              obs [n, …] or a dict of such arrays
    step(actions)     -> obs, reward [n], terminal [n], truncation [n], info
                                                                actions [n, width], `start` added;
                                                                a dict or tuple of arrays [n, …] for such a space

The episode is over when every agent has ended. An agent that ended earlier has masked rows until the reset; its
reward and flags in these rows are dropped. Where agents come and go, the attribute `live_agents`, [n] bool, says after
each reset and step who acts next (agents/lives.py): one that is back begins a new episode. With
`metadata["autoreset_mode"]` same-step, and has_final_obs=False, an agent with a flag begins its next episode in this
step.

PettingZoo's environments of several agents, parallel ones and those whose agents take turns, are taken as they are
(agents/parallel.py).

Episode ends are next-step (metta_fast.contracts.env): the row after the last action carries the true last observation,
masked; the next call ignores the action and gives the new episode's first row. `metadata["autoreset_mode"]`
says whether an environment resets itself: disabled (default: we call `reset`), next-step (we step it), or
same-step (we keep the reset's observation for the next row, and read the last one from `info["final_obs"]`).

`metadata["privileged"]` lists the leaves of a Dict observation that only the critic reads
(metta_fast/config/policy_inputs.py). `metadata["kinds"]` may set a leaf's kind, {"camera": "image"}; by default it
depends on shape and dtype (observed/leaf_kinds.py).

The time limit of an episode is `spec.max_episode_steps`, a TimeLimit's, or the attribute `max_steps`
(metta_fast/envs/episode_length.py).

An environment with methods `state_dict()` and `load_state_dict(state)` for its whole state (arrays and plain values)
can be checkpointed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metta_fast.config.action_mask_keys import NAME
from metta_fast.contracts.env import EnvError, EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions import action_spec
from metta_fast.envs.actions.mask_values import MaskReader
from metta_fast.envs.actions.masks import MaskSource, find_source, is_mask
from metta_fast.envs.agents.kinds import kind_of
from metta_fast.envs.agents.zoo import is_savable
from metta_fast.envs.episode_length import episode_length, reward_threshold
from metta_fast.envs.observed.dropped_leaves import without_leaves
from metta_fast.envs.observed.leaf_kinds import with_kinds
from metta_fast.envs.python_batch import PythonBatch, env_seed
from metta_fast.envs.python_checks import close_env
from metta_fast.envs.python_checks import make_env as made
from metta_fast.envs.python_slot import DISABLED, NEXT_STEP, SAME_STEP
from metta_fast.envs.spaces import Part, observation_parts

if TYPE_CHECKING:
    from metta_fast.contracts.recording import Recorder

__all__ = ["PythonEnvFactory", "env_seed"]

LOG = logging.getLogger("metta_fast.envs.python_env")


class PythonEnvFactory:
    """Makes batches of Python environments (see the module's docstring).

    Args:
        make_env: global index → environment.
        num_envs: has no effect; accepted for old code. Use `make_vector`'s argument or env.num_envs instead.
        stats: names in the `info` of an episode's last step that become statistics (`env/<name>`): numbers,
            or for several agents numbers or arrays [n]. "a/b" is info["a"]["b"]. Other numbers in this `info` become
            statistics too, at most 64 (info_stats.py); what is listed must be there in every episode.
        has_final_obs: False for a same-step environment without `info["final_obs"]`: episodes then have no masked
            row, and a time limit cannot bootstrap.
        action_mask: where the mask of legal actions is (env.action_mask; actions/masks.py).
        drop: leaves of a Dict observation that are left out (env.drop): the policy does not see them. "a/b" is a leaf
            within a leaf.
        drop_if_there: others that are left out if the environment has them.
        leaf_kinds: kinds of leaves by name, image, symbols or flat (env.leaf_kinds); they override
            `metadata["kinds"]`.
        pad: agents of different spaces are padded (env.pad; agents/joint_space.py); False: they are refused.
    """

    def __init__(
        self,
        make_env: Callable[[int], Any],
        num_envs: int | None = None,
        *,
        name: str = "python",
        stats: Sequence[str] = (),
        has_final_obs: bool = True,
        action_mask: str = "auto",
        drop: Sequence[str] = (),
        drop_if_there: Sequence[str] = (),
        leaf_kinds: Mapping[str, str] | None = None,
        pad: bool = False,
    ) -> None:
        self.make_env = make_env
        self._settings: dict[str, Any] = {
            "name": name,
            "stats": tuple(stats),
            "has_final_obs": has_final_obs,
            "drop": tuple(drop),
            "drop_if_there": tuple(drop_if_there),
            "leaf_kinds": dict(leaf_kinds or {}),
            "pad": pad,
        }
        if num_envs is not None:
            LOG.info(
                "note: PythonEnvFactory(make_env, num_envs=%s): num_envs no longer has an effect and can be left out; "
                "env.num_envs, or make_vector(factory, num_envs), sets the number of environments",
                num_envs,
            )
        env = made(make_env, 0)
        try:
            self.autoreset = _autoreset_mode(env)
            kind = kind_of(env, pad=pad)
            self.observation_space = without_leaves(kind.observation_space, drop, drop_if_there)
            self.parts = with_kinds(
                observation_parts(self.observation_space), _metadata(env).get("kinds", {}), leaf_kinds
            )
            self.action_space = kind.action_space
            action = action_spec(self.action_space)
            privileged = _privileged(env, self.parts)
            limit = episode_length(env)
            threshold = reward_threshold(env)
            cheap = is_savable(env)
            self.kind = kind = kind.counted(env, self.parts)
            self._reader = MaskReader(action.nvec, self.action_space)
            self.mask = mask = find_source(
                action_mask, env, self._reader, self.parts, drop, checked=kind.fits is None
            )
        finally:
            _close(env)
        if action_mask == "auto" and NAME in drop:
            action_mask = "none"
        self._settings["action_mask"] = action_mask if mask is None else mask.describe()
        self.info_may_have_mask = mask is None and action_mask != "none" and action.kind != "box"
        """True: a mask in info is not used and not ignored, so it is an error."""
        self.parts = tuple(part for part in self.parts if not is_mask(part, mask))
        self.kind_reasons = {part.name: part.reason for part in self.parts}
        """Why each leaf has its kind, for --explain."""
        self.several = kind.slot is not None
        if self.autoreset != SAME_STEP and not has_final_obs:
            raise UserError(f"has_final_obs=False is for same-step environments; {name} is {self.autoreset}")
        self.same_step = self.autoreset == SAME_STEP
        if self.several and self.autoreset != DISABLED and (not self.same_step or has_final_obs):
            raise UserError(
                f"{name}: an environment of several agents that resets itself ({self.autoreset}) must do so in the "
                "same step and cannot give final observations: make the factory with has_final_obs=False, or let it "
                "not reset itself"
            )
        self.spec = EnvSpec(
            name=name,
            agents_per_env=kind.agents,
            obs={part.name: part.leaf for part in self.parts},
            action=action,
            privileged=privileged,
            stats=tuple(stats),
            max_steps=limit,
            has_final_obs=has_final_obs,
            notes=self.several,
            cheap_state=cheap,
            reward_threshold=threshold,
            info_stats=True,
            action_mask=mask is not None or kind.masked,
        )

    def around(self, make_env: Callable[[int], Any]) -> PythonEnvFactory:
        """Returns a factory of another maker's environments, with this one's name and settings."""
        return PythonEnvFactory(make_env, **self._settings)

    @property
    def mask_unknown(self) -> bool:
        """Whether only a reset can tell if there is an action mask: it may be in info."""
        return self.info_may_have_mask and self._settings["action_mask"] == "auto"

    def with_mask(self, given: str) -> PythonEnvFactory:
        """Returns this factory where it is now known whether info has masks. given: info, none or absent."""
        factory = copy(self)
        factory._settings = self._settings | {"action_mask": given}
        factory.info_may_have_mask = given == "absent"
        factory.mask = MaskSource("info", self._reader) if given == "info" else None
        factory.spec = replace(self.spec, action_mask=given == "info" or self.kind.masked)
        return factory

    @property
    def pads_choices(self) -> bool:
        """Whether agents lack choices that others have (env.pad), so that rows have an action mask in any case."""
        return self.kind.masked

    def has_state(self) -> bool:
        """Returns whether the environment can be saved (state_dict, load_state_dict)."""
        return self.spec.cheap_state

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> PythonBatch:
        """`total_envs` has no effect: these environments are not staggered."""
        return PythonBatch(self, first_env, num_envs)

    def make_recorder(self, batch: PythonBatch) -> Recorder | None:
        """Returns a recorder of the environment's rendered images; None unless its render_mode is "rgb_array"."""
        from metta_fast.envs.frame_recorder import FrameRecorder

        env = batch.envs[0].env
        return FrameRecorder(env.render) if getattr(env, "render_mode", None) == "rgb_array" else None


def _close(env: Any) -> None:
    """Closes the environment whose spaces were read. One that cannot be closed is only reported: it can be trained."""
    try:
        close_env(env, 0)
    except EnvError as error:
        LOG.warning("warning: %s", error)


def _metadata(env: Any) -> Mapping[str, Any]:
    """Returns the environment's metadata, {} if it has none."""
    return getattr(env, "metadata", None) or {}


def _privileged(env: Any, parts: Sequence[Part]) -> tuple[str, ...]:
    """Returns the leaves that the environment lists as only for the critic."""
    given = _metadata(env).get("privileged", ())
    names = [part.name for part in parts]
    if not isinstance(given, (list, tuple)) or not all(name in names for name in given):
        raise UserError(
            f"metadata['privileged'] is {given!r}: expected a list of leaves among {', '.join(names)}"
        )
    return tuple(name for name in names if name in given)


def _autoreset_mode(env: Any) -> str:
    mode = _metadata(env).get("autoreset_mode", DISABLED)
    value = str(getattr(mode, "value", mode))
    if value not in (DISABLED, NEXT_STEP, SAME_STEP):
        raise UserError(f"metadata['autoreset_mode'] is {mode!r}: expected Gymnasium's AutoresetMode")
    return value
