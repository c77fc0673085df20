"""Tests evaluation: whole episodes on unseen seeds, core state, comparison of players, the command."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.cli import evaluate as run_eval_command
from metta_fast.config.keys import Config
from metta_fast.contracts.env import EVAL_SEED_BIT
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs import make_factory
from metta_fast.inference.evaluate import evaluate
from metta_fast.inference.players import PolicyPlayer, RandomPlayer, play
from metta_fast.policy import make_policy
from tests.tiny import trained

CPU = torch.device("cpu")


def counter_config(**keys):
    config = Config()
    config.env.name = config.env.factory = "counter"
    config.env.observation, config.env.agents_per_env, config.env.max_steps = "default", 1, 20
    config.policy.hidden_size = 16
    for name, value in keys.items():
        setattr(config.env, name, value)
    return config


class Perfect:
    """Counts up below the goal, waits at it."""

    def act(self, rows, batch):
        return (rows.obs["obs"] < 1).astype(np.int32)


class Recorder:
    """Waits always; keeps what it saw."""

    def __init__(self):
        self.first = None

    def act(self, rows, batch):
        if self.first is None:
            self.first = {name: leaf.copy() for name, leaf in rows.obs.items()}
        return np.zeros_like(rows.action)


def test_a_perfect_player_gets_all_of_one_whole_episode():
    episodes = play(make_factory(counter_config().env), Perfect(), 8, seed=EVAL_SEED_BIT)
    assert np.all(episodes.returns == 20)
    assert np.all(episodes.lengths == 20)
    assert np.all(episodes.stats["right"] == 20)
    assert episodes.unfinished == 0
    assert episodes.error("return") == 0


def test_all_players_meet_the_same_maps_and_training_never_does():
    config = Config()
    config.env.num_envs, config.env.max_steps = 3, 5
    factory = make_factory(config.env)

    def first(seed):
        player = Recorder()
        play(factory, player, 3, seed=seed)
        return player.first["obs"]

    assert np.array_equal(first(EVAL_SEED_BIT | 4), first(EVAL_SEED_BIT | 4))
    assert not np.array_equal(first(EVAL_SEED_BIT | 4), first(4))


def test_an_episode_that_never_ends_is_cut():
    factory = make_factory(counter_config(max_steps=10**6).env)
    batch = factory.make_batch(0, 2, 2)
    factory.make_batch = lambda first, count, total: batch
    factory.spec = dataclasses.replace(factory.spec, max_steps=3)
    episodes = play(factory, Perfect(), 2, seed=EVAL_SEED_BIT)
    assert np.all(episodes.lengths == 30)
    assert episodes.unfinished == 2
    assert math.isnan(episodes.means()["right"])


@pytest.mark.parametrize("core", ["none", "lstm"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_policy_is_evaluated_and_left_as_it_was(core, deterministic):
    config = counter_config()
    config.policy.core = core
    factory = make_factory(config.env)
    policy = make_policy(config.policy, factory.spec).train()
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    state = torch.get_rng_state()
    rows = [
        evaluate(factory, policy, device=CPU, num_envs=5, seed=seed, deterministic=deterministic)
        for seed in (1, 1, 2)
    ]
    assert rows[0] == rows[1]
    assert set(rows[0]) == {"eval/return", "eval/length", "eval/right"}
    assert rows[0]["eval/length"] == 20
    assert rows[0]["eval/return"] == rows[0]["eval/right"]
    assert policy.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_the_cores_state_is_carried_and_zeroed_at_a_reset():
    config = counter_config()
    config.policy.core = "lstm"
    spec = make_factory(config.env).spec
    policy = make_policy(config.policy, spec)

    player = PolicyPlayer(policy, spec, CPU, deterministic=True)
    rows = new_rows(spec, 2)
    rows.obs["obs"][:], rows.reset[:] = 0.5, True
    states = []
    for reset in ([True, True], [False, True], [False, False]):
        rows.reset[:] = reset
        player.act(rows, None)
        states.append(player._state.clone())
    assert torch.equal(states[1][:, 1], states[0][:, 1])
    assert not torch.equal(states[1][:, 0], states[0][:, 0])
    assert not torch.equal(states[2][:, 1], states[1][:, 1])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of the grid, with a checkpoint."""
    return trained(
        tmp_path_factory.mktemp("runs"), "env=grid_solo", "env.num_envs=16", "env.max_steps=250",
        "policy.hidden_size=16", "trainer.batch_size=1024", "trainer.minibatch_size=512",
        "trainer.total_timesteps=2048",
    )  # fmt: skip


def test_the_command_compares_three_players(run, capsys):
    assert run_eval_command([str(run), "--episodes", "4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["players"]) == ["policy", "scripted", "random"]
    assert result["score"] == "hearts"
    assert result["episodes"] == 4
    assert result["players"]["scripted"]["hearts"] > 0
    assert "scripted" in result["policy_to"]
    assert all(figures["length"] == 250 for figures in result["players"].values())


def test_the_command_prints_a_table_for_one_checkpoint(run, capsys):
    path = next((run / "checkpoints").glob("step_*"))
    assert run_eval_command([str(path), "--episodes", "2", "--deterministic"]) == 0
    text = capsys.readouterr().out
    assert "2 unseen maps" in text
    assert "policy / scripted" in text


def test_a_changed_environment_is_evaluated_and_named(run, capsys):
    words = [str(run), "env.max_steps=40", "env.params.rewards.heart=3", "--episodes", "2"]
    assert run_eval_command([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["changes"] == {"env.max_steps": 40, "env.params.rewards.heart": 3}
    assert result["players"]["policy"]["length"] == 40
    scripted = result["players"]["scripted"]
    assert scripted["return"] == pytest.approx(3 * scripted["hearts"], rel=0.2)
    assert run_eval_command(words) == 0
    assert "with env.max_steps=40, unlike the run" in capsys.readouterr().out
    changed = metta_fast.evaluate(run, episodes=2, changes={"env.max_steps": 30})
    assert changed["length"] == 30


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "env.num_envs=3"], r"env\.num_envs=3: an evaluation can change env\.params\.…"),
        (["RUN", "env.params=3"], r"env\.params=3: an evaluation can change"),
        (["RUN", "env.max_steps=0"], "env.max_steps=0: expected"),
        (["RUN", "env.params.nonesuch=1"], "nonesuch"),
        (["RUN", "env.params.room_size.x=1"], "room_size is .* in the run, which has no keys"),
        (["RUN", "env.nonesuch=1"], "unknown key 'env.nonesuch'"),
        (["RUN", "env.max_steps=[1"], "malformed argument"),
        (["nowhere"], "no run or checkpoint nowhere"),
        (["RUN", "--episodes", "0"], "--episodes 0"),
        (["RUN", "--seed", "-1"], "--seed -1"),
        (["RUN/checkpoints", "--best"], "no checkpoint with a score"),
        (["RUN/checkpoints"], "no whole checkpoint"),
    ],
)
def test_mistakes_are_told(run, words, message):
    with pytest.raises(UserError, match=message):
        run_eval_command([word.replace("RUN", str(run)) for word in words])


def test_the_random_player_keeps_to_the_actions():
    spec = make_factory(Config().env).spec
    actions = RandomPlayer(spec, 1).act(new_rows(spec, 256), None)
    assert actions.shape == (256, 2)
    assert actions.dtype == np.int32
    assert np.all(actions.max(axis=0) == [8, 8])
    assert np.all(actions.min(axis=0) == 0)
