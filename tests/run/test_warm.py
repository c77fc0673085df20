"""`metta-fast warm`: what a first update needs is compiled; nothing but the caches is written; mistakes are train's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from metta_fast.cli import main
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.warm import _told
from metta_fast.runtime import kernel_caches

SMALL = ("hardware=cpu", "env.num_envs=4", "trainer.batch_size=512", "trainer.minibatch_size=256")
CARTPOLE = "import gymnasium\n\ndef make(config):\n    return lambda index: gymnasium.make('CartPole-v1')\n"
STOPPED = (
    "import os, signal\n\ndef make(config):\n    os.kill(os.getpid(), signal.SIGINT)\n    raise SystemExit\n"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for variable in kernel_caches.VARIABLES.values():
        monkeypatch.setenv(variable, "")  # so that what settle() sets is taken back
        monkeypatch.delenv(variable)
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("env", ["counter", "grid_solo"])
def test_it_learns_once_and_leaves_the_caches_alone(
    env: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = ("run.tensorboard=true", "wandb.mode=offline", "run.checkpoint_interval=1")
    assert main(["warm", f"env={env}", *SMALL, *words]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{env}, 4 environments on cpu, ppo on cpu: build ")
    assert "nothing had to be compiled" in out
    assert [line for line in err.splitlines() if line.endswith("…")] == ["build …", "collect …", "update …"]
    assert os.listdir(tmp_path) == ["cache"]


def test_an_environment_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "env_to_warm.py").write_text(CARTPOLE)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["warm", "env=env_to_warm:make", *SMALL]) == 0
    assert "4 environments on cpu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["env.num_env=3"], "did you mean 'env.num_envs'"),
        (["trainer.gamma=high"], "trainer.gamma"),
        (["resume=/nowhere"], "/nowhere"),
        (["env=no_such"], "no_such"),
        (["--explain"], "--explain"),
        (["--config-dir", "/nowhere"], "/nowhere"),
        (["env=counter", "policy.hidden_size=100000000"], "memory"),
    ],
)
def test_mistakes_are_trains(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["warm", *words]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert "Traceback" not in out + err
    assert set(os.listdir(tmp_path)) <= {"cache"}


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    (tmp_path / "env_that_stops.py").write_text(STOPPED)
    command = [sys.executable, "-m", "metta_fast", "warm", "env=env_that_stops:make", *SMALL]
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=variables)
    assert done.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("metta_fast-warm*"))


def test_what_was_compiled_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path / "warp"))
    before = {name: kernel_caches.size(folder) for name, folder in kernel_caches.folders().items()}
    (tmp_path / "warp/1.19.0/wp_x").mkdir(parents=True)
    (tmp_path / "warp/1.19.0/wp_x/a.cubin").write_bytes(b"0" * 2**20)
    config = resolve(compose(["env=counter", *SMALL])).config
    first, second = _told(config, {"build": 1.0}, before)
    assert first == "counter, 4 environments on cpu, ppo on cpu: build 1.0 s"
    assert second == f"compiled for warp: 1 files, 1.0 MiB, in {tmp_path / 'warp'}"


def test_caches_are_in_one_folder_unless_their_owner_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/own")
    kernel_caches.settle()
    found = kernel_caches.folders()
    cache = tmp_path / "cache"
    assert found == {
        "cuda": cache / "cuda",
        "warp": cache / "warp",
        "inductor": cache / "inductor",
        "triton": Path("/own"),
    }


def test_a_folder_that_cannot_be_made_leaves_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "file"))
    kernel_caches.settle()
    assert set(kernel_caches.folders()) == {"cuda"}
