"""The update: passes over the buffers in minibatches of whole segments.

    advantages ─► each pass: order of segments ─► each minibatch: gather ─► policy, loss ─► gradients ─► Adam

Nothing here waits for the device: sums of losses stay there until `sums` is read after the update. (With
trainer.target_kl the host has to look at the KL before each step.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.buffers import Buffers
from metta_fast.config import TrainerConfig
from metta_fast.ppo.advantage import compute_advantage
from metta_fast.ppo.hooks import Context, Hooks
from metta_fast.ppo.loss import STATS, Loss, ppo_loss
from metta_fast.ppo.minibatch import Gather, Minibatch
from metta_fast.ppo.random import ORDER, Keyed
from metta_fast.ppo.schedule import learning_rate
from metta_fast.ppo.timer import Timer

SUMS = (*STATS, "gradient_norm", "minibatches", "optimizer_steps")
"""What `Learner.sums` holds: sums over the minibatches (gradient_norm: over the optimizer steps)."""
ADAM_EPSILON = 1e-5
"""As in the PPO authors' code; 1e-8 lets small second moments make large steps."""


class Learner:
    """Owns the optimizer. `update` changes the policy's weights."""

    def __init__(
        self,
        policy: nn.Module,
        buffers: Buffers,
        config: TrainerConfig,
        *,
        seed: int,
        device: torch.device,
        hooks: Hooks,
        has_final_obs: bool,
        autocast: Callable[[], AbstractContextManager],
        timer: Timer,
        compile_mode: str | None = None,
    ) -> None:
        """compile_mode: torch.compile's mode for the policy's forward and the loss; None: eager."""
        self.policy: Any = policy
        self.buffers, self.config, self.device = buffers, config, device
        self.hooks, self.has_final_obs, self.timer = hooks, has_final_obs, timer
        self._autocast = autocast
        self._compiled = compile_mode is not None
        forward = self._forward
        self._step_forward = (
            torch.compile(forward, mode=compile_mode, dynamic=False) if self._compiled else forward
        )
        self._parameters = [p for p in policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(
            self._parameters, lr=config.learning_rate, eps=ADAM_EPSILON, fused=True
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")
        self.gather = Gather(buffers, device)
        self._keyed = Keyed(seed, buffers.device)
        self._per_minibatch = config.recompute == "minibatch"
        self._wants_output = self._per_minibatch or bool(hooks.extra_loss)
        if self._per_minibatch:
            self.gather.rollout_value = torch.empty_like(buffers.value)
        self.sums = torch.zeros(len(SUMS), device=device)
        self._accumulates = config.gradient_accumulation > 1
        if self._accumulates:  # in memory of our own: a CUDA graph's is overwritten by its next replay
            for p in self._parameters:
                p.grad = torch.zeros_like(p)
        self._segments = config.minibatch_size // config.bptt_horizon
        self._minibatches = buffers.num_segments // self._segments

    def update(self, context: Context, steps: int) -> None:
        """Learn from the buffers.

        Args:
            context: the epoch for the hooks and for the order of segments.
            steps: agent steps before this epoch, for the schedule.
        """
        config, timer = self.config, self.timer
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, steps)
        self._advantage()
        if self._per_minibatch:
            self.gather.rollout_value.copy_(self.buffers.value)
        self.sums.zero_()
        context.segments, context.update = self._segments, 0
        for number in range(config.update_epochs):
            if not self._pass(number, context):
                break
        timer.lap("update")

    def _advantage(self) -> None:
        self.timer.lap("update")
        compute_advantage(self.buffers, self.config, self.has_final_obs)
        self.timer.lap("advantage")

    def _pass(self, number: int, context: Context) -> bool:
        """One pass over the buffers. Returns False once target_kl stops the update."""
        order = None
        if self.hooks.sample is None:
            generator = self._keyed(ORDER, context.epoch, number)
            order = torch.randperm(self.buffers.num_segments, generator=generator, device=self.buffers.device)
        for i in range(self._minibatches):
            if self._per_minibatch and context.update:
                self._advantage()
            weight = None
            if order is not None:
                segments = order[i * self._segments : (i + 1) * self._segments]
            else:
                segments, weight = self.hooks.sample(context)  # type: ignore[misc]
            rows = self.gather.rows(segments)
            kl = self._minibatch(self.gather.minibatch(segments, rows, weight), rows)
            context.update += 1
            if context.update % self.config.gradient_accumulation:
                continue
            if self.config.target_kl is not None and float(kl) > self.config.target_kl:
                self.optimizer.zero_grad(set_to_none=not self._accumulates)
                return False
            self._step()
        return True

    def _forward(self, batch: Minibatch) -> tuple[Loss, Any]:
        """Policy and loss; and the policy's output, if anything needs it."""
        output = self.policy(batch.obs, batch.state, batch.reset)
        logprob, entropy = self.policy.head.logprob_entropy(output.params, batch.action)
        result = ppo_loss(logprob, entropy, output.value, batch, self.config)
        return result, output if self._wants_output else None

    def _minibatch(self, batch: Minibatch, rows: Tensor) -> Tensor:
        """Add the minibatch's gradients. Returns its KL, a device scalar."""
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        with self._autocast():
            result, output = self._step_forward(batch)
            loss = result.loss
            for extra in self.hooks.extra_loss:
                loss = loss + extra(batch, output)
        if self._accumulates:
            loss = loss / self.config.gradient_accumulation
        self.scaler.scale(loss).backward()
        self.sums[: len(STATS)] += result.stats
        self.sums[len(STATS) + 1] += 1
        if self.config.advantage == "vtrace":
            self.gather.put(self.buffers.ratio, rows, result.ratio)
        if self._per_minibatch:
            self.gather.put(self.buffers.value, rows, output.value.detach())
        return result.stats[STATS.index("kl")]

    def _step(self) -> None:
        """Scale the summed gradients to max_grad_norm and step."""
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        if self.config.max_grad_norm > 0:
            nn.utils.clip_grads_with_norm_(self._parameters, self.config.max_grad_norm, norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=not self._accumulates)
        if self.scaler.is_enabled():  # an overflow under fp16 is the scaler's to handle: that step is skipped
            norm = norm.nan_to_num(0.0, 0.0, 0.0)
        self.sums[len(STATS)] += norm
        self.sums[len(STATS) + 2] += 1

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Copies of weights, optimizer and loss scaler."""
        return {
            "policy": _copied(self.policy.state_dict()),
            "optimizer": _copied(self.optimizer.state_dict()),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


def _copied(value: Any) -> Any:
    """The same nested dicts and lists with every tensor cloned."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(entry) for entry in value)
    return value
