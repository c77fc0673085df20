"""Tests the command line: exit codes, no tracebacks for a user's mistakes; doctor."""

import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys

import pytest

from metta_fast import __version__, cli
from metta_fast.cli import main
from metta_fast.machine import compiler, hardware, installation
from metta_fast.resolve import doctor
from metta_fast.storage.atomic_file import whole


@pytest.mark.parametrize(
    "words",
    [
        ["train", "env.num_env=3"],
        ["train", "trainer.gamma=high"],
        ["trian"],
        [],
        ["train", "--cfg"],
        ["doctor", "now"],
        ["eval"],
        ["eval", "/nowhere"],
        ["eval", "run", "--episodes", "many"],
        ["train", "resume=/nowhere"],
        ["monitor", "/nowhere"],
        ["monitor", "--interval", "0"],
        ["monitor", "--twice"],
    ],
)
def test_mistakes_are_told_with_exit_code_2(words, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert (out if not words else err).strip()


def test_keys_without_a_command_are_told_the_command(capsys):
    assert main(["env=grid_solo", "hardware=cpu"]) == 2
    assert "unknown command 'env=grid_solo'; did you mean 'train env=grid_solo'?" in capsys.readouterr().err


def test_a_module_in_the_current_folder_is_found(tmp_path, monkeypatch, capsys):
    (tmp_path / "env_of_this_folder.py").write_text(
        "import gymnasium\n\ndef make(config):\n    return lambda index: gymnasium.make('CartPole-v1')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert main(["train", "hardware=cpu", "env=env_of_this_folder:make", "--cfg", "job"]) == 0
    assert "factory: env_of_this_folder:make" in capsys.readouterr().out


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__
    assert main(["train", "--help"]) == 0
    assert "trainer.total_timesteps" in capsys.readouterr().out


def test_mistakes_are_told_before_torch_is_loaded():
    code = "import sys; from metta_fast.cli import main; main(['train', 'env.num_env=3']); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, timeout=60).returncode == 0


def test_doctor_reports_and_says_ready_or_not(capsys):
    code = main(["doctor"])
    text = capsys.readouterr().out
    for topic in ("python", "compiler", "packages", "extensions", "torch", "machine", "profile"):
        assert topic in text
    assert code == ("MISSING" in text)


def test_doctor_names_each_missing_thing_with_its_cure(monkeypatch, capsys):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pynvml" else real(name))
    monkeypatch.setattr(doctor, "_unbuilt", lambda: iter(["metta_fast.envs.grid._grid"]))
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    for cure in ("pip install nvidia-ml-py", "pip install ziglang", "metta-fast build\n", "MISSING compiler"):
        assert cure in text


def test_doctor_of_an_installed_copy_names_nothing_of_a_checkout(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "an installed copy needs none" in text
    assert text.splitlines()[-1].endswith("metta-fast train")
    monkeypatch.setattr(doctor, "_unbuilt", lambda: iter(["metta_fast.envs.grid._grid", doctor.ROBOTS]))
    assert main(["doctor"]) == 1
    text += capsys.readouterr().out
    for words in [["train", "--help"], ["--help"]]:
        assert main(words) == 0
        text += capsys.readouterr().out.replace("`metta-fast build --help`", "")
    for word in ("run_ultra_fast", "run_optimized", "setup.py", "metta-fast build"):
        assert word not in text


def test_doctor_calls_a_copy_without_robots_ready(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_unbuilt", lambda: iter([doctor.ROBOTS]))
    assert main(["doctor"]) == 0
    assert "note    robots" in capsys.readouterr().out


def test_doctor_tells_whether_environments_can_step_on_the_card(monkeypatch, tmp_path):
    card = hardware.Gpu("NVIDIA L4", 22 << 30, (8, 9))
    machine = hardware.Machine(4, 4, 16 << 30, (card,), "cuda", driver=(13, 0), nvrtc=13)
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "new"))

    def finding(**changes):
        found = dataclasses.replace(machine, **changes)
        monkeypatch.setattr(hardware, "detect", lambda: found)
        return next(f for f in doctor.examine() if f.topic == "gpu engine")

    assert finding().cure == ""
    assert "NVRTC 13, a driver for CUDA 13.0" in finding().text
    assert "pip install" in finding(nvrtc=0).cure
    assert "install driver 580" in finding(driver=(12, 4)).cure
    assert "ROCm" in finding(gpus=(hardware.Gpu("AMD", 1, vendor="amd"),)).text
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert f"make {tmp_path} writable" in finding().cure
    assert not finding().needed


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("suppressed", [False, True])
def test_a_signal_ends_a_command_and_leaves_nothing_half_written(
    tmp_path, monkeypatch, signum, code, suppressed
):
    """suppressed: the command ends itself on an interrupt, as the monitor does."""
    reached = []

    def command(words):
        try:
            with whole(tmp_path / "page.html") as part:
                part.write_text("half")
                os.kill(os.getpid(), signum)
                reached.append(True)
        except KeyboardInterrupt:
            if not suppressed:
                raise
        return 0

    def killed(signum, frame):
        raise AssertionError("the command did not handle the signal")

    monkeypatch.setitem(cli.COMMANDS, "export", command)
    before = {number: signal.signal(number, killed) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        assert main(["export"]) == (0 if suppressed and signum == signal.SIGINT else code)
        assert signal.getsignal(signal.SIGTERM) == killed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert reached == []
    assert list(tmp_path.iterdir()) == []
