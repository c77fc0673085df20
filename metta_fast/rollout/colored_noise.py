"""Correlates exploration noise in time, so that continuous actions explore farther than by independent draws.

The power at frequency f is proportional to f^−β: β = 0 is white, 1 pink, 2 red. Each number stays standard normal, so
the policy's log-probabilities hold as they are (Hollenstein et al. 2024, arXiv 2312.11091; Timmer & König 1995).
"""

from __future__ import annotations

import torch
from torch import Tensor


def color(noise: Tensor, beta: float) -> None:
    """Correlates white noise [T, …], float32 and standard normal, along its first axis, in place. β = 0: no change."""
    rows = noise.shape[0]
    if beta == 0 or rows < 2:
        return
    frequency = torch.fft.rfftfreq(rows, device=noise.device)
    frequency[0] = frequency[1]  # the mean is as strong as the slowest wave
    gain = frequency.pow(-beta / 2)
    twice = torch.full_like(gain, 2.0)  # a real signal's negative frequencies
    twice[0] = 1.0
    if rows % 2 == 0:
        twice[-1] = 1.0
    gain /= ((twice * gain.square()).sum() / rows).sqrt()
    shape = (-1, *[1] * (noise.ndim - 1))
    noise.copy_(torch.fft.irfft(torch.fft.rfft(noise, dim=0) * gain.view(shape), n=rows, dim=0))
