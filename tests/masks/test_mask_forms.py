"""Tests that masks of generated action spaces are read in every form, and that no illegal action is sent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec, Leaf, check_spec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorEnv, WorkerError
from metta_fast.envs.actions import action_spec
from metta_fast.envs.actions.mask_values import MaskReader
from metta_fast.envs.nested import leaves
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.spaces import FieldError
from metta_fast.inference.players import PolicyPlayer, RandomPlayer, play
from metta_fast.policy import make_policy
from metta_fast.vector import make_vector
from metta_fast.vector.first_look import look
from tests.masks.masked_env import FORMS, SOURCES, SPACES, MaskedEnv
from tests.ppo.stand_in import make_ppo

LEAVES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 6), start=st.integers(-3, 3)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 3)),
    st.just(spaces.Box(-1, 1, (2,), np.float32)),
)
ACTIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=4,
).filter(lambda space: action_spec(space).nvec)


def factory_of(action: spaces.Space, source: str, form: str, agents: int) -> PythonEnvFactory:
    given = "info" if source == "info" else "auto"
    return PythonEnvFactory(lambda index: MaskedEnv(action, source, form, agents), action_mask=given)


def stepped(vec: VectorEnv, spec: EnvSpec, rows: int) -> None:
    """Takes random legal actions; the environment raises on an illegal one."""
    player = RandomPlayer(spec, 3)
    try:
        vec.async_reset(1)
        for _ in range(rows):
            block = vec.recv()
            block.rows.action[:] = player.act(block.rows, None)  # type: ignore[arg-type]
            vec.send(block)
    finally:
        vec.close()


@settings(deadline=None, max_examples=60)
@given(ACTIONS, st.sampled_from(SOURCES), st.sampled_from(FORMS), st.integers(0, 3))
def test_generated_actions_are_legal_and_every_form_is_read(
    action: spaces.Space, source: str, form: str, agents: int
) -> None:
    factory = factory_of(action, source, form, agents)
    assert factory.spec.action_mask
    stepped(make_vector(factory, 3, num_blocks=1, backend="serial"), factory.spec, 12)


@pytest.mark.parametrize("name", ["heads", "mixed"])
@pytest.mark.parametrize("backend", ["threads", "workers"])
def test_each_backend_carries_them(name: str, backend: str) -> None:
    factory = factory_of(SPACES[name], "info", "parts", 2)
    stepped(make_vector(factory, 4, num_blocks=2, backend=backend, num_workers=2), factory.spec, 24)


@pytest.mark.parametrize("name", SPACES)
def test_a_policy_learns_from_legal_actions_alone(name: str) -> None:
    """In the rollout, in an evaluation, and in the process that measures a step."""
    factory = factory_of(SPACES[name], "info", "parts", 0)
    torch.manual_seed(1)
    policy = make_policy(PolicyConfig(hidden_size=8), factory.spec)
    keys: dict[str, Any] = {"num_envs": 4, "blocks": 2, "horizon": 8, "bptt": 4, "minibatches": 2}
    ppo = make_ppo(factory, policy=policy, **keys)
    for _ in range(2):
        ppo.collect()
        b = ppo.buffers
        live = b.mask[:-1]
        assert b.logprob[live].isfinite().all()
        assert not b.action_mask[:-1][live].all()
        ppo.update()
    ppo.vec.close()
    for deterministic in (False, True):
        player = PolicyPlayer(policy, factory.spec, torch.device("cpu"), deterministic=deterministic)
        assert (play(factory, player, 3, seed=5).lengths == 4).all()
    if name == "mixed":
        seen = look(factory)
        assert (seen.mask, seen.failure) == (True, None)


MIXED = spaces.Dict(
    move=spaces.Box(-1, 1, (1,), np.float32), pick=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ones(6, bool), r"mask has shape \[6\], expected \[7\]"),
        (np.ones(7), r"mask is float64 .*expected bool, or whole numbers 0 and 1"),
        ([1, 1, float("nan"), 1, 1, 1, 1], "mask is float64 .*nan"),
        ([1, 0, 2, 1, 1, 1, 1], "mask is int64 .*2"),
        (np.array(["a"] * 7), "mask is a ndarray, expected an array of bool"),
        ({"pick": None, "hop": None}, r"mask has the part 'hop', but the actions have 'move', 'pick'"),
        ({"move": None}, r"mask\['pick'\] is missing"),
        ({"move": [True], "pick": None}, r"mask\['move'\] masks a continuous part"),
        ({"pick": ([1, 1], None)}, r"mask\['pick'\]\[0\] has shape \[2\], expected \[3\]"),
        ({"pick": ([1, 1, 1],)}, r"mask\['pick'\] has "),
        ({"pick": ([1, 1, 1], ([1, 1], [1, 0, 1]))}, r"mask\['pick'\]\[1\]\[1\] has shape \[3\], expected \[2\]"),
        ("no", "expected an array of bool"),
    ],
)  # fmt: skip
def test_what_is_no_mask_is_named(value: Any, words: str) -> None:
    reader = MaskReader(action_spec(MIXED).nvec, MIXED)
    with pytest.raises(FieldError, match=words) as caught:
        reader.read(value, (), "mask")
    assert "\n" not in str(caught.value)


def test_forms_of_heads_and_bits() -> None:
    bits = MaskReader((2, 2), spaces.MultiBinary(2))
    expected = [True, False, True, True]
    for value in ([[1, 0], [1, 1]], np.array([[1, 0], [1, 1]]), ([1, 0], [True, True]), [1, 0, 1, 1]):
        assert bits.read(value, (), "m").tolist() == expected
    two = bits.read((np.eye(2, dtype=bool), np.ones((2, 2), bool)), (2,), "m")
    assert two.tolist() == [[True, False, True, True], [False, True, True, True]]
    assert MaskReader((3,), None).read([1, 0, 1], (), "m").tolist() == [True, False, True]


def test_a_wrong_part_names_the_environment_and_the_part() -> None:
    class Wrong(MaskedEnv):
        def _given(self) -> Any:
            return {"pick": ([True], None), "turn": None}

    factory = PythonEnvFactory(lambda index: Wrong(SPACES["mixed"]), action_mask="info")
    vec = make_vector(factory, 2, num_blocks=1, backend="serial")
    vec.async_reset(1)
    with pytest.raises(
        WorkerError,
        match=r"environment 0 gave a wrong value: .*\['pick'\]\[0\] has shape \[1\], expected \[4\]",
    ):
        vec.recv()
    vec.close()


def test_masks_and_dropped_leaves() -> None:
    class Noted(gymnasium.Wrapper):
        """Adds a leaf."""

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = spaces.Dict(
                {**env.observation_space.spaces, "more": spaces.Box(-1, 1, (1,), np.float32)}
            )

    def make(index: int) -> Any:
        return Noted(MaskedEnv(SPACES["mixed"], "obs"))

    kept = PythonEnvFactory(make, drop=["more"])
    assert kept.spec.action_mask
    assert list(kept.spec.obs) == ["seen"]
    without = PythonEnvFactory(make, drop=["action_mask", "more"])
    assert not without.spec.action_mask
    assert not without.info_may_have_mask
    assert list(without.spec.obs) == ["seen"]
    with pytest.raises(UserError, match=r"obs:action_mask: env\.drop leaves this leaf out"):
        PythonEnvFactory(make, drop=["action_mask"], action_mask="obs:action_mask")


def test_a_mask_by_parts_in_the_observation() -> None:
    action = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (1,), np.float32), c=spaces.MultiBinary(1))
    masks = spaces.Dict(a=spaces.MultiBinary(2), c=spaces.MultiBinary((1, 2)))

    class Nested(gymnasium.Env):
        action_space = action
        observation_space = spaces.Dict(action_mask=masks, seen=spaces.Box(0, 1, (1,), np.float32))

        def reset(self, *, seed=None, options=None):
            mask = {"a": np.array([0, 1], np.int8), "c": np.array([[1, 0]], np.int8)}
            return {"seen": np.zeros(1, np.float32), "action_mask": mask}, {}

        def step(self, action):
            assert (action["a"], action["c"].tolist()) == (1, [0])
            return self.reset()[0], 0.0, False, False, {}

    factory = PythonEnvFactory(lambda index: Nested())
    assert [path for path, _ in leaves(action)] == [("a",), ("b",), ("c",)]
    stepped(make_vector(factory, 2, num_blocks=1, backend="serial"), factory.spec, 4)


def test_continuous_actions_have_no_mask() -> None:
    box = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(
        UserError, match=r"env\.action_mask=info: masks are for discrete actions, and these are continuous"
    ):
        PythonEnvFactory(lambda index: MaskedEnv(box), action_mask="info")
    spec = EnvSpec("x", 1, {"obs": Leaf((1,), "float32")}, action_spec(box), action_mask=True)
    with pytest.raises(UserError, match="continuous actions alone"):
        check_spec(type("Factory", (), {"spec": spec})())
