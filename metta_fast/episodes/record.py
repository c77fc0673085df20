"""Records an episode of one environment and one player, with its world if the factory has a recorder.

    recording = record(factory, PolicyPlayer(…), seed=EVAL_SEED_BIT | 3, episode=7, about={…})

The world is that of environment number `episode` under the seed; here the eighth that `metta-fast eval --seed 3` plays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from metta_fast.config.keys import Config
from metta_fast.contracts.env import ActionSpec, Array, EnvBatch, EnvFactory, Rows
from metta_fast.contracts.player import Player
from metta_fast.contracts.recording import NO_END, Recorder, Recording, World
from metta_fast.envs.frame_recorder import FrameRecorder
from metta_fast.inference.players import play

MOST_ENTRIES = 512
"""Numbers of an observation's leaf from which it is not recorded: images and the like."""
MOST_NUMBERS = 400_000
"""Numbers of an episode's observations from which they are not recorded: about 3 MB in the page."""


def record(
    factory: EnvFactory,
    player: Player,
    *,
    seed: int,
    episode: int = 0,
    max_steps: int = 1000,
    about: Mapping[str, Any] | None = None,
    check: Callable[[], None] | None = None,
) -> Recording:
    """Plays one episode of environment number `episode` and records it.

    Args:
        seed: of the environments; with EVAL_SEED_BIT set, training never uses it.
        max_steps: time limit to assume if the environment does not report its own.
        about: copied into the recording.
        check: called after each step; it may raise to end the episode.
    """
    with closing(_Seen(factory, player)) as seen:
        played = play(
            factory, player, 1, first_env=episode, seed=seed, max_steps=max_steps, watch=seen, check=check
        )
        world = seen.recorder.world() if seen.recorder else World()
    return Recording(
        about=dict(about or {}),
        actions=_actions(factory.spec.action),
        action=np.array(seen.action),
        reward=np.array(seen.reward),
        end=seen.end,
        terminal=seen.terminal,
        stats=played.stats,
        world=world,
        value=np.array(seen.value) if seen.value else None,
        observation={name: np.array(rows) for name, rows in seen.obs.items()},
    )


def about(config: Config, checkpoint: Path, *, player: str, seed: int, episode: int) -> dict[str, str | int]:
    """Describes a recording's origin.

    Args:
        checkpoint: path of the checkpoint; the run's name and the steps trained are parsed from it.
    """
    run = checkpoint.parent.parent.name if checkpoint.parent.name == "checkpoints" else ""
    return {
        "run": run,
        "env": config.env.name,
        "player": player,
        "seed": seed,
        "episode": episode,
        "checkpoint": checkpoint.name,
        "trained": int(checkpoint.name.rpartition("_")[2]),
    }


class _Seen:
    """Collects rows and the recorder's world; `play` calls it after the reset and after each step."""

    def __init__(self, factory: EnvFactory, player: Player) -> None:
        n = factory.spec.agents_per_env
        self._player = player
        self._make = getattr(factory, "make_recorder", None)
        self.recorder: Recorder | None = None
        self.action: list[Array] = []
        self.reward: list[Array] = []
        self.end, self.terminal = np.full(n, NO_END, np.int64), np.zeros(n, np.bool_)
        self.value: list[Array] = []
        small = (name for name, leaf in factory.spec.obs.items() if math.prod(leaf.shape) <= MOST_ENTRIES)
        self.obs: dict[str, list[Array]] = {name: [] for name in small}
        self._begun = False

    def __call__(self, rows: Rows, batch: EnvBatch) -> None:
        if self._begun:
            self._step(rows)
        elif self._make is not None:
            self.recorder = self._make(batch)
        if not self._begun and self.recorder is not None and not isinstance(self.recorder, FrameRecorder):
            self.obs = {}  # its world shows what the agents see
        self._begun = True
        if self.recorder is not None:
            self.recorder.see()
        for name, seen in self.obs.items():
            seen.append(rows.obs[name].copy())
        if sum(len(seen) * seen[0].size for seen in self.obs.values()) > MOST_NUMBERS:
            self.obs = {}

    def close(self) -> None:
        """Ends what the recorder holds, for example a process that draws."""
        close = getattr(self.recorder, "close", None)
        if close is not None:
            close()

    def _step(self, rows: Rows) -> None:
        alive = self.end == NO_END
        self.action.append(rows.action.copy())
        self.reward.append(np.where(alive, rows.reward, np.float32(0)))
        value = getattr(self._player, "value", None)
        if value is not None:
            self.value.append(np.where(alive, value, np.float32(np.nan)))
        ended = alive & (rows.terminal | rows.truncation)
        self.end[ended] = len(self.reward)
        self.terminal[ended] = rows.terminal[ended]


def _actions(action: ActionSpec) -> dict[str, Any]:
    return {"kind": action.kind, "width": action.width, "start": list(action.start) or [0] * action.width}
