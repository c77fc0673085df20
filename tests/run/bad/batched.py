"""Mistakes with batched environments (docs/batched.md): their number, their device, what they lack."""

from __future__ import annotations

from collections.abc import Iterator

from tests.run.bad.case import Case
from tests.run.bad.keys import TINY

TRAIN = tuple(word for word in TINY if not word.startswith(("env", "vector.", "trainer.bptt")))
WRONG: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("four", "env.num_envs=2", ("env.num_envs=2", "a batch of 4 environments", "leave env.num_envs out")),
    ("on_cuda", "trainer.device=cpu", ("trainer.device=cpu", "are on cuda", "leave trainer.device out")),
    ("nothing", "seed=1", ("gave object", "expected an EnvFactory", "a batched environment (docs/batched.md)")),
    ("without_jax", "seed=1", ("needs jax, which is not installed", "pip install jax")),
    ("maker_of_vectors", "seed=1", ("is the vector environment SyncVectorEnv", "return it from make(config) itself")),
    ("sync", "env.params.mode=Sometimes", ("sync(config) failed", "Sometimes")),
    ("sync", "vector.backend=workers", ("vector.backend=workers", "steps on the learner's device")),
    ("sync", "env.action_repeat=2", ("env.action_repeat=2", "steps on the learner's device")),
    ("sync", "env.drop=[x]", ("env.drop=[x]", "Box")),
    ("sync", "env.leaf_kinds.nonesuch=flat", ("env.leaf_kinds.nonesuch", "has no such leaf")),
    ("sync", "env.action_mask=obs:nonesuch", ("env.action_mask=obs:nonesuch", "no such leaf")),
    ("sync", "env.agents_per_env=2", ("env.agents_per_env=2", "has 1")),
    ("sync", "env.params.nonesuch=1", ("env.params.nonesuch=1", "has no effect")),
    ("sync", "trainer.deterministic=true", ("trainer.deterministic=true", "state_dict")),
    ("sync", "run.evaluate_interval=1", ("was asked for config.num_envs=64 and made 2", "run.evaluate_episodes=2")),
    ("rsl_rl", "run.evaluate_interval=1", ("run.evaluate_interval=1", "RSL-RL's interface has no reset")),
    ("isaac", "env.action_mask=info", ("env.action_mask=info", "continuous")),
    ("mani_skill", "env.action_mask=info", ("env.action_mask=info", "in NumPy")),
)  # fmt: skip
"""Function of tests/batched/envs.py, a word, and what the message holds."""


def cases() -> Iterator[Case]:
    for name, word, says in WRONG:
        two = ("env.params.num_envs=2",) if name == "sync" else ()
        yield Case((*TRAIN, f"env=tests.batched.envs:{name}", *two, word), says)
