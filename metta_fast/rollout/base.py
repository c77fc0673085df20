"""Implements the parts that all rollouts share: seeds, noise, the held row T, starting, forgetting and resuming.

Place in the flow: rollout.py (blocks of CPU environments) and device_rollout.py (environments on the policy's device)
inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.contracts.vector import VectorEnv
from metta_fast.distributed.group import current
from metta_fast.policy.base import Policy
from metta_fast.rollout.colored_noise import color
from metta_fast.runtime.keyed_random import NOISE, Keyed, env_seed
from metta_fast.runtime.state_tensors import tensor
from metta_fast.runtime.timer import Timer
from metta_fast.storage.altered import entry

V = TypeVar("V", VectorEnv, DeviceVector)


class Collector(Protocol):
    """Declares what an algorithm needs of a rollout."""

    @property
    def held(self) -> bool:
        """False: the next `collect` resets the environments first."""

    def collect(self, epoch: int, rows: int | None = None) -> None:
        """Fills the buffers with one rollout.

        Args:
            rows: of each agent that are needed, 1 … horizon; None: all. A rollout that cannot be shortened collects
                all of them.
        """

    def rehearse(self) -> None:
        """Runs the host's part of a rollout, so that all kernels are compiled. Changes no environment."""

    def forget(self) -> None:
        """Zeroes the core's state: the next `collect` resets the environments."""

    def state_dict(self) -> dict[str, Tensor]:
        """Returns a copy of the core's state that goes with the held row."""

    def load_state_dict(self, state: dict[str, Tensor]) -> bool:
        """Continues from the vector's own loaded state. Returns False if the vector holds no state."""


class RolloutBase(Generic[V]):
    """Keeps the environments and the core's state going from epoch to epoch."""

    def __init__(
        self,
        vec: V,
        policy: Policy,
        buffers: Buffers,
        *,
        device: torch.device,
        seed: int,
        autocast: Callable[[], AbstractContextManager],
        timer: Timer,
        noise_color: float = 0.0,
    ) -> None:
        """noise_color: β of the noise of continuous actions (colored_noise.py); 0: white."""
        self.vec: V = vec
        self.buffers, self.device, self.timer = buffers, device, timer
        self.policy = policy
        self.seed, self.noise_color = seed, noise_color
        self._autocast = autocast
        self._keyed = Keyed(seed, device)
        self._noise = torch.empty((buffers.horizon, buffers.num_agents, vec.spec.action.width), device=device)
        self._held = False
        """True: row T is held and becomes the next epoch's row 0. False: the environments are reset first."""

    @property
    def held(self) -> bool:
        """False: the next `collect` resets the environments first."""
        return self._held

    def rehearse(self) -> None:
        """Does nothing: a rollout without kernels has none to compile."""

    def forget(self) -> None:
        """Zeroes the core's state: the environments are about to be reset."""
        self._held = False
        self._zero_state()

    def _zero_state(self) -> None:
        raise NotImplementedError

    def _reset_environments(self, epoch: int) -> None:
        self.forget()
        self.vec.async_reset(env_seed(self.seed, epoch), stagger=self.vec.spec.stagger)

    def _draw_noise(self, epoch: int) -> None:
        """Draws the epoch's noise, keyed by (seed, epoch) and laid out by agent."""
        generator, group = self._keyed(NOISE, epoch), current()
        noise = self._noise
        if group.world > 1:  # that of all processes' agents, of which this one takes its own
            horizon, agents, width = noise.shape
            noise = noise.new_empty(horizon, agents * group.world, width)
        if self.vec.spec.action.kind == "discrete":
            noise.uniform_(generator=generator)
        else:
            noise.normal_(generator=generator)
        if noise is not self._noise:
            first = group.rank * self.buffers.num_agents
            self._noise.copy_(noise[:, first : first + self.buffers.num_agents])
        if self.vec.spec.action.kind != "discrete":
            color(self._noise[..., len(self.vec.spec.action.nvec) :], self.noise_color)

    # ---- state ----

    def state_dict(self) -> dict[str, Tensor]:
        """Returns a copy of the core's state [layers, N, H] that goes with the held row."""
        return {"state": self._state_copy()}

    def load_state_dict(self, state: dict[str, Tensor]) -> bool:
        """Continues from the vector's own loaded state.

        Returns:
            False: the vector holds no state, so the next `collect` resets the environments.
        """
        self.forget()
        if not self._vector_holds():
            return False
        key = "rollout.core.state"
        own = self._state_copy()
        self._take_state(tensor(entry(state, "state", "rollout.core."), key, own.shape, like=own.dtype))
        self._held = True
        return True

    def _state_copy(self) -> Tensor:
        raise NotImplementedError

    def _take_state(self, state: Tensor) -> None:
        raise NotImplementedError

    def _vector_holds(self) -> bool:
        """Returns whether a state was loaded into the vector."""
        raise NotImplementedError
