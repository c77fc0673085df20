"""What the parts of an epoch take on the device, for `--gpu` (in a child: gpu_worker.py).

    run of some epochs ─► its real buffers, policy, learner ─► each part alone, in three forms

    ours       what the run itself calls
    eager      plain torch: decoded inputs in memory, an operator a kernel (gpu_plain.py)
    compiled   the same by torch.compile

Every form is replayed as a CUDA graph, so that launching is not measured: the difference is the kernels'.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.bench.gpu import plain_torch as gpu_plain
from metta_fast.bench.gpu.clock import Call, microseconds
from metta_fast.bench.gpu.training import Training
from metta_fast.policy.cores import MinGRUCore
from metta_fast.policy.mingru.scan import mingru, reference
from metta_fast.rollout.act import ActInto
from metta_fast.vector.gpu import build_and_step

FORMS = ("ours", "eager", "compiled")
EPOCHS_S = 0.3
"""Whole epochs, for the shares."""


@dataclass
class Part:
    """One part of an epoch."""

    name: str
    calls: int
    """In an epoch."""
    forms: dict[str, Call] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Form → why it cannot be measured."""


class Parts:
    """A run, and its parts one by one."""

    def __init__(self, overrides: list[str]) -> None:
        """Build, burn in, and compile every form."""
        self.training = Training(overrides)
        self.algorithm = self.training.algorithm
        self.device = self.training.device
        self.learner, self.rollout = self.algorithm.learner, self.algorithm.rollout
        self.buffers = self.algorithm.buffers
        self.policy: Any = self.algorithm.policy
        self.plain = gpu_plain.plain_policy(self.policy)
        trainer = self.training.config.trainer
        self.minibatches = trainer.update_epochs * trainer.batch_size // trainer.minibatch_size
        size = trainer.minibatch_size // trainer.bptt_horizon
        order = torch.randperm(self.buffers.num_segments, device=self.device)
        self.segments = [order[i : i + size] for i in range(0, len(order), size)]
        """[B] each: a different minibatch for each call."""
        self.parts = [self._try(make) for make in self._makers()]
        for part in self.parts:
            for form, call in list(part.forms.items()):
                try:
                    call(0)
                except Exception as error:
                    traceback.print_exc()
                    part.failed[form] = _why(error)
                    del part.forms[form]
        self.training.sync()

    def ready(self) -> dict[str, Any]:
        return {**self.training.ready(), "parts": [part.name for part in self.parts]}

    def measure(self) -> dict[str, Any]:
        """{"epoch_us", "phases_ms", "parts": [{"name", "calls", "us": {form: µs}, "failed": {form: why},
        "launched": {form: why}}]}."""
        self.learner.step.optimizer.zero_grad(set_to_none=True)
        epochs = self.training.round(EPOCHS_S)
        rows = []
        for part in self.parts:
            us: dict[str, float] = {}
            launched: dict[str, str] = {}
            for form, call in part.forms.items():
                try:
                    found = microseconds(call, self.device)
                except Exception as error:
                    traceback.print_exc()
                    part.failed[form] = _why(error)
                    continue
                us[form] = found.us
                if found.why_launched:
                    launched[form] = found.why_launched
            rows.append(
                {
                    "name": part.name,
                    "calls": part.calls,
                    "us": us,
                    "failed": part.failed,
                    "launched": launched,
                }
            )
        wall = sorted(epochs["epoch_ms"])[len(epochs["epoch_ms"]) // 2]
        return {"epoch_us": 1e3 * wall, "phases_ms": epochs["phases_ms"], "parts": rows}

    def close(self) -> None:
        self.training.close()

    # ---- the parts ----

    def _makers(self) -> list[Callable[[], Part]]:
        if isinstance(self.policy.core, MinGRUCore):
            return [self.row, self.minibatch, self.scan_forward, self.scan]
        return [
            self.simulator,
            self.row,
            self.summary,
            self.advantage,
            self.first_forward,
            self.first,
            self.tail,
            self.minibatch,
            self.optimizer,
        ]

    def _try(self, make: Callable[[], Part]) -> Part:
        try:
            return make()
        except Exception as error:
            traceback.print_exc()
            name = make.__name__.replace("_", " ")
            return Part(name, 0, {}, dict.fromkeys(FORMS, _why(error)))

    def simulator(self) -> Part:
        """As in the rollout, but one after the other."""

        def step(i: int) -> None:
            build_and_step(self.algorithm.vec, i % self.buffers.horizon)

        return Part("simulator: maps and step", self.buffers.horizon, {"ours": step})

    def row(self) -> Part:
        """Policy and sampling of one row of all agents."""
        b, rollout = self.buffers, self.rollout

        def using(act: Any) -> Call:
            state = rollout._state.clone()

            def call(i: int) -> None:
                with torch.no_grad(), rollout._autocast():
                    act(b.act_row(i % b.horizon, state, rollout._noise))

            return call

        plain = ActInto(self.plain)
        return Part(
            "inference of a row",
            b.horizon + 1,
            {
                "ours": using(rollout._act),
                "eager": using(plain),
                "compiled": using(torch.compile(plain, dynamic=False)),
            },
        )

    def summary(self) -> Part:
        plain = gpu_plain.summary(self.algorithm)
        return _thrice("summary of the rollout", 1, self.algorithm.summary.run, plain)

    def advantage(self) -> Part:
        config, final = self.algorithm.config.trainer, self.algorithm.spec.has_final_obs

        def ours() -> None:
            compute_advantage(self.buffers, config, final)

        return _thrice("advantage", 1, ours, gpu_plain.advantage(self.algorithm))

    def _first_forms(self, *, backward: bool) -> dict[str, Call]:
        """Ours reads rows where they lie in the buffers; torch is given gathered ones."""
        learner, gather = self.learner, self.learner.gather
        rows = [gather.rows(segments) for segments in self.segments]
        leaf = next(iter(self.buffers.obs))
        obs = [self.buffers.obs[leaf].flatten(0, 1)[numbers] for numbers in rows]
        layer = self.policy.encoder.parts[leaf]
        plain = self.plain.encoder.parts[leaf]
        with torch.no_grad(), self.rollout._autocast():
            gradient = torch.randn_like(learner.gradients.first_at(rows[0]))

        def using(forward: Callable[[Tensor], Tensor], given: list[Tensor], weights: Any) -> Call:
            def call(i: int) -> None:
                with torch.set_grad_enabled(backward), self.rollout._autocast():
                    out = forward(given[i % len(given)])
                if backward:
                    torch.autograd.grad(out, [weights.weight, weights.bias], gradient.to(out.dtype))

            return call

        return {
            "ours": using(learner.gradients.first_at, rows, layer),
            "eager": using(plain.decoded, obs, plain),
            "compiled": using(torch.compile(plain.decoded, dynamic=False), obs, plain),
        }

    def first_forward(self) -> Part:
        forms = self._first_forms(backward=False)
        return Part("first layer, forward", self.minibatches, forms)

    def first(self) -> Part:
        forms = self._first_forms(backward=True)
        return Part("first layer, forward and backward", self.minibatches, forms)

    def tail(self) -> Part:
        """From the first layer's output to the loss and the gradients of all that follows it."""
        learner = self.learner
        batches = [
            learner.gather.minibatch(segments, learner.gather.rows(segments)) for segments in self.segments
        ]
        with torch.no_grad(), self.rollout._autocast():
            first = [learner.gradients.first_at(learner.gather.rows(segments)) for segments in self.segments]
        given = [x.requires_grad_() for x in first]
        shape = batches[0].mask.shape

        def later(policy: Any) -> list[Tensor]:
            return [*policy.encoder.second.parameters(), *policy.heads.parameters()]

        def ours(i: int) -> None:
            i %= len(given)
            batch = learner.gradients.tail.gather(self.segments[i])
            with self.rollout._autocast():
                loss = learner.gradients.tail(given[i], batch, learner.gather.rollout_value).loss
            torch.autograd.grad(loss, [given[i], *later(self.policy)])

        def using(forward: Any) -> Call:
            def call(i: int) -> None:
                i %= len(given)
                with self.rollout._autocast():
                    loss = forward(given[i].unflatten(0, shape), batches[i])
                torch.autograd.grad(loss, [given[i], *later(self.plain)])

            return call

        loss = gpu_plain.tail_loss(learner, self.plain)
        forms: dict[str, Call] = {
            "eager": using(loss),
            "compiled": using(torch.compile(loss, dynamic=False)),
        }
        part = Part("second layer, heads, loss and back", self.minibatches, forms)
        if learner.gradients.tail is None:
            part.failed["ours"] = "the run has no kernel of its own for this (policy or precision)"
            return part
        part.forms = {"ours": ours, **forms}
        return part

    def minibatch(self) -> Part:
        """All of a minibatch but the optimizer's step, as the learner does it."""
        learner = self.learner
        parameters = list(self.plain.parameters())

        def ours(i: int) -> None:
            learner.gradients(self.segments[i % len(self.segments)], None)
            learner.step.optimizer.zero_grad(set_to_none=True)

        def using(forward: Any) -> Call:
            def call(i: int) -> None:
                with self.rollout._autocast():
                    loss = forward(self.segments[i % len(self.segments)])
                torch.autograd.grad(loss, parameters)

            return call

        loss = gpu_plain.minibatch_loss(learner, self.plain)
        forms = {"ours": ours, "eager": using(loss), "compiled": using(torch.compile(loss, dynamic=False))}
        return Part("minibatch: gather to gradients", self.minibatches, forms)

    def optimizer(self) -> Part:
        learner = self.learner
        weights = list(self.policy.parameters())
        gradients = [1e-3 * torch.randn_like(p) for p in weights]
        stats = torch.zeros(len(STATS), device=self.device)

        def ours(_: int) -> None:
            for weight, gradient in zip(weights, gradients):
                weight.grad = gradient
            learner.step.fused.step(stats)
            learner.step.optimizer.zero_grad(set_to_none=True)

        eager = gpu_plain.optimizer_step(learner, gradients, fused=True)
        compiled = torch.compile(gpu_plain.optimizer_step(learner, gradients, fused=False))
        part = Part(
            "optimizer: clip and Adam",
            self.minibatches,
            {"ours": ours, "eager": lambda _: eager(), "compiled": lambda _: compiled()},
        )
        if learner.step.fused is None:
            part.failed["ours"] = "the run has no kernel of its own for this"
            del part.forms["ours"]
        return part

    def _scan_forms(self, *, backward: bool) -> dict[str, Call]:
        """minGRU's recurrence over a minibatch's rows, gates given."""
        trainer, size = self.training.config.trainer, self.policy.heads.in_features
        shape = (trainer.bptt_horizon, len(self.segments[0]))
        dtype = torch.get_autocast_dtype(self.device.type) if trainer.precision != "fp32" else torch.float32
        gates = torch.randn(*shape, 3 * size, device=self.device, dtype=dtype, requires_grad=True)
        x = torch.randn(*shape, size, device=self.device, dtype=dtype, requires_grad=True)
        state = torch.randn(shape[1], size, device=self.device, requires_grad=True)
        reset = torch.rand(shape, device=self.device) < 0.001
        gradient = torch.randn(*shape, size, device=self.device)

        def kernel(gates: Tensor, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, ...]:
            return mingru(gates, x, state, reset, backward)

        def using(forward: Callable[..., tuple[Tensor, ...]]) -> Call:
            def call(_: int) -> None:
                with torch.set_grad_enabled(backward):
                    y = forward(gates, x, state, reset)[0]
                if backward:
                    torch.autograd.grad(y, [gates, x, state], gradient.to(y.dtype))

            return call

        compiled = torch.compile(reference, dynamic=False)
        return {"ours": using(kernel), "eager": using(reference), "compiled": using(compiled)}

    def scan_forward(self) -> Part:
        return Part("minGRU scan, forward", self.minibatches, self._scan_forms(backward=False))

    def scan(self) -> Part:
        forms = self._scan_forms(backward=True)
        return Part("minGRU scan, forward and backward", self.minibatches, forms)


def _thrice(name: str, calls: int, ours: Callable[[], None], plain: Callable[[], None]) -> Part:
    """A part without arguments."""
    compiled = torch.compile(plain, dynamic=False)
    forms: dict[str, Call] = {
        "ours": lambda _: ours(),
        "eager": lambda _: plain(),
        "compiled": lambda _: compiled(),
    }
    return Part(name, calls, forms)


def _why(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]
