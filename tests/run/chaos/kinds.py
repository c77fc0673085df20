"""Names the short trainings that are broken, and makes sessions of them: processes forked from one that has imported
all that they need."""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

# what a session would import is imported here
import tensorboard.compat.proto.event_pb2
import tensorboard.summary.writer.record_writer  # noqa: F401

import metta_fast.algorithms.ppo.device_ppo
import metta_fast.algorithms.sac.sac
import metta_fast.envs.grid.env
import metta_fast.episodes.training
import metta_fast.policy
import metta_fast.run.build
import metta_fast.run.trainer
import metta_fast.vector.serial
import metta_fast.vector.threads  # noqa: F401
from metta_fast.cli import main as train
from tests.run.chaos.faults import arm
from tests.tiny import QUIET

OFTEN = (
    "run.min_interval_s=0", "run.checkpoint_interval=1", "run.keep_checkpoints=1", "run.name=r",
    "run.monitor_interval=0", "trainer.deterministic=true", "policy.hidden_size=16",
)  # fmt: skip
PPO = ("env.num_envs=2", "trainer.batch_size=64", "trainer.minibatch_size=64", "trainer.bptt_horizon=8",
       "trainer.total_timesteps=256")  # fmt: skip
OWN = ("env.step_cost=cheap", "env.step_waits=no", "env.action_mask=absent")
SERIAL = (*OWN, "vector.backend=serial")
KINDS: dict[str, tuple[str, ...]] = {
    "grid": (
        *PPO, "env=grid", "env.max_steps=40", "policy.core=lstm", "vector.backend=threads", "vector.num_threads=1",
        "run.tensorboard=true", "run.evaluate_interval=3", "run.evaluate_episodes=2", "run.replay_interval=3",
    ),
    "python": (f"env={__name__}:make", *PPO, *SERIAL),
    "sac": (
        f"env={__name__}:make_box", *SERIAL, "env.num_envs=2", "algorithm=sac", "trainer.minibatch_size=16",
        "algorithm.learning_starts=20", "algorithm.replay_size=160", "trainer.total_timesteps=300",
    ),
    "ant": ("env=ant", *PPO, "vector.backend=threads", "vector.num_threads=1"),
    "workers": (
        f"env={__name__}:make", *PPO, *OWN, "vector.backend=workers", "vector.num_workers=2",
    ),
}  # fmt: skip
"""Name → keys."""


class Walk(gymnasium.Env[Any, Any]):
    """A walk whose steps are random; its state can be saved."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        self.count, self.place = 0, np.zeros(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.place = 0, self.np_random.normal(size=3)
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.place += self.np_random.normal(size=3) * 0.1
        self.place[int(np.argmax(action)) if np.ndim(action) else int(action)] += 0.1
        far = bool(np.abs(self.place).max() > 2)
        return self.place.astype(np.float32), float(self.place[0]), far, self.count >= 30, {}

    def state_dict(self) -> dict[str, Any]:
        random = self.np_random.bit_generator.state
        return {"count": self.count, "place": self.place, "random": random}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count, self.place = state["count"], state["place"]
        self.np_random.bit_generator.state = state["random"]


class BoxWalk(Walk):
    action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)


def make(config: Any) -> Callable[[int], Walk]:
    return lambda index: Walk()


def make_box(config: Any) -> Callable[[int], BoxWalk]:
    return lambda index: BoxWalk()


def words(kind: str, folder: Path) -> list[str]:
    """The command of a kind's run in `folder`, which starts and continues it."""
    return ["train", *QUIET, *OFTEN, *KINDS[kind], f"run.dir={folder / 'runs'}", "resume=auto"]


def start(folder: Path, words: list[str], fault: tuple[int, str, int | None] | None = None) -> int:
    """Forks a session and returns its process.

    Args:
        folder: its home; what it says goes to session.txt beside it, its points to trace.txt.
        fault: the point, the mode, an errno or None; None: the points are only traced.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        log = os.open(folder.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        faulthandler.enable()
        os.environ["HOME"] = str(folder / "home")
        os.environ.pop("XDG_CONFIG_HOME", None)
        number, mode, error = fault or (0, "count", None)
        arm(folder, number, mode, folder.with_suffix(".trace"), error)
        code = train(words)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
