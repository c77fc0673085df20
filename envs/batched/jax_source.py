"""Steps environments of gymnax's interface, written in JAX, on the learner's device; tensors pass by dlpack.

    actions (torch) ─dlpack─► jit( vmap(step) ─► reset those that ended ) ─dlpack─► obs, reward, flags (torch)

One environment gives `reset(key, params) → (obs, state)` and `step(key, state, action, params)`. Where its class has
`step_env` and `reset_env`, as gymnax's and Craftax's have, those are called: they give the last observation, and only
environments that have ended are reset, in chunks, so that a costly reset (a new world) is paid for once an episode.

The keys of environment i depend on the seed, its global id and its step alone:

    key = fold_in(fold_in(fold_in(PRNGKey(low half of the seed), high half), i), number of the step)
    step key, reset key = split(key)               a reset at the start uses `key` of step 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.errors import UserError
from metta_fast.envs.batched.described import Described
from metta_fast.envs.batched.jax_step import Rules, compiled
from metta_fast.envs.batched.torch_source import Step

ALIGNMENT = 64
"""Bytes. A row of a rollout need not begin there."""
CHUNKS = 16
"""A chunk of environments that are reset together is this part of all."""


class Totals:
    """Keeps sums on the device (jax_step.Found.totals), and gives means as sums.Sums does."""

    totals: Any = None

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def begin(self) -> None:
        self.totals = jnp.zeros(len(self._names) + 1, jnp.float32)

    def means(self) -> dict[str, float]:
        """Returns the means since the last call."""
        found = [] if self.totals is None else np.asarray(self.totals, np.float64).tolist()
        if not found or not found[-1]:
            return {}
        self.totals = jnp.zeros_like(self.totals)
        means = {name: total / found[-1] for name, total in zip(self._names, found)}
        return {name: mean for name, mean in means.items() if np.isfinite(mean)}


class JaxSource:
    """Steps N environments (torch_source.Source), whose state can be saved."""

    def __init__(
        self, rules: Rules, about: Described, num_envs: int, device: torch.device, first_env: int
    ) -> None:
        self.rules, self.about, self.size, self.first_env = rules, about, num_envs, first_env
        self.sums = Totals(rules.numbers)
        self.notes = dict(rules.notes)
        self.where = _device(device)
        self._begin, self._step = compiled(rules, max(1, num_envs // CHUNKS))

    def reset(self, seed: int, *, stagger: bool) -> Any:
        """Starts all environments. `stagger` has no effect."""
        with jax.default_device(self.where):
            key = jax.random.fold_in(jax.random.PRNGKey(seed & 0xFFFFFFFF), seed >> 32)
            ids = jnp.arange(self.first_env, self.first_env + self.size)
            self.keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
            self.number = 0
            obs, self.envs = self._begin(self.keys)
            self.sums.begin()
        return self._torch(obs)

    def step(self, actions: Tensor) -> Step:
        self.number += 1
        given = jax.dlpack.from_dlpack(_aligned(actions))
        with jax.default_device(self.where):
            found = self._step(self.envs, self.sums.totals, self.keys, np.uint32(self.number), given)
        self.envs, self.sums.totals = found.state, found.totals
        reward, terminal, truncation = (
            torch.from_dlpack(x) for x in (found.reward, found.terminal, found.truncation)
        )
        final = None if found.final is None else self._torch(found.final)
        return Step(self._torch(found.obs), reward, terminal.bool(), truncation.bool(), final)

    def _torch(self, leaves: dict[str, Any]) -> dict[str, Tensor]:
        return {name: torch.from_dlpack(leaf) for name, leaf in leaves.items()}

    def state(self) -> Callable[[], dict[str, Any]]:
        """Copies the environments' state on the device. Returns a function that gives it as NumPy arrays."""
        leaves = [jnp.copy(leaf) for leaf in jax.tree_util.tree_leaves(self.envs)]
        keys, number = self.keys, self.number
        return lambda: {
            "leaves": [np.asarray(leaf) for leaf in leaves],
            "keys": np.asarray(keys),
            "number": number,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError for that of another environment."""
        shapes, tree = jax.tree_util.tree_flatten(
            jax.eval_shape(self.rules.begin, jnp.asarray(state["keys"]))[1]
        )
        found = state["leaves"]
        if [(np.shape(x), np.asarray(x).dtype) for x in found] != [(s.shape, s.dtype) for s in shapes]:
            raise ValueError("the state of another environment: expected arrays of other shapes")
        with jax.default_device(self.where):
            self.envs = tree.unflatten([jax.device_put(x, self.where) for x in found])
            self.keys = jax.device_put(np.asarray(state["keys"]), self.where)
            self.sums.begin()
        self.number = int(state["number"])

    def close(self) -> None:
        """Frees the states."""
        self.envs = self.keys = None


def _aligned(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy: XLA reads memory that begins at whole multiples of ALIGNMENT."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _device(device: torch.device) -> Any:
    """Returns JAX's name of the learner's device. Raises UserError if JAX does not have it."""
    kind = "gpu" if device.type == "cuda" else "cpu"
    try:
        return jax.devices(kind)[device.index or 0]
    except (RuntimeError, IndexError) as error:
        raise UserError(
            f"the learner is on {device}, where the installed JAX {jax.__version__} cannot compute; install JAX for "
            "this GPU (jax[cuda13] or jax[cuda12]), or give trainer.device=cpu"
        ) from error
