"""Compares the rollout's compiled step with the plain one, once, on the first real rows.

What a compiler gets wrong is not seen in training: rollout and update are wrong alike, the policy learns on what it
is shown, and is lost where it runs uncompiled (an evaluation, another machine).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from metta_fast.contracts.errors import UserError

LIMIT = 0.02
"""‖compiled − plain‖ / ‖plain‖ of the values. Rounding in bf16 makes 0.004 for the grid; one byte of the 387 that
saturates at 127 makes 0.03 to 0.05."""
ROUNDING = 4
"""Where values are small differences of large terms, rounding makes more: this many times what it makes in the plain
form alone is allowed."""


def check_compiled(compiled: Tensor, plain: Callable[[], Tensor]) -> None:
    """Compares the values [n] that the two forms of a rollout's step give for the same rows.

    Args:
        plain: computes the values in the plain form, in the caller's autocast. Where they differ it is called again,
            without autocast.

    Raises:
        UserError: they differ by more than rounding; the cure is trainer.compile=false.
    """
    expected = plain().double()
    norm = torch.linalg.vector_norm(expected).clamp(min=torch.finfo(torch.float32).tiny)
    difference = float(torch.linalg.vector_norm(compiled.double() - expected) / norm)
    if difference <= LIMIT:
        return
    with torch.autocast(compiled.device.type, enabled=False):
        exact = plain().double()
    limit = max(LIMIT, ROUNDING * float(torch.linalg.vector_norm(expected - exact) / norm))
    if not difference <= limit:
        raise UserError(
            f"torch.compile changes the policy: its values differ by {difference:.2g} (relative) from those of "
            f"the same policy uncompiled, expected at most {limit:.2g}; give trainer.compile=false, or another torch"
        )
