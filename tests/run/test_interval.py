"""Interval: epochs and seconds, from where counting starts."""

from __future__ import annotations

import pytest

from metta_fast.config.keys import RunConfig
from metta_fast.metrics.loggers import read_rows
from metta_fast.run.clocks import Clocks
from metta_fast.runtime import interval as module
from metta_fast.runtime.interval import Interval
from tests.tiny import COUNTER, trained


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    return clock


def fired(interval: Interval, epochs: range) -> list[int]:
    return [epoch for epoch in epochs if interval.due(epoch)]


def test_it_counts_epochs_from_where_it_starts(time) -> None:
    assert fired(Interval(4), range(1, 13)) == [4, 8, 12]
    assert fired(Interval(4, start=6), range(7, 18)) == [10, 14]
    assert fired(Interval(4, start=None), range(7, 18)) == [8, 12, 16], "multiples of the run's epochs"
    assert fired(Interval(0), range(1, 9)) == []


def test_asked_again_in_an_epoch_it_answers_the_same(time) -> None:
    each = Interval(1)
    assert [each.due(epoch) for epoch in (1, 1, 2, 2)] == [True] * 4


def test_least_and_most_seconds(time) -> None:
    for start, first in ((0, False), (None, True)):
        apart = Interval(2, min_s=10.0, start=start)
        assert apart.due(2) is first
        time.now += 9
        assert not apart.due(4)
        time.now += 1
        assert apart.due(5)
    most = Interval(100, min_s=50.0, max_s=30.0)
    time.now += 29
    assert not most.due(1)
    time.now += 1
    assert most.due(2)
    most.restart(2)
    assert not most.due(3)


def test_a_short_run_has_each_thing_once(time) -> None:
    never, once = Interval(100), Interval(2, min_s=10.0)
    time.now += 10
    assert [never.due(epoch, last=epoch == 5) for epoch in range(1, 6)] == [False] * 4 + [True]
    assert [once.due(epoch, last=epoch == 5) for epoch in range(1, 6)] == [False, True, False, False, False]
    assert not Interval(0).due(5, last=True)


def test_a_run_shorter_than_its_intervals(tmp_path, capsys) -> None:
    """As a user types them: with seconds between them that are longer than the run."""
    asked = ("evaluate_interval=1", "evaluate_episodes=2", "monitor_interval=1", "gradient_stats_interval=50")
    words = [*COUNTER, "trainer.total_timesteps=2000", *(f"run.{word}" for word in asked)]
    folder = trained(tmp_path, *words, "features=weight_analysis")
    rows = list(read_rows(folder / "metrics.jsonl"))
    assert len(rows) > 2
    for name in ("eval/return", "perf/cpu_utilization"):
        assert [name in row for row in rows] == [False] * (len(rows) - 1) + [True]
    told = capsys.readouterr().err
    assert (
        f"no metrics gradient/…: run.gradient_stats_interval=50 epochs are more than the {len(rows)} of"
        in told
    )
    assert (
        f"features.weight_analysis.interval_epochs=100 epochs are more than the {len(rows)} of this run"
        in told
    )


def test_sessions_shorter_than_an_interval_reach_it() -> None:
    """Six sessions of three epochs: what is due each seventh comes twice, as in one session of eighteen."""
    run = RunConfig(log_interval=1, evaluate_interval=7, replay_interval=7, min_interval_s=0.0)
    fired = []
    for session in range(6):
        clocks = Clocks(run, epoch=3 * session, steps=0, seconds=0.0, monitor=None)
        fired += [epoch for epoch in range(3 * session + 1, 3 * session + 4) if clocks.evaluate.due(epoch)]
    assert fired == [7, 14]
