"""Makes Atari games of the package ale-py as agents learn them: grey 84 × 84 pixels, four frames a step.

    metta-fast train env=atari env.id=ALE/Pong-v5 trainer.total_timesteps=2_000_000
    metta-fast train env=atari env.id=ALE/Breakout-v5 env.params.episodic_life=true env.params.clip_reward=true

    env.params.        default
      sticky           the id's own   probability that a frame repeats the action before: .25 of ALE/…-v5, 0 of …-v4
      skip             4              frames a step
      size             84             sides of the observation
      full_actions     false          all 18 actions; false: those that the game uses
      max_frames       108000         frames after which an episode is truncated (30 minutes)
      noop_max         0              an episode begins with 1 to so many frames without an action
      episodic_life    false          a lost life ends the episode; the game goes on in the next one
      clip_reward      false          the reward is its sign

`env/score` is a game's score, whatever the episodes and rewards. env.kwargs has ALE's own mode and difficulty. The
recipe (configs/env/atari.yaml) stacks four frames by policy.frame_stack. Source: Machado et al. 2018 (arXiv
1709.06009), whose settings the defaults are: sticky actions, whole games, no waiting and no fire button at the start.

Place in the flow: metta_fast.envs.make_factory calls `atari_factory`; gymnasium.py makes the environments, and
atari_game.py, around each, does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from metta_fast.config.keys import EnvConfig, did_you_mean, shown
from metta_fast.contracts.errors import UserError
from metta_fast.envs.adapters.atari_game import Preprocess
from metta_fast.envs.adapters.gymnasium import ATARI, Maker, factory_of, maker
from metta_fast.envs.adapters.packages import register
from metta_fast.envs.python_env import PythonEnvFactory

EXAMPLE = "ALE/Pong-v5"
NUMBERS = {
    "skip": (1, 60, 4),
    "size": (24, 160, 84),
    "max_frames": (1, 10**9, 108_000),
    "noop_max": (0, 10_000, 0),
}
"""Whole numbers of env.params: lowest, highest, default."""
SWITCHES = ("full_actions", "episodic_life", "clip_reward")
OTHERS = {
    "frameskip": "env.params.skip",
    "repeat_action_probability": "env.params.sticky",
    "full_action_space": "env.params.full_actions",
    "max_num_frames_per_episode": "env.params.max_frames",
    "max_episode_steps": "env.params.max_frames",
}
"""Arguments of the constructor that have a key here."""
FIXED = ("obs_type", "continuous", "continuous_action_threshold", "sound_obs", "game", "render_mode")


@dataclass(frozen=True)
class Game(Maker):
    """Makes a game without ALE's lines about itself."""

    def __call__(self, index: int) -> Any:
        from ale_py import ALEInterface, LoggerMode

        ALEInterface.setLoggerMode(LoggerMode.Error)
        return super().__call__(index)


def atari_factory(config: EnvConfig) -> PythonEnvFactory:
    """Makes the factory of the game `env.id`.

    Raises:
        UserError: as gymnasium_factory does; an id of another kind; a key that is unknown or has a wrong value.
    """
    where = f"env.id={config.id}"
    settings, sticky, full = _settings(config.params)
    for name, value in config.kwargs.items():
        given = f"env.kwargs.{name}={shown(value)} has no effect with env=atari"
        if name in OTHERS:
            raise UserError(f"{given}; give {OTHERS[name]}")
        if name in FIXED:
            raise UserError(f"{given}, which sets it; leave it out, or give env={config.id}")
    register("ALE/", where if config.id else "env=atari")
    made = maker(_full_id(config), EXAMPLE)
    if made.spec.entry_point != ATARI:
        raise UserError(
            f"{where} is no game of ALE; give env={config.id}, or a game, such as env.id={EXAMPLE}"
        )
    own = {
        "frameskip": 1,
        "obs_type": "grayscale",
        "render_mode": "rgb_array",
        "max_num_frames_per_episode": settings.max_frames,
        "full_action_space": full,
    } | ({} if sticky is None else {"repeat_action_probability": sticky})
    factory = factory_of(
        Game(made.spec, {**made.kwargs, **own}, made.wrappers, where, made.package, (settings,)),
        replace(config, params={}),
    )
    factory.key_cures = factory.key_cures | {"env.max_steps": "give env.params.max_frames=…"}  # type: ignore[attr-defined]
    return factory


def _full_id(config: EnvConfig) -> EnvConfig:
    """Returns the configuration with ALE/Pong-v5 in place of a bare Pong."""
    import gymnasium

    long = f"ALE/{config.id}-v5"
    return replace(config, id=long) if long in gymnasium.registry else config


def _settings(params: Mapping[str, Any]) -> tuple[Preprocess, float | None, bool]:
    """Returns (settings, sticky, full_actions) of env.params. Raises UserError for a wrong name or value."""
    known = ["sticky", *NUMBERS, *SWITCHES]
    for name, value in params.items():
        given = f"env.params.{name}={shown(value)}"
        if name not in known:
            raise UserError(
                f"{given}: atari has no such key; {did_you_mean(name, known)}It has {', '.join(known)}"
            )
        if name in SWITCHES and not isinstance(value, bool):
            raise UserError(f"{given}: expected true or false")
        if name in NUMBERS:
            low, high, _ = NUMBERS[name]
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise UserError(f"{given}: expected a whole number from {low} to {high}")
        if name == "sticky" and value is not None:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 <= value < 1:
                raise UserError(
                    f"{given}: expected a probability from 0 to below 1, or null for the id's own"
                )
    numbers = {name: params.get(name, default) for name, (_, _, default) in NUMBERS.items()}
    switches = {name: params.get(name, False) for name in SWITCHES if name != "full_actions"}
    return Preprocess(**numbers, **switches), params.get("sticky"), params.get("full_actions", False)
