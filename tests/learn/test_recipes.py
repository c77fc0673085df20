"""Checks how a recipe's learning time is read from its metrics."""

import json
from pathlib import Path

from tests.learn.recipes import learning_curve, reached


def test_the_time_to_a_share_of_the_last_score(tmp_path: Path) -> None:
    rows = [{"train/seconds": i, "train/steps": 100 * i, "env/hearts": float(i)} for i in range(1, 11)]
    rows.insert(3, {"train/seconds": 3.5, "train/steps": 350})  # no episode ended
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    name, curve = learning_curve(file)
    assert (name, curve[-1].score) == ("env/hearts", 9.0)
    assert reached(curve, 0.5).seconds == 6
    assert reached(curve, 1.0).steps == 1000
