"""Tests env.step_cost: measured in classes, typed, assumed where it cannot be measured, and taken over at a resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.derived import step_cost as module
from metta_fast.resolve.derived.step_cost import classify
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import Resolved, resolve
from metta_fast.run.train_function import train
from metta_fast.vector.first_look import Seen

LAPTOP = Machine(2, 4, 16 * GIB)


def resolved(*words: str) -> Resolved:
    return resolve(compose(words, machine=LAPTOP), machine=LAPTOP)


def no_time(factory: object, patience_s: float, *, timed: bool) -> Seen:
    assert not timed
    return Seen(mask=False)


def test_the_classes() -> None:
    times = (1e-6, 19.9e-6, 20e-6, 0.99e-3, 1e-3, 5.0)
    assert list(map(classify, times)) == ["cheap", "cheap", "medium", "medium", "slow", "slow"]


@pytest.mark.parametrize(
    ("name", "cost"), [("cheap", "cheap"), ("medium", "medium"), ("slow", "slow"), ("team", "slow")]
)
def test_a_step_is_measured_and_shown(name: str, cost: str) -> None:
    done = resolved(f"env=tests.strangers:{name}")
    assert done.config.env.step_cost == cost
    line = next(line for line in explain_text(done).splitlines() if "env.step_cost=" in line)
    assert f"env.step_cost={cost} " in line
    assert "auto: measured: " in line
    assert line.endswith(" a step")


def test_a_typed_class_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "look", no_time)
    done = resolved("env=tests.strangers:cheap", "env.step_cost=slow")
    assert (done.config.env.step_cost, done.origins["env.step_cost"]) == ("slow", "command line")
    assert resolved("env=grid").config.env.step_cost == "cheap"  # ours are known


def test_what_cannot_be_measured_is_assumed_and_said() -> None:
    done = resolved("env=tests.strangers:bad", "env.params.how=exits")
    assert done.config.env.step_cost == "medium"
    assert done.origins["env.step_cost"] == "auto: assumed: it ended its process"
    assert any("env.step_cost=medium is assumed" in note for note in done.notes)


def test_a_resume_takes_the_class_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from metta_fast.run.resume import prepare

    where = {
        "run__dir": str(tmp_path),
        "run__name": "one",
        "run__dashboard": "none",
        "run__tensorboard": False,
    }
    train("tests.strangers:medium", trainer__total_timesteps=600, vector__backend="serial", **where)
    monkeypatch.setattr(module, "look", no_time)
    words = [f"resume={tmp_path / 'one'}", "trainer.total_timesteps=900000"]
    done = resolve(prepare(compose(words, machine=LAPTOP), words).composed, machine=LAPTOP)
    assert done.config.env.step_cost == "medium"
    assert done.origins["trainer.batch_size"] == "run one"  # not derived again from the new budget
