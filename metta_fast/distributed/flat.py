"""Keeps all gradients side by side in memory, so that one collective sums them over the processes.

    flat = Flat(parameters, extra=10, group=group)   # each parameter's .grad is a view from here on
    loss.backward()
    flat.extra[:] = …                                # small numbers that travel along
    flat.sum_()                                      # over all processes, gradients and extra
    flat.zero_()

Place in the flow: an algorithm's step owns one if the run has several processes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metta_fast.distributed.group import Group


class Flat:
    """Owns the gradients of `parameters`, in one buffer for each dtype.

    Attributes:
        extra: [extra] float32, summed with the gradients; the caller writes all of it before `sum_`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, extra: int, group: Group) -> None:
        self._group = group
        kinds: dict[torch.dtype, list[nn.Parameter]] = {torch.float32: []}
        for parameter in parameters:
            kinds.setdefault(parameter.dtype, []).append(parameter)
        device = parameters[0].device
        self._buffers: list[Tensor] = []
        self._gradients: list[Tensor] = []
        for dtype, own in kinds.items():
            sizes = [_padded(parameter.numel()) for parameter in own]
            more = extra if dtype == torch.float32 else 0
            buffer = torch.zeros(sum(sizes) + more, dtype=dtype, device=device)
            start = 0
            for parameter, size in zip(own, sizes):
                parameter.grad = buffer[start : start + parameter.numel()].view_as(parameter)
                start += size
            if dtype == torch.float32:
                self.extra = buffer[start:]
            self._buffers.append(buffer)
            self._gradients.append(buffer[:start])

    def sum_(self) -> None:
        """Sums gradients and extra over all processes."""
        for buffer in self._buffers:
            if buffer.numel():
                self._group.sum_(buffer)

    def zero_(self) -> None:
        """Clears the gradients; `extra` stays."""
        for gradients in self._gradients:
            gradients.zero_()


def _padded(size: int) -> int:
    """Returns the size rounded up so that each gradient begins at a multiple of 16 bytes, as kernels expect."""
    return (size + 3) // 4 * 4
