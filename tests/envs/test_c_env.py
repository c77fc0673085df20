"""Environments in C from a folder: what is compiled and loaded, what is refused, and the contract of batches."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from PIL import Image

from metta_fast import folder_factory, make_vector
from metta_fast.cli import main
from metta_fast.config.trust import Given, Named, check_code, code_named, typed_code
from metta_fast.contracts.errors import UserError
from metta_fast.envs.c_env import library
from metta_fast.machine import compiler
from metta_fast.scaffold.new_env import new_env
from tests.c_compiler import CC

pytestmark = pytest.mark.skipif(not CC, reason="no C compiler here")


@pytest.fixture
def walk(tmp_path, monkeypatch):
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))
    return new_env("walk", tmp_path)[0].parent


def change(walk, file, before, after):
    path = walk / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def tape(factory, backend="serial", num_envs=6, seed=3, stagger=False, **settings):
    """All rows of 70 steps with actions from a fixed tape."""
    actions = np.random.default_rng(1).integers(0, 3, (70, num_envs, 1)).astype(np.int32)
    found = []
    with make_vector(factory, num_envs, backend=backend, **settings) as vec:
        vec.async_reset(seed, stagger=stagger)
        for action in actions:
            block = vec.recv()
            rows = block.rows
            found.append([rows.obs["obs"].copy(), *(a.copy() for a in rows[2:7])])
            vec.send(block, action)
        vec.recv()
    return found


def same(one, other):
    return all(
        np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_every_backend_gives_the_same_rows(walk):
    factory = folder_factory(walk, max_steps=20)
    expected = tape(factory)
    assert same(expected, tape(pickle.loads(pickle.dumps(factory))))
    assert same(expected, tape(factory, "threads", num_threads=2))
    assert same(expected, tape(factory, "workers", num_workers=2))
    assert not same(expected, tape(factory, seed=4))
    assert not same(expected, tape(factory, stagger=True))


def test_a_state_continues_exactly(walk):
    factory = folder_factory(walk, max_steps=20)
    batches = [factory.make_batch(0, 4, 4) for _ in range(2)]
    with make_vector(factory, 4, backend="serial") as vec:
        vec.async_reset(1)
        rows = vec.recv().rows
        batches[0].bind(rows)
        batches[0].reset(5)
        for action in (1, 2, 2):
            rows.action[...] = action
            batches[0].step()
        batches[1].bind(rows)
        batches[1].load_state_dict(batches[0].state_dict())
        rows.action[...] = 1
        batches[0].step()
        expected = rows.obs["obs"].copy()
        batches[1].step()
        assert np.array_equal(expected, rows.obs["obs"])
        with pytest.raises(ValueError, match="another number of environments"):
            factory.make_batch(0, 3, 4).load_state_dict(batches[0].state_dict())


def test_it_is_compiled_once_until_it_changes(walk):
    paths = [folder_factory(walk).path for _ in range(2)]
    change(walk, "walk.h", "s->reward += 1.0f", "s->reward += 2.0f")
    paths.append(folder_factory(walk).path)
    assert paths[0] == paths[1] != paths[2]
    assert paths[2].is_file()


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("walk.h", "s->step++;", "s->step++", r"walk\.h does not compile: .*walk\.h:\d+"),
        ("walk.h", "float step_reward;", "double step_reward;", "step_reward as another type, expected float"),
        ("walk.h", "float step_reward;", "int32_t step_reward;", "has step_reward as int32_t, expected float"),
        ("walk.h", "int32_t size;", "int32_t length;", "does not compile: .*size"),
        ("walk.h", "return 2 *", "return 3 *", r"obs_size gives 12 bytes, float32 \[2\] has 8"),
        ("walk.h", "walk_stats = 1", "walk_stats = 2", "walk_stats is 2, Python names 1"),
        ("walk.h", "+ 63) / 64 * 64", "+ 1)", "expected a multiple of 64"),
        ("walk.h", "typedef int32_t walk_action", "typedef float walk_action", "action has kind 1, Python has kind 0"),
        ("walk.py", "nvec=(3,)", "nvec=(3, 2)", "action_width is 1, the action in Python has 2 numbers"),
        ("walk.py", "env = ", "other = ", "defines no env; expected env = CEnv"),
        ("walk.py", '    "walk",', '    "walks",', "expected the folder's name"),
        ("walk.py", "env = ", "1 / 0\nenv = ", "cannot be imported: .*ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_fault_is_named(walk, file, before, after, message):
    change(walk, file, before, after)
    with pytest.raises(UserError, match=message):
        folder_factory(walk)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"siz": 3}, "did you mean 'size'"),
        ({"size": 1}, "expected a whole number from 2 to 1000"),
        ({"size": 2.5}, "expected a whole number"),
        ({"size": True}, "expected a whole number"),
        ({"step_reward": "much"}, "expected a number"),
        ({"step_reward": float("nan")}, "expected a number"),
        ({"agents_per_env": 2}, "walk has 1; give 1"),
    ],
)
def test_a_parameter_that_cannot_be(walk, settings, message):
    with pytest.raises(UserError, match=message):
        folder_factory(walk, **settings)


def test_without_a_compiler_it_says_how_to_get_one(walk, monkeypatch):
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    with pytest.raises(UserError, match=r"no C compiler was found; type: .*ziglang"):
        folder_factory(walk)


def test_a_damaged_library_is_named(tmp_path):
    (tmp_path / "x.so").write_bytes(b"no library")
    with pytest.raises(UserError, match="delete it and try again"):
        library.load(tmp_path / "x.so")


def test_a_command_trains_it_and_a_stranger_does_not(walk, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    monkeypatch.chdir(tmp_path)
    words = ["train", "env.path=./walk", "hardware=cpu", "env.num_envs=2", "vector.backend=serial",
             "trainer.total_timesteps=64", "trainer.batch_size=32", "trainer.minibatch_size=32",
             "trainer.bptt_horizon=16", "run.dir=runs", "run.name=r"]  # fmt: skip
    assert main(words) == 0, capsys.readouterr().err
    monkeypatch.chdir(walk)  # the path that the run holds does not depend on the current folder
    evaluate = ["eval", str(tmp_path / "runs/r"), "--episodes", "2"]
    assert main(evaluate) == 0, capsys.readouterr().err
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    before = set(sys.modules)
    sys.modules.pop("metta_fast_c_env_walk", None)
    assert main(evaluate) == 2
    assert f"env.path={walk}" in capsys.readouterr().err
    assert "metta_fast_c_env_walk" not in set(sys.modules) - before
    assert main([*evaluate, "env.path=."]) == 0, capsys.readouterr().err


def test_a_resume_needs_the_same_rules_and_a_replay_shows_pictures(walk, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "env.path=./walk", "hardware=cpu", "env.num_envs=2", "vector.backend=serial",
             "trainer.total_timesteps=64", "trainer.batch_size=32", "trainer.minibatch_size=32",
             "trainer.bptt_horizon=16", "run.name=r"]  # fmt: skip
    assert main(words) == 0, capsys.readouterr().err
    change(walk, "walk.h", "s->step++;", "s->step++; /* counts,\n twice */  // or not")
    assert main(["train", "resume=runs/r", "trainer.total_timesteps=96"]) == 0, capsys.readouterr().err
    change(walk, "walk.h", "s->reward += 1.0f;", "s->reward += 2.0f;")
    assert main(["train", "resume=runs/r", "trainer.total_timesteps=128"]) == 2
    assert "the rules of walk have changed" in capsys.readouterr().err
    assert main(["replay", "runs/r", "--picture", "p.png"]) == 0, capsys.readouterr().err
    with Image.open("p.png") as picture:
        assert picture.size == (400, 40)


def test_two_folders_of_one_name(walk, tmp_path):
    other = new_env("walk", tmp_path / "other")[0].parent
    change(other, "walk.h", "s->reward += 1.0f;", "s->reward += 2.0f;")
    factories = [folder_factory(walk, max_steps=20), folder_factory(other, max_steps=20)]
    assert factories[0].gpu_program().source != factories[1].gpu_program().source
    rewards = [sum(rows[1].sum() for rows in tape(factory)) for factory in factories]
    assert rewards[1] == 2 * rewards[0] > 0


def test_any_path_names_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert code_named({"env": {"path": "walk"}}) == [Named("env.path", "walk")]
    assert code_named({"env": {"path": None}}) == []
    named = [Named("env.path", str(tmp_path / "walk"))]
    check_code(named, {}, "r", Given(typed_code(["env.path=./walk"])))
    with pytest.raises(UserError, match=r"names code that would be imported, env\.path="):
        check_code(named, {}, "r", Given(typed_code(["env.path=./other"])))
