"""Advice on a run's speed, from made-up metrics."""

from __future__ import annotations

import pytest

from metta_fast.config.keys import keys
from metta_fast.metrics.advice import EVERY_S, Advisor, advice
from metta_fast.metrics.dashboard import make_dashboard


def phases(**seconds: float) -> dict[str, float]:
    return {f"perf/time/{name}": value for name, value in seconds.items()}


GPU = {"perf/gpu_utilization": 95.0, "perf/gpu_memory_percent": 80.0}
EVEN = phases(env=3, inference=1, advantage=0.2, update=4)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ({}, None),
        (EVEN, None),
        (EVEN | GPU, None),
        (EVEN | GPU | {"perf/gpu_utilization": 41.0}, "the GPU is 41 % busy: raise env.num_envs"),
        (EVEN | GPU | {"perf/gpu_memory_percent": 12.0}, "12 % of the GPU's memory is used: env.num_envs"),
        (phases(env=8, inference=1, update=1), "the environments take 80 % of the time: raise vector.num_workers"),
        (phases(env=8, inference=1, update=1) | {"perf/cpu_utilization": 99.0}, "trainer.update_epochs"),
        (phases(env=8, update=1) | {"perf/gpu_utilization": 20.0}, "the GPU is 20 % busy, the environments take 89 %"),
        (phases(env=1, inference=8, update=1), "collecting takes 90 % of the time: raise env.num_envs"),
        (phases(env=1, update=9), "learning takes 90 % of the time: lower trainer.update_epochs"),
        (phases(env=1, update=9) | GPU, "raise trainer.minibatch_size"),
        (phases(env=1, inference=1, update=7), None),
        (phases(env=1, update=1, boundary=98), None),
    ],
)  # fmt: skip
def test_what_is_told(seen: dict[str, float], told: str | None) -> None:
    text = advice(seen)
    assert (told in text) if told else text == ""
    named = [word.strip(",;:()") for word in text.split() if "." in word]
    assert all(name in keys() for name in named), named


def test_at_most_once_a_minute_as_a_mean_over_it() -> None:
    advisor = Advisor()
    idle, busy = GPU | {"perf/gpu_utilization": 40.0}, GPU | {"perf/gpu_utilization": 90.0}
    assert not advisor.take(idle, now=0.0)
    assert advisor.line() == ""  # the first epochs compile
    assert advisor.take(idle, now=30.0)
    assert "40 % busy" in advisor.line()
    for second in range(31, 90):
        assert not advisor.take(busy, now=float(second))
    assert "40 % busy" in advisor.line()
    assert advisor.take(busy, now=30.0 + EVERY_S)
    assert advisor.line() == ""


def test_the_plain_dashboard_prints_it_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    plain = make_dashboard("plain", title="x", total_steps=1000)
    for _ in range(10):
        plain.update(GPU | {"perf/gpu_utilization": 40.0})
        clock[0] += 30.0
    assert capsys.readouterr().err.count("advice: the GPU is 40 % busy") == 1
