"""Registers SAC and TD3: their keys, sizes, memory and constructor. torch is imported only by `build`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from metta_fast.algorithms.registry import AlgorithmKind, own_values
from metta_fast.algorithms.sac import sizes
from metta_fast.algorithms.sac.keys import SACKeys, TD3Keys
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import Algorithm, Choice, Idle, MemoryPart, SizeChange
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorEnv

if TYPE_CHECKING:
    import torch

    from metta_fast.algorithms.hooks import Hooks
    from metta_fast.algorithms.sac.objectives import Objective
    from metta_fast.policy import Policy


class OffPolicyKind(AlgorithmKind):
    """What SAC and TD3 share."""

    reads = frozenset(
        {
            "minibatch_size",
            "learning_rate",
            "schedule",
            "optimizer",
            "gamma",
            "max_grad_norm",
            "normalize_reward",
            "noise_color",
            "random_shift",
            "precision",
            "tf32",
            "cudnn_benchmark",
            "compile",
            "compile_mode",
            "cuda_graphs",
            "debug",
        }
    )
    fixed = frozenset(
        {
            "trainer.optimizer",
            "algorithm.critics",
            "algorithm.critic_width",
            "algorithm.critic_layers",
            "algorithm.layer_norm",
            "algorithm.batch_norm",
            "algorithm.critic",
            "algorithm.quantiles",
        }
    )
    sizes = ("env.num_envs", "algorithm.replay_size", "trainer.minibatch_size")
    hooks = frozenset({"on_collect", "on_rollout", "on_gradients", "on_epoch", "on_close"})
    discrete = False
    """Whether it learns discrete actions."""

    def fit(self, config: Config, spec: EnvSpec, typed: Callable[[str], bool]) -> list[SizeChange]:
        return sizes.fit_to_env(config, spec, typed, discrete=self.discrete)

    def fit_sizes(self, config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
        return sizes.fit(config, typed)

    def idle(self, config: Config) -> Iterator[Idle]:
        name = config.algorithm["name"]
        yield Idle("policy.shared", f"algorithm={name} has critics of their own, beside the policy", "")
        if config.algorithm.get("critic") != "quantile":
            for key in ("quantiles", "dropped_quantiles"):
                yield Idle(f"algorithm.{key}", "algorithm.critic=mean", "algorithm.critic=quantile")
        if config.algorithm.get("batch_norm"):
            yield Idle(
                "algorithm.tau",
                "algorithm.batch_norm=true has no target networks",
                "algorithm.batch_norm=false",
            )
        yield Idle("trainer.optimizer", f"algorithm={name} always uses Adam", "trainer.optimizer=adam")
        if not config.trainer.compile:
            yield Idle("trainer.compile_mode", "trainer.compile=false", "trainer.compile=true")

    def derived(self, config: Config) -> list[tuple[str, str]]:
        return list(sizes.derived(config))

    def halve(self, config: Config) -> bool:
        return sizes.halve(config)

    def memory(self, config: Config, spec: EnvSpec) -> list[MemoryPart]:
        return sizes.memory_parts(config, spec)

    def fast_paths(self, config: Config, spec: EnvSpec, policy: Policy, hooks: Hooks) -> list[Choice]:
        import torch

        from metta_fast.algorithms.sac.fast_paths import PATHS
        from metta_fast.runtime.fast_paths import Situation, choose

        device = torch.device(config.trainer.device)
        return choose(PATHS, Situation(policy, config, spec, device)).choices

    def objective(self, policy: Policy, spec: EnvSpec, keys: Any, device: torch.device) -> Objective:
        """Returns what is learnt (objectives.py)."""
        raise NotImplementedError

    def build(
        self,
        config: Config,
        spec: EnvSpec,
        vec: VectorEnv,
        policy: Policy,
        device: torch.device,
        hooks: Hooks,
    ) -> Algorithm:
        from metta_fast.algorithms.sac.sac import SAC
        from metta_fast.policy.frame_stack import FrameStack

        keys = own_values(self, config)
        layers = policy.frames.core[0] if isinstance(policy, FrameStack) else policy.state_shape[0]
        if layers:
            raise UserError(
                f"policy.name={config.policy.name} has a recurrent state, but algorithm={config.algorithm['name']} "
                "learns from single transitions; give a policy without one"
            )
        return SAC(
            config,
            keys,
            spec,
            vec,
            policy,
            lambda actor: self.objective(actor, spec, keys, device),
            device=device,
            hooks=hooks,
        )


class SACKind(OffPolicyKind):
    """Soft actor-critic (Haarnoja et al. 2018), continuous or discrete."""

    keys = SACKeys
    discrete = True

    def objective(self, policy: Policy, spec: EnvSpec, keys: Any, device: torch.device) -> Objective:
        from metta_fast.algorithms.sac.critic.values import values_of
        from metta_fast.algorithms.sac.objectives import SoftBox, SoftDiscrete
        from metta_fast.algorithms.sac.temperature import Temperature

        temperature = Temperature(keys.initial_temperature, keys.target_entropy).to(device)
        if spec.action.kind == "discrete":
            return SoftDiscrete(policy, temperature)
        return SoftBox(policy, temperature, values_of(keys))


class TD3Kind(OffPolicyKind):
    """Twin delayed deterministic policy gradient (Fujimoto et al. 2018)."""

    keys = TD3Keys

    def objective(self, policy: Policy, spec: EnvSpec, keys: Any, device: torch.device) -> Objective:
        from metta_fast.algorithms.sac.critic.values import values_of
        from metta_fast.algorithms.sac.objectives import Deterministic

        return Deterministic(policy, keys.target_noise, keys.target_noise_clip, values_of(keys))
