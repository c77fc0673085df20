"""Runs the programs of the pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import metta_fast
from metta_fast import export_policy, make_factory
from metta_fast.algorithms.ppo.c.mlp_update import C_UPDATE
from metta_fast.policy import make_policy
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.runtime.fast_paths import Situation
from tests.tiny import COUNTER

DOCS = Path(__file__).resolve().parent.parent / "docs"
SMALL = [*COUNTER, "vector.backend=serial", "trainer.total_timesteps=1000"]


def programs(page):
    """Returns the indented blocks that begin with an import, without their indentation."""
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", (DOCS / page).read_text(), re.MULTILINE)
    blocks = [textwrap.dedent(block).strip("\n") for block in blocks]
    return [block + "\n" for block in blocks if block.startswith(("import ", "from "))]


def run(*words, folder):
    here = {"cwd": folder, "timeout": 100, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *words], **here, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_policy_of_ones_own(tmp_path, monkeypatch):
    """docs/policies.md: train with it, go on, load and export it."""
    program = programs("policies.md")[0]
    (tmp_path / "my_net.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    words = ["-m", "metta_fast", "train", *SMALL, "policy=my_net.MyNet", "run.name=mine"]
    run(*words, folder=tmp_path)
    run(*words[:3], "resume=mine", "trainer.total_timesteps=1500", folder=tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    loaded = metta_fast.load_policy(tmp_path / "runs" / "mine")
    assert type(loaded.policy).__name__ == "MyNet"
    done = export_policy(tmp_path / "runs" / "mine", tmp_path / "mine.pt")
    assert [out["name"] for out in done.metadata["outputs"]] == ["action", "params", "value", "new_state"]


def test_a_policy_of_ones_own_with_a_plan(tmp_path, monkeypatch):
    """docs/policies.md: the update in C can train it."""
    (tmp_path / "my_fast_net.py").write_text(programs("policies.md")[1])
    monkeypatch.syspath_prepend(tmp_path)
    config = resolve(compose([*SMALL, "policy=my_fast_net:MyFastNet"])).config
    spec = make_factory(config.env).spec
    policy = make_policy(config.policy, spec)
    assert C_UPDATE.why_not(Situation(policy, config, spec, torch.device("cpu"))) is None


def test_programs_with_the_package(tmp_path, monkeypatch):
    """docs/python.md: one after another, in one process, shortened."""
    pytest.importorskip("gymnasium.envs.classic_control")
    program = "\n".join(programs("python.md"))
    short = (
        "total_timesteps=10_000, trainer__torch_threads=1, trainer__update_epochs=1, run__tensorboard=False"
    )
    program, changed = re.subn(r"total_timesteps=\d+_\d+", short, program)
    assert changed == 3
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    (tmp_path / "program.py").write_text(program + "\nassert total >= 8, total\nprint('played', total)\n")
    out = run("program.py", folder=tmp_path)
    assert "saved runs/counter-" in out
    assert "played" in out


@pytest.mark.parametrize(
    ("page", "module", "words"),
    [
        ("policies.md", "my_encoder", ["policy.encoder=my_encoder:Scaled", "policy.params.scale=2.0"]),
        ("environments.md", "my_env", ["env=my_env:make", "env.max_steps=32"]),
        ("features.md", "my_feature", ["features=my_feature:add", "features.my_feature:add.weight=0.2"]),
        ("algorithms.md", "my_algorithm", ["algorithm=my_algorithm:HillClimber", "algorithm.noise=0.1"]),
    ],
    ids=["encoder", "environment", "feature", "algorithm"],
)
def test_a_part_of_ones_own(page, module, words, tmp_path, monkeypatch):
    """The page's program trains from another folder, and resumes."""
    place = 2 if module == "my_encoder" else 0
    (tmp_path / f"{module}.py").write_text(programs(page)[place])
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    ppo = (
        "trainer.batch_size",
        "trainer.bptt_horizon",
        "trainer.minibatch_size",
    )  # other algorithms refuse them
    small = [word for word in SMALL if page != "algorithms.md" or not word.startswith(ppo)]
    run("-m", "metta_fast", "train", *small, "run.name=mine", *words, folder=tmp_path)
    run("-m", "metta_fast", "train", "resume=mine", "trainer.total_timesteps=2000", folder=tmp_path)
    steps = sorted(int(path.name[5:]) for path in (tmp_path / "runs/mine/checkpoints").glob("step_*"))
    assert len(steps) == 2
    assert steps[-1] >= 2000


def test_the_notebook(tmp_path, monkeypatch):
    """docs/first_steps.ipynb: its cells, one after another, with a shorter training."""
    pytest.importorskip("gymnasium.envs.classic_control")
    cells = json.loads((DOCS / "first_steps.ipynb").read_text())["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert "trainer__total_timesteps=50_000" in program
    program = program.replace("trainer__total_timesteps=50_000", "trainer__total_timesteps=3000")
    program = program.replace("episodes=100", "episodes=4")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    (tmp_path / "cells.py").write_text(f"{program}\nprint('played', total)\n")
    assert "played" in run("cells.py", folder=tmp_path)
