"""torch.optim.Adam without torch._dynamo, whose import takes some seconds that only torch.compile needs.

torch's optimizers import it in each of the methods below, to tell a compiler that none is running to leave them out.
"""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch


class Adam(torch.optim.Adam):
    """The same numbers, the same states. Not for use inside torch.compile."""

    add_param_group: Any = unwrap(torch.optim.Adam.add_param_group)
    zero_grad: Any = unwrap(torch.optim.Adam.zero_grad)
    state_dict: Any = unwrap(torch.optim.Adam.state_dict)
    load_state_dict: Any = unwrap(torch.optim.Adam.load_state_dict)
    step: Any = torch.no_grad()(unwrap(torch.optim.Adam.step))
