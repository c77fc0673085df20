"""Tests how `auto` is resolved on each machine, what is refused, and the output of --help, --explain and --cfg."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from metta_fast.config.keys import config_from_dict, get, keys
from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.config_files import options
from metta_fast.resolve.explain import cfg_text, explain_text, help_text
from metta_fast.resolve.resolve import Resolved, resolve

LAPTOP = Machine(4, 8, 16 * GIB)
H100 = Machine(16, 64, 128 * GIB, (Gpu("NVIDIA H100 80GB HBM3", 79 * GIB, (9, 0)),), "cuda")
T4 = Machine(4, 4, 16 * GIB, (Gpu("Tesla T4", 15 * GIB, (7, 5)),), "cuda")
ROOT = Path(__file__).parents[2]


def resolved(*words: str, machine: Machine = LAPTOP) -> Resolved:
    return resolve(compose(words, machine=machine), machine=machine)


def values(config: Any) -> list[Any]:
    """All leaves of a dataclass of dataclasses."""
    found = []
    for item in fields(config):
        value = getattr(config, item.name)
        found += values(value) if is_dataclass(value) else [value]
    return found


INCOMPLETE = {"atari", "c", "custom", "gymnasium", "mettagrid", "minigrid", "pettingzoo", "pufferlib"}
INCOMPLETE |= {"grid_map", "robot"}
"""Recipes that need an id, a function, a file or another package."""


@pytest.mark.parametrize("machine", [LAPTOP, H100, T4])
@pytest.mark.parametrize("profile", ["auto", "ultra_fast", "original", "cpu", "h100"])
def test_no_auto_is_left(profile: str, machine: Machine) -> None:
    for env in options("env"):
        if env in INCOMPLETE:
            continue
        if find_spec("mujoco") is None and compose([f"env={env}"]).config.env.factory == "robot":
            continue
        done = resolved(f"hardware={profile}", f"env={env}", machine=machine)
        # decided when the run starts: by the terminal, the machine, where robots are drawn, the learner's device
        free = {"run.dashboard", "run.notices", "env.renderer", "distributed.backend"}
        assert "auto" not in [get(done.config, path) for path in keys() if path not in free]
        config = done.config
        agents = config.env.num_envs * config.env.agents_per_env
        assert config.trainer.batch_size % (agents * config.trainer.bptt_horizon) == 0
        for path in ("trainer.precision", "trainer.device", "env.device", "trainer.torch_threads"):
            typed_by_profile = profile == "original" and path == "trainer.precision"
            assert typed_by_profile or done.origins[path].startswith(("auto: ", "env/robot"))


@pytest.mark.parametrize("profile", options("hardware"))
def test_every_profile_resolves(profile: str) -> None:
    for machine in (LAPTOP, H100):
        for words in (("env=grid",), ("env=counter", "policy=lstm")):
            done = resolved(f"hardware={profile}", *words, machine=machine)
            sizes = done.config.trainer
            assert sizes.batch_size % sizes.minibatch_size == 0
            assert f"  trainer.batch_size={sizes.batch_size} " in explain_text(done)


def test_on_a_cpu() -> None:
    config = resolved("hardware=auto").config
    assert (config.trainer.device, config.trainer.precision, config.trainer.compile) == ("cpu", "fp32", False)
    assert (config.vector.backend, config.vector.num_threads, config.trainer.torch_threads) == (
        "threads",
        4,
        4,
    )


def test_on_a_gpu() -> None:
    config = resolved("hardware=auto", machine=H100).config
    assert (config.trainer.device, config.trainer.precision, config.trainer.compile) == ("cuda", "bf16", True)
    assert (config.env.device, config.vector.num_threads, config.vector.async_factor) == ("cpu", 16, 2)
    assert config.env.num_envs * config.env.agents_per_env >= 8192
    assert resolved(machine=T4).config.trainer.precision == "fp32"


def test_python_environments_step_in_workers_within_the_cores() -> None:
    done = resolved("hardware=cpu", "env=counter", "vector.backend=workers")
    assert (done.config.vector.num_workers, done.config.vector.num_threads) == (4, 1)
    done = resolved("hardware=cpu", "env=counter", "vector.backend=workers", "vector.num_workers=2")
    assert done.config.vector.num_threads == 2
    done = resolved("hardware=cpu", "env=counter", "vector.backend=workers", "env.num_envs=3")
    assert done.config.vector.num_workers == 3


def test_the_guides_settings_go_through_unchanged_on_a_gpu() -> None:
    config = resolved(machine=H100).config
    assert (config.env.num_envs, config.vector.num_workers, config.vector.async_factor) == (512, 16, 8)
    assert (config.trainer.batch_size, config.trainer.minibatch_size) == (262144, 32768)
    assert (config.trainer.compile, config.trainer.cuda_graphs) == (
        True,
        True,
    )  # graphs of our own for torch's
    assert config.trainer.compile_mode == "default"
    done = resolved("hardware=original", machine=H100)
    assert (done.config.trainer.minibatch_size, done.config.trainer.cpu_offload) == (512, True)
    assert any(
        note.startswith(
            "hardware=original runs without kickstart, which the guide enables: it needs a teacher"
        )
        for note in done.notes
    )


def test_what_a_profile_wants_of_a_gpu_is_off_without_one_and_said() -> None:
    done = resolved("hardware=ultra_fast")
    assert done.config.trainer.compile is False
    assert any(note.startswith("trainer.compile=false (hardware/ultra_fast: ") for note in done.notes)
    assert any("vector.num_workers=16 (hardware/ultra_fast) share 4 cores" in note for note in done.notes)
    assert resolved("trainer.compile=true").config.trainer.compile is True


@pytest.mark.parametrize(("words", "message"), [
    (["env.device=cuda"], "env.device=cuda: no GPU was found"),
    (["trainer.device=cuda"], "trainer.device=cuda: no GPU was found"),
    (["trainer.precision=fp16"], "trainer.precision=fp16 needs a GPU"),
    (["trainer.cpu_offload=true"], "the policy runs on the CPU; remove it"),
    (["trainer.batch_size=100000"], "trainer.batch_size=100000 is not a whole number of segments"),
    (["env.num_envs=8", "vector.num_workers=9", "vector.async_factor=8"],
     "vector.num_workers=9 is more than env.num_envs=8; try vector.num_workers=8, or env.num_envs=9"),
    (["vector.backend=threads", "vector.num_threads=600"], "try vector.num_threads=512, or env.num_envs=60"),
    (["policy.name=mpl"], "did you mean 'mlp'?"),
    (["policy=tokens", "env.observation=compact"], "reads [n, 3] uint8 tokens, but grid gives obs [387] uint8"),
    (["env.observation=tokens"], "give policy=tokens, or env.observation=compact"),
    (["env.params.mpa=maze"], "mpa"),
    (["env.params.room_size=[3,3]"], "do not fit"),
    (["env.params.objects.altr=1"], "altr"),
    (["env.factory=gird"], "gird"),
    (["env=no_such_package.envs:make"], "no_such_package"),
    (["env.num_envs=1000000", "trainer.batch_size=256000000"], "host memory are needed (rollout"),
])  # fmt: skip
def test_a_mistake_is_one_or_two_lines_with_the_cure(words: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolved(*words)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(
    ("space", "words", "told"),
    [
        (
            "Box(0, 255, (48, 64, 3), np.uint8)",
            ["policy.encoder=mlp"],
            "observation 'obs' (48×64×3 uint8) enters the network as 9216 plain",
        ),
        (
            "Box(0, 10, (7, 7, 3), np.uint8)",
            ["policy=lstm", "policy.symbol_encoder=flat"],
            "(7×7×3 uint8) enters the network as 147 plain numbers",
        ),
        ("Box(0, 10, (7, 7, 3), np.uint8)", ["policy=lstm"], None),
        ("Box(0, 255, (48, 64, 3), np.uint8)", ["policy.encoder=MODULE:Own"], None),
        ("Box(0, 1, (48, 64, 3), np.float32)", [], None),
        ("Box(0, 255, (12,), np.uint8)", [], None),
    ],
)
def test_bytes_of_an_image_that_enter_as_plain_numbers_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: str, words: list[str], told: str | None
) -> None:
    name = f"camera_{abs(hash((space, *words)))}"
    (tmp_path / f"{name}.py").write_text(
        "import gymnasium, numpy as np\n"
        "from gymnasium.spaces import Box, Discrete\n"
        "from metta_fast.envs.python_env import PythonEnvFactory\n\n"
        "class Camera(gymnasium.Env):\n"
        f"    observation_space, action_space = {space}, Discrete(2)\n\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return self.observation_space.sample(), {}\n\n"
        "    def step(self, action):\n"
        "        return self.observation_space.sample(), 0.0, False, False, {}\n\n"
        "class Own: pass\n\n"
        "def make(config):\n    return PythonEnvFactory(lambda index: Camera(), name='camera')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = [word.replace("MODULE", name) for word in words]
    notes = [note for note in resolved(f"env={name}:make", *words).notes if "enters the network" in note]
    assert len(notes) == (told is not None)
    assert all("\n" not in note and str(told) in note and "policy.encoder" in note for note in notes)


@pytest.mark.parametrize(
    ("low", "told"),
    [
        ("-1", None),
        ("[-1, -np.inf]", "own: numbers 1 of 2 continuous actions lack a finite bound and are not scaled"),
        ("-np.inf", "own: all of 2 continuous actions lack a finite bound and are not scaled"),
    ],
)
def test_actions_without_bounds_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, low: str, told: str | None
) -> None:
    (tmp_path / "unbounded.py").write_text(
        "import gymnasium, numpy as np\n"
        "from metta_fast.envs.python_env import PythonEnvFactory\n\n"
        "class Own(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        f"    action_space = gymnasium.spaces.Box(np.float32({low}), np.float32([1, 1]), (2,))\n\n"
        "def make(config):\n"
        "    return PythonEnvFactory(lambda index: Own(), name='own')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "unbounded", raising=False)
    notes = resolved("hardware=cpu", "env=unbounded:make").notes
    assert [note.partition(":")[0] for note in notes if "bound" in note] == (["own"] if told else [])
    assert told is None or any(note.startswith(told) for note in notes)


def test_ones_own_environment_says_how_many_agents_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trio.py").write_text(
        "from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf\n"
        "class Trio:\n"
        "    def __init__(self, config):\n"
        "        obs, action = {'obs': Leaf((4,), 'float32')}, ActionSpec('discrete', (2,))\n"
        "        self.spec = EnvSpec('trio', 3, obs, action)\n"
        "    def make_batch(self, first_env, num_envs, total_envs): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    done = resolved("hardware=cpu", "env=trio:Trio")
    assert done.config.env.agents_per_env == 3
    assert done.origins["env.agents_per_env"] == "auto: trio:Trio has this many (env/custom)"
    assert done.config.vector.backend == "workers"
    assert done.config.trainer.batch_size == 32768 // (128 * 3) * (128 * 3)
    with pytest.raises(UserError, match=r"env\.agents_per_env=2, but trio:Trio has 3; remove it"):
        resolved("env=trio:Trio", "env.agents_per_env=2")


def test_features_are_chosen_by_file_or_by_key_and_checked() -> None:
    wanted = {"prioritized_replay": {"prio_alpha": 0.6, "prio_beta": 0.4, "prio_floor": 0.1}}
    assert resolved("hardware=cpu", "features=[prioritized_replay]").config.features == wanted
    done = resolved("hardware=cpu", "features=prioritized_replay", "features.prioritized_replay.prio_beta=1")
    assert done.config.features["prioritized_replay"]["prio_beta"] == 1.0
    assert done.origins["features.prioritized_replay.prio_alpha"] == "features/prioritized_replay"
    assert resolved("features={prioritized_replay: {prio_alpha: 1}}").config.features == {
        "prioritized_replay": {"prio_alpha": 1}
    }
    assert resolved("hardware=cpu").config.features == {}
    for word, message in (
        ("features.prioritised_replay=true", "did you mean 'prioritized_replay'?"),
        ("features.prioritized_replay.alpha=1", "it has prio_alpha, prio_beta, prio_floor"),
        ("features.prioritized_replay.prio_beta=2", "expected a number from 0 to 1"),
    ):
        with pytest.raises(UserError) as caught:
            resolved(word)
        assert message in str(caught.value)


def test_an_ascii_map_of_ones_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"env\.params\.map has no value in env/grid_map; give it one"):
        resolved("env=grid_map")
    (tmp_path / "map.txt").write_text("#####\n#@m.#\n#ga@#\n#####\n")
    done = resolved("env=grid_map", f"env.params.map={tmp_path}/map.txt", "env.agents_per_env=2")
    assert done.config.env.params["rewards"]["heart"] == {"weight": 1.0}


def test_deterministic_and_cudnn_benchmark() -> None:
    done = resolved("trainer.deterministic=true", machine=H100)
    assert done.config.trainer.cudnn_benchmark is False
    with pytest.raises(UserError, match="remove one of them"):
        resolved("trainer.deterministic=true", "trainer.cudnn_benchmark=true", machine=H100)


def test_a_card_that_torch_cannot_use_is_named() -> None:
    lost = Machine(4, 4, GIB * 16, notes=("RTX 4090 is here, but torch is built for cpu",))
    with pytest.raises(UserError, match="RTX 4090 is here"):
        resolved("trainer.device=cuda", machine=lost)
    assert any("RTX 4090" in note for note in resolved("hardware=auto", machine=lost).notes)


def test_explain_shows_each_value_with_its_origin_and_the_ceiling() -> None:
    text = explain_text(resolved("hardware=cpu", "env.num_envs=100", "trainer.gamma=0.9"))
    line = {words[0].strip(): words[1].strip() for words in (row.split("# ", 1) for row in text.splitlines())
            if len(words) == 2}  # fmt: skip
    assert line["env.num_envs=100"] == "command line"
    assert line["trainer.gamma=0.9"] == "command line"
    assert line["trainer.batch_size=25600"] == (
        "auto: 32768 rounded down to whole segments: "
        "400 agents × bptt_horizon 32 = 12800 (hardware/cpu)")  # fmt: skip
    assert line["env.agents_per_env=4"] == "env/grid"
    assert line["trainer.gae_lambda=0.95"] == "default"
    assert line["vector.backend=threads"] == "auto: a native environment"
    assert line["horizon = 64"].startswith("trainer.batch_size / num_agents")
    assert line["vector.envs_per_batch = 50"].startswith("env.num_envs / vector.async_factor")
    for path in keys():
        assert f"  {path}" in text


def test_help_explains_every_key_and_option() -> None:
    text = help_text()
    for path, entry in keys().items():
        assert f"  {path}=" in text
        for choice in entry.choices or ():
            assert str(choice) in text
    for group in ("hardware", "env", "policy"):
        for option in options(group):
            assert f"    {option} " in text
    assert max(map(len, text.splitlines())) <= 120


def test_cfg_is_the_resolved_configuration() -> None:
    done = resolved("env=grid_solo")
    assert config_from_dict(yaml.safe_load(cfg_text(done))) == done.config


def test_resolving_twice_changes_nothing() -> None:
    done = resolved("hardware=cpu", "env=grid_arena")
    again = compose(["hardware=cpu", "env=grid_arena"])
    again.config = done.config
    assert resolve(again, machine=LAPTOP).config == done.config


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "run_optimized.py"), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, timeout=60)


def test_the_entry_point(tmp_path: Path) -> None:
    shown = run("hardware=cpu", "--explain", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "hardware/cpu" in shown.stdout
    assert run("--cfg", "job", cwd=tmp_path).stdout.startswith("env:")
    assert "trainer.batch_size=" in run("--help", cwd=tmp_path).stdout
    wrong = run("trainer.batchsize=3", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert len(wrong.stderr.splitlines()) == 1
    assert "did you mean 'trainer.batch_size'?" in wrong.stderr
    assert list(tmp_path.iterdir()) == []
