"""Measures the weights: ranks, drift, dead units.

    python run_optimized.py features=weight_analysis

    weights/<layer>/norm              of the matrix; spectral_norm: its largest singular value
    weights/<layer>/effective_rank    exp of the entropy of its singular values, taken as shares of their sum
    weights/<layer>/rank_share        the same, of the full rank: 1 where all directions count alike
    weights/<layer>/drift             ‖weights − weights at the run's start‖ / ‖weights at the start‖
    weights/<layer>/moved             the same since the last analysis
    weights/<module>/dead             share of a layer's units that do nothing on the rollout's rows, whatever the row:
                                      ReLU never above 0, ELU always at its floor, tanh and sigmoid always saturated

Layers are the parameters with two dimensions or more (the first against the others). Units are found by the activation
functions that the policy calls; a module that calls several has a number for each.
Sources: effective rank, Roy and Vetterli 2007 (EUSIPCO); dead units as a sign of lost plasticity, Sokar et al. 2023,
arXiv:2302.12902; Lyle et al. 2023, arXiv:2303.01486.

It reads only: the run is bit for bit the one without it. It works between epochs, in every interval_epochs-th.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.features.every import every, whole_number
from metta_fast.storage.atomic_file import whole

ROWS = 4096
"""Approximate number of the rollout's rows on which units are evaluated."""
SATURATED = 0.99


def _relu(y: Tensor) -> Tensor:
    return y > 0


def _elu(y: Tensor) -> Tensor:
    return y > -SATURATED


def _tanh(y: Tensor) -> Tensor:
    return y.abs() < SATURATED


def _sigmoid(y: Tensor) -> Tensor:
    return (y > 1 - SATURATED) & (y < SATURATED)


ALIVE: dict[Callable[..., Any], Callable[[Tensor], Tensor]] = {
    **dict.fromkeys((F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_), _relu),
    **dict.fromkeys((F.elu,), _elu),
    **dict.fromkeys((torch.tanh, F.tanh, Tensor.tanh), _tanh),
    **dict.fromkeys((torch.sigmoid, F.sigmoid, Tensor.sigmoid), _sigmoid),
}
"""Activation → which entries of its output show that the unit is alive."""


def add(hooks: Hooks, *, interval_epochs: int = 100) -> None:
    """Analyses every `interval_epochs`-th epoch; 0 switches the feature off.

    Raises:
        UserError: a value out of range.
    """
    whole_number("features.weight_analysis.interval_epochs", interval_epochs, 0)
    if interval_epochs == 0:
        return
    analysis = WeightAnalysis(every(interval_epochs), hooks.folder)
    hooks.on_collect.append(analysis.begin)
    hooks.on_epoch.append(analysis)


class WeightAnalysis:
    """An `on_epoch` hook. The weights at the start are kept in the run's folder, `weights_start.pt`, for a resume."""

    def __init__(self, due: Callable[[int], bool], folder: Path | None) -> None:
        self.due = due
        self._path = folder / "weights_start.pt" if folder is not None else None
        self._start: dict[str, Tensor] | None = None
        self._last: dict[str, Tensor] = {}
        self._log = logging.getLogger(__name__)

    def begin(self, context: Context) -> None:
        """Loads or stores the initial weights, from which drift is measured, before the first rollout."""
        if self._start is not None:
            return
        self._start = _matrices(context.policy)
        if self._path is None:
            return
        try:
            if context.epoch > 0 and self._path.exists():
                found = torch.load(self._path, map_location="cpu", weights_only=True)
                if _shapes(found) == _shapes(self._start):
                    self._start = found
                    return
            if context.epoch > 0:
                self._log.info("weight analysis: drift is measured from epoch %d", context.epoch)
            with whole(self._path) as beside:
                torch.save(self._start, beside)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            self._log.warning(
                "weight analysis: drift is measured from epoch %d: %s: %s", context.epoch, self._path, error
            )

    @torch.no_grad()
    def __call__(self, context: Context) -> dict[str, float]:
        now, row = _matrices(context.policy), dict[str, float]()
        assert self._start is not None
        for name, weight in now.items():
            layer = f"weights/{name.removesuffix('.weight')}"
            row |= {f"{layer}/{figure}": value for figure, value in spectrum(weight).items()}
            for figure, before in (("drift", self._start), ("moved", self._last)):
                if name in before and (norm := float(before[name].norm())) > 0:
                    row[f"{layer}/{figure}"] = float((weight - before[name]).norm()) / norm
        self._last = now
        return row | {f"weights/{name}/dead": share for name, share in dead_units(context).items()}


def spectrum(weight: Tensor) -> dict[str, float]:
    """Returns norm, spectral_norm, effective_rank and rank_share of a weight [n, …] as a matrix [n, rest]."""
    values = torch.linalg.svdvals(weight.flatten(1).double())
    total = float(values.sum())
    figures = {"norm": float(values.norm()), "spectral_norm": float(values.max())}
    if not 0 < total < math.inf:
        return figures
    shares = values / total
    rank = math.exp(float(torch.special.entr(shares).sum()))
    return figures | {"effective_rank": rank, "rank_share": rank / len(values)}


@torch.no_grad()
def dead_units(context: Context) -> dict[str, float]:
    """Returns the share of dead units for each activation that the policy calls, by the module that calls it."""
    b, policy = context.buffers, context.policy
    length = b.bptt_horizon
    agents = min(b.num_agents, max(1, ROWS // length))
    device = next(policy.parameters()).device
    obs = {name: leaf[:length, :agents].to(device) for name, leaf in b.obs.items()}
    state = b.first_state(slice(agents)).to(device)
    reset, mask = (x[:length, :agents].to(device) for x in (b.reset, b.mask))
    training = policy.training
    policy.eval()
    try:
        with _Activations(policy, mask) as found:
            policy(obs, state, reset)
    finally:
        policy.train(training)
    return found.shares()


class _Activations(TorchFunctionMode):
    """Observes the activation functions that are called inside the context, and the module that calls each."""

    def __init__(self, policy: nn.Module, mask: Tensor) -> None:
        super().__init__()
        self._policy, self._mask = policy, mask
        self._within: list[str] = [""]
        self._alive: dict[str, list[Tensor]] = {}

    def __enter__(self) -> Any:
        self._hooks = [
            handle
            for name, module in self._policy.named_modules()
            for handle in (
                module.register_forward_pre_hook(lambda *_, name=name: self._within.append(name)),
                module.register_forward_hook(lambda *_: self._leave(), always_call=True),
            )
        ]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self._hooks:
            handle.remove()

    def _leave(self) -> None:
        self._within.pop()

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), keys: dict[str, Any] | None = None
    ) -> Any:
        y = function(*args, **(keys or {}))
        if function in ALIVE and y.dim() >= 1 and y.shape[-1] > 1:
            rows = y.detach().flatten(0, -2)
            if (
                rows.shape[0] == self._mask.numel()
            ):  # one for each row of the rollout: masked ones do not count
                rows = rows[self._mask.flatten()]
            alive = ALIVE[function](rows).any(0)
            self._alive.setdefault(self._within[-1] or "policy", []).append(alive)
        return y

    def shares(self) -> dict[str, float]:
        """Returns {module, or module.number if it calls several: share of its units that are dead}."""
        return {
            module if len(all_of_it) == 1 else f"{module}.{number}": 1 - float(alive.float().mean())
            for module, all_of_it in self._alive.items()
            for number, alive in enumerate(all_of_it)
        }


def _matrices(policy: nn.Module) -> dict[str, Tensor]:
    """Returns copies on the host of the parameters with two dimensions or more."""
    return {name: p.detach().float().cpu().clone() for name, p in policy.named_parameters() if p.dim() >= 2}


def _shapes(matrices: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in matrices.items()}
