"""Implements what vectors of batched environments share: the buffers, who may be used, errors, statistics.

Place in the flow: host_vector.py and tensor_vector.py inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from metta_fast.config.extension import described as in_words
from metta_fast.contracts.device_vector import DeviceRows, DeviceVector, check_buffers
from metta_fast.contracts.env import EnvError, EnvSpec
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.vector import VectorError
from metta_fast.envs.spaces import FieldError


class BatchedVector(DeviceVector):
    """Steps N environments that are one object (metta_fast/contracts/device_vector.py).

    Not for CUDA graphs: the host calls the environments in every row.
    """

    buffers: DeviceRows
    sums: Any
    """Has `means()` (sums.py)."""

    def __init__(
        self, spec: EnvSpec, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> None:
        self.spec, self.device = spec, device
        self.num_envs = self.num_agents = num_envs
        self.first_env, self.total_envs = first_env, total_envs
        self._ready = False
        self._told: set[str] = set()
        self._closed = False

    @property
    def ready(self) -> bool:
        return self._ready

    def attach(self, buffers: DeviceRows) -> None:
        check_buffers(buffers, self.num_agents, self.device)
        self.buffers = buffers
        self._ready = False

    def build_ahead(self) -> None:
        """Does nothing: `build_every` is 0."""

    def info_stats(self) -> dict[str, float]:
        """Returns the means of what the environments reported about episodes that ended since the last call."""
        return self.sums.means()

    def notes(self) -> list[str]:
        new = {kind: text for kind, text in self._found_notes().items() if kind not in self._told}
        self._told |= new.keys()
        return list(new.values())

    def _found_notes(self) -> dict[str, str]:
        return {}

    def _guard(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the environments. Raises EnvError for what they raise, and for values of another form."""
        try:
            return call(*arguments)
        except BaseException as error:
            if is_interrupt(error):
                raise
            if isinstance(error, FieldError):
                raise EnvError(f"{self.spec.name} gave a wrong value: {error}") from None
            raise EnvError(f"{self.spec.name} raised {in_words(error)}") from error

    def close(self) -> None:
        """Closes the environments. Raises VectorError if that fails: nothing depends on it any more."""
        if self._closed:
            return
        self._closed = True
        try:
            self._guard(self._close)
        except EnvError as error:
            raise VectorError(str(error)) from error

    def _close(self) -> None:
        """Closes the environments."""
        raise NotImplementedError

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Returns a function that gives an empty state: these environments cannot be saved."""
        return dict

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise ValueError(f"expected no state: the environments of {self.spec.name} cannot be saved")
