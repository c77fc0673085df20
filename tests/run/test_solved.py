"""Tests what a training says of its environment: statistics nobody declared, solved, or no episode at all."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest

from metta_fast.cli import main
from metta_fast.envs.info_stats import MOST, InfoStats
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.metrics.dashboard import PlainDashboard
from metta_fast.metrics.loggers import read_rows
from metta_fast.metrics.run_panel import Curve, run_panel
from metta_fast.resolve.compose import compose
from tests.tiny import QUIET, named

SHORT = (*QUIET, "env.num_envs=4", "trainer.batch_size=64", "trainer.minibatch_size=64", "trainer.bptt_horizon=16",
         "trainer.total_timesteps=768")  # fmt: skip


class Told(gymnasium.Env):
    """Episodes of five steps with a return of 1, whose last info has all sorts of values."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, index=0, length=5):
        self.index, self.length, self.count = index, length, 0

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        end = self.count >= self.length
        info = {"noise": 7.0}
        if end:
            info = {"is_success": self.index % 2 == 0, "score": np.float32(self.index), "text": "no"}
            info |= {"shape": np.ones(3), "bad": float("nan"), "episode": {"r": 1.0, "l": 5}, "_private": 1}
            info |= {"return": 99, "huge": 10**400} | {f"many{i:03}": i for i in range(100)}
        return np.zeros(2, np.float32), 0.2, end, False, info


class Two(Told):
    num_agents = 2

    def step(self, action):
        _, reward, end, _, info = super().step(action)
        info = {"each": np.array([1, 3]), "all": 5, "shape": np.ones(3)} if end else {}
        ends = np.array([end, end])
        return np.zeros((2, 2), np.float32), np.full(2, reward), ends, np.zeros(2, bool), info

    def reset(self, *, seed=None, options=None):
        super().reset()
        return np.zeros((2, 2), np.float32), {}


class Solvable(Told):
    spec = gymnasium.envs.registration.EnvSpec("Told-v0", reward_threshold=0.9, max_episode_steps=5)


def make(config):
    return lambda index: Told(index)


def make_two(config):
    return lambda index: Two(index)


def make_solvable(config):
    return lambda index: Solvable(index)


class Continuous(Told):
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


def make_box(config):
    return lambda index: Continuous(index)


def make_long(config):
    return lambda index: Told(index, 10**6)


def run(tmp_path, *words):
    """A training's exit code and its rows."""
    code = main(["train", *SHORT, *named(tmp_path), *words])
    return code, list(read_rows(tmp_path / "r" / "metrics.jsonl"))


@pytest.mark.parametrize("words", [["vector.backend=serial"], ["vector.backend=workers", "vector.num_workers=2"],
                                   ["vector.backend=serial", "env.action_repeat=2"]])  # fmt: skip
def test_numbers_in_info_are_statistics(tmp_path, words):
    code, rows = run(tmp_path, f"env={__name__}:make", *words)
    assert code == 0
    last = rows[-1]
    assert last["env/is_success"] == 0.5
    assert last["env/score"] == 1.5
    assert last["env/return"] == pytest.approx(1.0)
    assert not {
        "env/text",
        "env/shape",
        "env/bad",
        "env/episode",
        "env/noise",
        "env/_private",
        "env/huge",
    } & set(last)
    assert sum(name.startswith("env/many") for name in last) == MOST - 2


def test_statistics_of_several_agents_and_in_evaluations(tmp_path, capsys):
    words = ("trainer.batch_size=128", "run.evaluate_interval=2", "run.min_interval_s=0")
    code, rows = run(tmp_path, f"env={__name__}:make_two", *words)
    assert code == 0
    assert (rows[-1]["env/each"], rows[-1]["env/all"]) == (2.0, 5.0)
    assert "env/shape" not in rows[-1]
    assert [row["eval/each"] for row in rows if "eval/each" in row][-1] == 2.0
    capsys.readouterr()
    assert main(["eval", str(tmp_path / "r"), "--episodes", "3"]) == 0
    assert "each" in capsys.readouterr().out


def test_declared_statistics_are_as_before():
    info = InfoStats(["a", "b/c"], 1)
    info.add(0, {"a": 1, "b": {"c": 2}, "d": True}, np.ones(1, bool))
    info.add(1, {"d": False}, np.ones(1, bool))
    info.add(1, [("d", 1)], np.ones(1, bool))
    info.add(1, None, np.ones(1, bool))
    assert info.last() == {0: {"d": [1.0]}, 1: {"d": [0.0]}}
    assert info.sums() == {"d": (1.0, 2)}
    assert info.sums() == {}


def test_solved_is_said_and_can_end_the_run(tmp_path, capsys):
    code, rows = run(tmp_path, f"env={__name__}:make_solvable", "vector.backend=serial")
    said = capsys.readouterr().err
    assert code == 0
    assert rows[-1]["train/steps"] >= 768
    line = r"solved at step \d+: the mean return of the last 100 episodes is 1, the environment's threshold"
    assert len(re.findall(line, said)) == 1
    for value in ("solved", "0.95"):
        code, rows = run(tmp_path / value, f"env={__name__}:make_solvable", "vector.backend=serial",
                         f"trainer.stop_at_return={value}")  # fmt: skip
        said = capsys.readouterr().err
        assert code == 0
        assert 500 <= rows[-1]["train/steps"] < 768  # not before a hundred episodes of five steps
        assert (
            f"stopped: the mean return of the last 100 episodes is 1, and trainer.stop_at_return={value}"
            in said
        )
        assert list((tmp_path / value / "r" / "checkpoints").glob("step_*"))
    code, _ = run(tmp_path / "never", f"env={__name__}:make_solvable", "trainer.stop_at_return=1.1")
    assert code == 0
    assert "stopped" not in capsys.readouterr().err


def test_solved_needs_a_threshold(tmp_path, capsys):
    assert run(tmp_path, f"env={__name__}:make", "trainer.stop_at_return=solved")[0] == 2
    assert "make has no reward_threshold" in capsys.readouterr().err.replace(
        __name__.rpartition(".")[2], "make"
    )
    assert run(tmp_path, f"env={__name__}:make", "trainer.stop_at_return=soon")[0] == 2
    assert "trainer.stop_at_return=soon: expected a number or solved or null" in capsys.readouterr().err
    assert compose(["trainer.stop_at_return=3"]).config.trainer.stop_at_return == 3.0
    cart = PythonEnvFactory(lambda index: gymnasium.make("CartPole-v1"))
    assert cart.spec.reward_threshold == 475


def test_a_run_without_an_end_of_an_episode_says_so(tmp_path, capsys):
    code, rows = run(tmp_path, f"env={__name__}:make_long", "vector.backend=serial", "run.dashboard=plain")
    said = capsys.readouterr().err
    assert code == 0
    assert not any("env/return" in row for row in rows)
    assert "no episode has ended yet" in said
    assert "no episode has ended, so that there is no env/return: each environment took 192 steps" in said
    panel = run_panel({"train/steps": 5.0}, 10, Curve(), title="t", width=80)
    from rich.console import Console

    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(panel)
    assert "return - (no episode has ended yet)" in console.export_text()
    dashboard = PlainDashboard(10)
    dashboard.update({"train/steps": 5.0, "env/return": 1.0})
    assert "no episode" not in capsys.readouterr().err


def test_eval_says_what_it_plays(tmp_path, capsys):
    """Maps are the grid's; continuous actions are the most likely ones by default."""
    flags = {(): None, ("--deterministic",): "most likely", ("--stochastic",): "sampled"}
    for env, what, default in (
        (f"{__name__}:make", "episodes", "sampled"),
        (f"{__name__}:make_box", "episodes", "most likely"),
        ("grid_solo", "unseen maps", "sampled"),
    ):
        folder = tmp_path / env.rpartition(":")[2]
        assert run(folder, f"env={env}", "env.max_steps=20")[0] == 0
        for words, how in flags.items() if env.endswith(":make") else [((), None)]:
            capsys.readouterr()
            assert main(["eval", str(folder / "r"), "--episodes", "3", *words]) == 0
            out, err = capsys.readouterr()
            how = how or default
            assert f"3 {what} (seed 0, unused in training), {how} actions; means per agent" in out
            assert f"policy: 3 episodes of {how} actions …" in err
        capsys.readouterr()
        page = folder / "page.html"
        assert main(["replay", str(folder / "r"), "--html", str(page)]) == 0
        assert f"{default} actions" in page.read_text()
