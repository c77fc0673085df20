"""Tests how the time of a step is measured, and that an environment that misbehaves is harmless meanwhile."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env import EnvFactory
from metta_fast.envs import make_factory
from metta_fast.vector import first_look
from metta_fast.vector.first_look import TooSlow, Unmeasured, fastest_stretch, look
from tests import strangers


def seconds(name: str, **params: object) -> float:
    return measured(make_factory(EnvConfig(factory=f"tests.strangers:{name}", params=params)))


def measured(factory: EnvFactory) -> float:
    seen = look(factory)
    if seen.failure:
        raise seen.failure
    return seen.seconds


def children() -> list[str]:
    return [one.name() for one in psutil.Process().children(recursive=True) if one.name() == "mf-first-look"]


def test_the_time_is_that_of_one_step() -> None:
    assert seconds("cheap") < 20e-6
    assert 50e-6 <= seconds("medium") < 1e-3
    assert 5e-3 <= seconds("slow") < 20e-3
    assert 2e-3 <= seconds("team") < 10e-3  # all agents together


def test_measuring_is_quick_and_leaves_nothing() -> None:
    start, threads = time.monotonic(), threading.active_count()
    seconds("cheap")
    assert time.monotonic() - start < 3  # below 1 on an idle machine
    assert threading.active_count() == threads
    assert not children()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("raises", "environment 0 raised ValueError: no such room"),
        ("quits", "environment 0 raised SystemExit: 3"),
        ("exits", "it ended its process"),
        ("interrupts", "environment 0 raised KeyboardInterrupt"),
    ],
)
def test_an_environment_that_fails_says_how(how: str, why: str) -> None:
    with pytest.raises(Unmeasured) as caught:
        seconds("bad", how=how)
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)
    assert not children()


def test_an_environment_that_prints_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    assert seconds("bad", how="prints") < 20e-6
    assert capfd.readouterr() == ("", "")


def test_an_environment_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "STEPS_S", 0.3)
    with pytest.raises(TooSlow, match="do not end within"):
        seconds("bad", how="hangs")
    assert not children()
    monkeypatch.setattr(first_look, "MAKE_S", 0.01)
    with pytest.raises(Unmeasured, match="not ready after"):
        seconds("cheap")
    assert not children()


def test_an_environment_that_does_not_close_is_ended() -> None:
    start = time.monotonic()
    assert seconds("bad", how="stays") < 20e-6
    assert time.monotonic() - start < 10
    assert not children()


def test_an_environment_that_cannot_be_sent_is_not_measured() -> None:
    from metta_fast.envs.python_env import PythonEnvFactory

    lock = threading.Lock()

    def make(index: int) -> strangers.Cheap:
        lock.locked()
        return strangers.Cheap()

    with pytest.raises(Unmeasured, match="cannot be sent to another process: TypeError"):
        measured(PythonEnvFactory(make))


def test_a_busy_machine_hardly_changes_the_time() -> None:
    quiet = [10e-6] * 100
    assert fastest_stretch(quiet + [50e-6] * 400) == pytest.approx(10e-6)
    assert fastest_stretch([1.0]) == 1.0
