"""Trains with Stable-Baselines3's PPO on our environments, with our encoder and sizes.

SB3 handles the end of each episode in Python, separately for each environment, and calls the policy once for each
truncated episode; it does so with all environments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from metta_fast.bench.gpu.plain_torch import plain_policy
from metta_fast.bench.training.peer_env import Stepper, Trained
from metta_fast.contracts.env import Array
from metta_fast.policy import make_policy
from metta_fast.policy.network import Network
from metta_fast.runtime.torch_setup import autocast

NOTHING: dict[str, Any] = {}


class Rows(VecEnv):  # type: ignore[misc]
    """Provides one SB3 environment per agent. Observations are copied, since SB3 keeps the last one during a step."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper, self.render_mode = stepper, None
        super().__init__(stepper.vec.num_agents, *stepper.spaces())

    def reset(self) -> Any:
        return self.stepper.reset().copy()

    def step_async(self, actions: Array) -> None:
        self.stepper.send(actions)

    def step_wait(self) -> Any:
        rows = self.stepper.recv()
        obs, done = rows.obs[self.stepper.leaf].copy(), rows.terminal | rows.truncation
        infos = [NOTHING] * self.num_envs
        for i in np.flatnonzero(done):
            cut = bool(rows.truncation[i]) and not rows.terminal[i]
            infos[i] = {"terminal_observation": obs[i], "TimeLimit.truncated": cut}
        return obs, rows.reward.copy(), done, infos

    def close(self) -> None:
        self.stepper.vec.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **more: Any) -> list[Any]:
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Encoder(BaseFeaturesExtractor):  # type: ignore[misc]
    """Provides our encoder in our precision; SB3 converts every observation to floats before."""

    def __init__(self, observation_space: Any, run: Any, plain: bool) -> None:
        super().__init__(observation_space, run.config.policy.hidden_size)
        policy = make_policy(run.config.policy, run.stepper.spec)
        assert isinstance(policy, Network)
        self.encoder: nn.Module = (plain_policy(policy) if plain else policy).encoder
        self.leaf = run.stepper.leaf
        self.kind = getattr(torch, run.stepper.spec.obs[self.leaf].dtype)
        self.trainer = run.config.trainer

    def forward(self, observations: Tensor) -> Tensor:
        with autocast(self.trainer, observations.device):
            found: Tensor = self.encoder({self.leaf: observations.to(self.kind)[None]})[0].float()
        return found


class SB3(Trained):
    """Trains SB3's linear heads on our encoder.

    Args:
        plain: on a GPU, use torch layers instead of our kernels of the first layer.
    """

    def __init__(self, overrides: list[str], plain: bool = False) -> None:
        super().__init__(overrides)
        trainer = self.config.trainer
        self.model = PPO(
            "MlpPolicy",
            Rows(self.stepper),
            n_steps=self.horizon,
            batch_size=trainer.minibatch_size,
            n_epochs=trainer.update_epochs,
            learning_rate=trainer.learning_rate,
            gamma=trainer.gamma,
            gae_lambda=trainer.gae_lambda,
            clip_range=trainer.clip_coef,
            ent_coef=trainer.entropy_coef,
            vf_coef=trainer.vf_coef,
            max_grad_norm=trainer.max_grad_norm or 1e9,
            device=self.device,
            policy_kwargs={
                "features_extractor_class": Encoder,
                "features_extractor_kwargs": {"run": self, "plain": plain},
                "net_arch": [],
            },
        )
        _, self._callback = self.model._setup_learn(trainer.total_timesteps, CallbackList([]))

    def epoch(self) -> None:
        """Runs one iteration of SB3's `learn`."""
        model = self.model
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, n_rollout_steps=model.n_steps)
        model.train()
