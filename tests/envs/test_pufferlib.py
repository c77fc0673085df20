"""PufferEnvs train here: rows, presence, infos, backends, creators that are none."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import metta_fast.compat.pufferlib as ours
from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs import make_factory
from metta_fast.envs.puffer.infos import InfoSums
from metta_fast.envs.puffer.native import Creator, NativeFactory
from metta_fast.envs.python_batch import env_seed
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector
from metta_fast.vector.first_look import look
from tests.compat import puffer_envs
from tests.compat.puffer_envs import tracks
from tests.envs import puffer_tasks
from tests.tiny import trained

PAGE = Path(__file__).resolve().parents[2] / "docs/pufferlib.md"


def config(function: str, **kwargs: Any) -> EnvConfig:
    where = f"tests.envs.puffer_tasks:{function}"
    return EnvConfig(name="mine", factory=where, interface="pufferlib", observation="default", kwargs=kwargs)


def factory(make: Any, **kwargs: Any) -> NativeFactory:
    creator = Creator(make, kwargs)
    return NativeFactory(creator, creator(), name="mine")


def played(vec: Any, steps: int, seed: int = 3) -> list[Any]:
    """Copies of all rows after the reset and each step; actions depend on the step alone."""
    rng, found = np.random.default_rng(0), []
    vec.async_reset(seed)
    for _ in range(steps + 1):
        blocks = vec.hold_all()
        rows = vec.rows
        found.append([rows.obs["obs"].copy(), *(x.copy() for x in rows[2:7])])
        actions = rng.integers(0, 3, rows.action.shape, np.int32) % np.int32(vec.spec.action.nvec)
        for block in blocks:
            vec.send(block, actions[block.start : block.stop])
    vec.hold_all()
    vec.close()
    return found


@pytest.mark.parametrize("which", ["ours", "wheel"])
def test_rows_are_what_the_environment_said(which):
    """An agent that ends begins at once, without a masked row; one with mask False is away until it comes back."""
    lib = ours if which == "ours" else pytest.importorskip("pufferlib")
    make, agents = tracks(lib), 3
    found = played(make_vector(factory(make), 2), 60)
    envs = [make(seed=0), make(seed=1)]
    for i, env in enumerate(envs):
        env.reset(seed=env_seed(3, i))
    rng, there = np.random.default_rng(0), np.zeros(6, bool)
    for step, (obs, reward, terminal, truncation, mask, reset) in enumerate(found):
        ended = np.zeros(6, bool)
        for i, env in enumerate(envs):
            mine = slice(i * agents, (i + 1) * agents)
            acted = there[mine]
            np.testing.assert_array_equal(obs[mine], env.observations)
            np.testing.assert_array_equal(mask[mine], env.masks)
            np.testing.assert_array_equal(reward[mine], np.where(acted, env.rewards, 0) if step else 0)
            left = acted & ~env.masks & ~(env.terminals | env.truncations)
            np.testing.assert_array_equal(terminal[mine], acted & env.terminals | left)
            np.testing.assert_array_equal(truncation[mine], acted & env.truncations)
            ended[mine] = terminal[mine] | truncation[mine]
        np.testing.assert_array_equal(reset, mask & (~there | ended))
        there = mask.copy()
        actions = rng.integers(0, 3, (6, 1), np.int32)[:, 0]
        for i, env in enumerate(envs):
            env.step(actions[i * agents : (i + 1) * agents])
    assert any(x[2].any() for x in found)
    assert any(x[3].any() for x in found)
    assert any(not x[4].all() for x in found)


def test_observations_and_actions_are_in_the_slab():
    vec = make_vector(factory(tracks()), 2)
    first, second = (placed.env for placed in vec.batches[0].envs)
    for env in (first, second):
        assert np.shares_memory(env.observations, vec.rows.obs["obs"])
        assert np.shares_memory(env.actions, vec.rows.action)
    assert not np.shares_memory(first.observations, second.observations)
    vec.close()


def test_workers_and_blocks_give_the_same_bytes():
    serial = played(make_vector(factory(tracks()), 4), 25)
    for options in (
        {"backend": "workers", "num_workers": 2},
        {"backend": "threads", "num_threads": 2, "num_blocks": 2},
    ):
        for one, two in zip(serial, played(make_vector(factory(tracks()), 4, **options), 25), strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)


def test_continuous_actions_are_clipped_to_the_bounds_in_the_space_s_dtype():
    made = factory(puffer_tasks.Reach)
    vec = make_vector(made, 1)
    assert made.spec.obs["obs"].dtype == "float64"
    vec.async_reset(0)
    (block,) = vec.hold_all()
    vec.send(block, np.array([[0.25, 7.0]], np.float32))
    vec.hold_all()
    (got,) = vec.batches[0].envs[0].env.got
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, [[[0.25], [1.0]]])
    vec.close()


def test_rows_may_move_after_the_environments_were_made():
    """An evaluation binds rows of its own; environments in C keep the addresses that they got."""
    batch = factory(tracks()).make_batch(0, 1, 1)
    spec = batch.spec
    first, second = new_rows(spec, 3), new_rows(spec, 3)
    batch.bind(first)
    batch.reset(1)
    batch.bind(second)
    second.action[:] = 2
    batch.step()
    np.testing.assert_array_equal(second.obs["obs"], batch.envs[0].env.observations)
    np.testing.assert_array_equal(batch.envs[0].env.actions, [2, 2, 2])
    batch.close()


def test_an_environment_with_arrays_of_its_own_is_copied():
    class Own(puffer_tasks.make):  # type: ignore[misc]
        def __init__(self, buf: Any = None, seed: int = 0) -> None:
            super().__init__(buf=None)

        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            self.observations = self.observations.astype(np.float32)  # another array
            return result

    vec = make_vector(factory(Own), 2)
    vec.async_reset(0)
    for _ in range(3):
        (block,) = vec.hold_all()
        env = vec.batches[0].envs[1].env
        np.testing.assert_array_equal(vec.rows.obs["obs"][4:], env.observations)
        vec.send(block, np.zeros((8, 1), np.int32))
    vec.hold_all()
    vec.close()


def test_infos_become_statistics():
    vec = make_vector(factory(tracks()), 2)
    vec.async_reset(0)
    for _ in range(20):
        (block,) = vec.hold_all()
        vec.send(block, np.full((6, 1), 2, np.int32))
    vec.hold_all()
    assert set(vec.info_stats()) == {"start", "score", "nested/ends"}
    assert vec.info_stats() == {}
    (note,) = vec.notes()
    assert "agent 0 went away" in note
    vec.close()


def test_numbers_in_infos_are_averaged():
    infos = InfoSums()
    infos.add(
        [{"score": [1, 2, 6], "a": {"b": np.array([2.0, 4.0]), "c": True}, "length": 3, "odd": [[1], [1, 2]]}]
    )
    infos.add([{"score": 3, "text": "x", "nan": np.nan, "none": None, "empty": []}])
    assert infos.sums() == {"score": (12.0, 4), "a/b": (6.0, 2), "a/c": (1.0, 1)}
    assert infos.sums() == {}


@pytest.mark.parametrize("which", ["ours", "wheel"])
def test_emulated_environments_are_taken_apart(which, monkeypatch):
    """The policy sees leaves, not the bytes of a struct, and time limits bootstrap."""
    lib = ours if which == "ours" else pytest.importorskip("pufferlib")
    monkeypatch.setattr(puffer_tasks, "mixed", puffer_envs.mixed(lib), raising=False)
    made = make_factory(config("mixed"))
    assert isinstance(made, PythonEnvFactory)
    assert sorted(made.spec.obs) == ["bytes", "number", "pair/0", "pair/1"]
    assert made.spec.has_final_obs
    assert made.spec.action.nvec == (2, 3)


@pytest.mark.parametrize("which", ["ours", "wheel"])
def test_parallel_environments_are_taken_apart(which, monkeypatch):
    """Also behind the package's own wrapper, which has no possible_agents of its own."""
    lib = ours if which == "ours" else pytest.importorskip("pufferlib")
    monkeypatch.setattr(puffer_tasks, "herd", puffer_envs.herd(lib), raising=False)
    made = make_factory(config("herd"))
    plain = PythonEnvFactory(lambda index: puffer_envs.Herd(), name="mine")
    assert made.spec == plain.spec
    assert made.spec.agents_per_env == 3
    for one, two in zip(*(played(make_vector(f, 2), 30) for f in (made, plain)), strict=True):
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["mixed", "herd"])
def test_the_package_s_emulated_environments_train(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(
        puffer_tasks, kind, puffer_envs.MAKERS[kind](pytest.importorskip("pufferlib")), raising=False
    )
    run = trained(
        tmp_path,
        *("env=pufferlib", f"env.factory=tests.envs.puffer_tasks:{kind}", "env.num_envs=4"),
        *("env.step_cost=cheap", "vector.backend=serial", "trainer.bptt_horizon=8"),
        *("trainer.batch_size=384", "trainer.minibatch_size=96", "trainer.total_timesteps=768"),
    )
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["train/steps"] == 768
    assert np.isfinite(last["loss/value"])
    assert last["env/episode_length"] == pytest.approx(last["env/length"], abs=0.5)


def test_one_that_is_derived_from_an_emulated_one_is_taken_as_it_is(monkeypatch):
    class Scaled(ours.emulation.GymnasiumPufferEnv):
        def step(self, action: Any) -> Any:
            result = super().step(action)
            self.rewards[0] *= 10
            return result

    def make(buf: Any = None, seed: int = 0) -> Any:
        return Scaled(env=puffer_envs.Mixed(), buf=buf, seed=seed)

    monkeypatch.setattr(puffer_tasks, "scaled", make, raising=False)
    made = make_factory(config("scaled"))
    assert isinstance(made, NativeFactory)
    found = played(make_vector(made, 1), 30)
    ended = [step for step, x in enumerate(found) if x[2].any() or x[3].any()]
    assert ended
    assert all(not found[step][4].any() for step in ended)  # the last observation
    assert all(found[step + 1][5].all() for step in ended if step + 1 < len(found))


def test_the_example_of_the_page_runs():
    block = PAGE.read_text().partition("## Training a PufferEnv")[2].partition("- **Sizes.**")[0]
    found: dict[str, Any] = {}
    exec(dedent(block.strip("\n")), found)
    vec = make_vector(factory(found["make"], size=5), 2)
    vec.async_reset(0)
    for _ in range(3):
        (block,) = vec.hold_all()
        vec.send(block, vec.rows.obs["obs"].argmax(1).astype(np.int32)[:, None])
    vec.hold_all()
    assert vec.rows.reward.all()
    assert vec.num_agents == 32
    vec.close()


def test_a_look_before_the_start_measures_the_step():
    assert 0 < look(factory(puffer_tasks.make)).seconds < 1e-2


BAD = {
    "is ndarray, expected a function or class": ("array", np.zeros(3)),
    "does not take buf and seed": ("config", lambda config: None),
    "is None: the creator must return": ("none", lambda buf=None, seed=0: None),
    "is the class SameBit, not a PufferEnv": ("kind", lambda buf=None, seed=0: puffer_tasks.make),
    "is Mixed, no PufferEnv: wrap it": ("plain", lambda buf=None, seed=0: puffer_envs.Mixed()),
    "is the PettingZoo environment Herd: wrap it": ("herd", lambda buf=None, seed=0: puffer_envs.Herd()),
    "could not make an environment: ValueError: broken": ("broken", None),
}


@pytest.mark.parametrize("says", BAD)
def test_what_is_no_creator_is_named(says, monkeypatch):
    def broken(buf: Any = None, seed: int = 0) -> Any:
        raise ValueError("broken")

    name, value = BAD[says]
    monkeypatch.setattr(puffer_tasks, name, broken if value is None else value, raising=False)
    with pytest.raises(UserError) as error:
        make_factory(config(name))
    assert says in str(error.value)
    assert f"puffer_tasks:{name}" in str(error.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"factory": "pufferlib"}, "env=pufferlib needs what makes your PufferEnv"),
        ({"kwargs": {"agnets": 3}}, r"env.kwargs.agnets: unknown key; did you mean 'agents'"),
        ({"kwargs": {"seed": 3}}, "env.kwargs.seed=3 cannot be given"),
        ({"params": {"agents": 3}}, r"env.params={agents: 3} has no effect .* env.kwargs"),
        ({"id": "CartPole-v1"}, "env.id=CartPole-v1 has no effect"),
        ({"leaf_kinds": {"nonesuch": "image"}}, "nonesuch"),
    ],
)
def test_keys_that_do_not_fit_are_refused(given, says):
    env = config("make")
    for name, value in given.items():
        setattr(env, name, value)
    with pytest.raises(UserError, match=says):
        make_factory(env)


def test_an_environment_of_another_size_is_named():
    made = [0]

    def grows(buf: Any = None, seed: int = 0) -> Any:
        made[0] += 1
        return puffer_tasks.make(agents=made[0])

    with pytest.raises(EnvError, match="environment 0 gave a wrong value: has num_agents 2"):
        make_vector(factory(grows), 1)


def test_a_maker_of_metta_fast_s_kind_names_the_way():
    with pytest.raises(
        EnvError, match=r"is the PufferEnv SameBit: type env=pufferlib env.factory=module:make"
    ):
        PythonEnvFactory(lambda index: puffer_tasks.make())


def test_a_creator_in_place_of_metta_fast_s_kind_names_the_way():
    env = EnvConfig(factory="tests.envs.puffer_tasks:make", observation="default")
    with pytest.raises(UserError, match=r"type env=pufferlib env.factory=tests.envs.puffer_tasks:make"):
        make_factory(env)


def test_an_agent_s_spaces_may_be_any_that_a_pufferenv_has():
    class Many(puffer_tasks.make):  # type: ignore[misc]
        def __init__(self, buf: Any = None, seed: int = 0) -> None:
            self.single_observation_space = spaces.Box(0, 255, (32, 32, 3), np.uint8)
            self.single_action_space = spaces.MultiDiscrete([2, 3])
            self.num_agents = 2
            ours.PufferEnv.__init__(self, buf)

    made = factory(Many)
    assert made.spec.obs["obs"].kind == "image"
    assert made.spec.action.nvec == (2, 3)


@pytest.mark.parametrize(("which", "backend"), [("make", "workers"), ("of_the_package", "serial")])
def test_it_learns(which, backend, tmp_path):
    """env=pufferlib env.factory=…; the package's trainer, imported by the environment, changes nothing here."""
    if which == "of_the_package":
        for package in ("pufferlib", "pyro", "rich_argparse"):  # what its trainer imports
            pytest.importorskip(package)
    before = (signal.getsignal(signal.SIGINT), sys.excepthook)
    run = trained(
        tmp_path,
        "env=pufferlib",
        f"env.factory=tests.envs.puffer_tasks:{which}",
        "env.num_envs=8",
        "env.kwargs.agents=4",
        "env.step_cost=cheap",
        f"vector.backend={backend}",
        "trainer.total_timesteps=20_000",
        *(f"trainer.{word}" for word in ("batch_size=1024", "minibatch_size=256", "bptt_horizon=1")),
        *(f"trainer.{word}" for word in ("update_epochs=4", "learning_rate=3e-3")),
    )
    assert (signal.getsignal(signal.SIGINT), sys.excepthook) == before
    assert ("error", RuntimeWarning) not in [(given[0], given[2]) for given in warnings.filters]
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["env/return"] > 7
    assert last["env/right"] == pytest.approx(last["env/return"], abs=0.5)
    assert "time limits count as terminals" in (run / "train.log").read_text()
