"""Tests what hardware=, features= and run.dir= do where they are typed at a resume: their effect, or an error."""

from pathlib import Path

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.resume import prepare
from tests.tiny import COUNTER, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    words = ("trainer.total_timesteps=512", "vector.backend=serial", "features={profiler: {sync: false}}")
    return trained(tmp_path_factory.mktemp("runs"), *COUNTER, *words)


def resumed(run, *words):
    typed = [f"resume={run}", *words]
    return prepare(compose(typed), typed, lock=False).composed


def test_the_same_profile_changes_nothing(run):
    found = resumed(run, "hardware=cpu")
    assert not any("replace" in note for note in found.notes)
    assert found.groups["hardware"] == "cpu"
    assert resolve(found).config.trainer.learning_rate == resolve(resumed(run)).config.trainer.learning_rate


def test_another_profile_has_its_values_where_they_can_change(run, tmp_path):
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.yaml").write_text(
        "# @package _global_\nvector: {num_workers: 2, async_factor: 4}\ntrainer: {batch_size: 128}\n"
    )
    found = resumed(run, "--config-dir", str(tmp_path), "hardware=mine")
    assert found.config.vector.async_factor == 4
    assert found.config.trainer.batch_size == 256, "the saved state depends on it"
    assert found.groups["hardware"] == "mine"
    [note] = [note for note in found.notes if "hardware=mine" in note]
    assert "hardware=cpu" in note
    assert "trainer.batch_size=256" in note


def test_a_typed_key_wins_over_a_typed_profile(run, tmp_path):
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.yaml").write_text("# @package _global_\nvector: {async_factor: 4}\n")
    words = ("--config-dir", str(tmp_path), "hardware=mine", "vector.async_factor=8")
    assert resumed(run, *words).config.vector.async_factor == 8


def test_features_that_are_not_listed_are_turned_off(run):
    assert set(resumed(run).config.features) == {"profiler"}
    assert set(resumed(run, "features=profiler").config.features) == {"profiler"}
    off = resumed(run, "features=null")
    assert off.config.features == {}
    assert "features=null: profiler is turned off" in off.notes
    other = resumed(run, "features=weight_analysis")
    assert set(other.config.features) == {"weight_analysis"}
    assert set(resumed(run, "features={weight_analysis: {}}").config.features) == {
        "profiler",
        "weight_analysis",
    }


def test_a_folder_of_runs_in_which_the_run_is_not(run, tmp_path):
    with pytest.raises(UserError, match=r"is not in run\.dir=.*; remove run\.dir"):
        resumed(run, f"run.dir={tmp_path}")
    assert resumed(run, f"run.dir={run.parent}").config.run.dir == str(run.parent)
