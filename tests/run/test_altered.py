"""Tests checkpoints that were altered together with their checksums: one line, naming file and key, exit code 2."""

from __future__ import annotations

import shutil

import pytest
import torch

import metta_fast
from metta_fast.cli import main
from metta_fast.config.keys import config_to_dict
from metta_fast.contracts.errors import UserError
from metta_fast.inference.saved_state import policy_state, saved_config
from metta_fast.metrics.machine_time import META, MachineTime, Place
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.build import build_parts
from metta_fast.storage import checkpoint
from metta_fast.storage.altered import AlteredCheckpoint, reading
from metta_fast.storage.encoding import decode
from tests.run.altered import KEYS, Gone, changed, commands, get, leaves, others, read, tried, write, wrong
from tests.run.test_resume_folder import content
from tests.tiny import trained


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with a checkpoint of each of its two epochs, which have a score."""
    return trained(tmp_path_factory.mktemp("made"), *KEYS)


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "runs" / "r")


def newest(run):
    return checkpoint.steps(run / "checkpoints")[-1][1]


def test_every_leaf_of_meta_json_is_checked(run):
    path = newest(run)
    meta = read(path, "meta.json")
    quiet, refused = [], []
    some = set(list(meta["origins"])[::20])
    for leaf in leaves(meta):
        if leaf[0] == "origins" and len(leaf) > 1 and leaf[1] not in some:
            continue  # they are all alike
        for new in others(get(meta, leaf)):
            write(path, "meta.json", changed(meta, leaf, new))
            try:
                found = checkpoint.read(path)
                saved_config(found)
                for key in ("origins", "seconds"):
                    found.value(key)
                with reading(path, "meta.json"):  # as a resume does
                    MachineTime(path, Place("cpu", "2 cores"), 0.0, 0, found.meta.get(META))
            except (AlteredCheckpoint, checkpoint.DamagedCheckpoint) as error:
                refused.append((leaf, str(error)))
            else:
                quiet.append((leaf, new))
    for leaf, said in refused:
        assert path.name in said, leaf
        assert str(leaf[-1]) in said or leaf[-1] in ("code", "step"), (leaf, said)
        assert "\n" not in said, leaf
    top = [leaf[0] for leaf, new in quiet if len(leaf) == 1 and new is Gone]
    assert set(top) <= {"epoch", "score", "version", "torch", "run_id", "code", "groups", "rules", META}
    for leaf, new in quiet:
        if leaf[0] == "config" and new is Gone:
            assert len(leaf) > 3 or not get(meta, leaf), leaf  # in env.params and the like
        if leaf[0] == "origins":
            assert new is Gone or isinstance(new, str), (leaf, new)


def test_every_leaf_of_algorithm_pt_is_checked(run):
    path = newest(run)
    state = read(path, "algorithm.pt")
    config = saved_config(checkpoint.read(path))
    composed = compose(["hardware=cpu"])
    composed.config = config
    resolved = resolve(composed)
    parts = build_parts(config, resolved.factory)
    quiet, refused = [], []
    try:
        for leaf in leaves(state):
            for new in others(get(state, leaf)):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(type(parts.algorithm.rollout), "_vector_holds", lambda self: True)
                    try:
                        with reading(path, "algorithm.pt"):
                            parts.algorithm.load_state_dict(decode(changed(state, leaf, new)))
                    except UserError as error:
                        refused.append((leaf, str(error).replace("'", "")))
                    else:
                        quiet.append((leaf, new))
    finally:
        parts.close()
    for leaf, said in refused:
        assert str(path / "algorithm.pt") in said
        assert any(str(key) in said for key in leaf), (leaf, said)
    for leaf, new in quiet:
        allowed = (
            leaf[:2] == ("optimizer", "param_groups")  # the run's own are used
            or (leaf[0] in ("rollout", "reward_scale", "scaler", "recent_returns") and len(leaf) == 1)
            or (leaf[0] in ("scaler", "recent_returns"))  # other numbers, or fewer
            or (
                leaf[:2] == ("optimizer", "state") and new is Gone and len(leaf) == 3
            )  # weights without a gradient
            or (
                leaf[0] in ("steps", "epoch") and isinstance(new, int)
            )  # the trainer compares them with meta.json
        )
        assert allowed, (leaf, new)


CASES = [
    ("meta.json", ("config",), Gone, "config is missing"),
    ("meta.json", ("config", "trainer", "gamma"), "x", "config.trainer.gamma=x: expected"),
    ("meta.json", ("step",), "x", "step is 'x', expected a whole number"),
    ("algorithm.pt", ("policy",), Gone, "policy is missing"),
    ("algorithm.pt", ("policy", "heads.weight"), torch.zeros(7, 3), "heads.weight: [7, 3] there"),
]


@pytest.mark.parametrize(("name", "leaf", "new", "words"), CASES)
def test_every_command_names_file_and_key_and_changes_nothing(run, tmp_path, name, leaf, new, words):
    """In the newest checkpoint and in an older one, which each command names or takes as the best."""
    (out := tmp_path / "out").mkdir()
    for _, path in reversed(checkpoint.steps(run / "checkpoints")):
        state = read(path, name)
        write(path, name, changed(state, leaf, new))
        before = content(run, but="train.log")
        for kind, given in commands(run, path, out).items():
            if kind in ("resume", "eval --best"):  # they choose for themselves
                continue
            code, said = tried(given)
            assert code == 2, (kind, said)
            assert not wrong(code, said, path), (kind, said)
            assert name in said, (kind, said)
            assert words in said, (kind, said)
            assert content(run, but="train.log") == before, kind
        with pytest.raises(UserError, match=name):
            metta_fast.load_policy(path)
        write(path, name, state)
        write(path, "meta.json", read(path, "meta.json"))


def test_a_resume_stops_at_the_newest_and_names_the_one_before(run, capsys):
    (_, older), (_, path) = checkpoint.steps(run / "checkpoints")[-2:]
    state = read(path, "algorithm.pt")
    write(path, "algorithm.pt", changed(state, ("optimizer", "state", 0, "exp_avg"), torch.zeros(2)))
    before = content(run, but="train.log")
    words = ["train", f"run.dir={run.parent}", "resume=auto", "trainer.total_timesteps=700"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert f"{path / 'algorithm.pt'}: optimizer.state[0].exp_avg has the shape [2], expected" in said
    assert f"use an earlier checkpoint: {older} (resume={older} continues from it)" in said
    assert content(run, but="train.log") == before
    assert main([*words[:2], f"resume={older}", *words[3:]]) == 0


def test_an_older_altered_checkpoint_hinders_nothing_else(run, capsys):
    path = checkpoint.steps(run / "checkpoints")[0][1]
    for leaf, new in ((("score",), {"name": "eval/return", "value": "x"}), (("score",), 3), ((), [1])):
        write(path, "meta.json", changed(read(path, "meta.json") if leaf else {}, leaf, new))
        words = ["train", f"run.dir={run.parent}", "resume=auto", "run.keep_checkpoints=9"]
        assert main([*words, "trainer.total_timesteps=600"]) == 0
        assert main(["eval", str(run), "--episodes", "2", "--best"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_keys_that_an_older_version_did_not_have_are_defaults(run):
    path = newest(run)
    meta = read(path, "meta.json")
    del meta["config"]["run"]["keep_checkpoints"], meta["origins"]["run.keep_checkpoints"]
    write(path, "meta.json", meta)
    found = checkpoint.read(path)
    assert (
        saved_config(found).run.keep_checkpoints
        == config_to_dict(saved_config(found))["run"]["keep_checkpoints"]
    )
    assert policy_state(found).keys()
