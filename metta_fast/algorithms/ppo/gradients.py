"""The gradients of a minibatch: gather ─► policy, loss ─► backward.

Everything after the first layer (of a policy with memory: after that) by three kernels of Triton (gpu_tail.py) where
they know the policy and graphs are on; else torch, compiled or not. Place in the flow: learner.py chooses the segments,
step.py uses the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.loss import ppo_loss
from metta_fast.algorithms.ppo.loss_terms import Loss
from metta_fast.algorithms.ppo.minibatch import Gather, Minibatch
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.policy.grid.sparse_layer import product_dtype
from metta_fast.runtime.torch_setup import has_triton


class Gradients:
    """Call it with segments to add their gradients to the weights'."""

    def __init__(
        self,
        policy: nn.Module,
        buffers: Buffers,
        config: TrainerConfig,
        *,
        device: torch.device,
        hooks: Hooks,
        scaler: torch.amp.GradScaler,
        autocast: Callable[[], AbstractContextManager],
        compile_mode: str | None,
        graphs: bool,
    ) -> None:
        """compile_mode, graphs: as the learner's."""
        self.policy: Any = policy
        self.buffers, self.config, self.hooks = buffers, config, hooks
        self._scaler, self._autocast = scaler, autocast
        self.clip = torch.tensor(config.clip_coef, device=device)
        """PPO's clip, of the present update. A tensor everywhere: a compiled or captured step would keep a number."""
        self.gather = Gather(buffers, device)
        self.tail: Any = self._make_tail() if graphs else None
        """Three launches for everything after the first layer or the memory, or None."""
        self._remembers: Any = self._remember if self.tail and policy.core is not None else None
        """What lies between the first layer and `tail`: compiled, or None."""
        if self._remembers is not None and compile_mode is not None:
            self._remembers = torch.compile(self._remember, mode=compile_mode, dynamic=False)
        self._compiled = compile_mode is not None and not self.tail
        self._gathers = graphs and not hooks.extra_loss
        """The compiled step gathers its rows itself: one kernel reads and uses them. (An extra loss wants them.)"""
        forward = self._forward_at if self._gathers else self._forward
        self._step_forward: Any = forward
        if self._compiled:
            self._step_forward = torch.compile(forward, mode=compile_mode, dynamic=False)
        self._per_minibatch = config.recompute == "minibatch"
        self._wants_output = self._per_minibatch or bool(hooks.extra_loss)

    def _make_tail(self) -> Any:
        if (
            not has_triton(self.buffers.device)
            or self.hooks.extra_loss
            or self.buffers.action_mask is not None
        ):
            return None
        from metta_fast.algorithms.ppo.triton.loss_and_backward import Tail, supports

        if supports(self.policy, self.config) is not None:
            return None
        return Tail(self.policy, self.buffers, self.config, self.clip)

    def __call__(self, segments: Tensor, weight: Tensor | None) -> Tensor:
        """Add the gradients of segments [B], whose advantages are multiplied by weight [B]; None: 1.

        Returns:
            Their statistics [len(STATS)], on the device.
        """
        batch = None if self._gathers else self.gather.minibatch(segments, self.gather.rows(segments), weight)
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        with self._autocast():
            if self.tail:
                result, output = self._fused(segments, weight)
            elif batch is None:
                result, output = self._step_forward(segments, weight)
            else:
                result, output = self._step_forward(batch)
            loss = result.loss
            for extra in self.hooks.extra_loss:
                loss = loss + extra(batch, output)
        if self.config.gradient_accumulation > 1:
            loss = loss / self.config.gradient_accumulation
        self._scaler.scale(loss).backward()
        if self.config.advantage == "vtrace":
            self.gather.put(self.buffers.ratio, self.gather.rows(segments), result.ratio)
        if self._per_minibatch:
            self.gather.put(self.buffers.value, self.gather.rows(segments), output.value.detach())
        return result.stats

    def _forward(self, batch: Minibatch) -> tuple[Loss, Any]:
        """Policy and loss; and the policy's output, if anything needs it."""
        output = self.policy(batch.obs, batch.state, batch.reset)
        params, head = output.params, self.policy.head
        if batch.action_mask is not None:
            params = head.masked(params, batch.action_mask)
        logprob, entropy = head.logprob_entropy(params, batch.action)
        result = ppo_loss(logprob, entropy, output.value, batch, self.config, self.clip)
        return result, output if self._wants_output else None

    def _forward_at(self, segments: Tensor, weight: Tensor | None) -> tuple[Loss, Any]:
        """`_forward` of the segments [B] of the buffers."""
        return self._forward(self.gather.minibatch(segments, self.gather.rows(segments), weight))

    def first_at(self, rows: Tensor) -> Tensor:
        """The first layer's output [R, width] for rows [R] of the buffers, in the dtype of its products."""
        first = self.policy.encoder.first_layer(self.buffers.obs, rows)
        return first.to(product_dtype(rows.device.type))

    def _fused(self, segments: Tensor, weight: Tensor | None) -> tuple[Loss, Any]:
        """`_forward_at`, all after the first layer or the memory by `tail`."""
        batch = self.tail.gather(segments)
        x = self.first_at(batch.rows)
        if self._remembers is not None:
            x = self._remembers(x, self.gather.state(segments), self.gather.reset(segments))
        return self.tail(x, batch, self.gather.rollout_value, weight), None

    def _remember(self, x: Tensor, state: Tensor, reset: Tensor) -> Tensor:
        """The first layer's output [L · B, H] → what the heads read [L · B, H]."""
        encoder: Any = self.policy.encoder
        hidden = encoder.second(x.relu()).relu().unflatten(0, reset.shape)
        return self.policy.core(hidden, state, reset)[0].flatten(0, 1)

    def rehearse(self, segments: Tensor) -> Tensor:
        """As a call (cuda/ahead.py), without torch's compiler."""
        compiled = self._remembers
        if compiled is not None:
            self._remembers = self._remember
        stats = self(segments, None)
        self._remembers = compiled
        return stats
