"""A user's encoder: by policy.encoder, by an entry point, or registered for a kind of leaf."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.config import encoders, extension
from metta_fast.config.encoders import EncoderMemory, register_encoder
from metta_fast.config.extension import ENCODERS
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.policy import Policy, make_policy
from metta_fast.policy.encoders import JoinedEncoder, MLPEncoder
from metta_fast.policy.plan import Plan, Trunk, plan_of
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.policy.specs import flat_spec, random_obs

HERE = "tests.policy.test_own_encoder"
CAMERA = flat_spec(camera=Leaf((32, 24, 3), "uint8", "image", 2), pose=Leaf((5,), "float32"))


class Pixels(nn.Module):
    """Reads images; its memory is its own to say."""

    def __init__(self, spec: EnvSpec, width: int, activation: str, *, channels: int = 4) -> None:
        super().__init__()
        ((self.leaf, leaf),) = spec.obs.items()
        assert leaf.channel_axis == 2
        self.conv = nn.Conv2d(leaf.shape[2], channels, 8, 8)
        self.out = nn.Linear(channels * (leaf.shape[0] // 8) * (leaf.shape[1] // 8), width)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        x = obs[self.leaf].float().div(255).movedim(-1, -3)
        return self.out(self.conv(x.flatten(0, 1)).relu().flatten(1)).relu().unflatten(0, x.shape[:2])

    @staticmethod
    def memory(spec: EnvSpec, width: int) -> EncoderMemory:
        return EncoderMemory(row=1 << 20, weights=5)


class Flat(MLPEncoder):
    """One of ours under another name."""


class Wide(MLPEncoder):
    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        return super().forward(obs).repeat(1, 1, 2)


def not_an_encoder(spec: EnvSpec, width: int, activation: str) -> int:
    return width


def make(spec: EnvSpec, **keys: Any) -> Policy:
    return make_policy(PolicyConfig(hidden_size=16, **keys), spec)


def run(policy: Policy, spec: EnvSpec) -> Tensor:
    return policy(random_obs(spec, 2, 3), policy.initial_state(3), torch.zeros(2, 3, dtype=torch.bool)).params


@pytest.fixture
def registered() -> Iterator[None]:
    register_encoder("image", Pixels)
    yield
    encoders._registered.clear()


def test_an_image_is_read_flat_where_the_mlp_is_typed() -> None:
    policy = make(CAMERA, encoder="mlp")
    assert type(policy.encoder) is MLPEncoder
    assert policy.encoder.flat == ["camera", "pose"]
    assert isinstance(plan_of(policy), Plan)


@pytest.mark.usefixtures("registered")
def test_an_encoder_of_a_kind_reads_its_leaves_and_the_flat_one_the_others() -> None:
    policy = make(CAMERA, core="mingru")
    assert isinstance(policy.encoder, JoinedEncoder)
    assert policy.encoder.leaves == {"image": ("camera",), "flat": ("pose",)}
    assert isinstance(policy.encoder.parts["image"], Pixels)
    assert run(policy, CAMERA).shape == (2, 3, 3)
    assert plan_of(policy) == "the encoder JoinedEncoder"
    assert type(make(flat_spec()).encoder) is MLPEncoder


def test_an_encoder_by_module_and_name_takes_keys_of_its_own() -> None:
    spec = flat_spec(camera=Leaf((32, 24, 3), "uint8", "image", 2))
    policy = make(spec, encoder=f"{HERE}:Pixels", params={"channels": 7})
    assert policy.encoder.conv.out_channels == 7
    assert run(policy, spec).shape == (2, 3, 3)
    with pytest.raises(UserError, match=r"policy\.params\.chanels: unknown key; did you mean 'channels'"):
        make(spec, encoder=f"{HERE}:Pixels", params={"chanels": 7})
    with pytest.raises(UserError, match=r"policy\.params\.scale: unknown key; it has none"):
        make(flat_spec(), encoder=f"{HERE}:Flat", params={"scale": 7})


def test_an_encoder_that_says_its_layers_has_a_plan() -> None:
    plan = plan_of(make(flat_spec(), encoder=f"{HERE}:Flat"))
    assert isinstance(plan, Plan)
    assert isinstance(plan.actor, Trunk)


def test_an_encoder_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", f"{HERE}:Flat", ENCODERS)
    monkeypatch.setattr(extension, "entry_points", lambda group: [point] if group == ENCODERS else [])
    assert type(make(flat_spec(), encoder="theirs").encoder) is Flat


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "mpl",
            "policy.encoder='mpl': did you mean 'mlp'? expected mlp, tokens, token_bag, null, or your own as",
        ),
        ("no_such_module:Net", "module no_such_module cannot be imported"),
        (f"{HERE}:Flatt", "has no Flatt; did you mean 'Flat'?"),
        (f"{HERE}:not_an_encoder", "not_an_encoder gave a int, expected a torch.nn.Module"),
        (f"{HERE}:Pixels", "Pixels(spec, width, activation) failed: AssertionError"),
        (f"{HERE}:Wide", "Wide: a forward with obs obs [2, 3, 5] torch.float32 failed"),
    ],
)
def test_each_mistake_is_told(name: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        make(flat_spec(), encoder=name)


def test_the_estimate_asks_the_encoder() -> None:
    words = ["hardware=cpu", "env=counter"]
    flat = {part.name: part.bytes for part in resolve(compose(words)).memory}
    config = compose([*words, f"policy.encoder={HERE}:Pixels"])
    own = {part.name: part.bytes for part in resolve(config).memory}
    assert own["activations"] > 100 * flat["activations"]
    assert own["weights"] < flat["weights"]
    with pytest.raises(UserError, match="did you mean 'tokens'"):
        resolve(compose([*words, "policy.encoder=token"]))
