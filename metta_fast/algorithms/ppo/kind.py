"""Registers PPO: its keys, sizes, memory and constructor. torch is imported only by `build`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from metta_fast.algorithms.ppo.memory import memory_parts
from metta_fast.algorithms.ppo.sizes import derived, fit_rollout, halve
from metta_fast.algorithms.registry import AlgorithmKind
from metta_fast.config.keys import Config, TrainerConfig
from metta_fast.contracts.algorithm import Algorithm, Choice, Idle, MemoryPart, SizeChange
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import VectorEnv

if TYPE_CHECKING:
    import torch

    from metta_fast.algorithms.hooks import Hooks
    from metta_fast.policy import Policy


class PPOKind(AlgorithmKind):
    """Proximal policy optimization (Schulman et al. 2017). It reads every key of trainer.*."""

    reads = frozenset(field.name for field in dataclasses.fields(TrainerConfig))
    processes = True
    fixed = frozenset({"trainer.batch_size", "trainer.bptt_horizon", "trainer.optimizer"})
    sizes = ("env.num_envs", "trainer.batch_size", "trainer.minibatch_size", "trainer.bptt_horizon")
    hooks = frozenset(
        {
            "on_build",
            "on_collect",
            "on_rollout",
            "on_update",
            "sample",
            "on_forward",
            "extra_loss",
            "on_gradients",
            "on_epoch",
            "on_close",
            "states",
            "exact_times",
        }
    )

    def fit_sizes(self, config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
        return fit_rollout(config, typed)

    def idle(self, config: Config) -> Iterator[Idle]:
        trainer = config.trainer
        if trainer.advantage != "vtrace":
            for path in ("trainer.vtrace_rho_clip", "trainer.vtrace_c_clip"):
                yield Idle(path, f"trainer.advantage={trainer.advantage}", "trainer.advantage=vtrace")
        if trainer.schedule != "adaptive":
            yield Idle(
                "trainer.desired_kl", f"trainer.schedule={trainer.schedule}", "trainer.schedule=adaptive"
            )
        if not trainer.random_shift:
            yield Idle("trainer.random_shift_coef", "trainer.random_shift=0", "trainer.random_shift=4")
        elif not trainer.random_shift_coef:
            yield Idle("trainer.random_shift", "trainer.random_shift_coef=0", "trainer.random_shift_coef=0.1")
        if trainer.optimizer == "adam":
            yield Idle("trainer.weight_decay", "trainer.optimizer=adam", "trainer.optimizer=adamw")
        if trainer.optimizer != "muon":
            yield Idle("trainer.momentum", f"trainer.optimizer={trainer.optimizer}", "trainer.optimizer=muon")
        if not trainer.compile:
            yield Idle("trainer.compile_mode", "trainer.compile=false", "trainer.compile=true")

    def derived(self, config: Config) -> list[tuple[str, str]]:
        return derived(config)

    def halve(self, config: Config) -> bool:
        return halve(config)

    def memory(self, config: Config, spec: EnvSpec) -> list[MemoryPart]:
        return memory_parts(config, spec)

    def fast_paths(self, config: Config, spec: EnvSpec, policy: Policy, hooks: Hooks) -> list[Choice]:
        import torch

        from metta_fast.algorithms.ppo.fast_paths import PATHS, situation_of
        from metta_fast.runtime.fast_paths import choose

        device = torch.device(config.trainer.device)
        return choose(PATHS, situation_of(policy, config, spec, device, hooks)).choices

    def build(
        self,
        config: Config,
        spec: EnvSpec,
        vec: VectorEnv,
        policy: Policy,
        device: torch.device,
        hooks: Hooks,
    ) -> Algorithm:
        """Makes DevicePPO where environments step on the learner's device, else PPO."""
        from metta_fast.algorithms.ppo.device_ppo import DevicePPO
        from metta_fast.algorithms.ppo.ppo import PPO

        make = DevicePPO if config.vector.backend == "gpu" else PPO
        return make(config, spec, vec, policy, device=device, hooks=hooks)
