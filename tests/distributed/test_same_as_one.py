"""Several processes train as one does: same draws, same gradients, same moments and figures up to rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed import work
from tests.distributed.crew import crew

RUNS = {2: ("recurrent", "rewards", "several minibatches"), 4: ("target_kl",)}


@pytest.mark.parametrize("world", RUNS)
def test_the_weights_and_figures_are_those_of_one_process(world: int, tmp_path: Path) -> None:
    names = list(RUNS[world])
    several = crew(world, "tests.distributed.work:all_runs", tmp_path, names)
    for name in names:
        first = several[0][name]
        for other in several[1:]:  # to the bit: nothing ever brings them together again
            assert all(
                (first["weights"][key] == value).all() for key, value in other[name]["weights"].items()
            )
        one = work.trained(work.RUNS[name])
        assert one["steps"] == first["steps"] == 1000
        assert "update in C" not in first["fast_paths"]
        assert work.figures_differ(one["rows"][0], first["rows"][0], 5e-2) == []
        if name == "several minibatches":  # other rows make up each of them
            assert max(work.differences(one, first).values()) > 1e-4
            continue
        assert max(work.differences(one, first).values()) < 1e-4
        assert work.figures_differ(one["rows"][-1], first["rows"][-1], 2e-3) == []
        assert one["moments"] == pytest.approx(first["moments"], rel=1e-9)
