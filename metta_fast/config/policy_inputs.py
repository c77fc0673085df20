"""Chooses the leaves of the observation that the actor and the critic read: an asymmetric critic.

    actor, critic = reads(config.policy, spec)          # ("obs",), ("obs", "privileged")

An environment may mark leaves that are available in training only (`EnvSpec.privileged`: contact forces, the true
state …). The critic is used in training only, so it may read them; the deployed policy needs the actor's leaves only.
`policy.actor_obs` and `policy.critic_obs` choose others. Source: Pinto et al. 2017 (arXiv 1710.06542).

Place in the flow: resolve.py checks before a run starts, policy/network.py uses it to make the policy. No torch here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from metta_fast.config.extension import POLICIES, entry_point_names, is_module_name
from metta_fast.config.keys import PolicyConfig, did_you_mean, shown
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError

OURS = ("mlp", "tokens")
"""Names of the policies that come with metta_fast."""


def check_policy_name(name: str) -> None:
    """Raises UserError where `policy.name` is neither ours, nor an entry point, nor the form of module:name."""
    if name in OURS or is_module_name(name):
        return
    known = [*OURS, *entry_point_names(POLICIES)]
    if name not in known:
        raise UserError(
            f"policy.name={name!r}: {did_you_mean(name, known)}expected {', '.join(known)}, or your own as "
            "package.module:Class"
        )


def reads(config: PolicyConfig, spec: EnvSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (leaves of the actor, leaves of the critic), each in the observation's order.

    Raises:
        UserError: a leaf that the environment lacks, no leaf at all, different leaves for one shared encoder
            (policy.shared=true), or leaves chosen for a user's own class.
    """
    open_leaves = [name for name in spec.obs if name not in spec.privileged]
    actor = _chosen("policy.actor_obs", config.actor_obs, open_leaves, spec)
    critic = _chosen("policy.critic_obs", config.critic_obs, spec.obs, spec)
    if config.name not in OURS:
        for key, given in (("actor_obs", config.actor_obs), ("critic_obs", config.critic_obs)):
            if given is not None:
                raise UserError(
                    f"policy.{key}={shown(given)}: {config.name} is your own and reads what its forward reads; "
                    "choose there (`spec.privileged` tells what only training has), and leave the key out"
                )
    elif config.shared and actor != critic:
        told = (
            f"{spec.name} tells that {', '.join(spec.privileged)} is for the critic alone"
            if spec.privileged and config.actor_obs is None and config.critic_obs is None
            else "they are read by one encoder (policy.shared=true)"
        )
        raise UserError(
            f"actions read {', '.join(actor)}, the value {', '.join(critic)}, but {told}; "
            "give policy.shared=false, so that the value has a network of its own, or the same leaves in "
            "policy.actor_obs and policy.critic_obs"
        )
    return actor, critic


def _chosen(key: str, given: list[str] | None, otherwise: Iterable[str], spec: EnvSpec) -> tuple[str, ...]:
    names = list(otherwise) if given is None else given
    for name in names:
        if name not in spec.obs:
            raise UserError(
                f"{key}={shown(names)}: {spec.name} gives no {name!r}; {did_you_mean(name, spec.obs)}"
                f"it gives {', '.join(spec.obs)}"
            )
    if not names:
        what = f"{key}=[]" if given is not None else f"{spec.name}: every leaf is privileged"
        raise UserError(f"{what}: nothing is left to read; it gives {', '.join(spec.obs)}")
    return tuple(name for name in spec.obs if name in names)


def only(spec: EnvSpec, leaves: Iterable[str]) -> EnvSpec:
    """Returns the spec with only these leaves of the observation."""
    return dataclasses.replace(spec, obs={name: spec.obs[name] for name in leaves})
