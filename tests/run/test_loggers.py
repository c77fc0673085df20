"""Tests that metrics.jsonl and TensorBoard continue after a resume without duplicate or damaged rows."""

import json
import math

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.metrics.loggers import JsonlLogger, Later, TensorBoardLogger, Thinned, read_rows
from metta_fast.storage.run_folder import RunDir


def write(path, steps, resume=None):
    logger = JsonlLogger(path, resume)
    for step in steps:
        logger.write(step, {"env/return": step / 10})
    logger.close()


def test_rows_are_flat_json_and_nan_is_null(tmp_path):
    logger = JsonlLogger(tmp_path / "m.jsonl")
    logger.write(5, {"env/return": math.nan, "loss/kl": math.inf, "loss/value": 0.5})
    assert json.loads((tmp_path / "m.jsonl").read_text()) == {
        "train/steps": 5,
        "env/return": None,
        "loss/kl": None,
        "loss/value": 0.5,
    }
    logger.close()
    logger.close()


def test_rows_after_the_checkpoint_are_cut_on_resume(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [10, 20, 30, 40])
    write(path, [30, 40, 50], resume=20)
    assert [row["train/steps"] for row in read_rows(path)] == [10, 20, 30, 40, 50]


def aside(path):
    return sorted(path.parent.glob("m-aside-*.jsonl"))


def test_later_rows_are_put_aside_on_resume(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [10, 20, 30, 40])
    lines = path.read_bytes().splitlines(keepends=True)
    logger = JsonlLogger(path, 20)
    logger.close()
    assert aside(path) == [logger.aside]
    assert logger.aside.read_bytes() == b"".join(lines[2:])
    assert path.read_bytes() == b"".join(lines[:2])
    write(path, [30], resume=20)
    write(path, [40], resume=30)
    assert aside(path) == [logger.aside]  # nothing was there to put aside
    write(path, [40], resume=10)
    assert len(aside(path)) == 2
    assert [row["train/steps"] for row in read_rows(aside(path)[1])] == [20, 30, 40]


def test_rows_after_a_damaged_one_are_put_aside(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [10])
    with open(path, "ab") as file:
        file.write(b'broken\n{"train/steps": 20}\n{"train/ste')
    logger = JsonlLogger(path, 20)
    logger.close()
    assert logger.damaged_after == 10
    assert logger.aside.read_bytes() == b'broken\n{"train/steps": 20}\n{"train/ste'


def test_half_a_line_is_not_put_aside(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, [10])
    with open(path, "ab") as file:
        file.write(b'{"train/steps": 20, "env')
    write(path, [20], resume=10)
    assert aside(path) == []


def test_a_full_disk_at_the_resume_loses_no_row(tmp_path, monkeypatch):
    path = tmp_path / "m.jsonl"
    write(path, [10, 20, 30])
    before = path.read_bytes()

    def full(*files):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("metta_fast.metrics.loggers.shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        JsonlLogger(path, 10)
    assert path.read_bytes() == before
    assert aside(path) == []


@pytest.mark.parametrize("end", [b'{"train/steps": 30, "env', b"\x00\x00\x00\n", b"{}\n"])
def test_a_half_written_line_is_dropped(tmp_path, end):
    path = tmp_path / "m.jsonl"
    write(path, [10, 20])
    with open(path, "ab") as file:
        file.write(end)
    write(path, [30], resume=20)
    assert [row["train/steps"] for row in read_rows(path)] == [10, 20, 30]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_file_cut_in_the_middle_of_a_line_goes_on_with_whole_rows(tmp_path, cut):
    """Wherever it is cut; what is missing before the checkpoint is told."""
    path = tmp_path / "m.jsonl"
    write(path, [10, 20, 30])
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    kept = [row["train/steps"] for row in read_rows(path)]
    logger = JsonlLogger(path, 30)
    logger.write(40, {})
    logger.close()
    assert [row["train/steps"] for row in read_rows(path)] == [*kept, 40]
    lines = data[:-cut].count(b"\n")
    half = not data[:-cut].endswith(b"\n")
    assert kept == [10, 20, 30][:lines]
    assert logger.damaged_after == (10 * lines if half else None)


def test_reading_stops_at_a_half_written_line(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"train/steps": 1}\n{"train/st')
    assert len(list(read_rows(path))) == 1
    assert list(read_rows(tmp_path / "absent")) == []


def test_a_full_disk_is_a_users_error(tmp_path):
    logger = JsonlLogger(tmp_path / "m.jsonl")
    logger.close()
    logger._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    with pytest.raises(UserError, match="No space left"):
        logger.write(1, {})
    logger.close()


def tensorboard_points(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [event.step for event in accumulator.Scalars("env/return")]


def test_tensorboard_purges_what_the_resume_takes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(TensorBoardLogger, "MIN_GAP_S", 0.0)
    first = TensorBoardLogger(tmp_path)
    for step in (10, 20, 30):
        first.write(step, {"env/return": 1.0})
    first.close()
    second = TensorBoardLogger(tmp_path, resume_step=20)
    second.write(25, {"env/return": 2.0})
    second.close()
    assert tensorboard_points(tmp_path) == [10, 20, 25]


def test_tensorboard_goes_on_where_the_clock_was_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr(TensorBoardLogger, "MIN_GAP_S", 0.0)
    for clock, resume, steps in ((2e9, None, (10, 20, 30)), (1e9, 20, (30, 40)), (1e9, 30, (40, 50))):
        monkeypatch.setattr("time.time", lambda clock=clock: clock)
        logger = TensorBoardLogger(tmp_path, resume)
        for step in steps:
            logger.write(step, {"env/return": 1.0})
        logger.close()
    monkeypatch.undo()
    assert tensorboard_points(tmp_path) == [10, 20, 30, 40, 50]


def test_tensorboard_events_are_there_at_once(tmp_path):
    """Before close: a killed process leaves them."""
    TensorBoardLogger(tmp_path).write(10, {"env/return": 1.0})
    assert tensorboard_points(tmp_path) == [10]


def test_the_run_goes_on_where_tensorboard_cannot(tmp_path, caplog):
    logger = TensorBoardLogger(tmp_path)
    logger._writer._writer = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    for step in (1, 2):
        logger.write(step, {"env/return": 1.0})
    logger.close()
    assert [record.message for record in caplog.records] == [
        "no more TensorBoard events: No space left on device"
    ]


def test_a_later_logger_is_made_with_the_first_row(tmp_path, caplog):
    logger = Later(lambda: TensorBoardLogger(tmp_path / "events"))
    assert not (tmp_path / "events").exists()
    for step in (10, 20):
        logger.write(step, {"env/return": 1.0})
    logger.close()
    assert tensorboard_points(tmp_path / "events") == [10, 20]
    Later(lambda: TensorBoardLogger(tmp_path / "never")).close()
    assert not (tmp_path / "never").exists()
    (tmp_path / "file").touch()
    impossible = Later(lambda: TensorBoardLogger(tmp_path / "file"))
    for step in (10, 20):
        impossible.write(step, {"env/return": 1.0})
    impossible.close()
    ours = [record.message for record in caplog.records if record.name.startswith("metta_fast")]
    assert ours == ["no TensorBoard events: File exists"]


def test_tensorboard_names_a_run_by_its_folder(tmp_path):
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    (tmp_path / "older/tensorboard").mkdir(parents=True)  # where runs of before go on
    (tmp_path / "first").mkdir()
    for name in ("first", "older"):
        logger = TensorBoardLogger(RunDir(tmp_path / name).tensorboard)
        logger.write(10, {"env/return": 1.0})
        logger.close()
    assert set(EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Runs()) == {
        "first",
        "older/tensorboard",
    }


def test_tensorboard_writes_the_last_row_whatever_the_gap(tmp_path):
    logger = TensorBoardLogger(tmp_path)
    for step in (10, 20, 30):
        logger.write(step, {"env/return": 1.0})
    logger.close()
    assert tensorboard_points(tmp_path) == [10, 30]


def test_merging_rows_keeps_the_newest_of_each_figure():
    thinned = Thinned(1.0)
    assert thinned.add(1, {"a": 1.0}, now=0.0) == (1, {"a": 1.0})
    assert thinned.add(2, {"a": 2.0, "rare": 7.0}, now=0.5) is None
    assert thinned.add(3, {"a": 3.0}, now=0.9) is None
    assert thinned.add(4, {"b": 4.0}, now=1.0) == (4, {"a": 3.0, "rare": 7.0, "b": 4.0})
    assert thinned.rest() is None
    assert thinned.add(5, {"a": 5.0}, now=1.5) is None
    assert thinned.rest() == (5, {"a": 5.0})
