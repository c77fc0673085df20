"""Tests that a mask in info is found without a reset in the trainer's process, and that none is overlooked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorEnv, WorkerError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import Resolved, resolve
from metta_fast.run.resume import prepare
from metta_fast.vector import make_vector
from metta_fast.vector.first_look import look
from tests.masks.test_action_masks import SMALL, Masked

LAPTOP = Machine(2, 4, 16 * GIB)
HERE = "tests.masks.test_masks_in_info"
RESETS: list[int] = []


class InInfo(Masked):
    """Raises on an illegal action, and notes each reset. first: the first step from which info has a mask."""

    def __init__(self, first=0):
        super().__init__("info")
        self.first, self.count = first, -1

    def _told(self, row):
        self.count += 1
        return (row[0], row[1] if self.count >= self.first else {}, *row[2:])

    def reset(self, *, seed=None, options=None):
        RESETS.append(os.getpid())
        return self._told(super().reset(seed=seed))

    def step(self, action):
        if self.first == 0:
            obs, *middle, info = super().step(action)
        else:
            obs, info = self._row()
            middle = [1.0, False, False]
        obs, info = self._told((obs, info))
        return obs, *middle, info


def make(config):
    first = config.params.get("first", 0)
    return lambda index: InInfo(first)


def own_factory(config):
    return PythonEnvFactory(lambda index: InInfo(), name="own")


def resolved(*words: str) -> Resolved:
    return resolve(compose(words, machine=LAPTOP), machine=LAPTOP)


@pytest.mark.parametrize("name", ["make", "own_factory"])
@pytest.mark.parametrize("typed", [[], ["env.step_cost=cheap"]])
def test_a_mask_in_info_is_found_in_a_process_of_its_own(name: str, typed: list[str]) -> None:
    RESETS.clear()
    done = resolved(f"env={HERE}:{name}", *typed)
    assert RESETS == []
    assert done.config.env.action_mask == "info"
    assert done.origins["env.action_mask"] == "auto: found there at the first reset"
    assert done.factory.spec.action_mask
    assert not [note for note in done.notes if "step_cost" in note]


def test_without_one_nothing_is_reset_and_a_later_one_is_an_error() -> None:
    done = resolved("env=tests.strangers:cheap", "env.step_cost=cheap")
    assert done.config.env.action_mask == "absent"
    assert resolved("env=tests.strangers:team", "env.step_cost=slow").config.env.action_mask == "none"
    late = resolved(f"env={HERE}:make", "env.params.first=2", "env.step_cost=cheap")
    assert late.config.env.action_mask == "absent"
    vec = make_vector(late.factory, 4, num_blocks=2, backend="workers", num_workers=2)
    try:
        vec.async_reset(0)
        with pytest.raises(
            WorkerError, match=r"environment \d .*info has .action_mask.*env.action_mask=info uses it"
        ):
            step(vec, 8)
    finally:
        vec.close()


def step(vec: VectorEnv, times: int) -> None:
    for _ in range(times):
        block = vec.recv()
        block.rows.action[:] = 0
        vec.send(block)


def test_ignored_only_where_none_is_typed() -> None:
    ignored = PythonEnvFactory(lambda index: InInfo(first=1), action_mask="none")
    vec = make_vector(ignored, 1, backend="serial")
    vec.async_reset(0)
    step(vec, 3)
    vec.close()
    vec = make_vector(PythonEnvFactory(lambda index: InInfo()), 1, backend="serial")
    vec.async_reset(0)
    with pytest.raises(WorkerError, match=r"environment 0 .*env.action_mask=none ignores it"):
        vec.recv()


def test_typed_but_not_there() -> None:
    with pytest.raises(UserError, match="gives no info"):
        resolved("env=tests.strangers:cheap", "env.action_mask=info")
    with pytest.raises(UserError, match=r"env.action_repeat=2: .* gives action masks"):
        resolved(f"env={HERE}:make", "env.action_repeat=2")


def wrong(config):
    """Its mask is too long."""

    class Wrong(InInfo):
        def _row(self, last=False):
            obs, info = super()._row(last)
            return obs, {"action_mask": [1] * 5} if info else {}

    def make_one(index):
        env = Wrong()
        if config.params.get("method"):
            env.source, env.action_masks = "method", lambda: np.ones(4)
        return env

    return make_one


def test_a_mask_of_a_wrong_form_stops_before_the_start() -> None:
    with pytest.raises(
        UserError, match=r"environment 0 .*info.* has shape \[5\], expected \[4\].*=none turns masks off"
    ):
        resolved(f"env={HERE}:wrong")
    with pytest.raises(UserError, match=r"action_masks\(\)\) is float64 .*expected bool"):
        resolved(f"env={HERE}:wrong", "env.params.method=true")


def test_the_look_sends_legal_actions_alone() -> None:
    for given in ("auto", "info"):
        seen = look(PythonEnvFactory(lambda index: InInfo(), action_mask=given))
        assert (seen.mask, seen.failure) == (True, None)
    assert look(PythonEnvFactory(lambda index: Masked("method"))).failure is None


def test_a_run_is_resumed_and_evaluated_with_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from metta_fast.resolve.derived import step_cost

    where = [f"run.dir={tmp_path}", "run.name=one"]
    assert main(["train", f"env={HERE}:own_factory", *SMALL, *where]) == 0
    monkeypatch.setattr(step_cost, "look", lambda *_, **__: pytest.fail("looked again"))
    words = [f"resume={tmp_path / 'one'}"]
    done = resolve(prepare(compose(words, machine=LAPTOP), words, lock=False).composed, machine=LAPTOP)
    assert done.config.env.action_mask == "info"
    assert main(["eval", str(tmp_path / "one"), "--episodes", "4", "--json"]) == 0
    assert '"length": 3.0' in capsys.readouterr().out


CRASHES = {
    "segfault": ("ctypes.string_at(0)", "SIGSEGV"),
    "hang": ("time.sleep(3600)", "worker_timeout_s"),
}


@pytest.mark.parametrize("how", CRASHES)
def test_a_crash_in_reset_is_named_by_a_worker(tmp_path: Path, how: str) -> None:
    code, words = CRASHES[how]
    (tmp_path / "mine.py").write_text(
        "import ctypes, os, time\nfrom tests.strangers import Cheap\n"
        f"class Mine(Cheap):\n    def reset(self, **keys):\n        {code}\n"
        "def make(config):\n    return lambda index: Mine()\n"
    )
    command = [sys.executable, "-m", "metta_fast", "train", "env=mine:make", "env.step_cost=medium", *SMALL]
    done = subprocess.run(
        [*command, "vector.worker_timeout_s=1", "vector.backend=workers"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert "worker" in line
    assert words in done.stderr
    assert "Traceback" not in done.stderr
