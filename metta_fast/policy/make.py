"""A policy by its name, checked by one dry forward, so that a mistake stops before anything starts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metta_fast.config.extension import POLICIES, described, entry_point, is_module_name, load_named
from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import OURS, check_policy_name, reads
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.network import Network
from metta_fast.policy.normalize import normalize

INTERFACE = (
    "forward(obs: {leaf: [T, B, …]}, state [layers, B, size], reset [T, B]) returns "
    "(params [T, B, P], value [T, B], state); see metta_fast/policy/base.py"
)


def make_policy(config: PolicyConfig, spec: EnvSpec) -> Policy:
    """Makes the policy that `config.name` asks for: "mlp", "tokens", or a user's class as package.module:Class
    or by its entry point, which is called with (config, spec).

    Raises:
        UserError: an unknown name, an observation or action that the policy cannot take, or a user's class
            that cannot be imported, made or run.
    """
    own = config.name not in OURS
    if not own:
        policy: Policy = Network(config, spec)
    else:
        check_policy_name(config.name)
        reads(config, spec)
        policy = _made(config, spec)
    if config.normalize_obs:
        normalize(policy, spec)
    if own:
        _dry_forward(policy, config.name, spec)
    return policy


def _made(config: PolicyConfig, spec: EnvSpec) -> Policy:
    """Imports and calls the user's class."""
    where = f"policy.name={config.name}"
    kind = (
        load_named(config.name, "policy.name")
        if is_module_name(config.name)
        else entry_point(POLICIES, config.name, "policy.name")
    )
    class_name = getattr(kind, "__name__", config.name)
    try:
        made = kind(config, spec)
    except UserError:
        raise
    except Exception as error:
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
    """A user's module that does not subclass `Policy`; it may have a `state_shape`."""

    def __init__(self, net: nn.Module, spec: EnvSpec) -> None:
        super().__init__(spec, getattr(net, "state_shape", (0, 0)))
        self.net = net

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        return PolicyOutput(*self.net(obs, state, reset))


@torch.no_grad()
def _dry_forward(policy: Policy, name: str, spec: EnvSpec) -> None:
    """Two rows of three agents, in each leaf's dtype."""
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
    except Exception as error:
        raise UserError(
            f"policy.name={name}: a forward with obs {shown} failed ({type(error).__name__}: {error}); "
            f"{INTERFACE}"
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
                f"policy.name={name}: forward gave {what} {found}, expected {list(shape)} of floats; "
                f"{INTERFACE}"
            )
