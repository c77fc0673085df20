"""Refuses typed keys that have no effect in this configuration, naming the key and the one that gives it an effect.

A typed value that is the default is harmless, and so are values from files. What depends only on the machine (keys for
a GPU, typed on a CPU) is a note: the same command is typed on both.

Place in the flow: resolve.py calls `check_effects` when every other value is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from metta_fast.algorithms.registry import kind_of
from metta_fast.config.extension import is_module_name
from metta_fast.config.keys import Config, get, keys, shown
from metta_fast.config.policy_inputs import OURS
from metta_fast.contracts.algorithm import Idle
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.env_answers import observations
from metta_fast.contracts.errors import UserError

CONTINUOUS = ("policy.squash", "policy.state_std", "policy.initial_log_std", "trainer.noise_color")
PLAYED = ("run.evaluate_deterministic", "run.evaluate_seed")
WANDB = ("wandb.project", "wandb.entity", "wandb.group")
GPU_ONLY = ("trainer.tf32", "trainer.cudnn_benchmark")


def check_effects(
    config: Config, given: Config, factory: EnvFactory, typed: Callable[[str], bool], ours: bool
) -> list[str]:
    """Returns notes on typed keys that only a GPU reads.

    Args:
        config, given: resolved, and as composed.
        typed: whether the user typed a key.
        ours: whether the environment comes with metta_fast; the maker of another may read any key of env.*.

    Raises:
        UserError: a typed key has no effect.
    """

    def other(path: str) -> bool:
        return typed(path) and get(given, path) != keys()[path].default

    for idle in _idle(config, factory, ours):
        if other(idle.path):
            cure = f"remove it, or give {idle.cure}" if idle.cure else "remove it"
            raise UserError(f"{idle.path}={shown(get(given, idle.path))} has no effect: {idle.why}; {cure}")
    return [
        f"{path}={shown(get(given, path))} has no effect: the policy runs on the CPU (trainer.device=cpu)"
        for path in GPU_ONLY
        if config.trainer.device == "cpu" and other(path)
    ]


def _idle(config: Config, factory: EnvFactory, ours: bool) -> Iterator[Idle]:
    yield from _of_env(config, factory, ours)
    yield from _of_vector(config)
    yield from kind_of(config).idle(config)
    yield from _of_run(config)


def _of_env(config: Config, factory: EnvFactory, ours: bool) -> Iterator[Idle]:
    env, spec = config.env, factory.spec
    own_policy = is_module_name(config.policy.name) or config.policy.name not in OURS
    if spec.action.kind == "discrete":
        for path in CONTINUOUS:
            if not (own_policy and path.startswith("policy.")):  # it may read any key of policy.*
                yield Idle(path, f"{spec.name} has discrete actions, and it is for continuous ones", "")
    if ours:
        why = f"values are derived from it for environments that are not ours, and {env.factory} is"
        yield Idle("env.step_cost", why, "")
    if ours or spec.native:
        yield Idle("env.step_waits", "it is for Python environments that are not ours", "")
    if ours and not observations(factory) and env.observation != "default":
        yield Idle("env.observation", f"{env.factory} has one observation", "env.observation=default")


def _of_vector(config: Config) -> Iterator[Idle]:
    backend = config.vector.backend
    given = f"vector.backend={backend}"
    if backend in ("serial", "threads"):
        yield Idle("vector.num_workers", f"{given} has no worker processes", "vector.backend=workers")
    if backend == "serial":
        yield Idle(
            "vector.num_threads", f"{given} steps one environment after another", "vector.backend=threads"
        )
        yield Idle(
            "vector.worker_timeout_s",
            f"{given} steps in the trainer's own thread, which cannot be stopped",
            "vector.backend=workers",
        )


def _of_run(config: Config) -> Iterator[Idle]:
    run = config.run
    if not run.evaluate_interval:
        none = "run.evaluate_interval=0, so nothing is evaluated"
        yield Idle("run.evaluate_episodes", none, "run.evaluate_interval=100")
        for path in () if run.replay_interval else PLAYED:
            yield Idle(path, none, "run.evaluate_interval=100")
    if not run.replay_interval:
        yield Idle("run.keep_replays", "run.replay_interval=0, so none is written", "run.replay_interval=100")
    if not run.checkpoint_interval:
        yield Idle(
            "run.checkpoint_max_s",
            "run.checkpoint_interval=0, so the only checkpoint is at the end",
            "run.checkpoint_interval=100",
        )
    if config.wandb.mode == "disabled":
        for path in WANDB:
            yield Idle(path, "wandb.mode=disabled", "wandb.mode=offline or online")
