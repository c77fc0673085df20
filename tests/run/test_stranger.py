"""Tests that a run which a stranger sent runs no code unless its user says so: by the name, by --trust, by a token."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import metta_fast
from metta_fast.cli import main
from metta_fast.config.keys import keys
from metta_fast.config.trust import Given, Named, check_code, code_named, mark, typed_code
from metta_fast.contracts.errors import UserError
from metta_fast.machine import user_token
from tests.tiny import COUNTER, QUIET, named, trained

OWN = """
import gymnasium

def make(config):
    return lambda index: gymnasium.make("CartPole-v1")
"""
SHORT = (*QUIET, "env.num_envs=2", "vector.backend=serial", "trainer.total_timesteps=64", "trainer.batch_size=32",
         "trainer.minibatch_size=32", "trainer.bptt_horizon=16")  # fmt: skip


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a module of the user's, in which the command is given, and a run of it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "my_cart.py").write_text(OWN)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    assert main(["train", *SHORT, *named(folder / "runs"), "env=my_cart:make"]) == 0
    yield folder
    sys.modules.pop("my_cart", None)


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("step_*"))[-1]


def rewrite(run: Path, change) -> None:
    """Changes every checkpoint's meta.json, with right checksums."""
    for step in (run / "checkpoints").glob("step_*"):
        meta = json.loads((step / "meta.json").read_text())
        change(meta)
        data = json.dumps(meta).encode()
        (step / "meta.json").write_bytes(data)
        manifest = json.loads((step / "manifest.json").read_text())
        manifest["files"]["meta.json"] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        (step / "manifest.json").write_text(json.dumps(manifest))


def somebody_else(monkeypatch, tmp_path) -> None:
    """From here on the command is another user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    sys.modules.pop("my_cart", None)


def commands(run: Path, folder: Path) -> list[list[str]]:
    """Every command that opens a run."""
    return [
        ["eval", str(run), "--episodes", "2"],
        ["replay", str(run), "--html", str(folder / "page.html")],
        ["export", str(run), "--out", str(folder / "policy.pt"), "--overwrite"],
        ["train", *SHORT[:4], f"resume={run}", "trainer.total_timesteps=128"],
    ]


def test_my_own_runs_need_nothing(project, tmp_path, capsys):
    token = tmp_path / "me" / "metta_fast" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    secret = token.read_text().strip()
    assert all(
        secret.encode() not in file.read_bytes() for file in (project / "runs").rglob("*") if file.is_file()
    )
    for words in commands(project / "runs" / "r", tmp_path):
        assert main(words) == 0, capsys.readouterr().err
    assert metta_fast.load_policy(project / "runs" / "r").spec.action.nvec == (2,)


def test_a_strangers_run_is_refused_with_the_three_ways(project, tmp_path, monkeypatch, capsys):
    somebody_else(monkeypatch, tmp_path)
    run = project / "runs" / "r"
    for words in commands(run, tmp_path):
        capsys.readouterr()
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error
        error = error.splitlines()[-1]
        assert error.startswith("error: ")
        for way in ("env.factory=my_cart:make", "type env=my_cart:make", "--trust", "METTA_FAST_TOKEN"):
            assert way in error
    assert "my_cart" not in sys.modules
    with pytest.raises(UserError, match=r"env='my_cart:make'.*trust=True"):
        metta_fast.load_policy(run)
    for words in commands(run, tmp_path):
        assert main([*words, "--trust"]) == 0, capsys.readouterr().err
    rewrite(run, lambda meta: meta.pop("code"))  # resumed, it was marked as this user's
    assert main(["eval", str(run), "--episodes", "2"]) == 2
    for words in commands(run, tmp_path):
        more = ["trainer.total_timesteps=192"] if words[0] == "train" else []
        assert main([*words, "env=my_cart:make", *more]) == 0, capsys.readouterr().err
    assert main(["eval", str(run), "env=my_cart:other"]) == 2
    assert "does not name it, but env.factory=my_cart:make" in capsys.readouterr().err
    assert main(["eval", str(run), "trainer.gamma=1"]) == 2
    assert "expected the name of code that the run uses; env=…, " in capsys.readouterr().err
    assert metta_fast.load_policy(run, env="my_cart:make").spec.action.nvec == (2,)


def test_machines_that_share_runs_share_a_token(project, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("METTA_FAST_TOKEN", "of both machines")
    run = project / "runs" / "r"
    assert main(["train", *SHORT, f"resume={run}", "trainer.total_timesteps=128"]) == 0
    somebody_else(monkeypatch, tmp_path)
    elsewhere = shutil.copytree(project, tmp_path / "other machine")
    monkeypatch.chdir(elsewhere)
    assert main(["eval", "runs/r", "--episodes", "2"]) == 0, capsys.readouterr().err
    monkeypatch.setenv("METTA_FAST_TOKEN", "another")
    assert main(["eval", "runs/r", "--episodes", "2"]) == 2


def test_a_mark_holds_for_what_it_was_made_for_only(project, tmp_path, capsys):
    """Other names, other keys, or the same names beside another module."""
    run = project / "runs" / "r"
    for key, name in (("factory", "os:system"), ("params", {"command": "rm"})):
        changed = shutil.copytree(run, tmp_path / f"changed {key}")
        rewrite(changed, lambda meta, key=key, name=name: meta["config"]["env"].update({key: name}))
        assert main(["eval", str(changed), "--episodes", "2"]) == 2
        assert "was not begun by this user" in capsys.readouterr().err


def test_my_run_beside_a_strangers_module(project, tmp_path, monkeypatch, capsys):
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "my_cart.py").write_text(f"open({str(tmp_path / 'trapped')!r}, 'w')\n{OWN}")
    shutil.copytree(project / "runs" / "r", trap / "r")
    sys.modules.pop("my_cart")
    sys.path.remove(str(project))
    monkeypatch.chdir(trap)
    assert main(["eval", "r", "--episodes", "2"]) == 2
    assert f"here my_cart is now {trap / 'my_cart.py'}" in capsys.readouterr().err
    assert not (tmp_path / "trapped").exists()


def test_a_token_that_others_can_read_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_token.user_token() is None
    made = user_token.user_token(make=True)
    assert made == user_token.user_token(make=True)
    assert len(made) == 64
    path = user_token.token_file()
    path.chmod(0o644)
    assert user_token.user_token(make=True) is None
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("x" * 64)
    assert user_token.user_token(make=True) is None
    monkeypatch.setenv(
        "XDG_CONFIG_HOME", "/proc/nowhere"
    )  # cannot be made: runs are not marked, training goes on
    assert mark({"env": {"factory": "my:make"}}) is None


def code_values(name: str) -> dict[str, object]:
    """A value that names code for every key of the schema that takes text."""
    values: dict[str, object] = {}
    for path, entry in keys().items():
        if entry.kind == "str" and not entry.choices:
            values[path] = name
        elif entry.kind == "names":
            values[path] = [name]
        elif entry.kind == "named":
            values[path] = {"name": name, "teacher": name}
        elif entry.kind == "dict":
            values[path] = {name: {"teacher": name}} if path == "features" else {"teacher": name}
    return values


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    """A run of an environment of ours."""
    return trained(tmp_path_factory.mktemp("counter"), *COUNTER, "trainer.total_timesteps=256")


@pytest.mark.parametrize("path", code_values(""))
def test_no_key_of_the_schema_imports_code_of_a_stranger(path, counter, tmp_path, monkeypatch, capsys):
    """Whatever key a run sets to a module's name, nothing of it is imported. A key that a later feature adds is here
    too: it fails until it is marked with names_code=True."""
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{OWN}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    def change(meta):
        *above, last = path.split(".")
        node = meta["config"]
        for part in above:
            node = node[part]
        node[last] = code_values("evil_module:make")[path]

    run = shutil.copytree(counter, tmp_path / "run")
    rewrite(run, change)
    for words in commands(run, tmp_path)[:: 1 if keys()[path].names_code else 3]:
        code = main(words)
        assert not (tmp_path / "ran").exists(), f"{words[0]} imported what {path} names"
        if keys()[path].names_code:
            assert code == 2
            assert "evil_module:make" in capsys.readouterr().err


def test_code_is_loaded_for_marked_keys_only():
    from metta_fast.config.extension import load_named

    for path, entry in keys().items():
        if not entry.names_code:
            with pytest.raises(AssertionError, match="names_code"):
                load_named("os:getcwd", path)
    assert load_named("os:getcwd", "features.kick.teacher") is os.getcwd
    with pytest.raises(UserError, match=r"expected package\.module:name"):
        load_named("os.getcwd", "features.kick.teacher")


def test_whoever_reads_a_runs_configuration_asks():
    """Each file of the product that makes a Config of a checkpoint's also checks the code that it names."""
    root = Path(metta_fast.__file__).parent
    texts = {file.name: file.read_text() for top in (root, root / "envs") for file in top.rglob("*.py")}
    readers = {name for name, text in texts.items() if re.search(r"(?<!def )\bsaved_config\(", text)}
    assert readers == {"evaluate.py", "resume.py", "fine_tune.py", "kickstart.py"}
    assert [name for name in readers if "check_code(" not in texts[name]] == []


def test_what_a_configuration_names():
    config = {
        "env": {"factory": "a:make", "params": {"x": "b:c"}},
        "policy": {"name": "pkg.Net", "encoder": None},
        "algorithm": {"name": "ppo", "teacher": ["t:T"]},
        "features": {"f:add": {"deep": {"n": "g:h"}}, "profiler": {"file": "a b:c"}},
    }
    assert code_named(config) == [
        Named("env.factory", "a:make"),
        Named("policy.name", "pkg.Net"),
        Named("algorithm.teacher", "t:T"),
        Named("features.f:add", "f:add"),
        Named("features.f:add.deep.n", "g:h"),
    ]
    with pytest.raises(UserError) as error:
        check_code(code_named(config), {}, "r", Given())
    both = typed_code(["env=a:make", "policy=pkg:Net", "algorithm.teacher=t:T", "features=f:add"])
    check_code(code_named(config)[:4], {}, "r", Given(both))
    assert "type env=a:make policy=pkg.Net algorithm.teacher=t:T features=f:add" in str(error.value)


EVIL = ("yaml", "wandb", "tensorboard", "torch", "numpy", "gymnasium", "hydra", "rich", "psutil", "onnx", "json",
        "argparse", "dataclasses", "typing", "sitecustomize", "my_cart")  # fmt: skip


@pytest.mark.parametrize(
    ("where", "how", "command"),
    [("run", "-m", "eval"), ("checkpoint", "-c", "train"), ("path", "script", "train")],
)
def test_nothing_in_a_runs_folder_is_imported(where, how, command, project, tmp_path):
    """Modules with the names of packages in the run's folder, which is the current one or is in sys.path."""
    run = project / "runs" / "r"
    for name in EVIL:
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})\n"
        (run / f"{name}.py").write_text(text)
        (newest(run) / f"{name}.py").write_text(text)
    (run / "hydra_plugins").mkdir()
    (run / "hydra_plugins" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('hydra')\n")
    rewrite(run, lambda meta: meta["config"]["wandb"].update(mode="offline"))
    folder = {"run": run, "checkpoint": newest(run), "path": tmp_path}[where]
    words = {
        "train": ["train", *QUIET, f"resume={run}", "trainer.total_timesteps=96", "--trust"],
        "eval": ["eval", str(run), "--trust", "--episodes", "2"],
    }[command]
    start = {
        "-m": [sys.executable, "-m", "metta_fast"],
        "-c": [sys.executable, "-c", "import sys; from metta_fast.cli import main; sys.exit(main())"],
        "script": [str(Path(sys.executable).with_name("metta-fast"))],
    }[how]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(metta_fast.__file__).parents[1])])}
    if where == "path":
        env["PYTHONPATH"] = f"{run}{os.pathsep}{env['PYTHONPATH']}"
        (run / "sitecustomize.py").unlink()  # Python itself imports that one, before all programs
    done = subprocess.run([*start, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    ran = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
    assert not ran
    assert done.returncode == 2, done.stderr  # the run's own my_cart is not taken either
    assert "module my_cart cannot be imported" in done.stderr
    assert ("is in a run's folder" in done.stderr) == (where != "path")
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_fine_tuning_takes_no_code_of_a_stranger(project, counter, tmp_path, monkeypatch, capsys):
    """init_from= takes the policy's keys of the other run; its environment is not used."""
    (project / "my_net.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    run = shutil.copytree(counter, tmp_path / "sent")
    rewrite(run, lambda meta: meta["config"]["policy"].update(encoder="my_net:Cnn"))
    words = ["train", *COUNTER, *named(tmp_path, "new"), f"init_from={run}"]
    assert main(words) == 2
    assert "type policy.encoder=my_net:Cnn" in capsys.readouterr().err
    rewrite(run, lambda meta: meta["config"]["policy"].update(encoder=None))
    rewrite(run, lambda meta: meta["config"]["env"].update(factory="my_net:make"))
    assert main([*words, "trainer.total_timesteps=256"]) == 0, capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_an_installed_package_is_no_folder_that_lies_around(counter, tmp_path, monkeypatch, capsys):
    """Entry points need no trust, for their packages are installed: not so what describes itself in the folder."""
    info = tmp_path / "evil-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[metta_fast.envs]\nevil = evil_envs:make\n")
    (tmp_path / "evil_envs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "my_net.py").write_text("def add(hooks): ...\n")
    run = shutil.copytree(counter, tmp_path / "sent")
    rewrite(run, lambda meta: meta["config"]["env"].update(factory="evil"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert main(["eval", str(run), "--episodes", "2"]) == 2
    assert (
        main(["train", *COUNTER, f"resume={run}", "trainer.total_timesteps=512", "features=my_net:add"]) == 2
    )
    assert "env.factory='evil' is not known" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_the_words_of_the_message_resume_the_run(project, tmp_path, monkeypatch, capsys):
    """A policy's name is written as the run has it; a mark is not needed for what is typed."""
    (project / "my_own_net.py").write_text("from metta_fast.policy.network import Network as Net\n")
    words = ["train", *SHORT, *named(project / "runs", "two"), "env=my_cart:make", "policy=my_own_net.Net"]
    assert main(words) == 0, capsys.readouterr().err
    somebody_else(monkeypatch, tmp_path)
    again = ["train", *SHORT[:4], f"resume={project / 'runs' / 'two'}", "trainer.total_timesteps=128"]
    assert main(again) == 2
    typed = re.search(r"type (.*) as well", capsys.readouterr().err)[1].split()
    assert typed == ["env=my_cart:make", "policy=my_own_net.Net"]
    assert main([*again, *typed]) == 0, capsys.readouterr().err
