"""Steps environments of gymnax's interface, written in JAX, on the learner's device; tensors pass by dlpack.

    actions (torch) ─dlpack─► programs.py, one compiled function ─dlpack─► obs, reward, flags (torch)

One environment gives `reset(key, params) → (obs, state)` and `step(key, state, action, params)`. Where its class has
`step_env` and `reset_env`, as gymnax's and Craftax's have, those are called: they give the last observation, and a
costly reset (a new world) is paid for once an episode, ahead of its beginning.

The keys of environment i depend on the seed, its global id, and the number of the step or of the episode alone:

    key(n) = fold_in(fold_in(fold_in(PRNGKey(low half of the seed), high half), i), n)
    step n uses the first half of split(key(n)), episode n = 0, 1, … begins by the second
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.experimental.compilation_cache import compilation_cache
from torch import Tensor

from metta_fast.contracts.errors import UserError
from metta_fast.envs.batched.in_jax.programs import EVERY, LAG, Run, compiled
from metta_fast.envs.batched.in_jax.rules import Rules
from metta_fast.envs.batched.torch_source import Step
from metta_fast.runtime import kernel_caches

ALIGNMENT = 64
"""Bytes. A row of a rollout need not begin there."""
CHUNKS = 16
"""A chunk of environments that are reset together is this part of all."""


class JaxSource:
    """Steps N environments (torch_source.Source), whose state can be saved.

    Args:
        names: leaves of the observation that are read.
        final: whether last observations are read.
    """

    def __init__(
        self,
        rules: Rules,
        names: Sequence[str],
        num_envs: int,
        device: torch.device,
        first_env: int,
        *,
        final: bool = True,
    ) -> None:
        self.rules, self.size, self.first_env = rules, num_envs, first_env
        self.notes = dict(rules.notes)
        self.where = _device(device)
        if device.type == "cuda":
            keep_compiled()
        self.programs = compiled(rules, max(1, num_envs // CHUNKS), device.type == "cuda")
        self._names, self._final = tuple(names), final
        self.sums = self
        self.run: Any = None

    def reset(self, seed: int, *, stagger: bool) -> Any:
        """Starts all environments. `stagger` has no effect."""
        with jax.default_device(self.where):
            key = jax.random.fold_in(jax.random.PRNGKey(seed & 0xFFFFFFFF), seed >> 32)
            ids = jnp.arange(self.first_env, self.first_env + self.size)
            self._keys = self._here(jax.vmap(jax.random.fold_in, (None, 0))(key, ids))
            episode = np.zeros(self.size, np.uint32)
            obs, state = self.programs.begin(self._keys, self._here(episode))
            nobody = np.zeros(self.size, bool)
            self._go_on(state, episode, ~nobody, nobody, 0)
        self._pending: Any = None
        return self._torch(obs)

    def _go_on(self, state: Any, episode: Any, ready: Any, waiting: Any, number: int) -> None:
        """Takes the environments' state; builds the next episodes. They depend on the episode's number alone, so those
        that are not ready are built, too."""
        self.number = number
        ready, waiting = self._here(ready), self._here(waiting)
        totals = self._here(np.zeros(len(self.rules.numbers) + 1, np.float32))
        self.run = Run(state, self._here(episode), ready, waiting, self._here(np.uint32(number)), totals)
        self._following = None
        if self.programs.pooled:
            self._following = self.programs.begin(self._keys, self._here(episode + np.uint32(1)))

    def _here(self, array: Any) -> Any:
        return jax.device_put(array, self.where)

    def step(self, actions: Tensor) -> Step:
        """Steps all environments, and builds next episodes where some are due."""
        given = jax.dlpack.from_dlpack(_aligned(actions))
        self.run, shown = self.programs.step(self.run, self._following, self._keys, given)
        self.number += 1
        if self.programs.pooled:
            self._build()
        reward, flags = torch.from_dlpack(shown.reward), torch.from_dlpack(shown.flags).view(torch.bool)
        terminal, truncation, begins, waiting = flags
        final = self._torch(shown.final) if self._final and shown.final is not None else None
        return Step(self._torch(shown.obs), reward, terminal, truncation, final, begins, waiting)

    def _build(self) -> None:
        place = self.number % EVERY
        if place == EVERY - LAG:
            self._pending = self.programs.mark(self.run)
            self._pending[1].copy_to_host_async()
        elif place == 0 and self._pending is not None:
            pending, count = self._pending
            self._pending = None
            for at in range(0, int(count), self.programs.chunk):
                self.run, self._following = self.programs.refill(
                    self.run, self._following, pending, self._keys, np.int32(at)
                )

    def _torch(self, leaves: dict[str, Any]) -> dict[str, Tensor]:
        return {name: torch.from_dlpack(leaves[name]) for name in self._names}

    def means(self) -> dict[str, float]:
        """Returns the means of the numbers in info over the episodes that ended since the last call (sums.Sums)."""
        if self.run is None:
            return {}
        *totals, count = np.asarray(self.run.totals, np.float64).tolist()
        if not count:
            return {}
        self.run = self.run._replace(totals=jnp.zeros_like(self.run.totals))
        means = {name: total / count for name, total in zip(self.rules.numbers, totals)}
        return {name: mean for name, mean in means.items() if np.isfinite(mean)}

    def state(self) -> Callable[[], dict[str, Any]]:
        """Copies the environments' state on the device. Returns a function that gives it as NumPy arrays."""
        run = jax.tree_util.tree_map(jnp.copy, self.run)
        keys, number, pack = self._keys, self.number, self.programs.pack
        pending = None if self._pending is None else self._pending[0]

        def state() -> dict[str, Any]:
            arrays = [np.asarray(array) for array in run.state]
            found = {"leaves": jax.tree_util.tree_leaves(pack.split(arrays)), "number": number}
            found |= {name: np.asarray(getattr(run, name)) for name in ("episode", "ready", "waiting")}
            return {
                **found,
                "keys": np.asarray(keys),
                "pending": np.zeros(0, bool) if pending is None else np.asarray(pending),
            }

        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError for that of another environment, or of an earlier version."""
        shapes, tree = jax.tree_util.tree_flatten(self.rules.state)
        found = state["leaves"]
        wanted = [((self.size, *x.shape), x.dtype) for x in shapes]
        if [(np.shape(x), np.asarray(x).dtype) for x in found] != wanted or "episode" not in state:
            raise ValueError("the state of another environment: expected arrays of other shapes")
        with jax.default_device(self.where):
            self._keys = self._here(np.asarray(state["keys"]))
            packed = self.programs.pack.join(tree.unflatten([self._here(x) for x in found]))
            episode, ready, waiting = (np.asarray(state[name]) for name in ("episode", "ready", "waiting"))
            self._go_on(packed, episode, ready, waiting, int(state["number"]))
        pending = np.asarray(state["pending"])
        self._pending = (self._here(pending), int(pending.sum())) if len(pending) else None

    def close(self) -> None:
        """Frees the states."""
        self.run = self._following = self._keys = self._pending = None


def keep_compiled() -> None:
    """Has JAX keep what it compiles on disk, unless the user has said where or that it shall not."""
    (name, variable), *_ = kernel_caches.JAX.items()
    if jax.config.jax_compilation_cache_dir is not None or not jax.config.jax_enable_compilation_cache:
        return
    if folder := kernel_caches.folder_of(name, variable):
        jax.config.update("jax_compilation_cache_dir", folder)
        compilation_cache.reset_cache()  # it has looked for a folder, and found none, if anything was compiled before


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
