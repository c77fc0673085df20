"""Adds a contrastive loss over the core's states: InfoNCE between moments of one episode.

    features={contrastive: {coef: 0.01, temperature: 0.1, distance: 8, pairs: 512}}

Of each minibatch, n moments i are drawn. With z = h / ‖h‖ of the core's output h, and k ~ Geometric(1 / distance) rows
later in the same episode and segment,

    L = coef · mean_i −log( exp(z[i]·z⁺[i] / τ) / Σ_j exp(z[i]·z⁺[j] / τ) )      z⁺[i] = z, k rows after moment i

The other moments' z⁺ are the negatives. h follows what lasts within an episode and tells it from other episodes. A
moment counts if both rows are steps and no episode begins between them; where k leads beyond the segment, it does not
count. There are no weights beside the policy's.

Source: van den Oord, Li and Vinyals 2018 (InfoNCE, arXiv:1807.03748), without its linear maps; positives at geometric
distances as in Eysenbach et al. 2022 (arXiv:2206.07568).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.algorithms.hooks import Built, Context, Hooks
from metta_fast.contracts.errors import UserError
from metta_fast.features.every import number, whole_number

NAME = "contrastive"
STREAM = 2
FAR = -1e9
"""Similarity of a moment that does not count, as a negative."""


def add(
    hooks: Hooks,
    *,
    coef: float = 0.01,
    temperature: float = 0.1,
    distance: float = 8.0,
    pairs: int = 512,
    module: str = "auto",
) -> None:
    """Adds the loss to each minibatch.

    Args:
        coef: weight of the loss; 0 switches the feature off.
        temperature: τ.
        distance: mean rows between the two moments of a pair, at least 1.
        pairs: moments that are drawn from each minibatch; time and memory grow with its square.
        module: the policy's module whose output [T, B, H] is h, as `core` or `net.2`; auto: the core, or the encoder of
            a policy without one.

    Raises:
        UserError: a value out of range.
    """
    path = f"features.{NAME}"
    number(f"{path}.coef", coef, 0.0, 1e6)
    number(f"{path}.temperature", temperature, 1e-3, 1e3)
    number(f"{path}.distance", distance, 1.0, 1e6)
    whole_number(f"{path}.pairs", pairs, 2)
    if not isinstance(module, str) or not module:
        raise UserError(f"{path}.module={module!r}: expected the name of a module of the policy, or auto")
    if coef == 0:
        return
    loss = Contrastive(coef, temperature, distance, pairs, module)
    hooks.on_build.append(loss.build)
    hooks.on_update.append(loss.begin)
    hooks.on_forward.append(loss.watch)
    hooks.extra_loss.append(loss)


class Contrastive:
    """Reads a module's output in the forward pass, and gives the loss for it."""

    def __init__(self, coef: float, temperature: float, distance: float, pairs: int, module: str) -> None:
        self.coef, self.temperature, self.distance = coef, temperature, distance
        self.pairs, self.module = pairs, module
        self._seen: list[Tensor] = []
        self._context: Context | None = None

    def build(self, built: Built) -> None:
        """Finds the module."""
        if built.buffers.bptt_horizon < 2:
            raise UserError(
                f"features.{NAME} compares rows of a segment, and trainer.bptt_horizon=1 has one; give at least 2"
            )
        self.module = found_module(built.policy, self.module)

    def begin(self, context: Context) -> None:
        self._context = context

    @contextmanager
    def watch(self, policy: nn.Module) -> Iterator[None]:
        """Keeps the module's outputs of the forward pass within."""
        self._seen.clear()

        def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self._seen.append(output[0] if isinstance(output, tuple) else output)

        handle = policy.get_submodule(self.module).register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def __call__(self, minibatch: Any, output: Any) -> Tensor:
        hidden, self._seen = states(self._seen, minibatch.mask, self.module), []
        assert self._context is not None
        context, device = self._context, minibatch.mask.device
        generator = context.generator(STREAM)
        noise = torch.rand(2, self.pairs, generator=generator, device=context.buffers.device).to(device)
        moments = draw(noise, minibatch.mask, minibatch.reset, self.distance)
        return self.coef * info_nce(hidden, *moments, self.temperature)


def found_module(policy: nn.Module, asked: str) -> str:
    """Returns the name of the module that is asked for. Raises UserError if there is none."""
    names = [name for name, _ in policy.named_modules() if name]
    wanted = ("core", "encoder") if asked == "auto" else (asked,)
    for name in wanted:
        if name in names:
            return name
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    raise UserError(
        f"features.{NAME}.module={asked}: the policy {type(policy).__name__} has no module {' or '.join(wanted)}; "
        f"give the one whose output is to be compared ({listed or 'it has none'}), or features.{NAME}=null"
    )


def states(seen: list[Tensor], mask: Tensor, module: str) -> Tensor:
    """Returns h [L, B, H] float32 from a module's outputs for rows in order; mask: [L, B].

    Raises:
        UserError: they are not of this form.
    """
    rows, agents = mask.shape
    taken: list[Tensor] = []
    count = 0
    for part in seen:
        if count >= rows:  # a second pass, over images that were moved
            break
        whole = part.unsqueeze(0) if part.dim() == 2 and part.shape[0] == agents else part
        if whole.dim() == 2 and whole.shape[0] == rows * agents:
            whole = whole.unflatten(0, (rows, agents))
        if whole.dim() < 3 or whole.shape[1] != agents:
            raise UserError(
                f"features.{NAME}.module={module}: its output has the shape {list(part.shape)}, expected "
                f"[rows, {agents} agents, size]; name another module"
            )
        taken.append(whole.flatten(2))
        count += len(whole)
    if count != rows:
        raise UserError(
            f"features.{NAME}.module={module}: it gave {count} rows where the minibatch has {rows}; name another module"
        )
    return (taken[0] if len(taken) == 1 else torch.cat(taken)).float()


def draw(noise: Tensor, mask: Tensor, reset: Tensor, distance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Draws moments and their positives.

    Args:
        noise: [2, n], uniform.
        mask, reset: [L, B] bool.
        distance: the mean of k.

    Returns:
        (first [n], second [n]: numbers t · B + b of the rows, counts [n] bool).
    """
    rows, agents = mask.shape
    first = (noise[0] * (rows * agents)).long().clamp(max=rows * agents - 1)
    t, agent = first // agents, first % agents
    stay = 1 - 1 / distance
    later = torch.ones_like(t)
    if stay > 0:
        later = later + (noise[1].clamp(min=1e-30).log() / math.log(stay)).clamp(max=rows).long()
    then = t + later
    inside = then < rows
    then = then.clamp(max=rows - 1)
    begun = reset.long().cumsum(0)
    same = begun[t, agent] == begun[then, agent]
    second = then * agents + agent
    flat = mask.flatten()
    return first, second, inside & same & flat[first] & flat[second]


def info_nce(hidden: Tensor, first: Tensor, second: Tensor, counts: Tensor, temperature: float) -> Tensor:
    """Returns the mean InfoNCE loss of the pairs that count, []; 0 if there are none.

    Args:
        hidden: [L, B, H] float32.
        first, second, counts: as of `draw`.
    """
    flat = hidden.flatten(0, 1)
    used = counts.unsqueeze(1)
    anchor = F.normalize(torch.where(used, flat[first], 1.0), dim=1)
    positive = F.normalize(torch.where(used, flat[second], 1.0), dim=1)
    with torch.autocast(hidden.device.type, enabled=False):
        logits = anchor @ positive.t() / temperature
    logits = logits.masked_fill(~counts.unsqueeze(0), FAR)
    own = logits.logsumexp(1) - logits.diagonal()
    return torch.where(counts, own, 0.0).sum() / counts.sum().clamp(min=1)
