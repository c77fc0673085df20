"""Provides torch.optim.Adam without importing torch._dynamo, which takes seconds and is needed by torch.compile only.

torch decorates the methods below so that a compiler skips them, and each decorator imports torch._dynamo.
"""

from __future__ import annotations

from inspect import unwrap

import torch


class Adam(torch.optim.Adam):
    """Computes the same numbers and keeps the same state as torch's Adam. Do not use it inside torch.compile."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    zero_grad = unwrap(torch.optim.Adam.zero_grad)
    state_dict = unwrap(torch.optim.Adam.state_dict)
    load_state_dict = unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
