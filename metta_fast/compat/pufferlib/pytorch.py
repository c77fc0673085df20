"""Provides what policies call of pufferlib.pytorch: emulated observations by leaf, sampling, initial weights.

    dtype = pufferlib.pytorch.nativize_dtype(env.emulated)                        # once
    obs = pufferlib.pytorch.nativize_tensor(observations, dtype)                  # {"camera": [N, 84, 84], …}
    action, logprob, entropy = pufferlib.pytorch.sample_logits(logits)

A leaf is (torch dtype, shape, offset, size), the last two in elements of the emulated dtype. A tuple's are f0, f1, ….
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal

from metta_fast.compat.pufferlib.errors import APIUsageError

NativeDType = tuple[torch.dtype, tuple[int, ...], int, int] | dict[str, Any]

numpy_to_torch_dtype_dict = {
    np.dtype(name): getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "uint64", "uint32", "uint16", "uint8"),
        *("int64", "int32", "int16", "int8", "bool"),
    )
}


def nativize_dtype(emulated: Mapping[str, Any]) -> NativeDType:
    """Returns where each leaf is in an emulated observation.

    Args:
        emulated: the attribute of an emulated environment or its vector.
    """
    return _places(emulated["emulated_observation_dtype"], emulated["observation_dtype"].itemsize, 0)


def _places(struct: np.dtype, unit: int, at: int) -> NativeDType:
    """Returns the place of each leaf of a struct that begins at byte `at`; unit: bytes of the emulated dtype."""
    if struct.fields is not None:
        return {name: _places(field[0], unit, at + field[1]) for name, field in struct.fields.items()}
    shape = struct.shape or (1,)
    return numpy_to_torch_dtype_dict[struct.base], shape, at // unit, struct.itemsize // unit


def nativize_tensor(observation: Tensor, native_dtype: NativeDType) -> Any:
    """Returns the leaves of observations [N, size], each [N, *shape]; of an observation without leaves, itself."""
    if isinstance(native_dtype, dict):
        return {name: nativize_tensor(observation, part) for name, part in native_dtype.items()}
    dtype, shape, offset, size = native_dtype
    part = observation.reshape(len(observation), -1).narrow(1, offset, size)
    if part.dtype is not dtype:
        if part.dtype is not torch.uint8:
            raise APIUsageError(
                f"the observation is {part.dtype}, and its space says {dtype}: give it uncast"
            )
        part = part.contiguous().view(dtype)
    return part.reshape(len(observation), *shape)


def nativize_observation(observation: Tensor, emulated: Mapping[str, Any]) -> Any:
    """Returns the leaves of observations, as `nativize_tensor` does."""
    return nativize_tensor(observation, nativize_dtype(emulated))


def flattened_tensor_size(native_dtype: NativeDType) -> int:
    """Returns the number of numbers in all leaves of one observation."""
    if isinstance(native_dtype, dict):
        return sum(flattened_tensor_size(part) for part in native_dtype.values())
    return prod(native_dtype[1])


def layer_init(layer: Any, std: float = 2**0.5, bias_const: float = 0.0) -> Any:
    """Gives a layer orthogonal weights of this gain and a constant bias. Returns the layer."""
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


def sample_logits(logits: Any, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (action, log-probability [N], entropy), drawn unless `action` is given.

    Args:
        logits: [N, choices]; one such tensor for each head; or a Normal of [N, size].
        action: [N]; [N, heads]; [N, size].
    """
    if isinstance(logits, Normal):
        n = len(logits.loc)
        action = logits.sample().view(n, -1) if action is None else action
        return action, logits.log_prob(action.view(n, -1)).sum(1), logits.entropy().view(n, -1).sum(1)
    heads: Sequence[Tensor] = [logits] if isinstance(logits, Tensor) else logits
    kinds = [Categorical(logits=head) for head in heads]
    n = len(heads[0])
    given = torch.stack([kind.sample() for kind in kinds], 1).int() if action is None else action.view(n, -1)
    logprob = torch.stack([kind.log_prob(given[:, i]) for i, kind in enumerate(kinds)]).sum(0)
    entropy = torch.stack([kind.entropy() for kind in kinds]).sum(0)
    return (given[:, 0] if isinstance(logits, Tensor) else given), logprob, entropy
