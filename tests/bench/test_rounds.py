"""Tests alternating rounds, and the handling of other programs' load."""

import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from metta_fast.bench.harness import other_load as load
from metta_fast.bench.harness.other_load import LIMIT, OtherLoad, Used
from metta_fast.bench.harness.rounds import TRIES, in_turns


class Watch:
    """Stands in for OtherLoad: gives one figure after another."""

    def __init__(self, cores):
        self.cores = iter(cores)

    def __call__(self):
        return self

    def stop(self):
        return Used(next(self.cores), "another program (1)")


def sides(order):
    def side(name):
        def one():
            order.append(name)
            return {"steps_per_s": float(len(order))}

        return one

    return [side("A"), side("B")]


def test_the_sides_take_turns():
    order = []
    results, notes = in_turns(sides(order), 3, lambda line: None, Watch([0.0] * 3))
    assert order == ["A", "B"] * 3
    assert [one["steps_per_s"] for one in results[0]] == [1.0, 3.0, 5.0]
    assert notes == []


def test_a_disturbed_pair_is_repeated_and_thrown_away():
    order, said = [], []
    results, notes = in_turns(sides(order), 1, said.append, Watch([0.5, 0.0]))
    assert order == ["A", "B", "A", "B"]
    assert [one["steps_per_s"] for one in results[1]] == [4.0]
    assert notes == []
    assert "another program (1); repeating" in said[0]


def test_a_pair_that_stays_disturbed_is_taken_and_said():
    order = []
    results, notes = in_turns(sides(order), 1, lambda line: None, Watch([0.5] * (TRIES + 1)))
    assert len(order) == 2 * (TRIES + 1)
    assert len(results[0]) == 1
    assert "1 of 1 rounds were disturbed" in notes[0]


BUSY = "import time; end = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


def test_another_programs_load_is_seen_with_its_name():
    """A program that is not below this process: its parent ends at once."""
    start = (
        "import subprocess as s, sys\n"
        f"print(s.Popen([sys.executable, '-c', {BUSY.format(3)!r}], stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    )  # its own output: otherwise `run` would wait until it ends
    pid = int(
        subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True).stdout
    )
    watch = OtherLoad()
    time.sleep(1.0)
    used = watch.stop()
    assert used.cores > 0.3
    assert not used.quiet
    assert used.worst
    assert pid


def test_seconds_of_programs_that_ended_with_their_parent_are_not_new(monkeypatch):
    """shell 1 ─► make 2 ─► compiler 3: both end meanwhile, and the shell takes over what they had used before."""
    seconds = iter(
        [
            ({1: 5.0, 2: 20.0, 3: 300.0}, {1: 0, 2: 1, 3: 2}),
            ({1: 5.0 + 20.0 + 300.0 + 0.02}, {1: 0}),
        ]
    )
    monkeypatch.setattr(load, "_seconds", lambda: next(seconds))
    watch = OtherLoad()
    watch._time -= 1.0
    assert watch.stop().cores <= 0.021


@given(st.lists(st.floats(0, 3), min_size=TRIES + 1, max_size=20))
def test_a_round_counts_if_it_was_quiet_or_nothing_else_helped(cores):
    order = []
    results, notes = in_turns(sides(order), 1, lambda line: None, Watch(cores))
    quiet = next((i for i, used in enumerate(cores[: TRIES + 1]) if used <= LIMIT), None)
    tries = TRIES + 1 if quiet is None else quiet + 1
    assert len(order) == 2 * tries
    assert [one["steps_per_s"] for one in results[1]] == [2.0 * tries]
    assert bool(notes) == (quiet is None)


def test_our_own_children_are_not_others():
    before = OtherLoad()
    child = subprocess.Popen([sys.executable, "-c", BUSY.format(1.0)])
    time.sleep(0.8)
    own = before._before.keys()
    after = OtherLoad()._before.keys()
    child.wait()
    assert child.pid not in own
    assert child.pid not in after


def test_a_time_to_a_return_that_was_disturbed_is_told(monkeypatch):
    from metta_fast.bench.harness.report import Report
    from metta_fast.bench.training import two_settings as train

    class Side:
        name = "B"

        def learn(self, target, seconds):
            return {"reached": True, "seconds": 1.0}

    for cores in (0.0, 1.5):
        report = Report({}, "x")
        monkeypatch.setattr(train, "OtherLoad", Watch([cores]))
        assert train.reached(report, Side(), 0.5, 9.0)["reached"]
        assert [("B" in note, "1.50 cores" in note) for note in report.notes] == (
            [(True, True)] if cores else []
        )
