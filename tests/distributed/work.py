"""What the processes of tests/distributed/test_same_as_one.py do, and one process beside them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from metta_fast.distributed.group import Group, current
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.build import build_parts
from tests.tiny import QUIET

COMMON = (
    "env.num_envs=8", "trainer.batch_size=512", "trainer.minibatch_size=512", "trainer.bptt_horizon=8",
    "trainer.update_epochs=2", "trainer.total_timesteps=1000", "vector.async_factor=2", "vector.backend=serial",
)  # fmt: skip
"""One minibatch a pass: it has the same rows however many processes divide it."""
RUNS: dict[str, tuple[str, ...]] = {
    "recurrent": ("env=counter", "policy.core=mingru", *COMMON),
    "rewards": ("env=inverted_pendulum", "trainer.normalize_reward=true", "policy.normalize_obs=true", *COMMON),
    "target_kl": ("env=counter", *COMMON, "trainer.target_kl=1e-4", "trainer.update_epochs=5"),
    "several minibatches": ("env=counter", *COMMON, "trainer.minibatch_size=128",
                            "trainer.gradient_accumulation=2"),
}  # fmt: skip


def trained(words: tuple[str, ...]) -> dict[str, Any]:
    """Weights, moments and figures of a run of these words, by the processes of the current group."""
    config = resolve(compose([*QUIET, *words])).config
    config.distributed.processes = current().world
    parts = build_parts(config)
    rows = []
    try:
        while parts.algorithm.steps < config.trainer.total_timesteps:
            parts.algorithm.collect()
            parts.algorithm.update()
            rows.append(
                {name: value for name, value in parts.algorithm.metrics().items() if "time" not in name}
            )
    finally:
        parts.close()
    state = parts.algorithm.state_dict()
    weights = {name: value.clone() for name, value in state["policy"].items()}
    scale = state.get("reward_scale")
    return {
        "weights": weights,
        "moments": None if scale is None else scale["moments"],
        "rows": rows,
        "steps": parts.algorithm.steps,
        "fast_paths": [choice.name for choice in parts.algorithm.fast_paths if choice.why is None],
    }


def all_runs(group: Group, names: list[str]) -> dict[str, Any]:
    return {name: trained(RUNS[name]) for name in names}


def differences(one: dict[str, Any], several: dict[str, Any]) -> dict[str, float]:
    """The largest relative difference of each entry."""
    found = {}
    for name, value in one["weights"].items():
        other = several["weights"][name]
        found[name] = float(
            (value.double() - other.double()).abs().max() / (value.double().abs().max() + 1e-9)
        )
    return found


def figures_differ(one: dict[str, float], other: dict[str, float], tolerance: float) -> list[str]:
    """The names of figures that are not the same within a tolerance."""
    return [
        f"{name}: {one.get(name)} {other.get(name)}"
        for name in one.keys() | other.keys()
        if not math.isclose(
            one.get(name, math.nan), other.get(name, math.nan), rel_tol=tolerance, abs_tol=tolerance
        )
    ]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from metta_fast.storage import checkpoint

    found = checkpoint.latest(folder / "checkpoints", print, ("algorithm",))
    assert found is not None
    return dict(found.load("algorithm")["policy"])
