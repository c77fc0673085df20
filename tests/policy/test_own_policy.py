"""Tests a user's own policy by its dotted name: what works, and the message for each mistake."""

import copy
import re
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import Tensor, nn

from metta_fast.config import extension
from metta_fast.config.extension import POLICIES
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.policy import Policy, PolicyOutput, make_policy
from metta_fast.policy.plan import Plan, plan_of
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.policy.specs import flat_spec, random_obs
from tests.policy.test_plan import TwoLayers

SPEC = flat_spec((2, 3))
HERE = "tests.policy.test_own_policy"


class Small(Policy):
    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(spec)
        self.net = nn.Linear(spec.obs["obs"].shape[0], self.head.num_params + 1)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        out = self.net(obs["obs"])
        return PolicyOutput(out[..., :-1], out[..., -1], state)


class PlainModule(nn.Module):
    """Knows nothing of our base class; remembers one number."""

    state_shape = (1, 1)

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.net = nn.Linear(5, 6)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = self.net(obs["obs"])
        return out[..., :5], out[..., 5], state + 1


class NoArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()


class NoSuper(Policy):
    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        nn.Module.__init__(self)


class NoForward(Policy):
    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(spec)


class FewParams(Small):
    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        out = super().forward(obs, state, reset)
        return out._replace(params=out.params[..., 1:])


class WideValue(Small):
    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        out = super().forward(obs, state, reset)
        return out._replace(value=out.value[..., None])


class OnlyParams(PlainModule):
    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Tensor:  # type: ignore[override]
        return obs["obs"]


def not_a_module(config: PolicyConfig, spec: EnvSpec) -> int:
    return 1


def make(name: str, where: str = HERE) -> Policy:
    return make_policy(PolicyConfig(name=f"{where}.{name}"), SPEC)


@pytest.mark.parametrize("name", ["Small", "PlainModule"])
def test_a_users_class(name: str) -> None:
    policy = make(name)
    out = policy(random_obs(SPEC, 1, 2), policy.initial_state(2), torch.zeros(1, 2, dtype=torch.bool))
    action, logprob = policy.head.sample(out.params, torch.rand(1, 2, 2))
    assert action.shape == (1, 2, 2)
    assert logprob.shape == (1, 2)
    assert policy.training


def test_a_users_class_by_module_and_name() -> None:
    assert isinstance(make_policy(PolicyConfig(name=f"{HERE}:Small"), SPEC), Small)


def test_a_users_class_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("small", f"{HERE}:Small", POLICIES)
    monkeypatch.setattr(extension, "entry_points", lambda group: [point] if group == POLICIES else [])
    assert isinstance(make_policy(PolicyConfig(name="small"), SPEC), Small)
    with pytest.raises(UserError, match="did you mean 'small'"):
        make_policy(PolicyConfig(name="smal"), SPEC)


class Deep(Small):
    """Takes keys of its own, as keywords."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec, *, depth: int, width: int = 8) -> None:
        super().__init__(config, spec)
        self.sizes = depth, width


class Reads(Small):
    """Reads its keys in config.params."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        self.depth = config.params["depth"]


def test_a_users_class_has_keys_of_its_own() -> None:
    made = make_policy(PolicyConfig(name=f"{HERE}:Deep", params={"depth": 3}), SPEC)
    assert made.sizes == (3, 8)
    assert make_policy(PolicyConfig(name=f"{HERE}:Reads", params={"depth": 2}), SPEC).depth == 2
    words = ["hardware=cpu", "env=counter", f"policy={HERE}:Deep", "policy.params.depth=3"]
    assert resolve(compose(words)).config.policy.params == {"depth": 3}


@pytest.mark.parametrize("read", [
    lambda params: params["depth"], lambda params: params.get("depth"), lambda params: {**params}["depth"],
    lambda params: dict(params)["depth"], lambda params: (params | {})["depth"], lambda params: params.copy()["depth"],
    lambda params: dict(**params)["depth"], lambda params: ({} | params)["depth"],
    lambda params: next(iter(params.values())),
    lambda params: copy.deepcopy(params)["depth"],
])  # fmt: skip
def test_each_way_to_read_config_params_counts(read, monkeypatch) -> None:
    def init(self, config, spec):
        Small.__init__(self, config, spec)
        self.depth = read(config.params)

    monkeypatch.setattr(Reads, "__init__", init)
    assert make_policy(PolicyConfig(name=f"{HERE}:Reads", params={"depth": 2}), SPEC).depth == 2


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        (
            f"{HERE}:Deep",
            {"depht": 3},
            "policy.params.depht: unknown key; did you mean 'depth'? it has depth, width",
        ),
        (f"{HERE}:Deep", {"width": 3}, "policy.params needs a value for depth; give policy.params.depth=…"),
        (f"{HERE}:Small", {"depth": 3}, f"policy.params.depth=3: policy.name={HERE}:Small does not read it"),
        ("mlp", {"depth": 3}, "policy.params.depth=3: policy mlp has no keys of its own"),
    ],
)
def test_mistakes_in_its_keys_are_named(name: str, params: dict[str, int], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        make_policy(PolicyConfig(name=name, params=params), SPEC)


def test_keys_for_our_own_policies_are_refused_before_the_start() -> None:
    with pytest.raises(UserError, match=r"policy\.params\.depth=3: policy mlp has no keys of its own"):
        resolve(compose(["hardware=cpu", "policy.params.depth=3"]))


class Wrong(TwoLayers):
    """Its plan is not what its forward computes."""

    def plan(self) -> Plan:
        plan = super().plan()
        return replace(plan, actor=replace(plan.actor, activation="tanh"))


class Fails(TwoLayers):
    def plan(self) -> Plan:
        plan = super().plan()
        return replace(plan, actor=replace(plan.actor, leaves=("other",), flat=("other",)))


def test_a_plan_that_is_not_the_forward_is_refused() -> None:
    assert isinstance(
        plan_of(make_policy(PolicyConfig(name=f"{TwoLayers.__module__}:TwoLayers"), SPEC)), Plan
    )
    with pytest.raises(UserError, match=r"Wrong: its plan\(\) gives other params than its forward"):
        make_policy(PolicyConfig(name=f"{HERE}:Wrong"), SPEC)
    with pytest.raises(UserError, match=r"Fails: its plan\(\) cannot be computed: KeyError: 'other'"):
        make_policy(PolicyConfig(name=f"{HERE}:Fails"), SPEC)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Absent", "module tests.policy.test_own_policy has no Absent; it has Deep, Fails, FewParams"),
        ("NoArguments", "a policy is made with (config: PolicyConfig, spec: EnvSpec)"),
        ("not_a_module", "gave a int, expected a torch.nn.Module"),
        ("NoSuper", "must call super().__init__(spec)"),
        ("NoForward", "NoForward has no forward(obs, state, reset)"),
        ("FewParams", "forward gave params [2, 3, 4] torch.float32, expected [2, 3, 5]"),
        ("WideValue", "forward gave value [2, 3, 1] torch.float32, expected [2, 3]"),
        ("OnlyParams", "see metta_fast/policy/base.py"),
    ],
)
def test_each_mistake_is_told_with_its_cure(name: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)) as error:
        make(name)
    assert f"policy.name={HERE}.{name}" in str(error.value)


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(UserError, match="no_such_package cannot be imported"):
        make("Net", "no_such_package")
