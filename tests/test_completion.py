"""Completion in bash, zsh and fish: commands, options, keys, values, runs; every command has --help."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from metta_fast.cli import COMMANDS, PARSERS, completion, main
from metta_fast.contracts.errors import UserError

BASH = """
source ./script
COMP_LINE=$1 COMP_POINT=${#1}
compopt() { :; }
_metta_fast
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { :; }
_files() { echo FILES; }
compadd() { while [[ $1 != -- ]]; do shift; done; shift; for one; do [[ $one == $PREFIX* ]] && echo $one; done; }
source ./script
words=(${=1} ${2:+}); [[ $1 == *' ' ]] && words+=('')
CURRENT=$#words PREFIX=${words[-1]}
_metta_fast
true
"""
FISH = "source ./script; complete -C $argv[1] | string replace -r '\\t.*' ''; true"
CODE = {"bash": ["bash", "-c", BASH, "_"], "zsh": ["zsh", "-fc", ZSH, "_"], "fish": ["fish", "-Nc", FISH]}


@pytest.mark.parametrize("shell", CODE)
def test_a_tab_offers_what_fits(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(completion([shell]))
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/config.yaml").write_text("")

    def offered(line: str) -> set[str]:
        done = subprocess.run(
            [*CODE[shell], line], capture_output=True, text=True, timeout=20, cwd=tmp_path, check=True
        )
        assert done.stderr == ""
        kept = line.rpartition(" ")[2].rpartition("=")[0]  # bash replaces only what follows the `=`
        words = set(done.stdout.split())
        return {f"{kept}={word}" for word in words} if shell == "bash" and kept else words

    assert set(COMMANDS) <= offered("metta-fast ")
    assert offered("metta-fast tr") == {"train"}
    assert offered("metta-fast train trainer.total") == {"trainer.total_timesteps="}
    assert {"hardware=", "env.num_envs=", "algorithm="} <= offered("metta-fast train ")
    assert {"env=grid", "env=ant"} <= offered("metta-fast train seed=3 env=")
    assert offered("metta-fast train run.dashboard=p") == {"run.dashboard=plain"}
    assert offered("metta-fast train run.tensorboard=") == {"run.tensorboard=true", "run.tensorboard=false"}
    assert offered("metta-fast train --ex") == {"--explain"}
    assert offered("metta-fast train --tr") == {"--trust"}
    assert offered("metta-fast train resume=") == {"resume=auto", "resume=runs/first"}
    assert "runs/first" in offered("metta-fast eval ru")
    assert {"--episodes", "--json"} <= offered("metta-fast eval runs/first --")
    assert offered("metta-fast replay --player s") == {"scripted"}
    assert offered("metta-fast export runs/first --format o") == {"onnx"}
    assert offered("run_ultra_fast.sh trainer.gam") == {"trainer.gamma="}


def test_other_shells_are_refused() -> None:
    for words in (["csh"], [], ["bash", "zsh"]):
        with pytest.raises(UserError, match="bash, zsh, fish"):
            completion(words)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_is_completed(command: str, capsys: pytest.CaptureFixture) -> None:
    assert command in PARSERS
    try:
        code = main([command, "--help"])
    except SystemExit as end:  # argparse's
        code = end.code or 0
    assert code == 0
    assert "usage: " in capsys.readouterr().out
