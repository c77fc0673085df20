"""Tests composition: precedence, origins, the guide's two settings, and the message for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml

from metta_fast.config import extension
from metta_fast.config.extension import ENVS, FEATURES, POLICIES
from metta_fast.config.keys import (
    Config,
    check_value,
    config_from_dict,
    config_to_dict,
    get,
    keys,
)
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.compose import compose
from metta_fast.resolve.config_files import CONFIGS, options

PROFILES = ("ultra_fast", "original", "cpu", "h100", "auto")

GUIDE = {  # key: (original, ultra_fast)
    "env.num_envs": (64, 512),
    "env.agents_per_env": (4, 4),
    "vector.num_workers": (4, 16),
    "vector.async_factor": (2, 8),
    "vector.zero_copy": (False, True),
    "vector.backend": ("workers", "workers"),
    "vector.num_threads": ("auto", "auto"),
    "vector.worker_timeout_s": (60, 60),
    "trainer.batch_size": (16384, 262144),
    "trainer.minibatch_size": (512, 32768),
    "trainer.bptt_horizon": (64, 32),
    "trainer.update_epochs": (1, 1),
    "trainer.cpu_offload": (True, False),
    "trainer.compile": (False, True),
    "trainer.compile_mode": ("auto", "reduce-overhead"),
    "trainer.precision": ("fp32", "auto"),
    "trainer.lr_scaling": ("none", "none"),
    "trainer.gradient_accumulation": (1, 1),
    "run.checkpoint_interval": (300, 100),
    "run.evaluate_interval": (300, 500),
    "run.replay_interval": (300, 500),
    "run.gradient_stats_interval": (150, 300),
    "run.monitor_interval": (10, 50),
    "run.min_interval_s": (30, 30),
    "run.checkpoint_max_s": (300, 300),
    "run.dir": ("runs", "runs"),
    "run.preempt_exit_code": (None, None),
    "trainer.deterministic": (False, False),
    "policy.name": ("mlp", "mlp"),
    "policy.hidden_size": (128, 128),
    "policy.core": ("none", "none"),
    "env.observation": ("compact", "compact"),
    "env.max_steps": (1000, 1000),
    "env.limit_is_terminal": (False, False),
    "algorithm.name": ("ppo", "ppo"),
    "trainer.target_kl": (None, None),
    "trainer.optimizer": ("adam", "adam"),
    "trainer.advantage": ("gae", "gae"),
    "trainer.recompute": ("epoch", "epoch"),
}


@pytest.mark.parametrize("path", GUIDE)
def test_the_guides_two_settings(path: str) -> None:
    original, ultra_fast = GUIDE[path]
    assert get(compose(["hardware=original"]).config, path) == original
    assert get(compose([]).config, path) == ultra_fast


def test_later_wins_and_origins_say_who() -> None:
    composed = compose(["hardware=cpu", "env=grid_solo", "policy=lstm", "trainer.gamma=0.9"])
    wanted = {
        "trainer.bptt_horizon": (32, "default"),
        "env.num_envs": (128, "hardware/cpu"),
        "env.max_steps": (1000, "env/grid"),
        "env.agents_per_env": (1, "env/grid_solo"),
        "policy.core": ("lstm", "policy/lstm"),
        "trainer.gamma": (0.9, "command line"),
    }
    for path, (value, origin) in wanted.items():
        assert (get(composed.config, path), composed.origins[path]) == (value, origin)
    assert composed.config.env.params["room_size"] == [10, 10]
    assert composed.origins["env.params.room_size"] == "env/grid_solo"
    assert composed.origins["env.params.border"] == "env/grid"
    assert composed.groups["hardware"] == "cpu"


def test_every_leaf_has_one_origin() -> None:
    for profile in PROFILES[:4]:
        composed = compose([f"hardware={profile}"])
        for path in keys():
            inside = [p for p in composed.origins if p.startswith(path + ".")]
            assert (path in composed.origins) != bool(inside), path


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_holds_only_what_differs_and_says_why(profile: str) -> None:
    text = (CONFIGS / "hardware" / f"{profile}.yaml").read_text()
    content = yaml.safe_load(text)
    content.pop("features", None)  # all off by default
    for group, values in content.items():
        for name, value in values.items():
            assert value != get(Config(), f"{group}.{name}"), f"{group}.{name} is the default"
    for line in text.splitlines():
        if line.startswith("  ") and not line.endswith(":") and not line.lstrip().startswith("#"):
            assert "#" in line, f"no reason given: {line}"


def test_the_files_in_order_give_what_hydra_composes() -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    envs = set(options("env")) - {"grid_map", "custom", "robot", "c"}  # they want a value typed
    for env, policy in [*((e, "mlp") for e in envs), *(("grid", p) for p in options("policy"))]:
        picks = ["hardware=original", f"env={env}", f"policy={policy}"]
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            theirs = OmegaConf.to_container(hydra_compose("train", picks))
        ours = config_to_dict(compose(picks).config)
        assert isinstance(theirs, dict)
        for group, values in theirs.items():
            if isinstance(values, dict) and group != "on_gpu":
                assert within(ours[group], values) == values


def within(ours: Any, values: Any) -> Any:
    """Returns the part of `ours` that `values` has keys of."""
    if not isinstance(values, dict) or not isinstance(ours, dict):
        return ours
    return {name: within(ours[name], value) for name, value in values.items()}


def test_values_in_the_grammar_of_hydra() -> None:
    config = compose(
        ["trainer.total_timesteps=1e6", "trainer.target_kl=0.02", "run.name='my run'", "seed=1_000",
         "trainer.vf_clip_coef=null", "env.params.rooms=[2,2]", "+env.params.more=x",
         "trainer.learning_rate=${trainer.gamma}"]
    ).config  # fmt: skip
    assert config.trainer.total_timesteps == 1_000_000
    assert isinstance(config.trainer.total_timesteps, int)
    assert config.trainer.target_kl == 0.02
    assert config.trainer.vf_clip_coef is None
    assert config.run.name == "my run"
    assert config.env.params["rooms"] == [2, 2]
    assert config.env.params["more"] == "x"
    assert config.seed == 1000
    assert config.trainer.learning_rate == 0.99


def test_a_whole_dict_replaces_and_a_key_inside_changes() -> None:
    assert compose(["env.params={map: maze}"]).config.env.params == {"map": "maze"}
    inside = compose(["env.params.objects.altar=7"]).config.env.params
    assert inside["objects"]["altar"] == 7
    assert inside["objects"]["mine_red"] == 4


def test_ones_own_policy_and_environment_by_their_dotted_names() -> None:
    composed = compose(["policy=my_package.nets.MyNet", "env=my_package.envs:make"])
    assert composed.config.policy.name == "my_package.nets.MyNet"
    assert composed.config.env.factory == "my_package.envs:make"
    assert composed.config.env.name == "envs"
    assert composed.config.env.observation == "default"


@pytest.mark.parametrize(("words", "features"), [
    (["features=my_module:add"], {"my_module:add": {}}),
    (["features=my.pkg.mod:add", "features.my.pkg.mod:add.key=1"], {"my.pkg.mod:add": {"key": 1}}),
    (["features.my.pkg.mod:add.key=[1,2]", "features=my.pkg.mod:add"], {"my.pkg.mod:add": {"key": [1, 2]}}),
    (["features={my.pkg.mod:add: {key: 1}}"], {"my.pkg.mod:add": {"key": 1}}),
    (["features={'my_module:add':{key:a}, other:add: true}"], {"my_module:add": {"key": "a"}, "other:add": True}),
    (["features=[my_module:add,profiler]", "features.profiler.sync=true"], {"my_module:add": {}, "profiler": {
        "interval_epochs": 10, "sync": True, "trace_from": 0, "trace_epochs": 1}}),
    (["features.my_module:add=false"], {"my_module:add": False}),
])  # fmt: skip
def test_ones_own_features_by_module_and_name(words: list[str], features: dict[str, Any]) -> None:
    composed = compose(words)
    assert composed.config.features == features
    config_from_dict(json.loads(json.dumps(config_to_dict(composed.config))))


def test_ones_own_policy_by_module_and_name() -> None:
    assert compose(["policy=my_package.nets:MyNet"]).config.policy.name == "my_package.nets:MyNet"
    assert compose(["policy.name=my_nets:MyNet"]).config.policy.name == "my_nets:MyNet"


def test_installed_parts_are_chosen_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        group: [EntryPoint(name, "somewhere:make", group)]
        for group, name in ((ENVS, "theirs"), (POLICIES, "net"), (FEATURES, "extra"))
    }
    monkeypatch.setattr(extension, "entry_points", lambda group: points.get(group, []))
    config = compose(["env=theirs", "policy=net", "features=extra"]).config
    assert (config.env.factory, config.env.name, config.policy.name) == ("theirs", "theirs", "net")
    assert config.features == {"extra": {}}


@pytest.mark.parametrize(("argument", "message"), [
    ("trainer.batchsize=1", "unknown key 'trainer.batchsize'; did you mean 'trainer.batch_size'?"),
    ("batch_size=1", "unknown key 'batch_size'; did you mean 'trainer.batch_size'?"),
    ("trainer.lr=1", "did you mean 'trainer.learning_rate'?"),
    ("hardwre=cpu", "did you mean 'hardware'?"),
    ("zzz=1", "unknown key 'zzz'; `--help` lists every key"),
    ("hardware=h10", "unknown hardware 'h10'; did you mean 'hardware=h100'? known: a100, a10g, a40, a6000"),
    ("hardware=null", "unknown hardware 'null'"),
    ("env=gird", "did you mean 'env=grid'?"),
    ("env=[grid,grid_solo]", "unknown env '[grid, grid_solo]'"),
    ("policy=mpl", "did you mean 'policy=mlp'?"),
    ("env=grid,grid_solo", "gives several values, but a run takes one"),
    ("trainer.batch_size=many", "trainer.batch_size=many: expected a whole number of at least 1"),
    ("trainer.batch_size=1.5", "expected a whole number"),
    ("trainer.batch_size=0", "expected a whole number of at least 1"),
    ("trainer.batch_size=null", "trainer.batch_size=null: expected"),
    ("trainer.gamma=1.1", "expected a number from 0 to 1"),
    ("trainer.gamma=nan", "expected a number from 0 to 1"),
    ("trainer.learning_rate=inf", "expected a number"),
    ("trainer.tf32=yes", "trainer.tf32=yes: expected true or false"),
    ("trainer.compile=1", "expected true or false or auto"),
    ("policy.core=lstn", "expected one of none, lstm, mingru; did you mean 'lstm'?"),
    ("vector.num_workers=few", "expected a whole number of at least 1 or auto"),
    ("env.params=3", "expected keys and values"),
    ("trainer=3", "'trainer' is a group of keys"),
    ("env.num_envs.x=3", "unknown key 'env.num_envs.x'"),
    ("seed", "'seed' is not key=value; write for example 'seed=…'"),
    ("cpu", "did you mean 'hardware=cpu'?"),
    ("grid_solo", "did you mean 'env=grid_solo'?"),
    ("whatever", "'whatever' is not key=value; write for example 'env.num_envs=512'"),
    ("=3", "not key=value"),
    ("~seed", "'~seed': a key cannot be removed"),
    ("run.name=a=b", "malformed argument 'run.name=a=b'"),
    ("hydra.run.dir=x", "runs are written to run.dir"),
    ("--explian", "unknown option '--explian'; did you mean '--explain'?"),
    ("--multirun", "unknown option '--multirun'"),
    ("--config-dir=nowhere", "'nowhere' is not a folder"),
    ("--config-dir", "is not a folder"),
    ("run.name=${nothing}", "cannot be resolved"),
])  # fmt: skip
def test_a_mistake_is_one_or_two_lines_with_the_cure(argument: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        compose([argument])
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


def _write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_folder_of_ones_own_recipes(tmp_path: Path) -> None:
    _write(
        tmp_path,
        "env/mine.yaml",
        "# @package _global_\ndefaults: [grid_solo, _self_]\nenv: {max_steps: 77}\n",
    )
    _write(tmp_path, "hardware/desk.yaml", "# @package _global_\ntrainer: {batch_size: 1024}\n")
    for where in ([f"--config-dir={tmp_path}"], ["--config-dir", str(tmp_path)]):
        composed = compose([*where, "env=mine", "hardware=desk"])
        assert composed.config.env.max_steps == 77
        assert composed.config.env.agents_per_env == 1
        assert composed.origins["env.max_steps"] == "env/mine"
        assert composed.origins["trainer.batch_size"] == "hardware/desk"


def test_a_file_without_package_line_speaks_of_its_group(tmp_path: Path) -> None:
    _write(tmp_path, "env/mine.yaml", "name: mine\nmax_steps: 5\n")
    composed = compose(["--config-dir", str(tmp_path), "env=mine"])
    assert (composed.config.env.name, composed.config.env.max_steps) == ("mine", 5)


@pytest.mark.parametrize(("text", "message"), [
    ("# @package _global_\ntrainer: {batchsize: 1}\n", "env/mine: unknown key 'trainer.batchsize'"),
    ("# @package _global_\ntrainer: {batch_size: x}\n", "env/mine: trainer.batch_size=x: expected"),
    ("# @package _global_\ntrainer: [\n", "mine.yaml is not YAML"),
    ("# @package _global_\ndefaults: [nothing]\n", "cannot be read"),
])  # fmt: skip
def test_a_mistake_in_a_file_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    _write(tmp_path, "env/mine.yaml", text)
    with pytest.raises(UserError) as caught:
        compose(["--config-dir", str(tmp_path), "env=mine"])
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


def test_a_file_that_would_be_hidden_by_ours_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, "env/grid.yaml", "# @package _global_\n")
    with pytest.raises(UserError, match="has the name of a built-in file"):
        compose(["--config-dir", str(tmp_path)])


def test_the_dict_form_comes_back_whole() -> None:
    config = compose(["env=grid_arena", "trainer.target_kl=0.1"]).config
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config
    with pytest.raises(UserError, match=r"unknown key 'trainer\.old'"):
        config_from_dict({"trainer": {"old": 1}})
    with pytest.raises(UserError, match="expected a group of keys"):
        config_from_dict({"trainer": 3})


def test_every_default_is_a_value_that_its_key_takes() -> None:
    for path, entry in keys().items():
        assert entry.help
        assert check_value(path, entry.default) == entry.default


def test_nothing_is_written_and_torch_stays_out(tmp_path: Path) -> None:
    code = ("import os, sys; from metta_fast.resolve.compose import compose; compose(['env=grid_solo']); "
            "print(os.getcwd(), 'torch' in sys.modules, 'omegaconf' in sys.modules)")  # fmt: skip
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == [str(tmp_path), "False", "True"], done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "name"), [
    (["env=cart:make"], "cart"),
    (["env=my_package.cart:make_env"], "cart"),
    (["env=robots:arm"], "robots-arm"),
    (["env=__main__:cart"], "cart"),
    (["env=custom", "env.factory=cart:make"], "cart"),
    (["env=cart:make", "env.factory=pole:make"], "pole"),
    (["env=cart:make", "env.name=mine"], "mine"),
])  # fmt: skip
def test_an_environment_of_ones_own_is_named_after_its_module(
    words: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert compose(words).config.env.name == name
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/x/carts.py", raising=False)
    assert compose(["env=__main__:make"]).config.env.name == "carts"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["env=CartPole-v1", "env=Acrobot-v1"], {"env.id": "Acrobot-v1"}),
        (["env=CartPole-v1", "env=counter"], {"env.id": None, "env.factory": "counter"}),
        (["env=one:make", "env=two:make", "env.num_envs=3"], {"env.factory": "two:make", "env.num_envs": 3}),
        (["env=one:make", "env=CartPole-v1"], {"env.factory": "gymnasium", "env.id": "CartPole-v1"}),
        (["policy=my:Net", "policy=lstm"], {"policy.name": "mlp", "policy.core": "lstm"}),
        (["policy=lstm", "policy=my:Net"], {"policy.name": "my:Net", "policy.core": "none"}),
        (["algorithm=my:Kind", "algorithm=ppo"], {"algorithm": {"name": "ppo"}}),
    ],
)
def test_the_last_choice_of_a_group_is_taken(words: list[str], expected: dict[str, Any]) -> None:
    config = compose([*words, "hardware=cpu"]).config
    assert {path: get(config, path) for path in expected} == expected


def test_keys_that_a_profile_gave_are_known_beside_its_file() -> None:
    """A later source may have changed the value; resuming with another profile reads these."""
    composed = compose(["env=ant", "hardware=ultra_fast", "trainer.learning_rate=0.1"])
    given = composed.from_profile
    assert given["trainer.batch_size"] == "hardware/ultra_fast"
    assert composed.origins["trainer.batch_size"] == "env/robot"
    assert set(given.values()) == {"hardware/ultra_fast"}
    assert not compose(["env=ant", "hardware=cpu", "trainer.batch_size=8"]).from_profile.keys() - set(keys())
