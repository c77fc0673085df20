"""Stable-Baselines3's PPO as a side of a comparison: side.py's messages, in a process of its own.

    {"env": "ant", "num_envs": 16, …}   ──►   gymnasium.make, VecNormalize, PPO
                                        ◄──   {"ready": …}
    {"do": "burn_in" | "round", "seconds": …} ──► learn(): rollouts and updates

Started by sb3.py. Its `learn` is called for one rollout at a time, as a training run calls it for many.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

from metta_fast.bench.side import BURN_IN_EPOCHS
from metta_fast.openmp import let_idle_threads_sleep


class _Runner:
    """PPO with a network of its own for the value, 2×`hidden_size` tanh, Adam, normalised observations and rewards."""

    def __init__(self, message: dict[str, Any]) -> None:
        import gymnasium
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

        torch.set_num_threads(message["torch_threads"])
        kind = SubprocVecEnv if message["processes"] else DummyVecEnv
        count = message["num_envs"]
        self.envs = VecNormalize(
            make_vec_env(
                lambda: gymnasium.make(message["task"], **message["options"]),
                n_envs=count,
                vec_env_cls=kind,
                vec_env_kwargs={"start_method": "fork"} if message["processes"] else {},  # quicker to start
            )
        )
        self.batch = message["batch_size"]
        width = message["hidden_size"]
        self.model = PPO(
            "MlpPolicy",
            self.envs,
            n_steps=self.batch // count,
            batch_size=message["minibatch_size"],
            n_epochs=message["update_epochs"],
            policy_kwargs={
                "net_arch": {"pi": [width, width], "vf": [width, width]},
                "activation_fn": torch.nn.Tanh,
            },
            device="cpu",
        )

    def epoch(self) -> None:
        """One rollout and its update."""
        self.model.learn(total_timesteps=self.batch, reset_num_timesteps=False)

    def burn_in(self, seconds: float) -> dict[str, Any]:
        start, epochs = time.perf_counter(), 0
        while epochs < BURN_IN_EPOCHS or time.perf_counter() - start < seconds:
            self.epoch()
            epochs += 1
        return {"epochs": epochs, "seconds": time.perf_counter() - start}

    def round(self, seconds: float) -> dict[str, Any]:
        start, epochs = time.perf_counter(), 0
        while epochs == 0 or time.perf_counter() - start < seconds:
            self.epoch()
            epochs += 1
        elapsed = time.perf_counter() - start
        steps = epochs * self.batch
        return {"steps_per_s": steps / elapsed, "steps": steps, "epochs": epochs, "seconds": elapsed}


def main() -> None:
    """Answers messages until the pipe ends."""
    let_idle_threads_sleep()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of libraries must not mix with the answers
    runner = _Runner(json.loads(sys.stdin.readline()))
    try:
        answers.write(json.dumps({"ready": True, "notes": [], "settings": {}}) + "\n")
        for line in sys.stdin:
            message = json.loads(line)
            answers.write(json.dumps(getattr(runner, message.pop("do"))(**message)) + "\n")
    except BrokenPipeError:
        pass
    finally:
        with contextlib.suppress(EOFError, BrokenPipeError):
            runner.envs.close()


if __name__ == "__main__":
    main()
