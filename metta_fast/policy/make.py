"""A policy by its name, checked by one dry forward, so that a mistake stops before anything starts."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import reads
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
    """The policy that `config.name` asks for: "mlp", "tokens", or a user's class as package.module.Class,
    which is called with (config, spec).

    Raises:
        UserError: an unknown name, an observation or action that the policy cannot take, or a user's class
            that cannot be imported, made or run.
    """
    own = "." in config.name
    if not own:
        if config.name not in ("mlp", "tokens"):
            raise UserError(
                f"policy.name={config.name!r}: expected mlp, tokens, or your own as package.module.Class"
            )
        policy: Policy = Network(config, spec)
    else:
        reads(config, spec)
        policy = _made(config, spec)
    if config.normalize_obs:
        normalize(policy, spec)
    if own:
        _dry_forward(policy, config.name, spec)
    return policy


def _made(config: PolicyConfig, spec: EnvSpec) -> Policy:
    """The user's class, imported and called."""
    where = f"policy.name={config.name}"
    module_name, _, class_name = config.name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f"{where}: module {module_name} cannot be imported ({type(error).__name__}: {error}); it must "
            "lie in the current folder or one of PYTHONPATH, or be installed"
        ) from error
    kind: Any = getattr(module, class_name, None)
    if kind is None:
        raise UserError(
            f"{where}: module {module_name} has no {class_name}; it has "
            f"{', '.join(_classes(module)) or 'no class'}"
        )
    try:
        made = kind(config, spec)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{where}: {class_name}(config, spec) failed ({type(error).__name__}: {error}); a policy is "
            "made with (config: PolicyConfig, spec: EnvSpec)"
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


def _classes(module: Any) -> list[str]:
    return [name for name, item in inspect.getmembers(module, inspect.isclass) if issubclass(item, nn.Module)]


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
