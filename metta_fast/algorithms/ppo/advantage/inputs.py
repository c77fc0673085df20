"""Defines the inputs of every advantage implementation, from the buffers (tensors) or a caller (NumPy arrays)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from metta_fast.buffers.rollout import Buffers
    from metta_fast.config.keys import TrainerConfig

A = TypeVar("A")
"""torch.Tensor, or a NumPy array."""
ARRAYS = 7
"""The first fields of Inputs are arrays, the others settings."""


class Inputs(NamedTuple, Generic[A]):
    """Holds C-contiguous arrays, [T, N] unless another shape is given, and settings. The package's docstring has the
    formula."""

    value: A
    """[T+1, N] float32."""
    reward: A
    """float32."""
    terminal: A
    """bool."""
    truncation: A
    """bool."""
    mask: A
    """[T, N] or [T+1, N] bool."""
    ratio: A | None = None
    """float32; None: GAE."""
    bootstrap: A | None = None
    """float32, V of the final observation at truncations; None: row t+1 holds the final observation."""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    rho_clip: float = 1.0
    c_clip: float = 1.0
    has_final_obs: bool = True
    """False: a truncation does not bootstrap."""

    @classmethod
    def of(cls, buffers: Buffers, config: TrainerConfig, has_final_obs: bool = True) -> Inputs[Any]:
        """Returns the inputs of a rollout, as views of the buffers."""
        b = buffers
        return Inputs(
            b.value,
            b.reward,
            b.terminal,
            b.truncation,
            b.mask,
            b.ratio if config.advantage == "vtrace" else None,
            b.bootstrap,
            config.gamma,
            config.gae_lambda,
            config.vtrace_rho_clip,
            config.vtrace_c_clip,
            has_final_obs,
        )

    def with_arrays(self, change: Callable[[A], Any]) -> Inputs[Any]:
        """Returns the same settings with every array changed."""
        arrays: dict[str, Any] = dict(zip(self._fields[:ARRAYS], self[:ARRAYS]))
        return self._replace(**{name: change(array) for name, array in arrays.items() if array is not None})
