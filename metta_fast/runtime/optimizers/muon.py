"""Steps hidden matrices by Muon and all other weights by AdamW, without waiting for the device.

With the gradient G, momentum μ, learning rate η and weight decay λ, for a weight W of shape [A, B]:

    M ← μ·M + (1 − μ)·G            momentum
    O = orthogonal(μ·M + (1 − μ)·G)      Nesterov's look ahead, then every singular value near 1
    W ← W − η·λ·W − 0.2·√max(A, B)·η·O

`orthogonal` is five steps of a Newton–Schulz iteration in bf16. The factor 0.2·√max(A, B) gives a step the root mean
square of AdamW's, so trainer.learning_rate means the same for both.

torch.optim.Muon computes the same; it reads its learning rate on the host, so a CUDA graph cannot capture it, and it
has no flag to skip a step. Sources: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon), Liu et al. 2025
(arXiv:2502.16982) for the factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.runtime.adam import Adam

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the iteration X ← a·X + (b·XXᵀ + c·(XXᵀ)²)·X: steep at 0, so that small singular values rise fast."""
ITERATIONS = 5
LEAST_NORM = 1e-7
"""A gradient's norm counts as at least this."""
ADAMW_RMS = 0.2
"""Root mean square of an AdamW step in units of the learning rate."""


def orthogonal(x: Tensor) -> Tensor:
    """Returns about U·Vᵀ [A, B] bf16 of x = U·S·Vᵀ [A, B]: its singular values are within 0.7 … 1.2."""
    tall = x.shape[0] > x.shape[1]
    y = x.bfloat16()
    y = y.T if tall else y
    y = y / y.norm().clamp(min=LEAST_NORM)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = y @ y.T
        y = torch.addmm(y, torch.addmm(gram, gram, gram, beta=b, alpha=c), y, beta=a)
    return y.T if tall else y


class Muon(Adam):
    """Muon over hidden matrices, AdamW over tables, output layers and all other weights; each kind is one group.

    `found_inf` ([] float32), if set: above 0, a step changes neither weights nor state.
    """

    found_inf: Tensor | None = None

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        outer: Sequence[Tensor] = (),
        *,
        lr: float | Tensor,
        momentum: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        fused: bool = True,
        capturable: bool = False,
    ) -> None:
        """Makes the groups.

        Args:
            outer: the matrices that are embedding tables or output layers.
            weight_decay: of parameters with two dimensions or more.
        """
        last = {id(p) for p in outer}
        hidden = [p for p in parameters if p.dim() == 2 and id(p) not in last]
        groups: list[dict[str, Any]] = [
            {"params": hidden, "momentum": momentum},
            {"params": [p for p in parameters if p.dim() > 2 or (p.dim() == 2 and id(p) in last)]},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        super().__init__(
            [group for group in groups if group["params"]],
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            fused=fused,
            capturable=capturable,
            decoupled_weight_decay=True,
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Steps with the current gradients; parameters without one stay."""
        assert closure is None
        every = self.param_groups
        self.param_groups = [group for group in every if "momentum" not in group]
        try:
            super().step()
        finally:
            self.param_groups = every
        for group in every:
            if "momentum" in group:
                for p in group["params"]:
                    if p.grad is not None:
                        self._step_matrix(p, p.grad, group)

    def _step_matrix(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), device=p.device)
            state["momentum_buffer"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        rate, momentum = group["lr"], group["momentum"]
        new = state["momentum_buffer"].lerp(gradient, 1 - momentum)
        ahead = orthogonal(gradient.lerp(new, momentum)).to(p.dtype)
        scale = ADAMW_RMS * math.sqrt(max(p.shape))
        weight = p * (1 - rate * group["weight_decay"]) - ahead * (scale * rate)
        if self.found_inf is not None:
            go = self.found_inf == 0
            new, weight = torch.where(go, new, state["momentum_buffer"]), torch.where(go, weight, p)
            state["step"] += go
        else:
            state["step"] += 1
        state["momentum_buffer"].copy_(new)
        p.copy_(weight)
