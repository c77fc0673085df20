"""Tests the report's statistics and its JSON document."""

import json

import pytest

from metta_fast.bench.harness.report import Report
from metta_fast.contracts.errors import UserError


def report():
    found = Report({"cpu": "a cpu", "gpu": ["X", "Y"]}, "python benchmark_performance.py")
    found.add_row("A: slow", [100.0, 300.0, 200.0], phases={"env": 1.0, "update": 3.0})
    found.add_row("B: fast", [1000.0, 1500.0, 4000.0], gpu_utilization=91.0, phases={}, settings=None)
    found.add_ratio("B / A", [1000.0, 1500.0, 4000.0], [100.0, 300.0, 200.0])
    return found


def test_a_row_is_the_median_with_its_extremes():
    row = report().rows[0]
    assert (row["steps_per_s"], row["low"], row["high"], row["n"]) == (200.0, 100.0, 300.0, 3)


def test_a_ratio_is_taken_within_pairs():
    assert report().ratios == [{"name": "B / A", "value": 10.0, "low": 5.0, "high": 20.0}]


def test_the_document_has_the_agreed_keys(tmp_path):
    report().write(tmp_path / "figures.json")
    document = json.loads((tmp_path / "figures.json").read_text())
    assert list(document) == ["machine", "command", "rows", "ratios"]
    assert set(document["rows"][0]) == {"name", "steps_per_s", "low", "high", "n", "phases"}
    assert set(document["ratios"][0]) == {"name", "value", "low", "high"}


def test_a_figure_without_a_value_is_left_out():
    assert "settings" not in report().rows[1]


def test_the_table_shows_phases_utilisation_and_ratio():
    text = report().show()
    assert "env 25%, update 75%" in text
    assert "GPU busy 91%" in text
    assert "10.00 times  (5.00 to 20.00)" in text


def test_a_folder_that_is_not_there_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match=r"figures\.json"):
        report().write(tmp_path / "nowhere" / "figures.json")
