"""Refuses settings that an environment cannot serve, before anything is written and alike for every backend.

Place in the flow: metta_fast/resolve calls it when the environment's factory is made and the backend is chosen.
"""

from __future__ import annotations

from collections.abc import Callable

from metta_fast.config.keys import Config, did_you_mean, get, shown
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.env_answers import has_state, unread_keys
from metta_fast.contracts.errors import UserError

CURES = {
    "env.max_steps": "pass it on there, for example gymnasium.make(…, max_episode_steps=config.max_steps)",
    "env.limit_is_terminal": "give terminated instead of truncated at the time limit there",
}
"""How the function that makes an environment can give a key its effect."""


def check_env_keys(config: Config, factory: EnvFactory, typed: Callable[[str], bool]) -> None:
    """Checks the resolved configuration against the environment.

    Raises:
        UserError: a setting that the environment cannot serve, or a typed one that it does not read; with the cure.
    """
    name = factory.spec.name
    if config.trainer.deterministic and not has_state(factory):
        raise UserError(
            f"trainer.deterministic=true: {name} cannot serve it, for a resumed run must continue the environments "
            "exactly, and theirs has no state_dict and load_state_dict; add both methods to the environment, or leave "
            "trainer.deterministic out (the same seed still gives the same start)"
        )
    vector = config.vector
    if (
        typed("vector.num_threads")
        and vector.num_threads > 1
        and vector.backend == "workers"
        and not factory.spec.native
    ):
        raise UserError(
            f"vector.num_threads={vector.num_threads} has no effect: a worker steps Python environments such as {name} "
            "one after another; leave it out, more vector.num_workers step at once"
        )
    _check_read(config, factory, typed)


def _check_read(config: Config, factory: EnvFactory, typed: Callable[[str], bool]) -> None:
    unread = unread_keys(factory)
    for key in sorted(unread):
        if not typed(key):
            continue
        if key == "env.max_steps" and not factory.spec.max_steps:
            continue  # the length to assume for an environment that states none
        cures = getattr(factory, "key_cures", {})
        if key in cures:
            raise UserError(
                f"{key}={shown(get(config, key))} has no effect on {factory.spec.name}; {cures[key]}, or leave it out"
            )
        where = f"{key}={shown(get(config, key))} has no effect: {config.env.factory} does not read "
        if key in CURES:
            raise UserError(f"{where}config.{key.removeprefix('env.')}; {CURES[key]}, or leave it out")
        name = key.removeprefix("env.params.")
        known = [other for other in config.env.params if f"env.params.{other}" not in unread]
        raise UserError(f"{where}config.params[{name!r}]; {did_you_mean(name, known)}leave it out")
