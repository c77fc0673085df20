"""Trains a robot with Stable-Baselines3's PPO, as the child of sb3_robot.py; answers messages.

    {"do": "build", "task": "Ant-v5", "num_envs": 16, …}    gymnasium.make, VecNormalize, PPO
    {"do": "burn_in" | "round", "seconds": …}               learn(): rollouts and updates

SB3's `learn` is called for one rollout at a time; a normal training calls it once for many.
"""

from __future__ import annotations

import time
from typing import Any

from metta_fast.bench.harness.child_loop import serve
from metta_fast.bench.training.side import BURN_IN_EPOCHS


class Robots:
    """Trains PPO with a separate value network, 2×`hidden_size` tanh, Adam, normalised observations and rewards."""

    def __init__(
        self,
        task: str,
        options: dict[str, Any],
        *,
        num_envs: int,
        batch_size: int,
        minibatch_size: int,
        update_epochs: int,
        hidden_size: int,
        processes: bool,
        torch_threads: int,
    ) -> None:
        import gymnasium
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

        torch.set_num_threads(torch_threads)
        kind = SubprocVecEnv if processes else DummyVecEnv
        self.envs = VecNormalize(
            make_vec_env(
                lambda: gymnasium.make(task, **options),
                n_envs=num_envs,
                vec_env_cls=kind,
                vec_env_kwargs={"start_method": "fork"} if processes else {},  # starts faster
            )
        )
        self.batch = batch_size
        self.model = PPO(
            "MlpPolicy",
            self.envs,
            n_steps=batch_size // num_envs,
            batch_size=minibatch_size,
            n_epochs=update_epochs,
            policy_kwargs={
                "net_arch": {"pi": [hidden_size] * 2, "vf": [hidden_size] * 2},
                "activation_fn": torch.nn.Tanh,
            },
            device="cpu",
        )

    def epoch(self) -> None:
        """Collects one rollout and updates."""
        self.model.learn(total_timesteps=self.batch, reset_num_timesteps=False)

    def ready(self) -> dict[str, Any]:
        return {"ready": True}

    def burn_in(self, seconds: float) -> dict[str, Any]:
        return self.round(seconds, BURN_IN_EPOCHS)

    def round(self, seconds: float, epochs: int = 1) -> dict[str, Any]:
        """Runs at least `epochs` whole epochs and `seconds` seconds; returns {"steps_per_s", "epochs", "seconds"}."""
        start, done = time.perf_counter(), 0
        while done < epochs or time.perf_counter() - start < seconds:
            self.epoch()
            done += 1
        elapsed = time.perf_counter() - start
        return {"steps_per_s": done * self.batch / elapsed, "epochs": done, "seconds": elapsed}

    def close(self) -> None:
        self.envs.close()


if __name__ == "__main__":
    serve(Robots)
