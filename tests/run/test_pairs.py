"""Tests that a run learns with every pair of values of the settings that choose how it computes.

    python -m pytest tests/run/test_pairs.py              # on the CPU
    python -m pytest -m gpu tests/run/test_pairs.py       # on a GPU: 18 short runs, of which some are compiled

A combination that no run can have is refused before it starts, with what to change.
"""

from __future__ import annotations

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import Resolved, resolve
from metta_fast.run.build import build_parts
from tests.interpreter import gpu
from tests.one_thread import one_torch_thread
from tests.pairs import Combination, covering, every, name, pairs_of

__all__ = ["one_torch_thread"]

H200 = Machine(
    16,
    64,
    128 * GIB,
    (Gpu("NVIDIA H200", 139 * GIB, (9, 0), free=138 * GIB),),
    "cuda",
    driver=(13, 0),
    nvrtc=13,
)
pytestmark = pytest.mark.usefixtures("exact_products")
ON_GPU = {
    "trainer.compile": (False, True),
    "trainer.cuda_graphs": (False, True),
    "trainer.cpu_offload": (False, True),
    "trainer.precision": ("fp32", "bf16", "fp16"),
    "policy.core": ("none", "lstm", "mingru"),
    "vector.backend": ("serial", "threads", "workers", "gpu"),
}
ON_CPU = {
    "trainer.precision": ("fp32", "bf16"),
    "policy.core": ("none", "lstm", "mingru"),
    "vector.backend": ("serial", "threads", "workers"),
}
TASK = [
    "hardware=cpu", "env=grid_solo", "env.num_envs=128", "env.max_steps=32", "env.params.room_size=[4,4]",
    "env.params.objects={mine_red: 2, generator_red: 0, altar: 0, wall: 0, block: 0}",
    "env.params.rewards={ore_red: {weight: 1.0}}", "env.params.recipes={mine_red: {cooldown: 2}}",
    "policy.hidden_size=32", "trainer.batch_size=4096", "trainer.minibatch_size=1024", "trainer.bptt_horizon=8",
    "trainer.learning_rate=0.005", "trainer.schedule=constant", "trainer.update_epochs=2", "trainer.gamma=0.9",
    "trainer.total_timesteps=200000", "trainer.torch_threads=1",
]  # fmt: skip
"""One agent mines ore in a room of 16 cells: by chance about one in an episode, after 30 epochs eight to ten."""


def impossible(combination: Combination) -> bool:
    """The rows of a rollout in host memory are neither captured in CUDA graphs nor written by environments on the
    GPU."""
    return combination["trainer.cpu_offload"] and (
        combination["trainer.cuda_graphs"] or combination["vector.backend"] == "gpu"
    )


def words_of(combination: Combination) -> list[str]:
    """vector.num_…: no number of this machine's cores."""
    backend = combination["vector.backend"]
    given = [
        f"{key}={str(value).lower() if value in (True, False) else value}"
        for key, value in combination.items()
    ]
    device = "cuda" if backend == "gpu" else "cpu"
    more = {"threads": ["vector.num_threads=2"], "workers": ["vector.num_workers=2"]}.get(backend, [])
    return [*TASK, f"env.device={device}", *given, *more]


def resolved(combination: Combination, device: str, machine: Machine | None = None) -> Resolved:
    return resolve(
        compose([*words_of(combination), f"trainer.device={device}"], machine=machine), machine=machine
    )


def returns(done: Resolved, epochs: int) -> tuple[float, float]:
    """The mean return of the first episodes, and that of the last three epochs' episodes."""
    parts = build_parts(done.config, done.factory)
    found = []
    try:
        for _ in range(epochs):
            parts.algorithm.collect()
            parts.algorithm.update()
            found.append(parts.algorithm.metrics().get("env/return"))
    finally:
        parts.close()
    known = [value for value in found if value is not None]
    return known[0], sum(known[-3:]) / 3


def costs(combination: Combination) -> float:
    """Compiling takes longer than the rest of such a run, and most with a loop over rows."""
    return (4.0 if combination["policy.core"] == "lstm" else 2.0) if combination["trainer.compile"] else 1.0


CHOSEN = covering(ON_GPU, lambda c: not impossible(c), costs)


def test_every_possible_pair_is_among_the_runs() -> None:
    met = set().union(*(pairs_of(c) for c in CHOSEN))
    assert met == set().union(*(pairs_of(c) for c in every(ON_GPU) if not impossible(c)))
    assert len(CHOSEN) < 30


def test_the_runs_resolve_as_typed() -> None:
    """For a machine with a GPU, without starting anything."""
    for combination in CHOSEN:
        trainer = resolved(combination, "cuda", H200).config.trainer
        typed = combination["trainer.compile"], combination["trainer.cuda_graphs"]
        assert (trainer.compile, trainer.cuda_graphs) == typed


def test_what_no_run_can_have_is_refused_with_a_cure() -> None:
    for combination in covering(ON_GPU, impossible):
        with pytest.raises(UserError, match=r"cpu_offload=true.*(remove|leave)"):
            resolved(combination, "cuda", H200)


@pytest.mark.parametrize("combination", [pytest.param(c, marks=gpu, id=name(c)) for c in CHOSEN])
def test_it_learns_on_a_gpu(combination: Combination) -> None:
    first, last = returns(resolved(combination, "cuda"), 30)
    assert first < 2.5
    assert last > 5


@pytest.mark.parametrize("env", [pytest.param(env, marks=gpu) for env in ("grid", "counter")])
def test_the_words_that_running_out_of_memory_recommends(env: str) -> None:
    """Everything else is auto: compiled, in bf16, without graphs."""
    words = [f"env={env}", "env.num_envs=64", "trainer.batch_size=4096", "trainer.minibatch_size=2048"]
    done = resolve(
        compose([*words, "trainer.bptt_horizon=16", "policy.hidden_size=32", "trainer.cpu_offload=true"])
    )
    assert done.config.trainer.compile
    parts = build_parts(done.config, done.factory)
    for _ in range(2):
        parts.algorithm.collect()
        parts.algorithm.update()
    parts.close()


@pytest.mark.parametrize(
    "combination", [pytest.param(c, id=name(c)) for c in covering(ON_CPU, lambda _: True)]
)
def test_it_learns_on_the_cpu(combination: Combination) -> None:
    first, last = returns(resolved(combination | {"trainer.compile": False}, "cpu"), 21)
    assert first < 2.5
    assert last > 4
