"""Loads a trained policy for use without the run's environments or trainer.

policy = metta_fast.load_policy("runs/grid-1")      # or one of its checkpoints
policy.restart()                                    # before new episodes (not needed the first time)
actions = policy.act(obs)                           # [n, width]; the core's state is kept

env = gymnasium.make("CartPole-v1")                 # one environment: its observation in, its action out
obs, reward, terminated, truncated, info = env.step(policy.act(obs))
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.config.policy_inputs import only
from metta_fast.config.schema import PolicyConfig
from metta_fast.config.trust import given_in_call
from metta_fast.contracts.env import ActionSpec, Array, EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.player import first_illegal
from metta_fast.inference.evaluate import load_run
from metta_fast.inference.players import PolicyPlayer, sampled_or_likely
from metta_fast.inference.read_observation import as_array, read_observation

if TYPE_CHECKING:
    import torch

    from metta_fast.envs.actions.masks import MaskSource
    from metta_fast.policy import Policy


def load_policy(
    path: str | PathLike[str],
    *,
    best: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    device: str | None = None,
    trust: bool = False,
    **code: Any,
) -> LoadedPolicy:
    """Loads the policy of a run's newest checkpoint, or of one checkpoint.

    Args:
        path: a run's folder, a run's name in runs/, or one of a run's checkpoints.
        best: load the run's checkpoint with the best score instead of the newest.
        deterministic: `act` returns the most likely action instead of a sample.
        seed: seed of the samples.
        device: cpu, cuda, cuda:1, …; None: the training's device, or the CPU without a GPU.
        trust: import whatever code the run names. It may come from a stranger; your own runs do not need this.
        code: the code that the run names, as given to `train`: env="my_module:make", policy="my_module.Net",
            policy__encoder="my_module:Cnn", or the functions and classes themselves.

    Raises:
        UserError: no such run or checkpoint, a damaged checkpoint, code that may not be imported, weights of another
            policy, or no such device.
    """
    given = given_in_call(trust, code)
    config, policy, place, found, factory = load_run(str(path), best=best, device=device, given=given)
    trained = {
        "environment": config.env.name,
        "network": _network(config.policy, policy),
        "trained": f"{found.step:,} steps",
    }
    score = found.meta.get("score")
    if score is not None:
        trained["score"] = f"{score['name']} {score['value']:.4g}"
    return LoadedPolicy(
        policy,
        factory,
        place,
        deterministic=deterministic,
        seed=seed,
        checkpoint=str(found.path),
        trained=trained,
    )


class LoadedPolicy:
    """Chooses actions with a trained policy and keeps its core's state between calls.

    Its repr, and in a notebook its table, says what it is: environment, observation, actions, network, steps, score.

    Attributes:
        spec: the observation leaves that actions depend on (`spec.obs`), and the actions (`spec.action`).
        policy: the torch module.
        device: the policy's device.
        checkpoint: the checkpoint's path.
    """

    def __init__(
        self,
        policy: Policy,
        factory: EnvFactory,
        device: torch.device,
        *,
        deterministic: bool,
        seed: int,
        checkpoint: str,
        trained: Mapping[str, str] | None = None,
    ) -> None:
        """Takes a policy and the factory of its environments; `load_policy` finds them.

        Args:
            trained: facts for `describe`: environment, network, trained, score.
        """
        self._trained = dict(trained or {"environment": factory.spec.name})
        self.policy, self.device, self.checkpoint = policy, device, checkpoint
        self.spec = only(factory.spec, policy.actor_leaves)
        self._deterministic, self._seed = deterministic, seed
        self._parts = [part for part in getattr(factory, "parts", ()) if part.name in self.spec.obs]
        self._unread = factory.spec.obs.keys() - self.spec.obs.keys()
        self._mask: MaskSource | None = getattr(factory, "mask", None)
        """Where a Python environment's mask is."""
        if self._mask is not None and self._mask.path:
            self._unread |= {self._mask.describe().removeprefix("obs:")}
        self._space = None if getattr(factory, "several", True) else factory.action_space  # type: ignore[attr-defined]
        """The action space, if the environment is a Python one with one agent."""
        self.restart()

    def _given_mask(self, obs: Any, action_mask: Any) -> Any:
        """Returns the mask that was given, or the observation's. Raises UserError for one too many or missing."""
        if not self.spec.action_mask:
            if action_mask is not None:
                raise UserError(
                    f"action_mask was given, but {self.spec.name} has no action masks; leave it out"
                )
            return None
        found, source = action_mask, self._mask
        if found is None and source is not None and source.kind == "obs":
            name = source.describe().removeprefix("obs:")
            if isinstance(obs, Mapping) and name in obs:
                return obs[name]
            with suppress(ValueError):  # FieldError: the observation has none
                found = source.find(obs, None, None)
        if found is None:
            raise UserError(
                f"{self.spec.name} has action masks: give act(obs, action_mask=…), [n, {sum(self.spec.action.nvec)}] "
                "bool, True for legal choices"
            )
        return found

    def _legal(self, action_mask: Any, n: int) -> Array:
        """Returns the mask as [n, P] bool. Raises UserError for another form, or no legal choice."""
        given = _on_host(action_mask)
        try:
            legal = self._read_mask(given, n)
        except ValueError as error:  # FieldError
            raise UserError(str(error)) from None
        found = first_illegal(legal, None, self.spec)
        if found is not None:
            raise UserError(
                f"action_mask leaves agent {found[0]} no legal choice: allow at least one for each head"
            )
        return legal

    def _read_mask(self, given: Any, n: int) -> Array:
        from metta_fast.envs.actions.mask_values import MaskReader

        reader = self._mask.reader if self._mask is not None else MaskReader(self.spec.action.nvec)
        if n == 1:  # one agent's needs no axis n
            with suppress(ValueError):
                return np.array(reader.read(given, (), "action_mask")[None])
        return np.ascontiguousarray(reader.read(given, (n,), "action_mask"))

    def describe(self) -> dict[str, str]:
        """Returns what this policy is, as texts by name: environment, observation, actions, network, …"""
        leaves = [
            f"{name} [{', '.join(map(str, leaf.shape))}] {leaf.dtype}, {leaf.kind}"
            for name, leaf in self.spec.obs.items()
        ]
        chosen = sampled_or_likely(self._deterministic)
        told = dict(self._trained)
        found = {"environment": told.pop("environment"), "observation": "; ".join(leaves)}
        found |= {"actions": f"{_actions(self.spec.action)}; {chosen}"} | told
        return found | {"device": str(self.device), "checkpoint": self.checkpoint}

    def __repr__(self) -> str:
        facts = self.describe()
        environment = facts.pop("environment")
        return f"<LoadedPolicy for {environment}: " + "; ".join(f"{k} {v}" for k, v in facts.items()) + ">"

    def _repr_html_(self) -> str:
        """Returns a table for a notebook."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self.describe().items()
        )
        return f"<table>{rows}</table>"

    def restart(self) -> None:
        """Resets the core's state and the samples. New episodes begin, with any number of agents."""
        self._player: PolicyPlayer | None = None
        self._agents = 0

    def act(self, obs: Any, reset: Any = None, *, action_mask: Any = None) -> Any:
        """Returns the actions of n agents, [n, width], in the environment's numbering (`Discrete(n, start=k)`: k …).

        For an observation without the axis n, returns that agent's action, [width]. For a Python environment with one
        agent, returns an argument for its `step` (Discrete: an int; Box: its shape and dtype). Where its actions are a
        Dict or Tuple, n agents' are a dict or tuple of arrays [n, …].

        Args:
            obs: {leaf: [n, *shape]} in the dtypes of `spec.obs`, or the array of the only leaf, or a Python
                environment's own observation. Torch tensors work too. Leaves that only the value read in training may
                be left out.
            reset: [n] bool: True for agents whose episode begins with this observation; or one bool for all. None: no
                agent's (all begin after `restart`).
            action_mask: [n, P] bool, True for legal choices of all heads side by side ([P] for one agent), or in the
                environment's own form: only where the environment gives masks. May be left out where the mask is a
                leaf of `obs`.

        Raises:
            UserError: an observation or action mask of the wrong form, a mask that is missing or forbids all choices,
                or another number of agents than in the last call.
        """
        action_mask = self._given_mask(obs, action_mask)
        if isinstance(obs, Mapping):
            obs = {name: leaf for name, leaf in obs.items() if name not in self._unread}
        leaves, single = read_observation(obs, self.spec, self._parts)
        n = len(next(iter(leaves.values())))
        legal = None if action_mask is None else self._legal(action_mask, n)
        if self._player is None:
            self._player = PolicyPlayer(
                self.policy, self.spec, self.device, deterministic=self._deterministic, seed=self._seed
            )
            self._agents = n
        if n != self._agents:
            raise UserError(f"observations of {n} agents after {self._agents}: call restart() in between")
        action = self._player.choose(leaves, _begins(reset, n), None, legal)
        start = self.spec.action.start
        if single and self._space is not None:
            from metta_fast.envs.actions import decode_action

            return decode_action(self._space, self.spec.action, action[0])
        if self._space is not None:
            from metta_fast.envs.actions import ActionDecoder
            from metta_fast.envs.nested import is_nested

            if is_nested(self._space):
                return ActionDecoder(self._space).decode(action)
            if self.spec.action.kind == "box":
                return ActionDecoder(self._space).decode(action).reshape(n, -1)
        if start:
            action = action + np.array(start, action.dtype)
        return action[0] if single else action


def _network(config: PolicyConfig, policy: Policy) -> str:
    """Returns `mlp, width 128, lstm; 17,283 parameters`; a policy of a user's own by its name alone."""
    count = f"{sum(weight.numel() for weight in policy.parameters()):,} parameters"
    if ":" in config.name or "." in config.name:
        return f"{config.name}; {count}"
    core = "" if config.core == "none" else f", {config.core}"
    frames = "" if config.frame_stack == 1 else f", the last {config.frame_stack} observations"
    return f"{config.name}, width {config.hidden_size}{core}{frames}; {count}"


def _actions(action: ActionSpec) -> str:
    """Returns `one of 2`, `3 choices: one of 2, 7, 3`, `2 numbers from -1 to 1`, or choices and numbers."""
    parts = []
    if action.nvec:
        of, heads = ", ".join(map(str, action.nvec)), len(action.nvec)
        parts.append(f"one of {of}" if heads == 1 else f"{heads} choices: one of {of}")
    if action.low:
        parts.append(_numbers(action))
    return "; ".join(parts)


def _numbers(action: ActionSpec) -> str:
    """Returns `2 numbers from -1 to 1`."""
    count = len(action.low)
    lows, highs = {f"{low:g}" for low in action.low}, {f"{high:g}" for high in action.high}
    bounds = (
        f"from {lows.pop()} to {highs.pop()}" if len(lows) == len(highs) == 1 else "with bounds of their own"
    )
    return f"{count} number{'s' * (count > 1)} {bounds}"


def _on_host(mask: Any) -> Any:
    """Returns a mask with its torch tensors as NumPy arrays."""
    if isinstance(mask, Mapping):
        return {key: _on_host(part) for key, part in mask.items()}
    if isinstance(mask, (tuple, list)):
        return type(mask)(_on_host(part) for part in mask)
    return as_array(mask, "action_mask") if hasattr(mask, "detach") else mask


def _begins(reset: Any, n: int) -> Array:
    """Returns `act`'s argument reset as [n] bool."""
    if reset is None:
        return np.zeros(n, np.bool_)
    given = as_array(reset, "reset")
    if given.dtype != np.bool_:
        raise UserError(f"reset is {given.dtype}, expected bool: terminated | truncated of the step before")
    if given.shape not in ((), (n,)):
        raise UserError(f"reset has shape {given.shape}, expected ({n},): one for each agent")
    return np.array(np.broadcast_to(given, (n,)))
