"""Tests the benchmark's command line: mistakes, the JSON file, and a real comparison of a few seconds."""

import json

import pytest

from metta_fast.bench.main import main

SMALL = (
    "hardware=cpu env=counter env.num_envs=32 env.max_steps=16 trainer.batch_size=1024 "
    "trainer.minibatch_size=512 trainer.torch_threads=1 trainer.compile=false"
)


def test_a_mistake_in_a_sides_overrides_names_the_side(capsys):
    assert main(["--a", "env.num_env=3", "--seconds", "1"]) == 2
    error = capsys.readouterr().err
    assert "error: --a 'env.num_env=3': " in error
    assert "env.num_envs" in error


def test_an_open_quote_is_a_mistake(capsys):
    assert main(["--a", "env='x"]) == 2
    assert "as on a command line" in capsys.readouterr().err


def test_a_json_file_that_cannot_be_written_is_told_before_anything_runs(capsys, tmp_path):
    assert main(["--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seconds", "0"], "--seconds: 0: expected a number above 0"),
        (["--seconds", "soon"], "--seconds: soon: expected a number above 0"),
        (["--repeats", "0"], "--repeats: 0: expected a whole number of at least 1"),
        (["--repeats", "1.5"], "--repeats: 1.5: expected a whole number of at least 1"),
        (["--simulator", "--vector"], "not allowed with"),
        (["--jsn", "x"], "unrecognized arguments"),
    ],
)
def test_impossible_options_are_told_in_one_line(words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_two_settings_in_turns(tmp_path, capsys):
    file = tmp_path / "figures.json"
    code = main(["--a", SMALL, "--b", f"{SMALL} policy.core=lstm", "--seconds", "0.2", "--repeats", "1",
                 "--return", "-1", "--json", str(file)])  # fmt: skip
    assert code == 0
    document = json.loads(file.read_text())
    assert [row["n"] for row in document["rows"]] == [1, 1]
    assert document["rows"][1]["settings"]["core"] == "lstm"
    assert {"env", "inference", "update", "boundary"} <= set(document["rows"][0]["phases"])
    assert document["rows"][0]["to_return"]["reached"]
    assert 0 < document["ratios"][0]["low"] <= document["ratios"][0]["value"] <= document["ratios"][0]["high"]
    assert "B / A" in capsys.readouterr().out


def test_a_peer_that_is_no_robot_or_not_there_is_told(capsys, monkeypatch):
    monkeypatch.setattr("metta_fast.bench.harness.libraries.Library.version", lambda _: "")
    assert main(["--sb3", "ant"]) == 2
    assert "pip install stable-baselines3" in capsys.readouterr().err
    monkeypatch.setattr("metta_fast.bench.harness.libraries.Library.version", lambda _: "2")
    assert main(["--sb3", "grid"]) == 2
    assert "expected one of our robots" in capsys.readouterr().err


@pytest.mark.slow
def test_training_beside_stable_baselines3(tmp_path):
    pytest.importorskip("stable_baselines3")
    file = tmp_path / "figures.json"
    assert (
        main(["--sb3", "inverted_pendulum", "--seconds", "0.5", "--repeats", "1", "--json", str(file)]) == 0
    )
    document = json.loads(file.read_text())
    assert document["rows"][0]["name"] == "ours"
    assert len(document["rows"]) >= 3
    assert document["ratios"][0]["name"].startswith("ours / SB3")
    assert "InvertedPendulum-v5" in document["notes"][-1]
