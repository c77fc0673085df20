"""Tests the comparison of a compiled step with the plain one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from metta_fast.contracts.errors import UserError
from metta_fast.rollout.check_compiled import check_compiled


def layer(offset: float) -> tuple[nn.Linear, torch.Tensor]:
    """Values near 0 that are differences of terms near `offset`."""
    torch.manual_seed(0)
    made, rows = nn.Linear(64, 1, bias=False), torch.randn(256, 64)
    made.weight.data -= made.weight.data.mean()
    return made, rows + offset


@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_rounding_is_allowed_and_a_wrong_column_is_not(offset: float) -> None:
    made, rows = layer(offset)

    def plain() -> torch.Tensor:
        return made(rows)[:, 0]

    with torch.no_grad():
        exact = plain()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            other = (rows.bfloat16() @ made.weight[0].bfloat16()).float()
            noise = float((plain().float() - exact).norm() / exact.norm())
            assert noise < 0.01 if offset == 0 else noise > 0.02
            check_compiled(other, plain)
            check_compiled(exact, plain)
            wrong = exact + exact.norm() / 16 * (0.2 + 5 * noise)
            with pytest.raises(UserError, match=r"trainer\.compile=false"):
                check_compiled(wrong, plain)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(UserError, match="changes the policy"):
        check_compiled(torch.full((3,), float("nan")), lambda: torch.ones(3))
