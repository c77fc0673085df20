"""Computes statistics of gradients and steps for each layer: run.gradient_stats_interval.

    gradient/norm                   of all gradients together, before it is clipped
    gradient/clipped                share of the steps at which it was above trainer.max_grad_norm
    gradient/<layer>/norm           of the layer's gradients
    gradient/<layer>/mean, std      of their entries
    gradient/<layer>/update_ratio   ‖step‖ / ‖weights‖; about 1e-3 is usual, much more is unstable, much less is slow

Means over the optimizer steps of the epoch that were taken (with trainer.target_kl or fp16 some are not). A layer is a
module with parameters of its own: weight and bias together. Sums stay on the device and are read once, at the epoch's
end. The watched update runs launch by launch where the others replay a CUDA graph, and computes gradients beside that
in C; its result is the same.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.features.every import every

BY_LAYER = ("norm", "mean", "std", "update_ratio")


def add(hooks: Hooks, *, interval_epochs: int, min_s: float, max_grad_norm: float) -> None:
    """Observes every `interval_epochs`-th update, at least `min_s` seconds apart. max_grad_norm 0: no clipping."""
    stats = GradientStats(every(interval_epochs, min_s), max_grad_norm)
    hooks.on_gradients.append(stats)
    hooks.on_epoch.append(stats)


class GradientStats:
    """Both a GradientHook and an `on_epoch` hook."""

    def __init__(self, due: Callable[[int], bool], max_grad_norm: float) -> None:
        self.due = due
        self._max_norm = max_grad_norm

    def begin(self, context: Context) -> None:
        named = [(name, p) for name, p in context.policy.named_parameters() if p.requires_grad]
        layers = [name.rpartition(".")[0] or name for name, _ in named]
        self._names = list(dict.fromkeys(layers))
        self._parameters: list[nn.Parameter] = [p for _, p in named]
        device = self._parameters[0].device
        self._layer = torch.tensor([self._names.index(layer) for layer in layers], device=device)
        """[parameters] int64: the number of each one's layer."""
        sizes = torch.tensor([float(p.numel()) for p in self._parameters], device=device)
        self._entries = self._by_layer(sizes)
        self._sums = torch.zeros(len(BY_LAYER), len(self._names), device=device)
        self._totals = torch.zeros(3, device=device)
        """Steps taken, sum of norms, steps clipped."""

    @torch.no_grad()
    def before_step(self) -> None:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        squares = self._by_layer(_norms(gradients).square())
        mean = self._by_layer(torch.stack([g.sum() for g in gradients]).float()) / self._entries
        std = (squares / self._entries - mean.square()).clamp(min=0).sqrt()
        self._figures, self._norm = (squares.sqrt(), mean, std), squares.sum().sqrt()
        self._weights = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def after_step(self, taken: Tensor) -> None:
        steps = [p - before for p, before in zip(self._parameters, self._weights)]
        step, weight = (self._by_layer(_norms(x).square()).sqrt() for x in (steps, self._weights))
        ratio = torch.where(weight > 0, step / weight, 0.0)
        taken = taken & torch.isfinite(self._norm)
        self._sums += torch.where(taken, torch.stack([*self._figures, ratio]), 0.0)
        clipped = self._norm > (self._max_norm if self._max_norm > 0 else torch.inf)
        totals = torch.stack([torch.ones_like(self._norm), self._norm, clipped.float()])
        self._totals += torch.where(taken, totals, 0.0)

    def __call__(self, context: Context) -> dict[str, float]:
        """Returns the epoch's figures; the only read from the device."""
        count, norm, clipped, *rest = torch.cat([self._totals, self._sums.T.flatten()]).tolist()
        if not count:
            return {}
        keys = [f"gradient/{layer}/{figure}" for layer in self._names for figure in BY_LAYER]
        row = {key: value / count for key, value in zip(keys, rest)}
        return {"gradient/norm": norm / count, "gradient/clipped": clipped / count} | row

    def _by_layer(self, values: Tensor) -> Tensor:
        """Returns values [parameters] summed over each layer: [layers]."""
        return values.new_zeros(len(self._names)).index_add(0, self._layer, values)


def _norms(tensors: list[Tensor]) -> Tensor:
    """[len(tensors)] float32: the norm of each."""
    return torch.stack(torch._foreach_norm(tensors)).float()
