"""Tests `--env`: what counts as a step for each stepper, the cases, and the command with and without peers."""

import json

import gymnasium
import numpy as np
import pytest

pytest.importorskip("mujoco")

from metta_fast.bench.harness.libraries import ENVPOOL, GYMNASIUM, SB3, Library
from metta_fast.bench.main import main
from metta_fast.bench.stepping import command as stepping
from metta_fast.bench.stepping import peers
from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import install_packages

ENV = "inverted_pendulum"  # its episodes of random actions last a few steps


class Counting(gymnasium.Env):
    """Ends at every third step and counts the steps that reached it."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float32)
    total = 0

    def reset(self, *, seed=None, options=None):
        self.length = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        Counting.total += 1
        self.length += 1
        return np.zeros(1, np.float32), 0.0, self.length == 3, False, {}


def test_gymnasiums_resets_are_not_steps(monkeypatch):
    monkeypatch.setattr(peers, "_maker", lambda task: Counting)
    monkeypatch.setattr(Counting, "total", 0)
    stepper = peers.make("sync", ENV, 4, 1)
    counted = sum(stepper.step() for _ in range(50))
    stepper.close()
    assert counted == Counting.total == 4 * (50 - 50 // 4)


@pytest.mark.parametrize("kind", ["envpool", "envpool_async"])
def test_envpools_resets_are_not_steps(kind):
    pytest.importorskip("envpool")
    stepper = peers.make(kind, ENV, 4, 1)
    receive, resets = stepper._env.recv, []

    def watched():
        found = receive()
        resets.append(int((found[-1]["elapsed_step"] == 0).sum()))
        return found

    stepper._env.recv = watched
    calls = 100
    counted = sum(stepper.step() for _ in range(calls))
    stepper.close()
    assert sum(resets) > 4
    at_once = 4 if kind == "envpool" else 2
    begun = at_once * calls - sum(resets)
    # Half at a time, what comes back first need not be what was sent last.
    assert counted == begun if kind == "envpool" else abs(counted - begun) <= 4


def test_rollout_steps_what_it_says():
    stepper = peers.make("rollout", ENV, 64, 1)
    time_of = 0  # MuJoCo's full physics state begins with the time
    assert stepper.step() == 64 * 32
    assert np.allclose(stepper._state[:, -1, time_of], 32 * 2 * 0.02)  # frame_skip 2 of 0.02 s
    for _ in range(3):
        stepper.step()
    assert stepper._from is stepper._start, "128 steps, and from the start again"
    stepper.close()


@pytest.mark.parametrize("kind", ["ours", "ours_async", "async", "subproc"])
def test_a_round_gives_steps_per_second(kind):
    if kind == "subproc":
        pytest.importorskip("stable_baselines3")
    stepper = peers.make(kind, ENV, 2, 1)
    try:
        for _ in range(2):
            assert stepper.round(0.02)["steps_per_s"] > 0
    finally:
        stepper.close()


def test_cases_are_every_number_of_threads_with_every_number_of_environments(monkeypatch):
    monkeypatch.setattr(stepping.hardware, "allowed_cores", lambda: 4)
    found = [(case.threads, case.envs) for case in stepping.cases("all,1", "64,16")]
    assert found == [(1, 16), (1, 64), (4, 16), (4, 64)]
    assert {case.threads for case in stepping.cases(stepping.THREADS, "1")} == {1, 2, 4}
    monkeypatch.setattr(stepping.hardware, "allowed_cores", lambda: 1)
    assert {case.threads for case in stepping.cases(stepping.THREADS, "1")} == {1}
    with pytest.raises(UserError, match="may use 1 cores"):
        stepping.cases("2", "1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "antt"], "did you mean 'env=ant'"),
        (["--env", "ant", "--threads", "many"], "'many' is not a whole number of at least 1 or all"),
        (["--env", "ant", "--envs", "16,0"], "'0' is not a whole number of at least 1"),
        (["--threads", "1"], "--threads 1 goes with --env NAME"),
        (["--env", "ant", "--vector"], "not allowed with"),
    ],
)
def test_mistakes_are_told_in_one_line(words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_table_names_peers_that_are_absent(monkeypatch, tmp_path, capsys):
    there, absent = Library.version, (ENVPOOL, SB3)
    monkeypatch.setattr(Library, "version", lambda library: "" if library in absent else there(library))
    file = tmp_path / "figures.json"
    words = ["--env", ENV, "--envs", "2", "--threads", "1", "--seconds", "0.02", "--repeats", "2"]
    assert main([*words, "--json", str(file)]) == 0
    table = capsys.readouterr().out
    assert f"absent: EnvPool, which is not installed ({install_packages('envpool')})" in table
    assert (
        f"absent: SB3 SubprocVecEnv, which is not installed ({install_packages('stable-baselines3')})"
        in table
    )
    assert "Gymnasium SyncVectorEnv: InvertedPendulum-v5, gymnasium " in table
    document = json.loads(file.read_text())
    rows = {row["peer"]: row for row in document["rows"]}
    assert len(rows) == 5
    assert all(row["n"] == 2 and row["threads"] == 1 and row["envs"] == 2 for row in rows.values())
    assert len(document["ratios"]) == 3
    assert rows["Gymnasium SyncVectorEnv"]["ours_is"]["value"] == document["ratios"][1]["value"]


def test_a_peer_that_fails_is_named_and_the_others_go_on(monkeypatch, capsys):
    broken = stepping.Peer("nothing", "Broken", GYMNASIUM)
    monkeypatch.setattr(stepping, "PEERS", (stepping.PEERS[0], broken))
    words = ["--env", ENV, "--envs", "2", "--threads", "1", "--seconds", "0.02", "--repeats", "1"]
    assert main(words) == 0
    assert "absent: Broken failed: ValueError: kind 'nothing'" in capsys.readouterr().out


def test_too_many_processes_for_the_memory_are_left_out_and_named():
    report = stepping.StepReport({}, "")
    case = stepping.Case(1, 10**6)
    kept = stepping._fitting(report, case, stepping.PEERS)
    assert [peer.kind for peer in kept] == [
        "ours",
        "ours_async",
        "envpool",
        "envpool_async",
        "rollout",
        "sync",
    ]
    assert "absent: Gymnasium AsyncVectorEnv, SB3 SubprocVecEnv" in report.notes[0]


def test_other_environments_have_our_rows_alone():
    report = stepping.StepReport({}, "")
    assert [peer.kind for peer in stepping._present(report, stepping.check("counter"))] == [
        "ours",
        "ours_async",
    ]
    assert "Gymnasium's robots only" in report.notes[0]
