"""Tests full disks, read-only folders and two runs with one name: messages, and what is kept.

The disk is a real one of 1 MiB (tmpfs); without the right to mount one these tests are left out, and those of
test_checkpoint.py and test_loggers.py, where the system's calls fail, remain.
"""

import os
import subprocess
import time

import pytest

from metta_fast.bench.harness.report import Report
from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.export.runs import fake_run
from tests.run.fake import Builder, resolved
from tests.run.test_end_to_end import check_rows, command, rows, words

KIB = 1024


def mount(*arguments):
    try:
        done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"no right to mount: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """A folder that is a disk of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", folder)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk, free):
    """Leave so many bytes."""
    state = os.statvfs(disk)
    (disk / "fill").write_bytes(b"x" * (state.f_bavail * state.f_frsize - free))


@pytest.mark.parametrize(
    ("free", "message"),
    [
        (0, "cannot write into the run's folder"),
        (4 * KIB, "cannot write into the run's folder"),
        (32 * KIB, "there is no earlier one. Make the folder writable, free disk space"),
        (48 * KIB, "start again with resume=auto run.name=r"),
        (100 * KIB, "the last good one is"),
    ],
)
def test_a_full_disk_stops_the_run_with_one_message_and_it_goes_on_afterwards(disk, capfd, free, message):
    more = ["trainer.total_timesteps=10000", "vector.backend=serial", "run.tensorboard=true"]
    fill(disk, free)
    assert main(words(disk, *more, "trainer.total_timesteps=1_000_000")) == 2
    said = capfd.readouterr().err
    assert said.count("error: ") == 1
    assert message in said
    assert "No space left on device" in said
    assert "Traceback" not in said
    if free <= 4 * KIB:
        assert not (disk / "r").exists()
    for _, path in checkpoint.steps(disk / "r" / "checkpoints"):
        checkpoint.read(path)
    check_rows(disk)
    (disk / "fill").unlink()
    assert main(words(disk, *more, "resume=auto")) == 0
    check_rows(disk, last=rows(disk)[-1]["train/steps"])


def test_a_full_disk_at_a_resume_harms_nothing(disk, capfd):
    more = ["trainer.total_timesteps=2000", "vector.backend=serial"]
    assert main(words(disk, *more)) == 0
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file() and path.name != "lock"}
    fill(disk, 0)
    assert main(words(disk, *more, "trainer.total_timesteps=4000", "resume=auto")) == 2
    assert "cannot write into the run's folder" in capfd.readouterr().err
    (disk / "fill").unlink()
    assert {path: path.read_bytes() for path in before} == before
    assert main(words(disk, *more, "trainer.total_timesteps=4000", "resume=auto")) == 0
    check_rows(disk)


def test_a_read_only_run_folder_is_told_before_work_starts(disk, capfd):
    more = ["trainer.total_timesteps=2000", "vector.backend=serial"]
    assert main(words(disk, *more)) == 0
    capfd.readouterr()
    mount("-o", "remount,ro", disk)
    for keys, message in (
        (["resume=auto"], f"cannot write into the run's folder {disk / 'r'}: Read-only file system"),
        (["run.name=other"], f"cannot create a run's folder in {disk}: Read-only file system"),
    ):
        assert main(words(disk, *more, *keys)) == 2
        said = capfd.readouterr().err
        assert message in said
        assert "choose another with run.dir=" in said
        assert "Traceback" not in said
    assert main(["eval", str(disk / "r"), "--episodes", "2"]) == 0  # reading goes on


@pytest.mark.parametrize("keys", [[], ["resume=auto"]])
def test_of_two_runs_of_one_name_at_the_same_time_one_trains(tmp_path, keys):
    more = ["trainer.total_timesteps=100_000_000", "vector.backend=serial", *keys]
    both = []
    for number in range(2):
        with open(tmp_path / f"{number}.txt", "w") as out:
            both.append(subprocess.Popen(command(tmp_path, *more), stderr=out))
    while all(process.poll() is None for process in both):
        time.sleep(0.05)
    loser = next(number for number, process in enumerate(both) if process.poll() is not None)
    while not (tmp_path / "r" / "metrics.jsonl").exists() or not rows(tmp_path):
        time.sleep(0.05)
    both[1 - loser].terminate()
    assert both[1 - loser].wait(60) == 143
    said = (tmp_path / f"{loser}.txt").read_text()
    assert both[loser].returncode == 2, said
    assert "exists already; continue it with resume=auto" in said or "is being trained by process" in said
    assert "Traceback" not in said
    check_rows(tmp_path)


def test_a_new_folder_that_another_process_took_first_is_left_to_it(tmp_path):
    trainer = Trainer(resolved(tmp_path), build=Builder())
    other = RunDir(trainer.folder.path)
    other.lock()
    with pytest.raises(UserError, match="is being trained by process"):
        trainer.run()
    assert (other.path / "lock").exists()
    other.unlock()


def test_old_checkpoints_that_cannot_be_removed_end_no_run(tmp_path, monkeypatch):
    def rmtree(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("metta_fast.storage.checkpoint.shutil.rmtree", rmtree)
    run = resolved(tmp_path, checkpoint_interval=1, keep_checkpoints=1)
    assert Trainer(run, build=Builder()).run() == 0
    assert "warning: an old checkpoint cannot be removed" in (tmp_path / "fake/train.log").read_text()


@pytest.mark.parametrize(
    "words",
    [
        *(["export", "RUN", "--out", f"OUT{end}", "--overwrite"] for end in (".pt", ".pt2")),
        ["replay", "RUN", "--html", "OUT.html"],
        ["replay", "RUN", "--json", "OUT.json"],
        ["replay", "RUN", "--video", "OUT.mp4"],
        ["replay", "RUN", "--video", "OUT.gif"],
        ["replay", "RUN", "--picture", "OUT.png"],
        ["bench", "--from", "FIGURES", "--plot", "OUT.png"],
    ],
    ids=lambda words: "-".join(words[::3]),
)
def test_a_file_that_does_not_fit_is_told_in_one_line_and_leaves_nothing(disk, tmp_path, capsys, words):
    run = fake_run(tmp_path / "r", "env=grid", "env.max_steps=20", "policy.hidden_size=64")
    report = Report({"cpu": "x"}, "bench")
    report.add_row("one", [1.0, 2.0])
    report.write(tmp_path / "figures.json")
    given = [
        word.replace("RUN", str(run)).replace("FIGURES", str(tmp_path / "figures.json")) for word in words
    ]
    out = disk / f"out{given[-1 if 'export' not in words else 3].rpartition('OUT')[2]}"
    given = [word.replace("OUT", str(disk / "out")) for word in given]
    out.write_text("old")
    fill(disk, 4 * KIB)
    assert main(given) == 2
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "No space left on device" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert sorted(path.name for path in disk.iterdir()) == sorted(["fill", out.name])
    assert out.read_text() == "old"


def test_a_report_that_does_not_fit_leaves_the_old_one(disk):
    out = disk / "figures.json"
    out.write_text("old")
    fill(disk, 0)
    with pytest.raises(UserError, match="No space left on device"):
        Report({"cpu": "x" * 10_000}, "bench").write(out)
    assert sorted(path.name for path in disk.iterdir()) == ["figures.json", "fill"]
    assert out.read_text() == "old"
