"""Runs the optimizer's step on the GPU with two Triton kernels in place of about thirty of torch's.

    measure  gradients ─► partial sums of squares        statistics ─► sums      KL above target_kl ─► stop
    adam     ─► norm ─► clipped ─► moments, weights      norm ─► sums            norm not finite ─► stop

It is the step of nn.utils.clip_grads_with_norm_ and torch.optim.Adam(fused=True). Once `stop` is above 0, weights,
moments and sums no longer change. Gradients and weights stay in autograd's memory: a launch gets their addresses, so a
CUDA graph keeps those of its capture. Sums are in a fixed order: the same gradients result in the same bits.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.triton.applies import odd_parameters
from metta_fast.runtime.adam import Adam

BLOCK = 1024
"""Entries per chunk; no chunk crosses the end of a tensor."""
PARTIALS = 512
"""Most partial sums per group of tensors."""
GROUP = 32
"""Tensors per launch."""


@triton.jit
def find(chunk, tensors, FIRST: tl.constexpr, TENSORS: tl.constexpr):
    """Returns the number of the tensor that contains a chunk."""
    found = tensors[0]
    for i in tl.static_range(1, TENSORS):
        found = tl.where(chunk >= FIRST[i], tensors[i], found)
    return found


@triton.jit
def choose(chunk, values: tl.constexpr, FIRST: tl.constexpr, TENSORS: tl.constexpr):
    """Returns the entry of `values` for the tensor that contains a chunk."""
    found = values[0]
    for i in tl.static_range(1, TENSORS):
        found = tl.where(chunk >= FIRST[i], values[i], found)
    return found


@triton.jit
def inside(at, size, WHOLE: tl.constexpr):
    """Returns a mask of the positions `at` inside the tensor. WHOLE: all are known to be inside, so loads can be
    wide."""
    if WHOLE:
        return tl.full(at.shape, True, tl.int1)
    else:
        return at < size


@triton.jit
def count_minibatch(stats, sums, stop, STATS: tl.constexpr, KL: tl.constexpr, TARGET: tl.constexpr):
    """Adds a minibatch to the sums unless stopped; stop if its KL is above TARGET (None: never)."""
    if tl.load(stop) == 0:
        i = tl.arange(0, triton.next_power_of_2(STATS))
        add = tl.load(stats + i, mask=i < STATS, other=0.0)
        tl.store(sums + i, tl.load(sums + i, mask=i < STATS, other=0.0) + add, mask=i < STATS)
        tl.store(sums + STATS + 1, tl.load(sums + STATS + 1) + 1.0)
    if TARGET is not None and tl.load(stats + KL) > TARGET:
        tl.store(stop, 1.0)


@triton.jit
def count(stats, sums, stop, STATS: tl.constexpr, KL: tl.constexpr):
    """Adds a minibatch without a step. Grid (1,)."""
    count_minibatch(stats, sums, stop, STATS, KL, None)


@triton.jit
def squares(gradient, at, size, WHOLE: tl.constexpr):
    x = tl.load(gradient + at, mask=inside(at, size, WHOLE), other=0.0)
    return x * x


@triton.jit
def measure(
    gradients, partials, steps, corrections, stats, sums, stop, chunks, programs, parameters,
    TURNS: tl.constexpr,
    FIRST: tl.constexpr, SIZES: tl.constexpr, NUMBERS: tl.constexpr, TENSORS: tl.constexpr,
    LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    STATS: tl.constexpr, KL: tl.constexpr, TARGET: tl.constexpr, COUNTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes partial sums of squares (see the module). Grid (programs ≥ tensors,); program i also computes tensor
    i's bias corrections."""
    program = tl.program_id(0)
    if COUNTS and program == 0:
        count_minibatch(stats, sums, stop, STATS, KL, TARGET)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in tl.range(0, TURNS):
        chunk = program + turn * programs
        gradient = find(chunk, gradients, FIRST, TENSORS)
        size = tl.where(chunk < chunks, choose(chunk, SIZES, FIRST, TENSORS), 0)
        start = (chunk - choose(chunk, FIRST, FIRST, TENSORS)) * BLOCK
        at = start + tl.arange(0, BLOCK)
        if start + BLOCK <= size:
            total += squares(gradient, at, size, True)
        else:
            total += squares(gradient, at, size, False)
    tl.store(partials + program, tl.sum(total, 0))
    if program < TENSORS:
        number = NUMBERS[0]
        for i in tl.static_range(1, TENSORS):
            number = tl.where(program >= i, NUMBERS[i], number)
        step = tl.load(steps + number) + 1.0
        tl.store(corrections + number, step)  # `adam` writes `steps` while others would read it
        power = step.to(tl.float64)
        tl.store(corrections + parameters + number, (1.0 - tl.exp(power * LOG_BETA1)).to(tl.float32))
        second = (1.0 - tl.exp(power * LOG_BETA2)).to(tl.float32)
        tl.store(corrections + 2 * parameters + number, tl.sqrt_rn(second))


@triton.jit
def adam_chunk(
    weight, gradient, first, second, partials, of, corrections, parameters, number, rate, stop, at, home, size,
    BETA1: tl.constexpr, BETA2: tl.constexpr, REST1: tl.constexpr, REST2: tl.constexpr, EPSILON: tl.constexpr,
    MAX_NORM: tl.constexpr, PARTIALS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Updates one chunk of weights and moments. Its loads do not wait for the norm, which is returned."""
    here = inside(at, size, WHOLE)
    g = tl.load(gradient + at, mask=here, other=0.0)
    w = tl.load(weight + at, mask=here, other=0.0)
    m = tl.load(first + home)
    v = tl.load(second + home)
    stopped = tl.load(stop) > 0
    step_size = tl.div_rn(tl.load(rate), tl.load(corrections + parameters + number))
    root = tl.load(corrections + 2 * parameters + number)
    i = tl.arange(0, PARTIALS)
    norm = tl.sqrt_rn(tl.sum(tl.load(partials + i, mask=i < of, other=0.0), 0))
    if (norm < float("inf")) & (stopped == 0):
        if MAX_NORM > 0:
            g *= tl.minimum(tl.div_rn(MAX_NORM, norm + 1e-6), 1.0)
        m = BETA1 * m + REST1 * g
        v = BETA2 * v + REST2 * g * g
        w -= tl.div_rn(step_size * m, tl.div_rn(tl.sqrt_rn(v), root) + EPSILON)
        tl.store(first + home, m)
        tl.store(second + home, v)
        tl.store(weight + at, w, mask=here)
    return norm


@triton.jit
def adam(
    weights, gradients, first, second, partials, of, steps, corrections, parameters, rate, sums, stop,
    FIRST: tl.constexpr, SIZES: tl.constexpr, NUMBERS: tl.constexpr, HOMES: tl.constexpr, TENSORS: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, REST1: tl.constexpr, REST2: tl.constexpr, EPSILON: tl.constexpr,
    MAX_NORM: tl.constexpr, STATS: tl.constexpr, COUNTS: tl.constexpr, PARTIALS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Clips the gradients and steps (see the module). Grid (chunks,). Program 0 may set `stop` while others read it:
    they compute the same norm and change nothing in either case."""
    chunk = tl.program_id(0)
    begin = choose(chunk, FIRST, FIRST, TENSORS)
    size = choose(chunk, SIZES, FIRST, TENSORS)
    number = choose(chunk, NUMBERS, FIRST, TENSORS)
    weight, gradient = find(chunk, weights, FIRST, TENSORS), find(chunk, gradients, FIRST, TENSORS)
    start = (chunk - begin) * BLOCK
    at = start + tl.arange(0, BLOCK)
    home = choose(chunk, HOMES, FIRST, TENSORS) * BLOCK + at
    if start + BLOCK <= size:
        norm = adam_chunk(
            weight, gradient, first, second, partials, of, corrections, parameters, number, rate, stop, at, home,
            size, BETA1, BETA2, REST1, REST2, EPSILON, MAX_NORM, PARTIALS, True,
        )  # fmt: skip
    else:
        norm = adam_chunk(
            weight, gradient, first, second, partials, of, corrections, parameters, number, rate, stop, at, home,
            size, BETA1, BETA2, REST1, REST2, EPSILON, MAX_NORM, PARTIALS, False,
        )  # fmt: skip
    if start == 0:  # once per tensor
        finite = norm < float("inf")
        go = tl.load(stop) == 0
        if go & finite:
            tl.store(steps + number, tl.load(corrections + number))
        if COUNTS and go & (chunk == 0):
            tl.store(sums + STATS, tl.load(sums + STATS) + norm)
            tl.store(sums + STATS + 2, tl.load(sums + STATS + 2) + 1.0)
            if finite == 0:
                tl.store(stop, 1.0)


class Group(NamedTuple):
    """Holds up to GROUP tensors of one launch."""

    members: tuple[int, ...]
    """Their numbers among the parameters."""
    chunks: int
    programs: int
    """Of `measure`."""
    tensors: dict[str, int | tuple[int, ...]]
    """The kernels' constants FIRST, SIZES, NUMBERS, TENSORS."""
    homes: tuple[int, ...]
    """First chunk of each in the moments."""


def fits(parameters: Sequence[Tensor]) -> bool:
    """Returns whether FusedStep can take these parameters."""
    return odd_parameters(parameters) is None


class FusedStep:
    """Steps an optimizer with the kernels, in place of `optimizer.step()`.

    The optimizer's state becomes views of this object's memory, so its state_dict and load_state_dict still work; call
    `adopt` after a load.

    Args:
        parameters: must pass `fits`. A step skips parameters without a gradient, as torch does.
        optimizer: Adam over them with one group; its lr is a float32 scalar on their device.
        sums: [len(STATS) + 3] float32: sums of the statistics and gradient norms, minibatches, optimizer steps.
        stop: [] float32: above 0, nothing changes.
        max_grad_norm: the gradients are scaled down to it; 0: never.
        target_kl: a minibatch with a larger KL sets `stop` before its step; None: never.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        optimizer: Adam,
        sums: Tensor,
        stop: Tensor,
        max_grad_norm: float,
        target_kl: float | None = None,
    ) -> None:
        self.parameters, self.optimizer = list(parameters), optimizer
        self.sums, self.stop = sums, stop
        chunks = [triton.cdiv(p.numel(), BLOCK) for p in self.parameters]
        self._homes = [sum(chunks[:i]) for i in range(len(chunks))]
        self._chunks = chunks
        device, number = self.parameters[0].device, len(self.parameters)
        self._moments = torch.zeros((2, sum(chunks) * BLOCK), device=device)
        self._steps = torch.zeros(number, device=device)
        self._corrections = torch.zeros(3 * number, device=device)
        """For each parameter: the step's number, 1 − β₁ᵗ, √(1 − β₂ᵗ)."""
        self._partials = torch.zeros(PARTIALS * triton.cdiv(number, GROUP), device=device)
        beta1, beta2 = optimizer.param_groups[0]["betas"]
        self._counting = {"STATS": len(STATS), "KL": STATS.index("kl")}
        self._measure = {
            "LOG_BETA1": math.log(beta1),
            "LOG_BETA2": math.log(beta2),
            "TARGET": target_kl,
            **self._counting,
        }
        self._adam = {
            "BETA1": beta1,
            "BETA2": beta2,
            "REST1": 1 - beta1,
            "REST2": 1 - beta2,
            "EPSILON": optimizer.param_groups[0]["eps"],
            "MAX_NORM": max_grad_norm,
            "STATS": len(STATS),
        }
        self._groups: dict[tuple[int, ...], list[Group]] = {}
        self.adopt()

    def adopt(self) -> None:
        """Copies the optimizer's state here (zeros for missing state), and makes it refer to these tensors."""
        for i, p in enumerate(self.parameters):
            begin = self._homes[i] * BLOCK
            first, second = (moment[begin : begin + p.numel()].view_as(p) for moment in self._moments)
            own = {"step": self._steps[i], "exp_avg": first, "exp_avg_sq": second}
            held = self.optimizer.state.get(p, {})
            for name, tensor in own.items():
                if name in held:
                    tensor.copy_(held[name])
                else:
                    tensor.zero_()
            self.optimizer.state[p] = own

    def count(self, stats: Tensor) -> None:
        """Launches the kernel that adds a minibatch's statistics [len(STATS)] without a step."""
        count[(1,)](stats, self.sums, self.stop, num_warps=1, **self._counting)

    @torch.no_grad()
    def step(self, stats: Tensor) -> None:
        """Adds the minibatch and steps with the current gradients: two launches for each GROUP of parameters."""
        present = tuple(i for i, p in enumerate(self.parameters) if p.grad is not None)
        if present not in self._groups:
            self._groups[present] = self._plan(present)
        groups = self._groups[present]
        tensors = [tuple(self.parameters[i] for i in group.members) for group in groups]
        gradients = [tuple(p.grad.contiguous() for p in members) for members in tensors]  # type: ignore[union-attr]
        number, partials = len(self.parameters), 0
        for group, grads in zip(groups, gradients):
            measure[(group.programs,)](
                grads, self._partials[partials:], self._steps, self._corrections, stats, self.sums, self.stop,
                group.chunks, group.programs, number,
                TURNS=triton.cdiv(group.chunks, group.programs), COUNTS=partials == 0,
                BLOCK=BLOCK, num_warps=4, **group.tensors, **self._measure,
            )  # fmt: skip
            partials += group.programs
        rate = self.optimizer.param_groups[0]["lr"]
        for group, weights, grads in zip(groups, tensors, gradients):
            adam[(group.chunks,)](
                weights, grads, *self._moments, self._partials, partials, self._steps, self._corrections, number,
                rate, self.sums, self.stop,
                HOMES=group.homes, COUNTS=group is groups[0], PARTIALS=triton.next_power_of_2(partials),
                BLOCK=BLOCK, num_warps=4, **group.tensors, **self._adam,
            )  # fmt: skip
            torch.autograd.graph.increment_version(weights)

    def _plan(self, present: tuple[int, ...]) -> list[Group]:
        groups = []
        for begin in range(0, len(present), GROUP):
            members = present[begin : begin + GROUP]
            chunks = [self._chunks[i] for i in members]
            first = tuple(sum(chunks[:i]) for i in range(len(chunks)))
            sizes = tuple(self.parameters[i].numel() for i in members)
            constants: dict[str, int | tuple[int, ...]] = {
                "FIRST": first,
                "SIZES": sizes,
                "NUMBERS": members,
                "TENSORS": len(members),
            }
            homes = tuple(self._homes[i] for i in members)
            groups.append(Group(members, sum(chunks), min(sum(chunks), PARTIALS), constants, homes))
        return groups
