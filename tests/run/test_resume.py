"""Tests resume=auto|PATH: which run and checkpoint are chosen, and with which configuration."""

import os

import pytest

from metta_fast.config.keys import config_to_dict
from metta_fast.config.trust import mark
from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import Machine
from metta_fast.resolve.compose import compose
from metta_fast.run.resume import prepare
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import create, runs

HERE = Machine(cores=2, cores_total=2, memory=8 << 30)


def start(folder, *words):
    words = [*words, f"run.dir={folder}"]
    return prepare(compose(words, default_hardware="cpu", machine=HERE), words)


def make_run(folder, name, steps=(100,), words=(), env_device="cpu", **values):
    """A run's folder with checkpoints of the configuration that `words` give."""
    config = compose([*words, f"run.dir={folder}"], default_hardware="cpu", machine=HERE).config
    config.vector.num_threads, config.trainer.torch_threads, config.trainer.batch_size = 2, 2, 4096
    config.env.device = env_device
    for path, value in values.items():
        setattr(config.trainer, path, value)
    run = create(str(folder), name, "grid")
    run.config.write_text("")
    origins = {
        "vector.num_threads": "auto: 2 cores allowed",
        "trainer.torch_threads": "auto: 2 cores allowed",
        "trainer.batch_size": "auto: 5000 rounded down (hardware/cpu)",
    }
    for step in steps:
        values = config_to_dict(config)
        meta = {"config": values, "code": mark(values), "origins": origins}
        checkpoint.save(run.checkpoints, step, {}, meta)
    return run


def test_no_resume_starts_anew(tmp_path):
    begun = start(tmp_path)
    assert (begun.folder, begun.checkpoint) == (None, None)


def test_auto_with_nothing_there_starts_anew_and_says_so(tmp_path):
    begun = start(tmp_path, "resume=auto")
    assert begun.folder is None
    assert "starting a new one" in begun.composed.notes[-1]
    begun = start(tmp_path, "resume=auto", "run.name=job")
    assert begun.folder is None
    assert "no run" in begun.composed.notes[-1]


def test_auto_takes_the_named_run_else_the_newest_with_a_checkpoint(tmp_path):
    make_run(tmp_path, "old", (100, 200))
    make_run(tmp_path, "new", (50,))
    make_run(tmp_path, "crashed", ())
    for place, name in enumerate(("old", "new", "crashed")):
        for entry in ("config.yaml", "checkpoints"):
            if (tmp_path / name / entry).exists():
                os.utime(tmp_path / name / entry, (place, place))
    assert [run.name for run in runs(str(tmp_path))] == ["crashed", "new", "old"]
    begun = start(tmp_path, "resume=auto")
    assert (begun.folder.name, begun.checkpoint.step) == ("new", 50)
    begun = start(tmp_path, "resume=auto", "run.name=old")
    assert (begun.folder.name, begun.checkpoint.step) == ("old", 200)


def test_auto_on_a_named_run_without_checkpoint_starts_in_its_folder(tmp_path):
    run = make_run(tmp_path, "job", ())
    begun = start(tmp_path, "resume=auto", "run.name=job")
    assert (begun.folder.path, begun.checkpoint) == (run.path, None)
    assert "step 0" in begun.composed.notes[-1]


def test_a_path_is_a_run_or_one_of_its_checkpoints(tmp_path):
    run = make_run(tmp_path, "r", (100, 200))
    for given in (str(run.path), "r"):
        assert start(tmp_path, f"resume={given}").checkpoint.step == 200
    begun = start(tmp_path, f"resume={run.checkpoints / 'step_000000000100'}")
    assert (begun.folder.path, begun.checkpoint.step) == (run.path, 100)


def test_wrong_paths_are_told_with_the_cure(tmp_path):
    run = make_run(tmp_path, "r", (100,))
    with pytest.raises(UserError, match=r"no such folder.*Newest runs.*: r"):
        start(tmp_path, "resume=nowhere")
    with pytest.raises(UserError, match="names another"):
        start(tmp_path, "resume=r", "run.name=x")
    (run.checkpoints / "step_000000000100" / "meta.json").write_text("{}")
    with pytest.raises(UserError, match="no complete checkpoint"):
        start(tmp_path, "resume=r")
    with pytest.raises(UserError, match="damaged checkpoint"):
        start(tmp_path, f"resume={run.checkpoints / 'step_000000000100'}")


def test_the_runs_configuration_is_kept_and_typed_values_win(tmp_path):
    make_run(tmp_path, "r", words=["env=counter", "trainer.gamma=0.9", "run.keep_checkpoints=7"])
    config = start(tmp_path, "resume=r", "trainer.total_timesteps=123456").composed.config
    assert config.env.factory == "counter"
    assert config.trainer.gamma == 0.9
    assert config.run.keep_checkpoints == 7
    assert config.trainer.total_timesteps == 123456
    assert (config.run.dir, config.run.name, config.resume) == (str(tmp_path), "r", None)


@pytest.mark.parametrize(("words", "expected"), [
    (["features.my.net:add.weight=0.5"], {"my.net:add": {"weight": 0.5, "bias": 1}}),
    (["features=my.net:add"], {"my.net:add": {"weight": 0.1, "bias": 1}}),
    (["features.my.net:add=false"], {"my.net:add": False}),
    (["features=other:add", "features.other:add.x=2"], {"other:add": {"x": 2}}),
    (["features.profiler.sync=true"], {"my.net:add": {"weight": 0.1, "bias": 1}, "profiler": {"sync": True}}),
])  # fmt: skip
def test_typed_features_and_their_keys_win(tmp_path, words, expected):
    mine = ["features=my.net:add", "features.my.net:add.weight=0.1", "features.my.net:add.bias=1"]
    make_run(tmp_path, "r", words=mine)
    assert start(tmp_path, "resume=r").composed.config.features == {"my.net:add": {"weight": 0.1, "bias": 1}}
    begun = start(tmp_path, "resume=r", *words).composed
    assert begun.config.features == expected
    if "sync" not in words[0] and words != ["features=my.net:add"]:
        assert begun.typed(words[-1].partition("=")[0])


def test_a_features_own_file_is_taken_too(tmp_path):
    make_run(tmp_path, "r")
    assert "profiler" in start(tmp_path, "resume=r", "features=profiler").composed.config.features
    make_run(tmp_path, "on", words=["features=profiler", "features.profiler.interval_epochs=3"])
    kept = start(tmp_path, "resume=on", "hardware=original").composed.config.features
    assert list(kept) == ["profiler"]
    assert kept["profiler"]["interval_epochs"] == 3


def test_auto_values_are_found_anew_but_fitted_sizes_stay(tmp_path):
    make_run(tmp_path, "r")
    config = start(tmp_path, "resume=r").composed.config
    assert config.vector.num_threads == config.trainer.torch_threads == "auto"
    assert config.trainer.batch_size == 4096


def test_a_deterministic_run_keeps_its_threads(tmp_path):
    make_run(tmp_path, "r", deterministic=True)
    config = start(tmp_path, "resume=r").composed.config
    assert config.vector.num_threads == config.trainer.torch_threads == 2


def test_the_same_command_recovers_a_run(tmp_path):
    words = ["env=counter", "env.num_envs=8", "trainer.batch_size=4096", "run.name=job"]
    make_run(tmp_path, "job", words=words)
    assert start(tmp_path, *words, "resume=auto").checkpoint.step == 100


def test_a_typed_number_of_environments_may_change_and_sizes_with_it(tmp_path):
    make_run(tmp_path, "r")
    changes = ("env.num_envs=8", "trainer.batch_size=8192", "trainer.bptt_horizon=8")
    config = start(tmp_path, "resume=r", *changes).composed.config
    assert (config.env.num_envs, config.trainer.batch_size, config.trainer.bptt_horizon) == (8, 8192, 8)
    with pytest.raises(UserError, match=r"trainer.batch_size=8192: the run r has 4096"):
        start(tmp_path, "resume=r", *changes[1:])


@pytest.mark.parametrize(("saved", "typed"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_environments_may_move_to_another_device(tmp_path, saved, typed):
    """Their state is the same on both."""
    make_run(tmp_path, "r", env_device=saved)
    assert start(tmp_path, "resume=r").composed.config.env.device == saved
    assert start(tmp_path, "resume=r", f"env.device={typed}").composed.config.env.device == typed


@pytest.mark.parametrize(
    "word",
    [
        "trainer.batch_size=8192",
        "policy.hidden_size=32",
        "seed=5",
        "policy=lstm",
        "env=counter",
        "env.params.size=3",
    ],
)
def test_what_the_state_depends_on_cannot_change(tmp_path, word):
    make_run(tmp_path, "r")
    with pytest.raises(UserError, match=r"remove it,\s+or start"):
        start(tmp_path, "resume=r", word)


def test_the_name_of_ones_own_environment_is_a_label(tmp_path):
    """A run of before, whose environment was named after the function, is resumed by the same command."""
    make_run(tmp_path, "r", words=["env=cart:make", "env.name=make"])
    composed = start(tmp_path, "resume=r", "env=cart:make").composed
    assert composed.config.env.name == "make"
    with pytest.raises(UserError, match=r"env=… gives env\.name=pole, but the run to resume has make"):
        start(tmp_path, "resume=r", "env=pole:make")
