"""Puts derived values into a configuration, and says what a short budget trains.

    profile ─► (algorithm, environment) ─► derived ─► (devices, sizes) ─► budget

derived_defaults.py has the order of sources, derived_values.py the values. Place in the flow: steps of resolve.py.
"""

from __future__ import annotations

from math import ceil

from metta_fast.algorithms.registry import AlgorithmKind
from metta_fast.config.policy_inputs import OURS
from metta_fast.contracts.env import EnvFactory
from metta_fast.envs import is_ours
from metta_fast.resolve.algorithm_keys import unread
from metta_fast.resolve.derived_defaults import given_values, leave_out_profile, put_derived
from metta_fast.resolve.derived_values import Facts, derive
from metta_fast.resolve.fit_devices import Devices
from metta_fast.resolve.step_cost import step_cost


class Defaults(Devices):
    """Resolves a configuration: the steps about derived values and the budget."""

    kind: AlgorithmKind
    """The algorithm, as `_Resolve.algorithm` finds it."""

    def profile(self) -> None:
        """Leaves out what a detected profile sets beside the machine, for an environment that is not ours
        (metta_fast/resolve/derived_defaults.py)."""
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
        """Finds env.step_cost, and derives values for an environment that is not ours from what it is."""
        config, env = self.config, self.config.env
        if env.step_cost == "auto":
            cost, why, note = step_cost(env, factory)
            self._set("env.step_cost", cost, why)
            self.notes += [note] if note else []
        if is_ours(env):
            return
        spec, given = factory.spec, given_values(config, self.origins, self.detected or {})
        limit = -(-env.max_steps // env.action_repeat) if "env.max_steps" in given else None
        facts = Facts(
            spec,
            episode_length=spec.max_steps or limit,
            step_cost=env.step_cost,
            total_timesteps=config.trainer.total_timesteps,
            core=config.policy.core,
            own_policy=config.policy.name not in OURS,
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
