"""Makes the files and runs that the mistakes name: {run}, {step}, {grid}, {runs}, {bad}, {code}."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path

from metta_fast.cli import main
from tests.run.bad.keys import TINY

MODULES = {
    "this_broken": "import nonesuch_mf\n",
    "this_exits": "import sys\nsys.exit(3)\n",
    "this_interrupts": "raise KeyboardInterrupt\n",
    "this_syntax": "def make(:\n",
    "this_none": "def make(config):\n    return None\n",
    "this_wrong_mask": "import gymnasium\n\nclass Masked(gymnasium.Wrapper):\n    def action_masks(self):\n"
    "        return [True] * 9\n\ndef make(config):\n    return lambda index: Masked(gymnasium.make('CartPole-v1'))\n",
    "this_zoo": """from gymnasium.spaces import Box, Discrete

class Two:
    possible_agents, agents = ["a", "b"], []
    def observation_space(self, agent):
        return Box(0, 1, (2 if agent == "a" else 3,))
    def action_space(self, agent):
        return Discrete(2)
    def reset(self, seed=None, options=None):
        raise RuntimeError("it must not start")
    def step(self, actions):
        raise RuntimeError("it must not start")

class Nameless(Two):
    possible_agents = None

class Kinds(Two):
    def observation_space(self, agent):
        return Box(0, 1, (2,)) if agent == "a" else Discrete(2)

def parallel_env():
    return object()

def different(config):
    return Two()

def nameless(config):
    return lambda index: Nameless()

def kinds(config):
    return lambda index: Kinds()
""",
    "this_raises": "def make(config):\n    raise RuntimeError('no luck')\n",
    "this_takes_none": "def make():\n    return None\n",
    "this_puffer_none": "def make(buf=None, seed=0):\n    return None\n",
    "this_puffer_gym": "import gymnasium\n\ndef make(buf=None, seed=0):\n    return gymnasium.make('CartPole-v1')\n",
    "this_puffer_missing": "raise ModuleNotFoundError(\"No module named 'pufferlib'\", name='pufferlib')\n",
    "this_puffer_wide": "import gymnasium, metta_fast.compat.pufferlib as p\n\nclass make(p.PufferEnv):\n"
    "    def __init__(self, buf=None, seed=0):\n"
    "        self.single_observation_space = gymnasium.spaces.Box(0, 1, (2,))\n"
    "        self.single_action_space, self.num_agents = gymnasium.spaces.Dict(), 2\n        super().__init__(buf)\n",
    "this_recursive": "def make(config):\n    return make(config)\n",
}
"""Modules of a user, by name; they are found through sys.path."""


def make(folder: Path) -> dict[str, str]:
    """Makes everything in `folder`. Returns what {name} in a case's words stands for."""
    import sys

    code = folder / "code"
    code.mkdir()
    for name, text in MODULES.items():
        (code / f"{name}.py").write_text(text)
    sys.path.append(str(code))
    os.environ["PYTHONPATH"] = f"{code}:{os.environ.get('PYTHONPATH', '')}"
    runs = folder / "runs"
    for name, env in (("good", "env=counter"), ("grid", "env=grid")):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            words = (
                *TINY,
                env,
                "trainer.batch_size=64",
                "env.max_steps=20",
                f"run.dir={runs}",
                f"run.name={name}",
            )
            if main(list(words)) != 0:
                raise RuntimeError(f"cannot train {name}")
    step = max((runs / "good" / "checkpoints").iterdir())
    bad = folder / "bad"
    _bad_files(bad)
    names = {
        "run": runs / "good",
        "step": step,
        "grid": runs / "grid",
        "runs": runs,
        "bad": bad,
        "code": code,
    }
    return {name: str(path) for name, path in names.items()}


def copied(folder: Path, there: dict[str, str], name: str) -> dict[str, str]:
    """Copies the runs to `folder`/`name`. Returns the places with these copies."""
    shutil.copytree(there["runs"], folder / name)
    return {
        key: path.replace(there["runs"], str(folder / name))
        if key in ("run", "step", "grid", "runs")
        else path
        for key, path in there.items()
    }


def _bad_files(bad: Path) -> None:
    bad.mkdir()
    (bad / "empty").mkdir()
    (bad / "norun").mkdir()
    (bad / "norun" / "config.yaml").write_bytes(b"\xff\xfe\x00")
    (bad / "norun" / "checkpoints").mkdir()
    (bad / "norun2").mkdir()
    (bad / "norun2" / "config.yaml").write_bytes(b"\xff\xfe\x00")
    (bad / "norun2" / "metrics.jsonl").write_bytes(b"\xff{nonsense\n[]\n3\n")
    os.mkfifo(bad / "fifo")
    (bad / "latin.yaml").write_bytes("# Größe\nseed: 3\n".encode("latin-1"))
    (bad / "binary").write_bytes(bytes(range(256)) * 8)
    (bad / "wide.txt").write_text("#" * 20_000 + "\n")
    (bad / "empty.xml").write_text("")
    (bad / "nojoint.xml").write_text("<mujoco><worldbody/></mujoco>")
    (bad / "empty.json").write_text("")
    (bad / "list.json").write_text("[1]")
    (bad / "machine.json").write_text('{"machine": 3}')
    (bad / "one.json").write_text(
        '{"machine": {}, "command": "x", "ratios": [],'
        ' "rows": [{"name": "a", "steps_per_s": 1, "low": 1, "high": 1, "n": 1}]}'
    )
    (bad / "deep.json").write_text("[" * 100_000)
