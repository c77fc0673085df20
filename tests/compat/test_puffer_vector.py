"""metta_fast.compat.pufferlib.vector does what PufferLib's own vectors do, step by step, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import metta_fast.compat.pufferlib as ours
from metta_fast.contracts.vector import WorkerError
from tests.compat.puffer_envs import MAKERS, Mixed, tracks

ENVS = 4
SYNC = {"num_workers": 2}
ASYNC = {"num_workers": 2, "batch_size": 2}


def tape(vec: Any, steps: int = 40, seed: int = 5) -> list[tuple[Any, ...]]:
    """What `recv` gives, copied, for actions that depend on the step alone."""
    found = []
    vec.async_reset(seed)
    for step in range(steps):
        got = vec.recv()
        found.append(tuple(np.array(x) if isinstance(x, np.ndarray) else list(x) for x in got))
        vec.action_space.seed(step)
        vec.send(vec.action_space.sample().astype(np.int32))  # as its trainer sends: it reads the bytes
    vec.recv()
    vec.close()
    return found


def assert_same(first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]) -> None:
    assert len(first) == len(second)
    for one, two in zip(first, second):
        for a, b in zip(one, two, strict=True):
            if isinstance(a, list):
                assert [x for x in a if x] == [x for x in b if x]
            else:
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", MAKERS)
def test_serial_is_that_of_the_wheel(name):
    """Observations, rewards, terminals, truncations, teacher actions, infos, ids and masks."""
    wheel = pytest.importorskip("pufferlib")
    theirs = tape(wheel.vector.make(MAKERS[name](wheel), num_envs=ENVS, backend=wheel.vector.Serial))
    for lib in (ours, wheel):  # environments written for either run here
        make = MAKERS[name](lib)
        mine = ours.vector.make(make, num_envs=ENVS, backend=ours.vector.Serial, teacher_actions=True)
        assert_same(tape(mine), theirs)


@pytest.mark.parametrize("name", MAKERS)
def test_workers_give_what_serial_gives(name):
    serial = tape(ours.vector.make(MAKERS[name](), num_envs=ENVS, backend="Serial"))
    workers = ours.vector.make(MAKERS[name](), num_envs=ENVS, backend=ours.vector.Multiprocessing, **SYNC)
    assert workers.num_workers == 2
    assert workers.agent_ids.shape == (2, workers.num_agents // 2)
    assert_same(tape(workers), serial)


def test_batches_come_in_turn():
    vec = ours.vector.make(tracks(), num_envs=ENVS, backend="Multiprocessing", **ASYNC)
    assert vec.agents_per_batch == vec.num_envs == 6
    vec.async_reset(0)
    turns = []
    for _ in range(6):
        obs, *_, ids, masks = vec.recv()
        assert obs.shape == (6, 2)
        assert masks.shape == (6,)
        turns.append(ids[0])
        vec.send(np.zeros(6, int))
    vec.close()
    assert turns == [0, 6] * 3


def test_the_result_of_an_environment_does_not_depend_on_workers():
    """Environment i is made with seed + i and reset with seed + i; PufferLib's workers shared seeds."""
    found = []
    for workers in (1, 4):
        vec = ours.vector.make(tracks(), num_envs=ENVS, backend="Multiprocessing", num_workers=workers)
        found.append(vec.reset(seed=3)[0].copy())
        vec.close()
    np.testing.assert_array_equal(*found)


def test_infos_of_any_size_arrive():
    class Talker(tracks()):  # type: ignore[misc]
        def step(self, actions):
            return (*super().step(actions)[:4], [{"film": np.arange(50_000)}, {"small": 1}])

    vec = ours.vector.make(Talker, num_envs=2, backend="Multiprocessing", num_workers=2)
    _, infos = vec.reset()
    assert [list(info) for info in infos] == [["start"]] * 2
    *_, infos = vec.step(np.zeros(vec.action_space.shape, int))
    vec.close()
    assert [list(info) for info in infos] == [["film"], ["small"]] * 2
    np.testing.assert_array_equal(infos[2]["film"], np.arange(50_000))


def test_a_native_environment_is_its_own_vector():
    for vec in (
        ours.vector.make(tracks()),
        ours.vector.make(tracks(), backend="PufferEnv", teacher_actions=True),
    ):
        assert isinstance(vec, ours.PufferEnv)
        assert vec.agents_per_batch == vec.num_agents == 3
        vec.async_reset(1)
        got = vec.recv()
        assert len(got) == 7 + vec.teacher_in_recv
        vec.send(np.ones(3, int))
        assert got[0] is vec.observations


def test_attributes_that_trainers_read():
    vec = ours.vector.make(MAKERS["mixed"](), num_envs=2, backend=ours.vector.Serial)
    driver = vec.driver_env
    assert vec.emulated is driver.emulated
    assert vec.single_observation_space is driver.single_observation_space
    assert vec.observation_space.shape == (2, *vec.single_observation_space.shape)
    assert driver.emulated["emulated_observation_dtype"].names == ("bytes", "number", "pair")
    assert vec.envs[0] is driver
    vec.reset()
    vec.close()


def test_notify_reaches_every_environment():
    vec = ours.vector.make(tracks(), num_envs=2, backend="Serial")
    vec.reset()
    vec.notify()
    vec.step(np.zeros(6, int))
    vec.step(np.zeros(6, int))
    vec.close()
    assert [env.told for env in vec.envs] == [1, 1]


def test_our_own_environments():
    for backend, more in (("PufferEnv", {}), ("Multiprocessing", {"num_workers": 2, "batch_size": 4})):
        vec = ours.vector.make("grid", num_envs=8, backend=backend, **more)
        vec.async_reset(1)
        obs, reward, *_, masks = vec.recv()
        assert obs.shape == (vec.agents_per_batch, *vec.single_observation_space.shape)
        assert vec.agents_per_batch == 4 * more.get("batch_size", 8) == len(reward) == len(masks)
        vec.send(vec.action_space.sample())
        vec.recv()
        vec.close()


def test_an_environment_of_ours_with_several_leaves_is_the_bytes_of_a_struct():
    vec = ours.vector.make("tests.compat.puffer_envs:plain", num_envs=2)
    names = vec.driver_env.emulated["emulated_observation_dtype"].names
    obs, _ = vec.reset(seed=0)
    assert obs.dtype == np.uint8
    fields = obs.view(vec.driver_env.emulated["emulated_observation_dtype"])[:, 0]
    for name in names:
        np.testing.assert_array_equal(fields[name], vec._vec.rows.obs[name])
    vec.close()


BAD = {
    "num_envs=0": {"num_envs": 0},
    "num_envs=1.5": {"num_envs": 1.5},
    "num_workers=3": {"num_envs": 4, "num_workers": 3, "backend": "Multiprocessing"},
    "batch_size=3": {"num_envs": 4, "num_workers": 2, "batch_size": 3, "backend": "Multiprocessing"},
    "divisor of num_envs=6": {"num_envs": 6, "num_workers": 3, "batch_size": 4, "backend": "Multiprocessing"},
    "did you mean 'num_workers'": {"num_envs": 4, "num_worker": 2, "backend": "Serial"},
    "backend=Ray: Multiprocessing": {"num_envs": 4, "backend": "Ray"},
    "did you mean 'Serial'": {"backend": "Seriel"},
    "backend=PufferEnv": {"num_envs": 2},
    "expected a list of num_envs=2": {"num_envs": 2, "backend": "Serial", "creators": [tracks()]},
    "is int, expected a class": {"num_envs": 1, "backend": "Serial", "creators": [3]},
    "is Mixed, no PufferEnv: wrap it": {"backend": "Serial", "creators": lambda buf=None, seed=0: Mixed()},
    "is None: the creator": {"backend": "Serial", "creators": lambda buf=None, seed=0: None},
    "needs a vector": {"creators": MAKERS["mixed"]()},
}


@pytest.mark.parametrize("says", BAD)
def test_wrong_arguments_are_named(says):
    given = dict(BAD[says])
    with pytest.raises(ours.APIUsageError) as error:
        ours.vector.make(given.pop("creators", tracks()), **given)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("module", "name", "says"),
    [
        (ours.vector, "autotune", 'num_workers="auto"'),
        (ours.vector, "Ray", "Multiprocessing"),
        (ours, "pufferl", "metta_fast trains"),
    ],
)
def test_names_that_are_not_here_say_what_is(module, name, says):
    with pytest.raises(AttributeError, match=says):
        getattr(module, name)


def test_the_order_of_calls_is_checked():
    vec = ours.vector.make(tracks(), num_envs=1, backend="Serial")
    with pytest.raises(ours.APIUsageError, match="recv was called before"):
        vec.recv()
    vec.async_reset(0)
    with pytest.raises(ours.APIUsageError, match="send was called before"):
        vec.send(np.zeros(3, int))
    vec.recv()
    with pytest.raises(ours.APIUsageError, match="not in the action space"):
        vec.send(np.full(3, 7))
    vec.send(np.zeros(3, int))
    vec.close()


def test_an_environment_that_raises_is_named():
    class Broken(tracks()):  # type: ignore[misc]
        def step(self, actions):
            raise KeyError("lost")

    vec = ours.vector.make(Broken, num_envs=2, backend="Multiprocessing", num_workers=2)
    vec.reset()
    with pytest.raises(
        WorkerError, match=r"environment 0 raised KeyError: 'lost'|environment 1 raised KeyError"
    ):
        vec.step(np.zeros(6, int))
    vec.close()


def test_other_spaces_than_the_first_are_refused():
    made = [0]

    def grows(buf=None, seed=0):
        made[0] += 1
        return tracks()(agents=1 if made[0] < 3 else 2, buf=None)

    with pytest.raises(Exception, match=r"environment 1 could not be made: has num_agents 2"):
        ours.vector.make(grows, num_envs=2, backend="Serial")
