"""Tests files that are not what they seem: links in a run's folder, devices and pipes as outputs."""

from __future__ import annotations

import os
import shutil
import stat

import pytest

from metta_fast.cli import main
from tests.tiny import COUNTER, named, trained

FILES = ("lock", "metrics.jsonl", "train.log", "config.yaml", "id", "wandb/id", "weights_start.pt")
FOLDERS = ("checkpoints", "replays", "tensorboard", "wandb", "traces")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("whole"), *COUNTER, "trainer.total_timesteps=256")


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_links_in_a_run_lead_nowhere(name, whole, tmp_path, capsys):
    """Training goes on in no file that a link leads to, whatever it is; nor is it read."""
    run = shutil.copytree(whole, tmp_path / "r")
    target = tmp_path / "precious"
    link = run / name
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(target)
    elif name in FOLDERS:
        target.mkdir()
    else:
        target.write_text("precious\n")
    before = {path: path.read_bytes() for path in (target, *target.rglob("*")) if path.is_file()}
    link.symlink_to(target)
    for words in (
        ["train", *COUNTER, f"resume={run}", "trainer.total_timesteps=512"],
        ["train", *COUNTER, *named(tmp_path), "resume=auto", "trainer.total_timesteps=512"],
        ["eval", str(run), "--episodes", "2"],
        ["replay", str(run)],
        ["monitor", str(run), "--once"],
    ):
        assert main(words) == 2, words
        error = capsys.readouterr().err
        assert f"{link} is a link, expected a" in error
        assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in (target, *target.rglob("*")) if path.is_file()} == before


def test_a_pipe_in_a_run_does_not_wait_for_ever(whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / "r")
    step = next((run / "checkpoints").glob("step_*"))
    (step / "meta.json").unlink()
    os.mkfifo(step / "meta.json")
    assert main(["eval", str(run), "--best"]) == 2
    assert main(["eval", str(step)]) == 2
    (run / "id").unlink()
    os.mkfifo(run / "id")
    assert main(["train", *COUNTER, f"resume={run}"]) == 2
    assert "id is a pipe, expected a file" in capsys.readouterr().err


def test_checkpoints_that_are_links_are_damaged(whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / "r")
    step = next((run / "checkpoints").glob("step_*"))
    step.rename(tmp_path / step.name)
    step.symlink_to(tmp_path / step.name)
    assert main(["eval", str(run), "--episodes", "2"]) == 2
    assert "is a link, which is not followed" in capsys.readouterr().err
    step.unlink()
    (tmp_path / step.name).rename(step)
    (step / "algorithm.pt").rename(tmp_path / "weights")
    (step / "algorithm.pt").symlink_to(tmp_path / "weights")
    assert main(["eval", str(run), "--episodes", "2"]) == 2


@pytest.fixture
def places(tmp_path):
    """What is no regular file: (its path, what the message calls it)."""
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "link.html").symlink_to(tmp_path / "pipe.html")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "other.html").symlink_to(tmp_path / "file")
    odd = [tmp_path / "pipe.html"]
    if os.geteuid() == 0:  # a device of its own: without the check, root would replace it
        os.mknod(tmp_path / "device.html", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        odd.append(tmp_path / "device.html")
    found = dict.fromkeys(odd, "a pipe or device")
    return found | {tmp_path / "link.html": "a link", tmp_path / "other.html": "a link", tmp_path: "a folder"}


def test_outputs_are_regular_files(whole, places, tmp_path, capsys):
    for place, what in places.items():
        for option in ("--html", "--json"):
            assert main(["replay", str(whole), option, str(place)]) == 2
            assert f"{option} {place} is {what}" in capsys.readouterr().err
        words = ["export", str(whole), "--out", str(place), "--format", "torchscript", "--overwrite"]
        assert main(words) == 2
        assert f"--out {place} is {what}" in capsys.readouterr().err
        assert main(["bench", "--advantage", "--quick", "--json", str(place)]) == 2
        assert f"--json {place} is {what}" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "precious"
    (tmp_path / "policy.pt.json").symlink_to(tmp_path / "file")
    assert main(["export", str(whole), "--out", str(tmp_path / "policy.pt")]) == 2
    assert (tmp_path / "file").read_text() == "precious"


def test_what_a_stranger_left_beside_an_output(whole, tmp_path):
    """The name of the temporary file is known: a link there is not followed."""
    (tmp_path / "file").write_text("precious")
    (tmp_path / ".page.part.html").symlink_to(tmp_path / "file")
    assert main(["replay", str(whole), "--html", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "file").read_text() == "precious"
    assert (tmp_path / "page.html").is_file()
