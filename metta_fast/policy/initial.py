"""Initialises layers: orthogonal weights of a given gain, biases 0 (Saxe et al. 2014, arXiv 1312.6120)."""

from __future__ import annotations

import math

from torch import nn

RELU = math.sqrt(2.0)
"""Gain before a ReLU."""
SMALL = 0.01
"""Gain of the heads: at first all actions are about equally likely and all values near 0. (With a gain of 1, the
value's initial noise hides the grid's rewards of 0.02.)"""


def orthogonal_linear(inputs: int, outputs: int, gain: float, bias: bool = True) -> nn.Linear:
    """Makes a linear layer with orthogonal weights of this gain and zero bias."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
