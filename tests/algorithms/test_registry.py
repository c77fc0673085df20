"""Algorithms by name: what they read, their own keys, sizes and memory; a second one trains from the command line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from metta_fast import AlgorithmKind, UserError
from metta_fast.algorithms.registry import find_kind, kind_of, known_algorithms, own_keys
from metta_fast.cli import main
from metta_fast.config.keys import Config, config_from_dict, config_to_dict
from metta_fast.metrics.loggers import read_rows
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text, help_text
from metta_fast.resolve.resolve import Resolved, resolve
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.same import curve, same
from tests.tiny import QUIET, named

TOY = "algorithm=tests.toy_algorithm:Toy"
SIZES = [
    *QUIET,
    "env=counter",
    "env.num_envs=16",
    "env.max_steps=16",
    "policy.hidden_size=16",
    "trainer.minibatch_size=64",
    "trainer.learning_rate=0.01",
    "trainer.gamma=0.5",
    "trainer.total_timesteps=12_000",
    "trainer.deterministic=true",
    "run.checkpoint_interval=10",
    "run.min_interval_s=0",
    "vector.backend=serial",
    TOY,
]
ROOT = Path(__file__).parents[2]


ELSEWHERE = ("metta_fast/bench/", "metta_fast/envs/", "metta_fast/compat/")
"""Benchmarks compare with peers; envs/ is looked at by its own path; compat/ knows old names."""


class Unfinished(AlgorithmKind):
    """Says nothing and builds nothing."""


@pytest.fixture(autouse=True)
def torch_as_it_was():
    """A deterministic run of a command sets torch for its whole process."""
    yield
    torch.use_deterministic_algorithms(False)


def resolved(*words: str) -> Resolved:
    return resolve(compose(["hardware=cpu", "env=counter", *words]))


def newest(folder: Path) -> checkpoint.Checkpoint:
    found = checkpoint.latest(RunDir(folder / "r").checkpoints, pytest.fail)
    assert found is not None
    return found


def test_it_trains_checkpoints_resumes_exactly_and_evaluates(tmp_path, capsys) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert main(["train", *SIZES, *named(whole)]) == 0
    assert main(["train", *SIZES, *named(halves), "trainer.total_timesteps=5000"]) == 0
    again = ["train", f"resume={halves / 'r'}", "trainer.total_timesteps=12_000"]
    assert main(again) == 0
    for name in ("algorithm", "env"):
        same(newest(halves).load(name), newest(whole).load(name))
    assert curve(halves / "r") == curve(whole / "r")
    assert newest(whole).meta["config"]["algorithm"] == {
        "name": "tests.toy_algorithm:Toy", "rows": 8, "updates": 8, "replay_size": 4096, "temperature": 0.2,
    }  # fmt: skip
    returns = [row["env/return"] for row in read_rows(whole / "r" / "metrics.jsonl") if "env/return" in row]
    assert np.mean(returns[-10:]) > np.mean(returns[:5]) + 3
    capsys.readouterr()
    assert main(["eval", str(whole / "r"), "--episodes", "32", "--deterministic"]) == 0
    assert "policy / random = 1.9" in capsys.readouterr().out


def test_a_resume_takes_its_own_keys_but_for_those_that_are_fixed(tmp_path) -> None:
    assert main(["train", *SIZES, *named(tmp_path), "trainer.total_timesteps=2000"]) == 0
    resume = ["train", f"resume={tmp_path / 'r'}", "trainer.total_timesteps=3000"]
    assert main([*resume, "algorithm.replay_size=8192"]) == 2
    assert main([*resume, "algorithm=ppo"]) == 2
    assert main([*resume, "algorithm.temperature=0.5", TOY]) == 0
    assert newest(tmp_path).meta["config"]["algorithm"]["temperature"] == 0.5


def test_a_policy_begins_another_run(tmp_path) -> None:
    first, tuned = tmp_path / "first", tmp_path / "tuned"
    assert main(["train", *SIZES, *named(first), "trainer.total_timesteps=2000"]) == 0
    ppo = [word for word in SIZES if word != TOY]
    more = ["trainer.total_timesteps=1000", "trainer.batch_size=512", "trainer.bptt_horizon=16"]
    assert main(["train", *ppo, *named(tuned), *more, f"init_from={first / 'r'}"]) == 0
    assert newest(tuned).meta["config"]["algorithm"] == {"name": "ppo"}


def test_a_typed_key_that_it_does_not_read_is_refused() -> None:
    with pytest.raises(UserError, match=r"trainer\.clip_coef=0\.1: algorithm=tests\.toy_algorithm:Toy does not read"
                       r" .* it reads trainer\.gamma, trainer\.learning_rate, trainer\.minibatch_size"):  # fmt: skip
        resolved(TOY, "trainer.clip_coef=0.1")
    assert resolved("trainer.clip_coef=0.1").config.trainer.clip_coef == 0.1


def test_a_profiles_key_that_it_does_not_read_is_left_out_and_shown() -> None:
    found = resolved(TOY, "trainer.total_timesteps=1000")
    assert found.config.trainer.batch_size == Config().trainer.batch_size
    said = explain_text(found)
    assert "left out: algorithm=tests.toy_algorithm:Toy does not read it (hardware/cpu: 32768)" in said
    assert "trainer.gamma=0.995" in said, "it reads this one of the profile"
    assert "trainer.clip_coef" not in said, "nobody gave it, nobody reads it"
    assert "algorithm.temperature=0.2" in said
    assert "epochs kept = 4" in said
    assert "algorithm=tests.toy_algorithm:Toy" in said.splitlines()[0]


@pytest.mark.parametrize(("word", "message"), [
    ("algorithm.temprature=0.1", r"algorithm\.temprature: unknown key; did you mean 'algorithm\.temperature'\?"),
    ("algorithm.temperature=hot", r"algorithm\.temperature=hot: expected a number of at least 0\.001"),
    ("algorithm.rows=0", r"algorithm\.rows=0: expected a whole number of at least 1"),
    ("algorithm.replay_size=100", r"algorithm\.replay_size=100: an epoch gives 1024"),
    ("features.prioritized_replay.prio_alpha=0.5", r"features\.prioritized_replay: .* does not call sample"),
    ("run.gradient_stats_interval=5", r"run\.gradient_stats_interval=5: .* has no gradients to log"),
])  # fmt: skip
def test_what_does_not_go_with_it_is_refused(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolved(TOY, word)


def test_a_file_may_hold_what_it_does_not_have(tmp_path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/mine.yaml").write_text(
        "# @package _global_\ndefaults: [counter]\nalgorithm: {rows: 4, alpha: 1}\n"
        "features: {prioritized_replay: {prio_alpha: 0.6}}\nrun: {gradient_stats_interval: 9}\n"
    )
    composed = compose(["hardware=cpu", "env=mine", f"--config-dir={tmp_path}", TOY])
    found = resolve(composed)
    assert found.config.algorithm["rows"] == 4
    assert "alpha" not in found.config.algorithm
    assert found.config.features == {}
    assert found.config.run.gradient_stats_interval == 0
    said = " ".join(explain_text(found).split())
    for text in ("algorithm.alpha=1 is left out", "features.prioritized_replay (env/mine) is left out"):
        assert text in said


def test_its_sizes_and_memory_are_asked() -> None:
    found = resolved(TOY, "env.num_envs=1024")
    assert found.config.algorithm["replay_size"] == 8192
    assert {part.name for part in found.memory} >= {"replay buffer", "program"}
    assert not {part.name for part in found.memory} & {"rollout", "activations"}


@pytest.mark.parametrize(("word", "message"), [
    ("algorithm=pppo", r"unknown algorithm 'pppo'; did you mean 'algorithm=ppo'\? known: ppo, sac, td3, or your own"),
    ("algorithm=tests.toy_algorithm:Tox", r"has no Tox; did you mean 'Toy'"),
    ("algorithm=tests.nowhere:Toy", r"tests\.nowhere"),
    ("algorithm=tests.toy_algorithm:ToyKeys", r"expected a subclass of metta_fast\.AlgorithmKind"),
    ("algorithm.name=pppo", r"unknown algorithm; did you mean 'ppo'\? known: ppo, sac, td3, or your own"),
    ("algorithm.name=5", r"algorithm=\{name: 5\}: expected a name"),
])  # fmt: skip
def test_a_name_that_is_no_algorithm(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolved(word)


def test_a_kind_without_anything_reads_what_the_run_reads() -> None:
    kind = find_kind(f"{__name__}:Unfinished")
    assert own_keys(kind) == {}
    found = resolved(f"algorithm={__name__}:Unfinished", "trainer.total_timesteps=5")
    assert found.config.trainer.total_timesteps == 5
    with pytest.raises(UserError, match=r"Of trainer\.\* it reads none of them"):
        resolved(f"algorithm={__name__}:Unfinished", "trainer.gamma=0.5")


def test_help_lists_the_keys_of_a_typed_algorithm() -> None:
    assert "algorithm.temperature" not in help_text()
    assert "algorithm=ppo\n" in help_text()
    assert "algorithm.temperature=0.2" in help_text(["tests.toy_algorithm:Toy"])


def test_the_configuration_of_an_old_run_names_its_algorithm_by_a_string() -> None:
    old = config_to_dict(Config()) | {"algorithm": "ppo"}
    assert config_from_dict(old).algorithm == {"name": "ppo"}
    assert kind_of(config_from_dict(old)).fixed
    assert known_algorithms() == ["ppo", "sac", "td3"]


def test_only_algorithms_knows_the_algorithms() -> None:
    """Nothing outside algorithms/ (and the benchmarks that compare with peers) names one, but for the default."""
    found = []
    for file in [*(ROOT / "metta_fast").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]:
        inside = file.relative_to(ROOT).as_posix()
        if "algorithms/" not in inside and not inside.startswith(ELSEWHERE):
            text = file.read_text().replace("tests/ppo/", "")  # where a fast path's test is
            lines = [line.strip() for line in text.splitlines()]
            found += [(inside, line) for line in lines if re.search(r"\bppo\b|\bDevicePPO\b", line, re.I)]
    assert found == [("metta_fast/config/schema.py", '{"name": "ppo"},')]


def test_a_kind_that_builds_nothing_is_refused(tmp_path, capsys) -> None:
    words = [word for word in SIZES if word != TOY and not word.startswith(("trainer.", "algorithm."))]
    assert main(["train", *words, f"algorithm={__name__}:Unfinished", *named(tmp_path)]) == 2
    assert "Unfinished has no method build(config, spec, vec, policy" in capsys.readouterr().err
