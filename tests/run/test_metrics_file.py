"""Tests what stays of metrics and of a program's own log where writes are cut, rows are merged, and runs end."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.inference.read_observation import read_observation
from metta_fast.metrics.loggers import JsonlLogger, Thinned, read_rows
from metta_fast.metrics.text_log import RunLog


class Slow:
    """A file that takes a few bytes at a time, as a nearly full disk does."""

    def __init__(self, file: Any, most: int) -> None:
        self.file, self.most = file, most

    def write(self, data: Any) -> int:
        part = bytes(data[: self.most])
        self.file.write(part)
        return len(part)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_line_is_written_whole_however_little_is_taken_at_a_time(tmp_path: Path, most: int) -> None:
    logger = JsonlLogger(tmp_path / "m.jsonl")
    logger._file = Slow(logger._file, most)  # type: ignore[assignment]
    for step in (10, 20):
        logger.write(step, {"env/return": step / 3, "loss/kl": math.nan})
    logger.sync()
    logger.close()
    lines = (tmp_path / "m.jsonl").read_text().splitlines()
    assert [json.loads(line)["train/steps"] for line in lines] == [10, 20]


def test_a_line_without_its_end_is_not_a_row_yet(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    whole, part = b'{"train/steps": 10, "env/return": 1.0}\n', b'{"train/steps": 20, "env/return": 12'
    for end in (b"", b"}", b"}\n"):
        path.write_bytes(whole + part + end)
        assert [row["train/steps"] for row in read_rows(path)] == ([10, 20] if end == b"}\n" else [10])


@pytest.mark.parametrize("resume", [0, 5, 10, 15, 20, 30, 99])
def test_a_resume_keeps_the_rows_up_to_its_checkpoint_and_that_one(tmp_path: Path, resume: int) -> None:
    path = tmp_path / "m.jsonl"
    logger = JsonlLogger(path)
    for step in (10, 20, 30):
        logger.write(step, {"a": 1.0})
    logger.close()
    JsonlLogger(path, resume).close()
    assert [row["train/steps"] for row in read_rows(path)] == [
        step for step in (10, 20, 30) if step <= resume
    ]


def test_merged_rows_have_every_name_with_its_newest_figure() -> None:
    thinned = Thinned(10.0)
    assert thinned.add(1, {"a": 1.0, "b": 1.0}, now=100.0) == (1, {"a": 1.0, "b": 1.0})
    assert thinned.add(2, {"a": 2.0, "c": 2.0}, now=104.0) is None
    assert thinned.add(3, {"a": 3.0, "d": 3.0}, now=109.9) is None
    assert thinned.add(4, {"d": 4.0}, now=110.0) == (4, {"a": 3.0, "c": 2.0, "d": 4.0})
    assert thinned.rest() is None


@pytest.mark.parametrize("propagate", [True, False])
def test_a_programs_own_log_is_as_before_after_a_run(tmp_path: Path, propagate: bool) -> None:
    logger = logging.getLogger("metta_fast")
    before = (logger.level, logger.propagate)
    shown: list[str] = []
    try:
        logger.setLevel(logging.ERROR)
        logger.propagate = propagate
        handlers = list(logger.handlers)
        log = RunLog(tmp_path / "train.log", shown.append)
        log.say("begins")
        log.note("a detail")
        log.warn("careful")
        log.close()
        assert (logger.level, logger.propagate, logger.handlers) == (logging.ERROR, propagate, handlers)
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
    assert shown == ["begins", "warning: careful"]
    lines = (tmp_path / "train.log").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["begins", "a detail", "warning: careful"]


def test_leaves_of_different_numbers_of_agents_are_refused() -> None:
    spec = EnvSpec(
        "two", 1, {"a": Leaf((2,), "float32"), "b": Leaf((), "float32")}, ActionSpec("discrete", (2,), (0,))
    )

    def given(a: tuple[int, ...], b: tuple[int, ...]) -> dict[str, Any]:
        return {"a": np.zeros(a, np.float32), "b": np.zeros(b, np.float32)}

    for a, b, single in (((3, 2), (3,), False), ((2,), (), True), ((1, 2), (1,), False)):
        leaves, alone = read_observation(given(a, b), spec)
        assert alone is single
        assert {len(leaf) for leaf in leaves.values()} == {a[0] if len(a) == 2 else 1}
    for a, b in (((3, 2), (2,)), ((2,), (1,)), ((1, 2), ())):
        with pytest.raises(UserError, match="differ in the number of agents"):
            read_observation(given(a, b), spec)


def test_a_row_whose_write_failed_is_written_before_the_checkpoint(tmp_path: Path) -> None:
    """Half of it was taken; then the device failed once."""
    logger = JsonlLogger(tmp_path / "m.jsonl")
    logger.write(10, {})
    whole, calls = logger._file, []

    class Fails(Slow):
        def write(self, data: Any) -> int:
            calls.append(len(data))
            if len(calls) == 2:
                raise OSError(5, "Input/output error")
            return super().write(data)

    logger._file = Fails(whole, 9)  # type: ignore[assignment]
    with pytest.raises(UserError, match="Input/output error"):
        logger.write(20, {"loss/kl": 1.0})
    assert [row["train/steps"] for row in read_rows(tmp_path / "m.jsonl")] == [10]
    logger.sync()
    logger.close()
    assert [row["train/steps"] for row in read_rows(tmp_path / "m.jsonl")] == [10, 20]
