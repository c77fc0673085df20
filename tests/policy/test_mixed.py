"""Tests actions with discrete and continuous parts: the head beside torch's distributions, and whole trainings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, Normal

import metta_fast
from metta_fast.cli import main
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.contracts.player import uniform
from metta_fast.envs.actions import ActionDecoder, action_spec
from metta_fast.envs.sanity import parts
from metta_fast.policy import MixedHead, make_policy
from metta_fast.policy.plan import plan_of
from metta_fast.vector.first_look import random_actions
from tests.device_envs import TorchFactory

NVEC, LOW, HIGH = (2, 5, 3), (-1.0, 0.0), (1.0, 4.0)
SPEC = ActionSpec("mixed", nvec=NVEC, start=(0, 3, -1), low=LOW, high=HIGH)
ENV = EnvSpec("mixed", 1, {"obs": Leaf((3,), "float32")}, SPEC)


def sampled(
    seed: int, scale: float, rows: int = 4, squash: bool = False
) -> tuple[MixedHead, torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    head = MixedHead(SPEC, squash=squash)
    params = torch.randn(rows, 2, head.num_params, generator=generator) * scale
    params[..., -2:] = params[..., -2:].clamp(-2, 1)
    noise = torch.randn(rows, 2, SPEC.width, generator=generator)
    return head, params, *head.sample(params, noise)


@given(st.integers(0, 2**32), st.floats(0, 20))
def test_logprob_and_entropy_are_sums_over_the_parts(seed: int, scale: float) -> None:
    head, params, action, logprob = sampled(seed, scale)
    again, entropy = head.logprob_entropy(params, action)
    *logits, mean, log_std = params.split([*NVEC, 2, 2], -1)
    choices = [Categorical(logits=one) for one in logits]
    numbers = Normal(mean, log_std.exp())
    expected = sum(one.log_prob(action[..., i]) for i, one in enumerate(choices))
    expected = expected + numbers.log_prob(action[..., 3:]).sum(-1)
    torch.testing.assert_close(logprob, expected, rtol=1e-4, atol=1e-4)
    assert (again == logprob).all()
    spread = sum(one.entropy() for one in choices) + numbers.entropy().sum(-1)
    torch.testing.assert_close(entropy, spread, rtol=1e-4, atol=1e-4)


def test_samples_follow_their_probabilities() -> None:
    head, logits = MixedHead(SPEC), torch.tensor([1.0, -1, 0.3, 0, 2, 1, 0, 0.5, 0.1, -2])
    params = torch.cat([logits, torch.tensor([0.5, -0.5, -1.0, 0.5])]).expand(60_000, -1)
    noise = torch.randn(60_000, SPEC.width, generator=torch.Generator().manual_seed(0))
    action, _ = head.sample(params, noise)
    for i, part in enumerate(logits.split(NVEC)):
        seen = torch.bincount(action[:, i].long(), minlength=len(part)) / len(action)
        torch.testing.assert_close(seen, part.softmax(-1), atol=0.01, rtol=0)
    torch.testing.assert_close(action[:, 3:].mean(0), torch.tensor([0.5, -0.5]), atol=0.02, rtol=0)
    torch.testing.assert_close(action[:, 3:].std(0), torch.tensor([-1.0, 0.5]).exp(), atol=0.02, rtol=0)


def test_the_largest_noise_gives_the_last_choice_and_a_finite_logprob() -> None:
    head = MixedHead(SPEC)
    action, logprob = head.sample(torch.zeros(2, head.num_params), torch.tensor([[40.0] * 5, [-40.0] * 5]))
    assert action[0, :3].tolist() == [1, 4, 2]
    assert action[1, :3].tolist() == [0, 0, 0]
    assert logprob.isfinite().all()


@pytest.mark.parametrize("squash", [False, True])
def test_the_environment_gets_choices_as_they_are_and_numbers_within_bounds(squash: bool) -> None:
    head, params, action, _ = sampled(1, 9.0, 200, squash)
    given = head.to_env(action)
    assert (given[..., :3] == action[..., :3]).all()
    assert (given[..., 3:] >= torch.tensor(LOW)).all()
    assert (given[..., 3:] <= torch.tensor(HIGH)).all()
    likely = head.mode(params)
    assert (likely[..., 0] == params[..., :2].argmax(-1)).all()
    assert (likely[..., 3:] == params[..., 10:12]).all()


def test_masks_forbid_choices_and_leave_numbers() -> None:
    head, params, *_ = sampled(2, 1.0, 300)
    mask = torch.ones(300, 2, sum(NVEC), dtype=torch.bool)
    mask[..., 0] = mask[..., 3:7] = False
    action, _ = head.sample(head.masked(params, mask), torch.randn(300, 2, SPEC.width))
    assert (action[..., 0] == 1).all()
    assert (action[..., 1] < 1.5).all()
    assert (head.masked(params, mask)[..., 10:] == params[..., 10:]).all()
    assert head.no_choice(head.masked(params, mask).index_fill(-1, torch.tensor([1]), -torch.inf)).all()


@pytest.mark.parametrize("state_std", [False, True])
def test_a_network_begins_with_the_given_deviation(state_std: bool) -> None:
    policy = make_policy(PolicyConfig(hidden_size=8, state_std=state_std, initial_log_std=-0.7), ENV)
    out = policy({"obs": torch.zeros(1, 4, 3)}, policy.initial_state(4), torch.ones(1, 4, dtype=torch.bool))
    assert out.params.shape == (1, 4, 14)
    torch.testing.assert_close(out.params[..., 12:], torch.full((1, 4, 2), -0.7))
    assert plan_of(policy) == "an action head of class MixedHead"  # fast paths stand back, and say so


def test_random_actions_cover_both_parts() -> None:
    drawn = uniform(SPEC, 500, np.random.default_rng(0))
    timed = np.concatenate([rows for rows, _ in zip(random_actions(ENV, 500), range(500))])
    for rows in (drawn, timed):
        assert rows.shape == (500, 5)
        assert rows.dtype == np.float32
        for i, n in enumerate(NVEC):
            assert set(rows[:, i]) == set(range(n))
        assert (rows[:, 3:] >= LOW).all()
        assert (rows[:, 3:] <= HIGH).all()


def test_a_nested_space_is_one_row() -> None:
    space = parts.Parts.action_space
    spec = action_spec(space)
    assert (spec.kind, spec.nvec, spec.start, spec.low) == ("mixed", (4, 2), (5, 0), (-2.0, -2.0))
    rows = np.array([[3, 1, 0.5, -9], [0, 0, 1, 2]], np.float32)
    first, second = ActionDecoder(space).each(rows)
    assert space.contains(first)
    assert first["pick"][0] == 8
    assert second["pick"][1].tolist() == [0]
    assert first["move"].tolist() == [0.5, -2]
    whole = ActionDecoder(space).decode(rows)
    assert whole["pick"][0].tolist() == [8, 5]
    assert whole["move"].shape == (2, 2)


FEW_UPDATES = ("trainer.batch_size=1024", "trainer.minibatch_size=256", "trainer.update_epochs=4",
               "trainer.learning_rate=0.003", "env.num_envs=32", "env.step_cost=medium")  # fmt: skip
RUN = ("env=metta_fast.envs.sanity.parts:make", "run.dashboard=none", "run.tensorboard=false", *FEW_UPDATES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    words = ["trainer.total_timesteps=12_000", f"run.dir={folder}", "run.name=a", "run.evaluate_interval=5"]
    assert main(["train", *RUN, *words, "run.replay_interval=5", "vector.backend=serial"]) == 0
    return folder / "a"


def test_it_learns_and_is_evaluated(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "100", "--seed", "100", "--deterministic", "--json"]) == 0
    players = json.loads(capsys.readouterr().out)["players"]
    assert players["policy"]["return"] > 1.6
    assert players["random"]["return"] < 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert 0 < rows[-1]["train/action_std"] < 2
    assert any("eval/return" in row for row in rows)
    assert list((run / "replays").glob("*.html"))


def test_a_loaded_policy_answers_in_the_space(run: Path) -> None:
    agent = metta_fast.load_policy(run, deterministic=True)
    env = parts.Parts()
    obs, _ = env.reset(seed=3)
    action = agent.act(obs)
    assert env.action_space.contains(action)
    assert env.step(action)[1] > 1.5
    assert "2 choices: one of 4, 2; 2 numbers from -2 to 2" in repr(agent)
    agent.restart()
    many = {name: np.stack([np.asarray(leaf)] * 3) for name, leaf in obs.items()}
    actions = agent.act(many)
    assert actions["move"].shape == (3, 2)
    assert (actions["pick"][0] == action["pick"][0]).all()


@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_an_exported_file_gives_the_same(run: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"policy.{ending}"
    assert main(["export", str(run), "--out", str(path)]) == 0
    about = json.loads(Path(f"{path}.json").read_text())["action"]
    assert (about["kind"], about["choices"], about["start"], about["low"]) == (
        "mixed",
        [4, 2],
        [5, 0],
        [-2, -2],
    )


@pytest.mark.parametrize("words", [[], ["policy=lstm"], ["policy.squash=true", "policy.state_std=true"]])
def test_backends_give_the_same_run(tmp_path: Path, words: list[str]) -> None:
    weights = []
    for backend in ("serial", "workers"):
        folder = tmp_path / backend
        given = [*RUN, *words, "trainer.total_timesteps=2048", f"run.dir={folder}", "run.name=a", "seed=4"]
        given += ["trainer.torch_threads=1", "trainer.noise_color=0.5"]
        assert main(["train", *given, f"vector.backend={backend}"]) == 0
        weights.append(metta_fast.load_policy(folder / "a").policy.state_dict())
    for name, first in weights[0].items():
        assert (first == weights[1][name]).all(), name


def push(config: Any) -> TorchFactory:
    """Cart-poles on the learner's device, whose actions are a direction and a strength."""
    factory = TorchFactory("cart-pole", max_steps=config.max_steps)
    action = ActionSpec("mixed", nvec=(2,), start=(0,), low=(0.0,), high=(2.0,))
    factory.spec = replace(factory.spec, action=action)
    return factory


GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_environments_on_the_learners_device_learn_too(tmp_path: Path, device: str) -> None:
    words = [f"env={__name__}:push", "env.max_steps=200", "run.dashboard=none", f"trainer.device={device}"]
    words += ["trainer.total_timesteps=30_000", f"run.dir={tmp_path}", "run.name=a", "run.tensorboard=false"]
    assert main(["train", *words, *FEW_UPDATES]) == 0
    rows = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    returns = [row["env/return_100"] for row in rows if "env/return_100" in row]
    assert returns[-1] > 4 * returns[0]
