"""Makes a policy by its name and checks it with a dry forward, so that a mistake stops the run before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.config.encoders import check_no_params, own_encoder
from metta_fast.config.extension import (
    POLICIES,
    described,
    entry_point,
    has_keywords,
    is_module_name,
    keywords,
    load_named,
)
from metta_fast.config.frame_stack import stacked
from metta_fast.config.keys import PolicyConfig, shown
from metta_fast.config.policy_inputs import OURS, check_policy_name, reads
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.encoders import JoinedEncoder
from metta_fast.policy.frame_stack import FrameStack
from metta_fast.policy.network import Network
from metta_fast.policy.normalize import Normalizer, normalize
from metta_fast.policy.plan import Plan, plan_of

INTERFACE = (
    "forward(obs: {leaf: [T, B, …]}, state [layers, B, size], reset [T, B]) returns "
    "(params [T, B, P], value [T, B], state); see metta_fast/policy/base.py"
)


def make_policy(config: PolicyConfig, spec: EnvSpec) -> Policy:
    """Makes the policy that `config.name` asks for: "mlp", "tokens", or a user's class as package.module:Class
    or by its entry point, which is called with (config, spec) and with policy.params as keywords if it takes any.

    Raises:
        UserError: an unknown name, an observation or action that the policy cannot take, or a user's class
            that cannot be imported, made or run, or whose plan() is not what its forward computes.
    """
    check_no_params(config)
    seen = stacked(spec, config.frame_stack)
    if config.name in OURS:
        policy: Policy = Network(config, seen)
        where = f"policy.encoder={config.encoder}"
    else:
        check_policy_name(config.name)
        reads(config, spec)
        config = replace(config, params=_Params(config.params))
        policy = _made(config, seen)
        where = f"policy.name={config.name}"
    checked = own_encoder(config) is None or isinstance(getattr(policy, "encoder", None), JoinedEncoder)
    if config.frame_stack > 1:
        normalizer = Normalizer(spec) if config.normalize_obs else None
        policy = FrameStack(policy, spec, config.frame_stack, normalizer)
    elif config.normalize_obs:
        normalize(policy, spec)
    if checked:
        _dry_forward(policy, where, spec)
    if isinstance(config.params, _Params) and config.params and not config.params.read:
        first = next(iter(config.params))
        raise UserError(
            f"policy.params.{first}={shown(config.params[first])}: {where} does not read it; leave it out, or give its "
            f"class a parameter for it: __init__(config, spec, *, {first})"
        )
    return policy


class _Params(dict[str, Any]):
    """Holds policy.params, and notes whether a user's policy or encoder has read any."""

    read = False

    def _noted(self) -> _Params:
        self.read = True
        return self

    def __getitem__(self, key: str) -> Any:
        return dict.__getitem__(self._noted(), key)

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._noted())

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self._noted(), key)

    def __or__(self, other: Any) -> Any:
        return dict(self._noted().items()) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self._noted().items())

    def get(self, key: str, default: Any = None) -> Any:
        return dict.get(self._noted(), key, default)

    def keys(self) -> Any:
        return dict.keys(self._noted())

    def values(self) -> Any:
        return dict.values(self._noted())

    def items(self) -> Any:
        return dict.items(self._noted())

    def copy(self) -> dict[str, Any]:
        return dict(self._noted().items())


def _made(config: PolicyConfig, spec: EnvSpec) -> Policy:
    """Imports and calls the user's class."""
    where = f"policy.name={config.name}"
    kind = (
        load_named(config.name, "policy.name")
        if is_module_name(config.name)
        else entry_point(POLICIES, config.name, "policy.name")
    )
    class_name = getattr(kind, "__name__", config.name)
    keys = keywords(kind, config.params, "policy.params", 2) if has_keywords(kind, 2) else {}
    try:
        made = kind(config, spec, **keys)
    except UserError:
        raise
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(
            f"{where}: {class_name}(config, spec) failed: {described(error)}; a policy is made with "
            "(config: PolicyConfig, spec: EnvSpec)"
        ) from error
    if not isinstance(made, nn.Module):
        raise UserError(
            f"{where}: {class_name}(config, spec) gave a {type(made).__name__}, expected a torch.nn.Module"
        )
    if not isinstance(made, Policy):
        return Adopted(made, spec)
    if not hasattr(made, "head") or not hasattr(made, "state_shape"):
        raise UserError(f"{where}: {class_name}.__init__ must call super().__init__(spec) before all else")
    return made


class Adopted(Policy):
    """Wraps a user's module that does not subclass `Policy`; it may have a `state_shape`."""

    def __init__(self, net: nn.Module, spec: EnvSpec) -> None:
        super().__init__(spec, getattr(net, "state_shape", (0, 0)))
        self.net = net

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        return PolicyOutput(*self.net(obs, state, reset))


@torch.no_grad()
def _dry_forward(policy: Policy, where: str, spec: EnvSpec) -> None:
    """Runs two rows of three agents, in each leaf's dtype, and checks the shapes of the result and the plan."""
    rows, agents = 2, 3
    obs = {
        leaf: torch.zeros(rows, agents, *x.shape, dtype=getattr(torch, x.dtype))
        for leaf, x in spec.obs.items()
    }
    shown = ", ".join(f"{leaf} {list(x.shape)} {x.dtype}" for leaf, x in obs.items())
    training = policy.training
    policy.eval()
    try:
        state = policy.initial_state(agents)
        output = policy(obs, state, torch.zeros(rows, agents, dtype=torch.bool))
        params, value, after = output.params, output.value, output.state
        plan = plan_of(policy)
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(
            f"{where}: a forward with obs {shown} failed ({type(error).__name__}: {error}); {INTERFACE}"
        ) from error
    finally:
        policy.train(training)
    expected = {
        "params": (rows, agents, policy.head.num_params),
        "value": (rows, agents),
        "state": tuple(state.shape),
    }
    for (what, shape), got in zip(expected.items(), (params, value, after)):
        if not isinstance(got, Tensor) or tuple(got.shape) != shape or not got.is_floating_point():
            found = f"{list(got.shape)} {got.dtype}" if isinstance(got, Tensor) else type(got).__name__
            raise UserError(
                f"{where}: forward gave {what} {found}, expected {list(shape)} of floats; {INTERFACE}"
            )
    if isinstance(plan, Plan):
        _check_plan(policy, plan, where, spec)


def _check_plan(policy: Policy, plan: Plan, where: str, spec: EnvSpec) -> None:
    """Compares the policy's forward with its plan on numbers drawn for it alone."""
    rows, agents, generator = 3, 4, torch.Generator().manual_seed(0)
    obs = {
        leaf: torch.randn(rows, agents, *x.shape, generator=generator).to(getattr(torch, x.dtype))
        if x.dtype.startswith("float")
        else torch.randint(0, 2, (rows, agents, *x.shape), generator=generator).to(getattr(torch, x.dtype))
        for leaf, x in spec.obs.items()
    }
    state = torch.rand(policy.initial_state(agents).shape, generator=generator)
    reset = torch.rand(rows, agents, generator=generator) < 0.5
    try:
        planned = plan.forward(obs, state, reset)
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(f"{where}: its plan() cannot be computed: {described(error)}") from error
    for what, one, other in zip(("params", "value", "state"), policy(obs, state, reset), planned):
        if one.shape != other.shape or not torch.allclose(one.float(), other.float(), 1e-3, 1e-4):
            raise UserError(
                f"{where}: its plan() gives other {what} than its forward; correct it (metta_fast/policy/plan.py), or "
                "leave plan() out: the forward then runs as it is"
            )
