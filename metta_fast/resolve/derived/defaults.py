"""Puts derived values in their place among the sources of an environment that is not ours.

    schema < detected profile (FROM_DETECTED only) < derived values < typed profile < recipes < command line

A profile is typed by `hardware=name`; `hardware=auto` and a program's default profile are detected. Profiles were
tuned for our own environments, so a detected one keeps only what describes the machine. values.py has the
values.

    profile ─► (algorithm, environment) ─► derived ─► (devices, sizes) ─► budget        steps of resolve.py
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil, lcm
from typing import Any

from metta_fast.algorithms.registry import AlgorithmKind
from metta_fast.config.frame_stack import stacked
from metta_fast.config.keys import Config, check_value, get, keys, put, shown
from metta_fast.config.policy_inputs import OURS
from metta_fast.contracts.env import EnvFactory
from metta_fast.envs import is_ours
from metta_fast.resolve.algorithm_keys import unread
from metta_fast.resolve.compose import DEFAULT, DERIVED
from metta_fast.resolve.derived.step_cost import step_cost, step_waits
from metta_fast.resolve.derived.values import Facts, derive
from metta_fast.resolve.fit_devices import Devices
from metta_fast.vector.first_look import Seen

FROM_DETECTED = ("vector.", "trainer.device", "trainer.precision")
"""Keys, and beginnings of keys, that a detected profile sets for an environment that is not ours."""


class Defaults(Devices):
    """Resolves a configuration: the steps about derived values and the budget."""

    kind: AlgorithmKind
    """The algorithm, as `_Resolve.algorithm` finds it."""
    seen: Seen
    """What `_Resolve.environment` has found out about the environment."""

    def profile(self) -> None:
        """Leaves out what a detected profile sets beside the machine, for an environment that is not ours
        (metta_fast/resolve/derived/defaults.py)."""
        if self.detected is None:
            return
        left_out = leave_out_profile(self.config, self.origins, self.detected)
        if left_out:
            file = next(iter(self.detected.values()))
            option = file.partition("/")[2]
            self.remarks.append(
                f"{file} was detected, not typed: for an environment that is not ours it sets only vector.*, "
                f"trainer.device and trainer.precision, not {', '.join(left_out)}; hardware={option} sets all of its "
                "values"
            )

    def derived(self, factory: EnvFactory) -> None:
        """Finds env.step_cost and env.step_waits, and derives values for an environment that is not ours."""
        config, env = self.config, self.config.env
        if env.step_waits == "auto":
            self._set("env.step_waits", *step_waits(env, factory, self.seen))
        if env.step_cost == "auto":
            cost, why, note = step_cost(env, factory, self.seen)
            self._set("env.step_cost", cost, why)
            self.notes += [note] if note else []
        if is_ours(env):
            return
        spec, given = factory.spec, given_values(config, self.origins, self.detected or {})
        limit = -(-env.max_steps // env.action_repeat) if "env.max_steps" in given else None
        facts = Facts(
            stacked(spec, config.policy.frame_stack),
            episode_length=spec.max_steps or limit,
            step_cost=env.step_cost,
            total_timesteps=config.trainer.total_timesteps,
            core=config.policy.core,
            own_policy=config.policy.name not in OURS,
            frames=config.policy.frame_stack,
            given=given,
        )
        put_derived(config, self.origins, derive(facts), given, unread(self.kind))

    def budget(self) -> None:
        """Adds a note where one rollout is more than 1% of trainer.total_timesteps: what will be trained."""
        total, batch = self.config.trainer.total_timesteps, self.config.trainer.batch_size
        if "batch_size" not in self.kind.reads or batch * 100 <= total:
            return
        rollout = f"trainer.batch_size={batch} ({self.origins['trainer.batch_size'].partition(': ')[0]})"
        if batch > total:
            self.notes.append(
                f"trainer.total_timesteps={total} is less than one rollout of {rollout}: {total} steps are trained, in "
                "one update; a smaller trainer.batch_size learns more from them"
            )
        else:
            self.notes.append(
                f"trainer.total_timesteps={total} is about {ceil(total / batch)} rollouts of {rollout}; the last one "
                f"ends early, so that {total} steps are trained"
            )


def leave_out_profile(config: Config, origins: dict[str, str], detected: Mapping[str, str]) -> list[str]:
    """Resets values of a detected profile that do not describe the machine to their defaults, in place.

    Args:
        detected: key → file of every value that the profile gave, also if another source has overridden it.

    Returns:
        The keys, in the file's order.
    """
    left_out = []
    for path, file in detected.items():
        entry = keys().get(path)
        if entry is None or path.startswith(FROM_DETECTED) or not _is_of(origins.get(path), file):
            continue
        origins[path] = f"{DEFAULT} ({file} has {shown(get(config, path))})"
        put(config, path, entry.default)
        left_out.append(path)
    return left_out


def given_values(config: Config, origins: Mapping[str, str], detected: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of sources with a higher priority than derived values, by key."""
    return {
        path: get(config, path)
        for path, origin in origins.items()
        if not origin.startswith(DEFAULT) and not _is_of(origin, detected.get(path))
    }


def put_derived(
    config: Config,
    origins: dict[str, str],
    values: Mapping[str, tuple[Any, str]],
    given: Collection[str],
    unread: Collection[str],
) -> None:
    """Sets derived values, in place, except for keys that are given or that the algorithm does not read.

    Those of policy.* describe a network of ours; a user's own policy class keeps its defaults. A derived batch is
    rounded to whole minibatches.
    """
    own_policy = config.policy.name not in OURS
    for path, (value, why) in values.items():
        if path in given or path in unread or (own_policy and path.startswith("policy.")):
            continue
        instead = origins.get(path, DEFAULT).removeprefix(DEFAULT)
        put(config, path, check_value(path, value, "derived values: "))
        origins[path] = DERIVED + why + (instead if instead.startswith(" (") else "")
    if origins.get("trainer.batch_size", "").startswith(DERIVED):
        _round_batch(config, origins)


def _round_batch(config: Config, origins: dict[str, str]) -> None:
    """Rounds the batch so that segments of all agents and the minibatch divide it: fit_sizes.py would keep the batch
    and take the largest minibatch that divides it, which for 13 agents is 13 rows."""
    trainer, env = config.trainer, config.env
    agents, batch = env.num_envs * env.agents_per_env, trainer.batch_size
    unit = lcm(agents * trainer.bptt_horizon, trainer.minibatch_size)
    rounded = max(1, round(batch / unit)) * unit
    if rounded != batch and rounded <= 2 * batch:
        trainer.batch_size = rounded
        origins["trainer.batch_size"] += f"; {batch} in whole minibatches of {agents} agents"


def _is_of(origin: str | None, file: str | None) -> bool:
    """Returns whether a value comes from this profile: from its file, or scaled from it for the card's memory."""
    return file is not None and origin is not None and (origin == file or origin.startswith("auto: "))
