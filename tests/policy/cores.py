"""What every recurrent core must do: checks that the tests of the LSTM and of minGRU share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def check_row_by_row(core: Any, x: Tensor, state: Tensor, reset: Tensor) -> None:
    """All rows at once equal one row at a time."""
    together, last = core(x, state, reset)
    with torch.inference_mode():
        for t in range(len(x)):
            out, state = core(x[t : t + 1], state, reset[t : t + 1])
            torch.testing.assert_close(out[0], together[t])
    torch.testing.assert_close(last, state)


def check_a_reset_forgets(core: Any, x: Tensor, state: Tensor, *, same_bits: bool) -> None:
    """A reset in row 2 forgets everything before it."""
    reset = torch.zeros(x.shape[:2], dtype=torch.bool)
    reset[2] = True
    out, last = core(x, state, reset)
    fresh, fresh_last = core(x[2:], torch.zeros_like(state), torch.zeros_like(reset[2:]))
    for found, wanted in ((out[2:], fresh), (last, fresh_last)):
        if same_bits:
            assert torch.equal(found, wanted)
        else:
            torch.testing.assert_close(found, wanted)
