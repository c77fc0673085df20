"""Computes the gradients of a minibatch: gather ─► policy, loss ─► backward.

With trainer.random_shift the policy runs a second time, over moved images, and a loss for these is added.

If the path LOSS_KERNELS was chosen, three Triton kernels compute everything after the first layer (or after the core,
if there is one); otherwise torch does, compiled or not. Place in the flow: learner.py chooses the segments, step.py
uses the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.fast_paths import GATHER_KERNEL, LOSS_KERNELS
from metta_fast.algorithms.ppo.loss import ppo_loss, shift_loss
from metta_fast.algorithms.ppo.loss_terms import Loss
from metta_fast.algorithms.ppo.minibatch import Gather, Minibatch
from metta_fast.buffers.random_shift import RandomShift
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.grid.sparse_layer import product_dtype
from metta_fast.policy.plan import Plan, plan_of
from metta_fast.runtime.fast_paths import FastPaths

if TYPE_CHECKING:
    from metta_fast.algorithms.ppo.triton.loss_and_backward import Tail

Core = Callable[[Tensor, Tensor, Tensor], Tensor]


class Gradients:
    """Adds the gradients of segments to the weights' gradients."""

    def __init__(
        self,
        policy: Policy,
        buffers: Buffers,
        config: TrainerConfig,
        *,
        device: torch.device,
        hooks: Hooks,
        scaler: torch.amp.GradScaler,
        autocast: Callable[[], AbstractContextManager],
        compile_mode: str | None,
        graphs: bool,
        paths: FastPaths,
        shift: RandomShift | None = None,
        shared: bool = False,
    ) -> None:
        """compile_mode, graphs, paths, shift: as for Learner. shared: calls have a `share`."""
        self._shared = shared
        self.policy = policy
        self.buffers, self.config, self.hooks = buffers, config, hooks
        self._scaler, self._autocast, self.shift = scaler, autocast, shift
        self.clip = torch.tensor(config.clip_coef, device=device)
        """PPO's clip of the current update. Always a tensor: a compiled or captured step would keep a Python number's
        value."""
        self.gather = Gather(buffers, device, kernel=paths.uses(GATHER_KERNEL))
        self.tail: Tail | None = None
        """Three kernels for everything after the first layer or the core, or None."""
        self._rehearses = False
        self._core: Core | None = None
        """Computes the layers between the first layer and `tail`, compiled or not; None: there are none."""
        if paths.uses(LOSS_KERNELS):
            self.use_tail(compile_mode)
        self._compiled = compile_mode is not None and self.tail is None and not hooks.on_forward
        self._gathers = graphs and not hooks.extra_loss
        """True: the compiled step gathers its rows itself, in the kernel that uses them. (An extra loss needs them
        gathered.)"""
        forward = self._forward_at if self._gathers else self._forward
        self._step_forward: Callable[..., tuple[Loss, PolicyOutput | None]] = forward
        if self._compiled:
            self._step_forward = torch.compile(forward, mode=compile_mode, dynamic=False)
        self._per_minibatch = config.recompute == "minibatch"
        self._wants_output = self._per_minibatch or bool(hooks.extra_loss)

    def use_tail(self, compile_mode: str | None) -> None:
        """Uses kernels for everything after the first layer, except a core, which is compiled if there is a mode."""
        from metta_fast.algorithms.ppo.triton.loss_and_backward import Tail

        plan = plan_of(self.policy)
        assert isinstance(plan, Plan), plan
        self._plan: Plan = plan
        self.tail = Tail(self.policy, self.buffers, self.config, self.clip, scaled=self._shared)
        if plan.actor.core is not None:
            compiled = compile_mode is not None
            self._core = (
                torch.compile(self._run_core, mode=compile_mode, dynamic=False)
                if compiled
                else self._run_core
            )

    def __call__(
        self,
        segments: Tensor,
        weight: Tensor | None,
        offset: Tensor | None = None,
        share: Tensor | None = None,
    ) -> Tensor:
        """Adds the gradients of segments [B].

        Args:
            weight: [B]: multiplies the segments' advantages; None: 1.
            offset: [B, 2]: how far the segments' images are moved (RandomShift); None: there is no such loss.
            share: []: this process's share of the minibatch's unmasked rows; multiplies the gradients and statistics.
                None: 1.

        Returns:
            The segments' statistics [len(STATS)], on the device.
        """
        batch = None if self._gathers else self.gather.minibatch(segments, self.gather.rows(segments), weight)
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        with self._autocast(), self._watched():
            output: PolicyOutput | None
            if self.tail is not None:
                result, output = self._fused(self.tail, segments, weight), None
            elif batch is None:
                result, output = self._step_forward(segments, weight, offset)
            else:
                result, output = self._step_forward(batch, offset)
            loss = result.loss
            for extra in self.hooks.extra_loss:
                loss = loss + extra(batch, output)
        if self.config.gradient_accumulation > 1:
            loss = loss / self.config.gradient_accumulation
        if share is not None:
            loss = loss * share
        self._scaler.scale(loss).backward()
        if self.config.advantage == "vtrace":
            self.gather.put(self.buffers.ratio, self.gather.rows(segments), result.ratio)
        if self._per_minibatch:
            assert output is not None
            self.gather.put(self.buffers.value, self.gather.rows(segments), output.value.detach())
        return result.stats if share is None else result.stats * share

    def _watched(self) -> AbstractContextManager[Any]:
        """Returns the features' contexts around the forward pass."""
        if not self.hooks.on_forward:
            return nullcontext()
        stack = ExitStack()
        for watch in self.hooks.on_forward:
            stack.enter_context(watch(self.policy))
        return stack

    def _forward(self, batch: Minibatch, offset: Tensor | None) -> tuple[Loss, PolicyOutput | None]:
        """Returns the loss, and the policy's output if anything needs it."""
        output: PolicyOutput = self.policy(batch.obs, batch.state, batch.reset)
        logprob, entropy = self._logprob_entropy(output.params, batch)
        result = ppo_loss(logprob, entropy, output.value, batch, self.config, self.clip)
        if offset is not None:
            loss = result.loss + self._shifted(batch, offset, logprob, output.value, result.ratio)
            result = Loss(loss, result.stats, result.ratio)  # torch 2.11 does not compile _replace
        return result, output if self._wants_output else None

    def _shifted(
        self, batch: Minibatch, offset: Tensor, logprob: Tensor, value: Tensor, ratio: Tensor
    ) -> Tensor:
        """Returns the weighted loss of the minibatch's images moved by `offset`."""
        assert self.shift is not None
        obs, state = self.shift(batch.obs, batch.state, offset.to(ratio.device, non_blocking=True))
        moved: PolicyOutput = self.policy(obs, state, batch.reset)
        other, _ = self._logprob_entropy(moved.params, batch)
        return self.config.random_shift_coef * shift_loss(
            other, moved.value, logprob, value, ratio, batch.mask
        )

    def _logprob_entropy(self, params: Tensor, batch: Minibatch) -> tuple[Tensor, Tensor]:
        """Returns (log-probability, entropy) [L, B] of the minibatch's actions by `params` [L, B, P]; masked rows
        hold numbers without a meaning."""
        params, head = torch.where(batch.mask.unsqueeze(-1), params, 0.0), self.policy.head
        if batch.action_mask is not None:
            assert not isinstance(head, BoxHead)
            params = head.masked(params, batch.action_mask)
        return head.logprob_entropy(params, batch.action)

    def _forward_at(
        self, segments: Tensor, weight: Tensor | None, offset: Tensor | None
    ) -> tuple[Loss, PolicyOutput | None]:
        """Calls `_forward` with segments [B] of the buffers."""
        return self._forward(self.gather.minibatch(segments, self.gather.rows(segments), weight), offset)

    def first_at(self, rows: Tensor) -> Tensor:
        """Returns the first layer's output [R, width] for rows [R] of the buffers, in the dtype of its products."""
        first = self._plan.actor.first_layer(self.buffers.obs, rows)
        return first.to(product_dtype(rows.device.type))

    def _fused(self, tail: Tail, segments: Tensor, weight: Tensor | None) -> Loss:
        """Computes `_forward_at`, using `tail` for everything after the first layer or the core."""
        batch = tail.gather(segments)
        if self._rehearses:  # no kernel has written them, and they are read as indices
            batch.rows.zero_()
        x = self.first_at(batch.rows)
        if self._core is not None:
            x = self._core(x, self.gather.state(segments), self.gather.reset(segments))
        return tail(x, batch, self.gather.rollout_value, weight)

    def _run_core(self, x: Tensor, state: Tensor, reset: Tensor) -> Tensor:
        """Returns the heads' inputs [L · B, H] for the first layer's output [L · B, H]."""
        trunk = self._plan.actor
        assert trunk.core is not None
        hidden: Tensor = trunk.core(trunk.dense(x).unflatten(0, reset.shape), state, reset)[0]
        return hidden.flatten(0, 1)

    def rehearse(self, segments: Tensor) -> Tensor:
        """Runs as a call does, without torch's compiler (runtime/compile_ahead.py)."""
        compiled, self._rehearses = self._core, True
        if compiled is not None:
            self._core = self._run_core
        stats = self(segments, None)
        self._core, self._rehearses = compiled, False
        return stats
