"""A policy's plan: what it computes is the forward, and a policy whose forward may differ has none."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.policy import Policy, PolicyOutput, make_policy
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.grid.layout import LAYOUTS
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.network import Network
from metta_fast.policy.plan import Plan, Trunk, plan_of
from tests.policy.specs import flat_spec, grid_spec, random_obs

BOX = ActionSpec("box", low=(-1.0, -2.0), high=(1.0, 2.0))
MIXED = flat_spec(
    (3, 2), compact=Leaf((387,), "uint8"), pose=Leaf((2, 3), "float32"), way=Leaf((4,), "int32")
)
ROBOT = EnvSpec("robot", 1, {"obs": Leaf((5,), "float32"), "true": Leaf((3,), "float32")}, BOX, ("true",))
CASES: dict[str, tuple[EnvSpec, dict[str, Any]]] = {
    "flat": (flat_spec((3, 2)), {}),
    "compact": (grid_spec("compact"), {}),
    "dense": (grid_spec("dense"), {"core": "mingru"}),
    "tokens": (grid_spec("tokens"), {"name": "tokens", "core": "lstm"}),
    "a grid beside other leaves": (MIXED, {"activation": "tanh"}),
    "apart": (MIXED, {"shared": False, "core": "lstm", "activation": "elu"}),
    "a robot": (ROBOT, {"shared": False}),
    "a normalised robot": (ROBOT, {"shared": False, "normalize_obs": True, "state_std": True, "core": "mingru"}),
}  # fmt: skip


def make(spec: EnvSpec, **keys: Any) -> Network:
    policy = make_policy(PolicyConfig(**{"name": "mlp", "hidden_size": 16} | keys), spec)
    assert isinstance(policy, Network)
    return policy


def forwards(policy: Policy, spec: EnvSpec) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What the policy gives, and what its plan gives."""
    plan = plan_of(policy)
    assert isinstance(plan, Plan), plan
    obs, reset = random_obs(spec, 3, 4), torch.rand(3, 4) < 0.3
    state = torch.randn(policy.initial_state(4).shape)
    return [tuple(policy(obs, state, reset)), plan.forward(obs, state, reset)]


@pytest.mark.parametrize("case", CASES)
def test_the_plan_computes_what_the_forward_computes(case: str) -> None:
    spec, keys = CASES[case]
    policy = make(spec, **keys)
    if policy.normalizer is not None:
        policy.normalizer.shift.uniform_()
        policy.normalizer.scale.uniform_(1, 2)
    found, planned = forwards(policy, spec)
    for one, other in zip(found, planned):
        assert torch.equal(one, other)


class Same(Network):
    pass


class TwoLayers(Policy):
    """A user's own policy, as plan.py shows it."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(spec)
        inputs = spec.obs["obs"].shape[0]
        self.one, self.two = nn.Linear(inputs, 24), nn.Linear(24, 24)
        self.out = nn.Linear(24, self.head.num_params + 1)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        hidden = self.two(self.one(obs["obs"].float()).relu()).relu()
        with torch.autocast(hidden.device.type, enabled=False):
            out = self.out(hidden.float())
        return PolicyOutput(out[..., :-1], out[..., -1], state)

    def plan(self) -> Plan:
        trunk = Trunk(leaves=("obs",), flat=("obs",), first=self.one, second=self.two)
        return Plan(trunk, self.out, self.head)


class OnTheGrid(TwoLayers):
    """The same with a sparse first layer."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self.one: Any = SparseLayer(LAYOUTS["compact"], 24)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        out = self.out(self.two(self.one(obs["obs"]).relu()).relu())
        return PolicyOutput(out[..., :-1], out[..., -1], state)

    def plan(self) -> Plan:
        return Plan(Trunk(leaves=("obs",), sparse={"obs": self.one}, second=self.two), self.out, self.head)


class BelowOwn(TwoLayers):
    pass


@pytest.mark.parametrize(("kind", "spec"), [
    (Same, flat_spec()), (TwoLayers, flat_spec((3, 2))), (BelowOwn, flat_spec((4,))), (OnTheGrid, grid_spec("compact"))
])  # fmt: skip
def test_a_users_policy_has_a_plan(kind: Callable[..., Policy], spec: EnvSpec) -> None:
    found, planned = forwards(kind(PolicyConfig(hidden_size=16), spec), spec)
    for one, other in zip(found, planned):
        assert torch.equal(one, other)


class OtherForward(Network):
    def forward(self, obs: Any, state: Tensor, reset: Tensor) -> PolicyOutput:
        return super().forward(obs, state, reset)


class OtherStart(Network):
    def initial_state(self, n: int, device: Any = None) -> Tensor:
        return super().initial_state(n, device) + 1


class ExtraLayer(Network):
    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self.auxiliary = nn.Linear(3, 3)


class OtherEncoder(MLPEncoder):
    def first_layer(self, obs: dict[str, Tensor], rows: Tensor | None = None) -> Tensor:
        return super().first_layer(obs, rows) * 2


class OwnEncoder(Network):
    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self.encoder = OtherEncoder(spec, config.hidden_size)


class NoPlan(Policy):
    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        raise NotImplementedError


class Lies(TwoLayers):
    def plan(self) -> Plan:
        plan = super().plan()
        return Plan(plan.actor, nn.Linear(24, 4), plan.head)


class Uneven(TwoLayers):
    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self.two, self.out = nn.Linear(24, 16), nn.Linear(16, 4)


def patched(policy: Network) -> None:
    policy.forward = types.MethodType(Network.forward, policy)  # type: ignore[method-assign]


def patched_encoder(policy: Network) -> None:
    policy.encoder.forward = policy.encoder.forward  # type: ignore[method-assign]


def patched_head(policy: Network) -> None:
    policy.head.sample = policy.head.sample  # type: ignore[method-assign]


def hooked(policy: Network) -> None:
    policy.heads.register_forward_hook(lambda *_: None)


def hooked_backward(policy: Network) -> None:
    policy.heads.register_full_backward_hook(lambda *_: None)


def hooked_weight(policy: Network) -> None:
    policy.heads.weight.register_hook(lambda grad: grad)


def tied_data(policy: Network) -> None:
    policy.encoder.first.bias.data = policy.encoder.second.bias.data  # type: ignore


def weight_norm(policy: Network) -> None:
    nn.utils.parametrizations.weight_norm(policy.encoder.second)  # type: ignore


def older_weight_norm(policy: Network) -> None:
    nn.utils.weight_norm(policy.encoder.second)  # type: ignore


def dropout(policy: Network) -> None:
    policy.encoder = nn.Sequential(policy.encoder, nn.Dropout(0.1))  # type: ignore


def long_state(policy: Network) -> None:
    policy.state_shape = (2, 16)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        (OtherForward, None, "OtherForward overrides forward()"),
        (OtherStart, None, "OtherStart overrides"),
        (ExtraLayer, None, "leaves out (auxiliary.weight)"),
        (OwnEncoder, None, "the encoder class OtherEncoder"),
        (NoPlan, None, "NoPlan overrides forward()"),
        (Lies, None, "leaves out (out.weight)"),
        (Uneven, None, "unlike widths (16, 24)"),
        (Network, patched, "Network.forward is replaced"),
        (Network, patched_encoder, "MLPEncoder.forward is replaced"),
        (Network, patched_head, "ActionHead.sample is replaced"),
        (Network, hooked, "hooks on the policy"),
        (Network, hooked_backward, "hooks on the policy"),
        (Network, hooked_weight, "hooks on the policy"),
        (Network, tied_data, "weights that several layers share"),
        (Network, weight_norm, "a layer of class ParametrizedLinear"),
        (Network, older_weight_norm, "whose parameters are not weight and bias"),
        (Network, dropout, "the encoder Sequential"),
        (Network, long_state, "a policy whose state"),
    ],
)
def test_a_policy_whose_forward_may_differ_has_none(
    kind: Callable[..., Any], change: Callable[[Any], None] | None, why: str
) -> None:
    spec = flat_spec()
    policy = kind(spec) if kind is NoPlan else kind(PolicyConfig(hidden_size=16), spec)
    if change is not None:
        assert isinstance(plan_of(policy), Plan)
        change(policy)
    found = plan_of(policy)
    assert isinstance(found, str)
    assert why in found


def test_shared_weights_have_none() -> None:
    policy = make(flat_spec(), core="mingru")
    policy.heads.weight = nn.Parameter(torch.zeros(16, 16))
    assert "heads" in str(plan_of(policy))
    policy = make(flat_spec(), shared=False)
    assert policy.critic is not None
    policy.critic["encoder"] = policy.encoder
    assert plan_of(policy) == "weights that several layers share"


def test_foreign_tokens_have_none() -> None:
    spec = flat_spec(obs=Leaf((7, 3), "uint8"))
    assert plan_of(make(spec, name="tokens")) == "the encoder AnyTokenEncoder"


def test_a_normalizer_without_its_hook_has_none() -> None:
    policy = make(flat_spec(), normalize_obs=True)
    policy._forward_pre_hooks.clear()
    assert plan_of(policy) == "hooks on the policy"
