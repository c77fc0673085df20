"""Tests the kinds of leaves: chosen by shape and dtype, declared by the environment, or typed (env.leaf_kinds)."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import metta_fast
from metta_fast.config.keys import config_to_dict
from metta_fast.contracts.env import Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.observed.leaf_kinds import symbol_axis
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.spaces import observation_parts
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import resolve
from metta_fast.run.resume import prepare
from tests.export import runs
from tests.export.runs import fake_run

HIGH = np.broadcast_to(np.array([10, 5, 3], np.uint8), (7, 7, 3))
SPACE = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (30, 30, 3), np.uint8),
        "deep": spaces.Dict({"map": spaces.Box(0, HIGH, (7, 7, 3), np.uint8)}),
        "pose": spaces.Box(-1, 1, (2,), np.float32),
        "way": spaces.Discrete(4),
        "small": spaces.Box(0, 255, (20, 20, 2), np.uint8),
        "tiny": spaces.Box(0, 255, (7, 7, 1), np.uint8),
    }
)


class Seen(gymnasium.Env):
    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def make(config):
    return lambda index: Seen()


def own(config):
    return PythonEnvFactory(lambda index: Seen())


def own_that_takes(config):
    return PythonEnvFactory(lambda index: Seen(), leaf_kinds=config.leaf_kinds)


def composed(*words, env="make"):
    return compose(
        ["hardware=cpu", "env.step_cost=medium", "env.action_mask=none", f"env={__name__}:{env}", *words]
    )


def kinds(*words, env="make"):
    return {
        name: leaf.kind for name, leaf in make_factory(composed(*words, env=env).config.env).spec.obs.items()
    }


BY_SHAPE = {
    "camera": "image",
    "deep/map": "symbols",
    "pose": "vector",
    "small": "symbols",
    "tiny": "symbols",
    "way": "vector",
}


@pytest.mark.parametrize(
    ("space", "kind", "axis", "bounds"),
    [
        (spaces.Box(0, HIGH, (7, 7, 3), np.uint8), "symbols", 2, ((0, 10), (0, 5), (0, 3))),
        (spaces.Box(0, 4, (3, 9, 9), np.int64), "symbols", 0, ((0, 4),) * 3),
        (spaces.Box(-1, 1, (8, 8), np.int8), "symbols", None, ((-1, 1),)),
        (spaces.Box(-1, 255, (8, 8), np.int16), "vector", None, ()),  # 257 values
        (spaces.Box(0, 1, (8, 8), np.bool_), "vector", None, ()),
        (spaces.Box(0, 255, (24, 8), np.uint8), "vector", None, ()),
        (spaces.Box(0, 255, (23, 8), np.uint8), "symbols", None, ((0, 255),)),
        (spaces.Box(0, 255, (12,), np.uint8), "vector", None, ()),
        (spaces.Box(0, 255, (2, 7, 7, 3), np.uint8), "vector", None, ()),
        (spaces.MultiBinary((5, 5)), "vector", None, ()),
    ],
)
def test_symbols_are_small_grids_of_few_values(space, kind, axis, bounds):
    (part,) = observation_parts(space)
    assert (part.leaf.kind, part.leaf.channel_axis, part.leaf.bounds) == (kind, axis, bounds)
    assert part.reason


def test_the_axis_of_channels():
    """Of three axes the odd one out beside two equal sides; otherwise the shorter of first and last."""
    shapes = {
        (7, 7, 3): 2,
        (3, 7, 7): 0,
        (5, 5, 9): 2,
        (9, 5, 5): 0,
        (2, 5, 7): 0,
        (7, 5, 2): 2,
        (4, 4, 4): 2,
    }
    assert {shape: symbol_axis(shape) for shape in shapes} == shapes


def test_typed_kinds_come_first():
    assert kinds() == BY_SHAPE
    words = ["env.leaf_kinds.deep/map=flat", "env.leaf_kinds.small=image"]
    assert kinds(*words) == BY_SHAPE | {"deep/map": "vector", "small": "image"}
    whole = "env.leaf_kinds={deep/map: flat, small: image}"
    assert kinds(whole) == kinds(*words)
    assert kinds(*words, env="own_that_takes") == kinds(*words)
    Seen.metadata = {**Seen.metadata, "kinds": {"small": "flat", "camera": "symbols"}}
    try:
        assert kinds("env.leaf_kinds.small=image") == BY_SHAPE | {"small": "image", "camera": "symbols"}
    finally:
        Seen.metadata = {k: v for k, v in Seen.metadata.items() if k != "kinds"}


@pytest.mark.parametrize(
    ("env", "word", "says"),
    [
        ("make", "lens=image", "no such leaf; it has camera, deep/map, pose, small, tiny, way"),
        ("make", "camra=image", "did you mean 'camera'?"),
        ("make", "camera=picture", "expected image, symbols, flat"),
        ("make", "camera=3", "expected image, symbols, flat"),
        ("make", "pose=symbols", "'pose' (2 float32) holds no whole numbers"),
        ("make", "way=symbols", "one-hot already"),
        ("make", "pose=image", "has 1 axes, an image has height × width, or three"),
        ("make", "small=image", "has 2 channels"),
        ("own", "camera=flat", "gives a factory of its own, PythonEnvFactory"),
    ],
)
def test_mistakes(env, word, says):
    if word == "small=image":
        says = ""
        assert kinds("env.leaf_kinds.small=image")["small"] == "image"  # a stack of two grey images
        return
    with pytest.raises(UserError) as error:
        kinds(f"env.leaf_kinds.{word}", env=env)
    assert says in str(error.value)
    assert f"env.leaf_kinds.{word}" in str(error.value)


def test_channels_of_a_typed_image():
    space = spaces.Box(0, 255, (30, 30, 5), np.uint8)
    assert PythonEnvFactory(lambda index: of(space)).spec.obs["obs"].kind == "vector"
    with pytest.raises(UserError, match="has 5 channels, an image has 1, 3 or 4"):
        PythonEnvFactory(lambda index: of(space), leaf_kinds={"obs": "image"})


def of(space):
    env = Seen()
    env.observation_space = space
    return env


def test_an_image_too_small_for_the_convolutions_is_refused_where_it_was_typed():
    resolve(composed())  # by shape: symbols
    with pytest.raises(
        UserError, match=r"sides are 7 and 7: policy\.image_encoder=nature reads sides from 18"
    ) as e:
        resolve(composed("env.leaf_kinds.tiny=image"))
    assert "env.leaf_kinds.tiny=symbols or flat" in str(e.value)
    resolve(composed("env.leaf_kinds.small=image"))  # 20 pixels are enough for nature


def test_ours_declare_their_own():
    with pytest.raises(UserError, match=r"env\.leaf_kinds\.obs=flat has no effect with env\.factory=counter"):
        make_factory(compose(["env=counter", "env.leaf_kinds.obs=flat"]).config.env)


def test_a_leaf_is_plain_numbers_unless_it_says_so():
    assert Leaf((7, 7, 3), "uint8").kind == "vector"
    assert Leaf((7, 7, 3), "uint8", "symbols", 2).bounds == ((0, 255),) * 3
    for keys in ({"dtype": "float32"}, {"bounds": ((0, 1),) * 2}, {"bounds": ((1, 0),) * 3}):
        with pytest.raises(ValueError, match="Leaf"):
            Leaf(**{"shape": (7, 7, 3), "dtype": "uint8", "kind": "symbols", "channel_axis": 2} | keys)
    with pytest.raises(ValueError, match="bounds are for symbols"):
        Leaf((7,), "uint8", bounds=((0, 1),))


def test_explain_states_kinds_and_reasons():
    text = explain_text(resolve(composed("env.leaf_kinds.small=flat")))
    for line in (
        "camera: image, uint8 30×30×3, channels last",
        "sides of at least 24 pixels and 3 channels; read by convolutions (policy.image_encoder=nature)",
        "deep/map: symbols, uint8 7×7×3, channels last",
        "smaller than 24 a side; read by embeddings of 11, 6, 4 symbols a channel",
        "small: flat, uint8 20×20×2",
        "env.leaf_kinds; read by dense layers",
        "policy.symbol_encoder=embedding",
    ):
        assert line in text, line
    flat = explain_text(resolve(composed("policy.encoder=mlp")))
    assert "read by embeddings" not in flat
    assert "enters the network as 147 plain numbers" in " ".join(flat.split())


def test_a_run_keeps_its_kinds(tmp_path):
    words = ["env.leaf_kinds.small=flat", "env.leaf_kinds.deep/map=flat"]
    run = fake_run(
        tmp_path / "r", f"env={__name__}:make", "env.step_cost=medium", "env.action_mask=none", *words
    )
    for typed in ([], words, ["env.leaf_kinds={small: flat}"]):
        done = resolve(prepare(compose([f"resume={run}", *typed]), lock=False).composed)
        found = {name: leaf.kind for name, leaf in done.factory.spec.obs.items()}
        assert found == BY_SHAPE | {"small": "vector", "deep/map": "vector"}
        assert done.config.policy.symbol_encoder == "embedding"
    assert metta_fast.load_policy(run).spec.obs["small"].kind == "vector"
    for typed in ("env.leaf_kinds.small=image", "env.leaf_kinds.tiny=flat"):
        with pytest.raises(UserError, match=typed.partition("=")[0]):
            prepare(compose([f"resume={run}", typed]), lock=False)


def test_a_run_from_before_the_keys_reads_symbols_as_numbers(tmp_path, monkeypatch):
    def before(config):
        values = config_to_dict(config)
        del values["env"]["leaf_kinds"], values["policy"]["symbol_encoder"]
        return values

    monkeypatch.setattr(runs, "config_to_dict", before)
    words = [
        f"env={__name__}:make",
        "env.step_cost=medium",
        "env.action_mask=none",
        "policy.symbol_encoder=flat",
    ]
    run = fake_run(tmp_path / "r", *words)
    done = resolve(prepare(compose([f"resume={run}"]), lock=False).composed)
    assert done.config.policy.symbol_encoder == "flat"
    policy = metta_fast.load_policy(run).policy
    assert policy.encoder.leaves["flat"] == ("deep/map", "pose", "small", "tiny", "way")
