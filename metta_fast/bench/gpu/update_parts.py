"""Defines the parts of an update that `--gpu` measures: first layer, the rest of the network, minibatch, optimizer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.minibatch import Minibatch
from metta_fast.bench.gpu import plain_torch
from metta_fast.bench.gpu.clock import Call
from metta_fast.bench.gpu.measured_run import MeasuredRun, Part, encoder_of
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.network import Network


def _sparse_layer(policy: Network, leaf: str) -> SparseLayer:
    layer = encoder_of(policy).parts[leaf]
    assert isinstance(layer, SparseLayer)
    return layer


def _first_forms(run: MeasuredRun, *, backward: bool) -> dict[str, Call]:
    """Makes the forms of the first layer: ours reads rows from the buffers, torch gets gathered ones."""
    gather = run.learner.gather
    rows = [gather.rows(segments) for segments in run.segments]
    leaf = next(iter(run.buffers.obs))
    obs = [run.buffers.obs[leaf].flatten(0, 1)[numbers] for numbers in rows]
    layer, plain = _sparse_layer(run.policy, leaf), _sparse_layer(run.plain, leaf)
    with torch.no_grad(), run.rollout._autocast():
        gradient = torch.randn_like(run.first_at(rows[0]))

    def using(forward: Callable[[Tensor], Tensor], given: list[Tensor], weights: SparseLayer) -> Call:
        def call(i: int) -> None:
            with torch.set_grad_enabled(backward), run.rollout._autocast():
                out = forward(given[i % len(given)])
            if backward:
                torch.autograd.grad(out, [weights.weight, weights.bias], gradient.to(out.dtype))

        return call

    return {
        "ours": using(run.first_at, rows, layer),
        "eager": using(plain.decoded, obs, plain),
        "compiled": using(torch.compile(plain.decoded, dynamic=False), obs, plain),
    }


def first_forward(run: MeasuredRun) -> Part:
    """Measures the first layer's forward pass."""
    return Part("first layer, forward", run.minibatches, _first_forms(run, backward=False))


def first(run: MeasuredRun) -> Part:
    """Measures the first layer's forward and backward pass."""
    return Part("first layer, forward and backward", run.minibatches, _first_forms(run, backward=True))


def tail(run: MeasuredRun) -> Part:
    """Measures from the first layer's output to the loss and the gradients of all later weights."""
    learner = run.learner
    batches = [learner.gather.minibatch(segments, learner.gather.rows(segments)) for segments in run.segments]
    with torch.no_grad(), run.rollout._autocast():
        first = [run.first_at(learner.gather.rows(segments)) for segments in run.segments]
    given = [x.requires_grad_() for x in first]
    shape = batches[0].mask.shape

    def later(policy: Network) -> list[nn.Parameter]:
        return [*encoder_of(policy).second.parameters(), *policy.heads.parameters()]

    kernels = learner.gradients.tail

    def ours(i: int) -> None:
        assert kernels is not None
        i %= len(given)
        batch = kernels.gather(run.segments[i])
        with run.rollout._autocast():
            loss = kernels(given[i], batch, learner.gather.rollout_value).loss
        torch.autograd.grad(loss, [given[i], *later(run.policy)])

    def using(forward: Callable[[Tensor, Minibatch], Tensor]) -> Call:
        def call(i: int) -> None:
            i %= len(given)
            with run.rollout._autocast():
                loss = forward(given[i].unflatten(0, shape), batches[i])
            torch.autograd.grad(loss, [given[i], *later(run.plain)])

        return call

    loss = plain_torch.tail_loss(learner, run.plain)
    forms: dict[str, Call] = {"eager": using(loss), "compiled": using(torch.compile(loss, dynamic=False))}
    part = Part("second layer, heads, loss and back", run.minibatches, forms)
    if kernels is None:
        part.failed["ours"] = "the run has no kernel of its own for this (policy or precision)"
        return part
    part.forms = {"ours": ours, **forms}
    return part


def minibatch(run: MeasuredRun) -> Part:
    """Measures a minibatch as the learner processes it, without the optimizer's step."""
    learner = run.learner
    parameters = list(run.plain.parameters())

    def ours(i: int) -> None:
        learner.gradients(run.segments[i % len(run.segments)], None)
        learner.step.optimizer.zero_grad(set_to_none=True)

    def using(forward: Callable[[Tensor], Tensor]) -> Call:
        def call(i: int) -> None:
            with run.rollout._autocast():
                loss = forward(run.segments[i % len(run.segments)])
            torch.autograd.grad(loss, parameters)

        return call

    loss = plain_torch.minibatch_loss(learner, run.plain)
    forms = {"ours": ours, "eager": using(loss), "compiled": using(torch.compile(loss, dynamic=False))}
    return Part("minibatch: gather to gradients", run.minibatches, forms)


def optimizer(run: MeasuredRun) -> Part:
    """Measures clipping and Adam's step."""
    learner = run.learner
    weights = list(run.policy.parameters())
    gradients = [1e-3 * torch.randn_like(p) for p in weights]
    stats = torch.zeros(len(STATS), device=run.device)
    fused = learner.step.fused

    def ours(_: int) -> None:
        assert fused is not None
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        fused.step(stats)
        learner.step.optimizer.zero_grad(set_to_none=True)

    eager = plain_torch.optimizer_step(learner, gradients, fused=True)
    compiled = torch.compile(plain_torch.optimizer_step(learner, gradients, fused=False))
    forms: dict[str, Call] = {"ours": ours, "eager": lambda _: eager(), "compiled": lambda _: compiled()}
    part = Part("optimizer: clip and Adam", run.minibatches, forms)
    if fused is None:
        part.failed["ours"] = "the run has no kernel of its own for this"
        del part.forms["ours"]
    return part
