"""Checks the image encoder: what it reads, its sizes, and that its first convolution divides bytes by 255."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.config.encoders import encoder_memory
from metta_fast.config.encoding.image_layers import image_size, least_side
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.policy import Policy, make_policy
from metta_fast.policy.encoders import JoinedEncoder, MLPEncoder
from metta_fast.policy.encoding.images import ImageEncoder
from metta_fast.policy.plan import plan_of
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.policy.specs import flat_spec, random_obs

NETWORKS = ("nature", "impala")


def camera(*shape: int, axis: int | None = 2, dtype: str = "uint8") -> EnvSpec:
    return flat_spec(camera=Leaf(shape, dtype, "image", axis))


def make(spec: EnvSpec, **keys: Any) -> Policy:
    return make_policy(PolicyConfig(hidden_size=16, **keys), spec)


def params(policy: Policy, obs: dict[str, Tensor]) -> Tensor:
    rows, agents = next(iter(obs.values())).shape[:2]
    return policy(obs, policy.initial_state(agents), torch.zeros(rows, agents, dtype=torch.bool)).params


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "shape", [(24, 24, 1), (24, 200, 3), (59, 60, 4), (60, 60, 12), (84, 84, 4), (97, 25, 2)]
)
def test_every_size_from_the_least_side_on_is_read(network: str, shape: tuple[int, ...]) -> None:
    spec = camera(*shape)
    policy = make(spec, image_encoder=network)
    assert type(policy.encoder) is ImageEncoder
    out = params(policy, random_obs(spec, 2, 3))
    assert out.shape == (2, 3, 3)
    assert out.isfinite().all()
    assert plan_of(policy) == "the encoder ImageEncoder"


@pytest.mark.parametrize("network", NETWORKS)
def test_channels_may_be_first_or_last(network: str) -> None:
    last, first = camera(30, 40, 3), camera(3, 30, 40, axis=0)
    policies = [make(spec, image_encoder=network) for spec in (last, first)]
    policies[1].load_state_dict(policies[0].state_dict())
    obs = random_obs(last, 2, 3)
    turned = {"camera": obs["camera"].movedim(-1, -3).contiguous()}
    torch.testing.assert_close(params(policies[0], obs), params(policies[1], turned))
    grey = make(camera(30, 40, axis=None))
    assert params(grey, random_obs(camera(30, 40, axis=None), 2, 3)).shape == (2, 3, 3)


@pytest.mark.parametrize("network", NETWORKS)
def test_bytes_are_divided_by_255_and_floats_are_not(network: str) -> None:
    policies = [make(camera(30, 40, 3, dtype=dtype), image_encoder=network) for dtype in ("uint8", "float32")]
    policies[1].load_state_dict(policies[0].state_dict())
    obs = random_obs(camera(30, 40, 3), 2, 3)
    scaled = {"camera": obs["camera"].float() / 255}
    torch.testing.assert_close(params(policies[0], obs), params(policies[1], scaled), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_network_is_the_papers(network: str) -> None:
    """Counts from the papers: nature's flat layer has 3136 inputs for 84 × 84 × 4, impala's 11 × 11 × 32."""
    policy = make(camera(84, 84, 4), image_encoder=network)
    convolutions = [m for m in policy.modules() if isinstance(m, nn.Conv2d)]
    flat = policy.encoder.dense.in_features
    assert (len(convolutions), flat) == {"nature": (3, 3136), "impala": (15, 3872)}[network]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("shape", [(24, 24, 1), (84, 84, 4), (97, 25, 2)])
def test_the_estimate_has_every_weight(network: str, shape: tuple[int, ...]) -> None:
    spec = camera(*shape)
    config = PolicyConfig(hidden_size=16, image_encoder=network)
    policy = make_policy(config, spec)
    made = sum(p.numel() for p in policy.encoder.parameters())
    assert encoder_memory(config, spec).weights == made


def test_images_are_joined_with_other_leaves() -> None:
    spec = flat_spec(
        left=Leaf((30, 40, 3), "uint8", "image", 2),
        pose=Leaf((5,), "float32"),
        right=Leaf((1, 36, 24), "uint8", "image", 0),
    )
    policy = make(spec, core="mingru", shared=False)
    assert isinstance(policy.encoder, JoinedEncoder)
    assert policy.encoder.leaves == {"image": ("left", "right"), "flat": ("pose",)}
    obs = random_obs(spec, 2, 3)
    before = params(policy, obs)
    for name in obs:
        assert not torch.equal(params(policy, obs | {name: torch.zeros_like(obs[name])}), before)


def test_autocast_reads_bytes() -> None:
    spec = camera(84, 84, 4)
    policy = make(spec)
    obs = random_obs(spec, 2, 3)
    plain = params(policy, obs)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(params(policy, obs), plain, atol=2e-3)


def test_the_mlp_reads_plain_numbers_where_it_is_typed() -> None:
    assert type(make(camera(30, 40, 3), encoder="mlp").encoder) is MLPEncoder


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        (
            Leaf((17, 40, 3), "uint8", "image", 2),
            r"'obs' \(17×40×3 uint8\).*sides are 17 and 40.*nature reads sides from 18 pixels.*image_encoder=impala",
        ),
        (
            Leaf((30, 40, 3), "uint8", "image"),
            r"Leaf\.channel_axis names the channels; give policy\.encoder=mlp",
        ),
        (Leaf((2, 30, 40, 3), "uint8", "image", 3), r"reads height × width, or three axes"),
    ],
)
def test_an_image_that_convolutions_cannot_read(leaf: Leaf, told: str) -> None:
    with pytest.raises(UserError, match=told):
        make(flat_spec(obs=leaf))
    assert type(make(flat_spec(obs=leaf), encoder="mlp").encoder) is MLPEncoder


@pytest.mark.parametrize("network", NETWORKS)
def test_the_least_side_is_read_and_no_smaller(network: str) -> None:
    side = least_side(network)
    assert side == {"nature": 18, "impala": 8}[network]
    spec = camera(side, side, 1)
    assert params(make(spec, image_encoder=network), random_obs(spec, 1, 2)).isfinite().all()
    with pytest.raises(UserError, match=f"from {side} pixels on"):
        image_size("camera", Leaf((side, side - 1, 1), "uint8", "image", 2), network)


def test_resolve_derives_values_for_images_and_says_so() -> None:
    words = ["env=metta_fast.envs.sanity.catch:make", "trainer.total_timesteps=200000"]
    done = resolve(compose(words))
    config = done.config
    assert (config.policy.activation, config.policy.shared, config.trainer.update_epochs) == ("relu", True, 3)
    assert any("is an image: it is divided by 255" in note for note in done.notes)
    flat = resolve(compose([*words, "policy.encoder=mlp"]))
    assert (flat.config.policy.activation, flat.config.policy.shared) == ("tanh", False)
    assert any("enters the network as 7056 plain numbers" in note for note in flat.notes)
