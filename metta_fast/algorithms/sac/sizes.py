"""Fits the keys of SAC and TD3 to the environment and to each other, and estimates their memory. No torch here.

as published           1 update a step, few environments
massively parallel     thousands of environments on the GPU, large batches, few updates a step (Seo et al. 2025,
                       arXiv 2505.22642: FastTD3): the default with env.device=cuda
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from typing import Any

from metta_fast.config.frame_stack import stacked, state_numbers
from metta_fast.config.keys import Config, put
from metta_fast.config.policy_memory import observation_bytes, saved_by_row, weights
from metta_fast.contracts.algorithm import MemoryPart, SizeChange
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError

FEW = 64
"""Agent steps of an epoch with environments on the CPU, about."""
GPU_ROWS = 8
"""Rows of each agent in an epoch with environments on the GPU."""
GPU_UPDATES = 4.0
"""Updates for a row of all agents there."""
DISCRETE_SHARE = 0.25
"""Share of the uniform policy's entropy that discrete actions keep."""
DELAY = {"td3": 2}
"""Critic updates for each of the actor's, as published; others: 1."""
STARTS, GPU_STARTS = 5000, 10
TAU, GPU_TAU = 0.005, 0.02
MILLION = 1_000_000
WEIGHT = 4 * 5
"""Bytes of a weight: itself, its gradient, Adam's two moments, its target."""

Typed = Callable[[str], bool]


def fit_to_env(config: Config, spec: EnvSpec, typed: Typed, *, discrete: bool) -> list[SizeChange]:
    """Fits values to the environment in place. discrete: whether the algorithm takes a discrete action.

    Raises:
        UserError: it cannot learn in this environment, or a typed value contradicts it.
    """
    name, changes = config.algorithm["name"], _Changes(config)
    _check_actions(name, spec, discrete)
    _check_critic(config, spec, typed, changes)
    if config.policy.core != "none":
        raise UserError(
            f"policy.core={config.policy.core}: algorithm={name} learns from single transitions, without a recurrent "
            "core; give policy=mlp, with policy.frame_stack=4 to see what came before, or algorithm=ppo"
        )
    if spec.action.kind == "box":
        _squash(config, spec, typed, changes)
    if config.algorithm.get("target_entropy") == "auto":
        changes.put("algorithm.target_entropy", *_target_entropy(spec), tell=False)
    trainer = config.trainer
    if trainer.schedule == "adaptive":
        if typed("trainer.schedule"):
            raise UserError(
                f"trainer.schedule=adaptive follows PPO's KL divergence, which algorithm={name} has not; give "
                "constant, linear or cosine"
            )
        changes.put("trainer.schedule", "constant", "adaptive follows PPO's KL divergence")
    if trainer.precision == "fp16":
        if typed("trainer.precision"):
            raise UserError(
                f"trainer.precision=fp16: algorithm={name} has no loss scaling, which it needs; give bf16 or fp32"
            )
        changes.put("trainer.precision", "fp32", f"algorithm={name} has no loss scaling, which fp16 needs")
    if config.policy.normalize_obs and not typed("policy.normalize_obs") and not _normalizable(spec):
        changes.put("policy.normalize_obs", False, "no observation is floating-point", tell=False)
    return changes.found


def _target_entropy(spec: EnvSpec) -> tuple[float, str]:
    """Returns the entropy that the temperature is adapted to, and why.

    Christodoulou 2019 takes 0.98 of the uniform policy's entropy; then a policy of many choices stays nearly random (Xu
    et al. 2021, arXiv 2112.02852).
    """
    if spec.action.kind == "discrete":
        choices = max(sum(spec.action.nvec), 2)
        return round(DISCRETE_SHARE * log(choices), 4), f"{DISCRETE_SHARE:g} · log of {choices} choices"
    return -float(spec.action.width), "minus the number of continuous actions"


def _check_actions(name: str, spec: EnvSpec, discrete: bool) -> None:
    action = spec.action
    if action.kind == "discrete" and not discrete:
        raise UserError(
            f"algorithm={name} is for continuous actions, but {spec.name} has discrete ones; give algorithm=sac or "
            "algorithm=ppo"
        )
    if action.kind == "mixed" or (action.kind == "discrete" and len(action.nvec) > 1):
        what = (
            "choices and numbers in one action" if action.kind == "mixed" else f"{len(action.nvec)} choices"
        )
        raise UserError(
            f"algorithm={name} is for continuous actions, or one choice, but {spec.name} has {what}; give algorithm=ppo"
        )


def _check_critic(config: Config, spec: EnvSpec, typed: Typed, changes: _Changes) -> None:
    """Checks the kind of critic. Batch renormalisation takes the place of layer normalisation."""
    own = config.algorithm
    if spec.action.kind == "discrete":
        for key, plain in (("critic", "mean"), ("batch_norm", False)):
            if own[key] != plain:
                raise UserError(
                    f"algorithm.{key}={str(own[key]).lower()} is for continuous actions, but {spec.name} has discrete "
                    "ones; leave it out"
                )
    if own["critic"] == "quantile" and own["dropped_quantiles"] >= own["quantiles"]:
        raise UserError(
            f"algorithm.dropped_quantiles={own['dropped_quantiles']} leaves none of algorithm.quantiles="
            f"{own['quantiles']}; give at most {own['quantiles'] - 1}"
        )
    if own["batch_norm"] and own["layer_norm"] is not False:
        if typed("algorithm.layer_norm") and own["layer_norm"] is True:
            raise UserError(
                "algorithm.batch_norm=true and algorithm.layer_norm=true were given; leave one of them out"
            )
        changes.put("algorithm.layer_norm", False, "algorithm.batch_norm=true", tell=False)


def _squash(config: Config, spec: EnvSpec, typed: Typed, changes: _Changes) -> None:
    """Squashes actions whose bounds are all finite; others have no bounds to be squashed into."""
    bounded, squash = all(spec.action.bounded), config.policy.squash
    if bounded and not squash:
        if typed("policy.squash"):
            raise UserError(
                f"policy.squash=false: algorithm={config.algorithm['name']} squashes actions into their bounds; "
                "leave it out"
            )
        changes.put("policy.squash", True, "actions have bounds", tell=False)
    elif squash and not bounded and not typed("policy.squash"):
        changes.put("policy.squash", False, "an action without a finite bound cannot be squashed", tell=False)


def _normalizable(spec: EnvSpec) -> bool:
    return any(leaf.dtype.startswith("float") for leaf in spec.obs.values())


def fit(config: Config, typed: Typed) -> list[SizeChange]:
    """Fits the algorithm's own keys in place: a number for each `auto`.

    Raises:
        UserError: typed values that contradict each other.
    """
    changes, own = _Changes(config), config.algorithm
    name = own["name"]
    total, on_gpu = config.trainer.total_timesteps, config.env.device == "cuda"
    agents = config.env.num_envs * config.env.agents_per_env
    where = "env.device=cuda" if on_gpu else "environments on the CPU"
    epoch_rows = GPU_ROWS if on_gpu else max(1, FEW // agents)
    autos = {
        "replay_size": (max(min(MILLION, total), epoch_rows * agents), "a million, at most the run's steps"),
        "collect_steps": (
            epoch_rows,
            f"{where}: {GPU_ROWS} rows" if on_gpu else f"about {FEW} steps of {agents} agents",
        ),
        "updates_per_step": (
            (GPU_UPDATES / agents, f"{where}: {GPU_UPDATES:g} for a row of {agents} agents")
            if on_gpu
            else (1.0, "one update a step, as published")
        ),
        "learning_starts": (
            min(GPU_STARTS * agents if on_gpu else STARTS, total // 10),
            f"{GPU_STARTS} rows of {agents} agents" if on_gpu else f"{STARTS}, at most a tenth of the run",
        ),
        "actor_delay": (DELAY.get(name, 1), f"algorithm={name}"),
        "tau": (GPU_TAU if on_gpu else TAU, where),
        "critic_width": (config.policy.hidden_size, "policy.hidden_size"),
        "layer_norm": (on_gpu, where),
    }
    for key, (value, why) in autos.items():
        if own[key] == "auto":
            changes.put(f"algorithm.{key}", value, why, tell=False)
    if own["learning_starts"] >= total:
        raise UserError(
            f"algorithm.learning_starts={own['learning_starts']} is not below trainer.total_timesteps={total}: nothing "
            f"would be learned; give at most {max(total - 1, 0)}, or more steps"
        )
    epoch = own["collect_steps"] * agents
    if own["replay_size"] < epoch:
        if typed("algorithm.replay_size"):
            raise UserError(
                f"algorithm.replay_size={own['replay_size']} is less than one epoch of {own['collect_steps']} rows of "
                f"{agents} agents; give at least algorithm.replay_size={epoch}, or a smaller algorithm.collect_steps"
            )
        changes.put("algorithm.replay_size", epoch, "one epoch's transitions")
    return changes.found


class _Changes:
    """Changes a configuration and keeps what was changed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.found: list[SizeChange] = []

    def put(self, path: str, value: Any, why: str, *, tell: bool = True) -> None:
        put(self._config, path, value)
        self.found.append(SizeChange(path, value, why, tell))


def derived(config: Config) -> Iterator[tuple[str, str]]:
    """Returns what follows from the sizes, for --explain."""
    own, agents = config.algorithm, config.env.num_envs * config.env.agents_per_env
    steps = own["collect_steps"] * agents
    yield f"steps of an epoch = {steps}", "algorithm.collect_steps * num_agents"
    yield f"updates of an epoch = {steps * own['updates_per_step']:g}", "steps * algorithm.updates_per_step"
    used = own["updates_per_step"] * config.trainer.minibatch_size
    yield f"replay ratio = {used:g}", "how often each step is learned from, on average"


def halve(config: Config) -> bool:
    """Halves the replay buffer, in place."""
    own, agents = config.algorithm, config.env.num_envs * config.env.agents_per_env
    if own["replay_size"] < 2 * agents * own["collect_steps"]:
        return False
    own["replay_size"] //= 2
    return True


def row_bytes(spec: EnvSpec) -> int:
    """Returns the bytes of a row of the replay buffer."""
    masks = sum(spec.action.nvec) if spec.action_mask else 0
    return observation_bytes(spec) + 4 * spec.action.width + 4 + 4 + masks


def memory_parts(config: Config, spec: EnvSpec) -> list[MemoryPart]:
    """Returns the parts of a resolved configuration. Counts come from `config`, shapes from `spec`."""
    own, trainer = config.algorithm, config.trainer
    cuda, agents = trainer.device == "cuda", config.env.num_envs * config.env.agents_per_env
    rows = -(-own["replay_size"] // agents) + config.policy.frame_stack + own["collect_steps"]
    parts = [MemoryPart("replay buffer", rows * agents * row_bytes(spec), cuda)]
    rollout = (own["collect_steps"] + 1) * agents * (row_bytes(spec) + 32 + 4 * len(spec.stats))
    rollout += 4 * state_numbers(spec, config.policy.frame_stack) * agents
    parts.append(MemoryPart("rollout", rollout, cuda))
    networks = 2 + own["critics"]
    saved = saved_by_row(config, spec) + own["critics"] * own["critic_layers"] * own["critic_width"] * 12
    if own["critic"] == "quantile":  # each quantile beside each target
        saved += 4 * 4 * own["critics"] ** 2 * own["quantiles"] ** 2
    if own["batch_norm"]:  # both states in one batch
        saved += own["critics"] * own["critic_layers"] * own["critic_width"] * 16
    seen = 2 * observation_bytes(stacked(spec, config.policy.frame_stack))
    parts.append(MemoryPart("activations", 2 * (saved + seen) * trainer.minibatch_size, cuda))
    width = own["critic_width"]
    critic = own["critics"] * own["critic_layers"] * width * width + networks * weights(config, spec)
    parts.append(MemoryPart("weights", WEIGHT * critic, cuda))
    return parts
