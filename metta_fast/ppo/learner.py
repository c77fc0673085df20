"""The update: passes over the buffers in minibatches of whole segments.

    advantages ─► each pass: order of segments ─► each minibatch: gather ─► policy, loss ─► gradients ─► Adam

Nothing here waits for the device: sums of losses stay there until `sums` is read after the update, and so does
`stop`, which skips every step once target_kl is passed or a gradient is not finite. (On the CPU target_kl ends the
update at once instead.) On a GPU the whole update can be one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.buffers import Buffers
from metta_fast.config import TrainerConfig
from metta_fast.policy.sparse_layer import product_dtype
from metta_fast.ppo.adam import Adam
from metta_fast.ppo.advantage import compute_advantage
from metta_fast.ppo.backend import has_triton
from metta_fast.ppo.cpu_update import CpuUpdate, supports
from metta_fast.ppo.graph import Graph, Say
from metta_fast.ppo.hooks import Context, GradientHook, Hooks
from metta_fast.ppo.loss import STATS, Loss, ppo_loss
from metta_fast.ppo.minibatch import Gather, Minibatch
from metta_fast.ppo.random import ORDER, Keyed
from metta_fast.ppo.revalue import revalue
from metta_fast.ppo.schedule import adapted, clip_coef, learning_rate
from metta_fast.ppo.timer import Timer

SUMS = (*STATS, "gradient_norm", "minibatches", "optimizer_steps")
"""What `Learner.sums` holds: sums over the minibatches (gradient_norm: over the optimizer steps)."""
ADAM_EPSILON = 1e-5
"""As in the PPO authors' code; 1e-8 lets small second moments make large steps."""
PORTABLE = {"capturable": False, "fused": True}
"""What a checkpoint says of the optimizer, whatever device it was on."""


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
        graphs: bool = False,
        say: Say = print,
    ) -> None:
        """compile_mode: torch.compile's mode for the policy's forward and the loss; None: eager.
        graphs: replay the update as a CUDA graph; what stands against it is told to `say`."""
        self.policy: Any = policy
        self.buffers, self.config, self.device = buffers, config, device
        self.hooks, self.has_final_obs, self.timer = hooks, has_final_obs, timer
        self._autocast = autocast
        self.clip = torch.tensor(config.clip_coef, device=device)
        """PPO's clip, of the present update. A tensor everywhere: a compiled or captured step would keep a number."""
        self._tail: Any = self._make_tail() if graphs else None
        self._compiled = compile_mode is not None and not self._tail
        self._gathers = graphs and not hooks.extra_loss
        """The compiled step gathers its rows itself: one kernel reads and uses them. (An extra loss wants them.)"""
        forward = self._forward_at if self._gathers else self._forward
        self._step_forward: Any = forward
        if self._compiled:
            self._step_forward = torch.compile(forward, mode=compile_mode, dynamic=False)
        self._parameters = [p for p in policy.parameters() if p.requires_grad]
        self._on_device = device.type == "cuda"
        self._adapts = config.schedule == "adaptive"
        begin = learning_rate(config, 0) if self._adapts else config.learning_rate
        rate = torch.tensor(begin, device=device) if self._on_device else begin
        self._rate = rate
        """On a GPU a tensor: a captured step would keep a number for ever."""
        self.optimizer: Any = Adam(
            self._parameters, lr=rate, eps=ADAM_EPSILON, fused=True, capturable=self._on_device
        )
        self.stop = torch.zeros((), device=device)
        """1 once no step may be taken any more in this update: fused Adam leaves weights and moments alone."""
        if self._on_device and config.precision != "fp16":
            self.optimizer.found_inf = self.stop  # type: ignore[attr-defined]
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")
        self.gather = Gather(buffers, device)
        self._keyed = Keyed(seed, buffers.device)
        self._per_minibatch = config.recompute == "minibatch"
        self._wants_output = self._per_minibatch or bool(hooks.extra_loss)
        self._revalues = config.recompute != "epoch"
        if self._revalues:
            self.gather.rollout_value = torch.empty_like(buffers.value)
        self.sums = torch.zeros(len(SUMS), device=device)
        self._accumulates = config.gradient_accumulation > 1
        if self._accumulates:  # in memory of our own: a CUDA graph's is overwritten by its next replay
            for p in self._parameters:
                p.grad = torch.zeros_like(p)
        self._fused_step = self._make_fused_step(say)
        self._cpu_update: Any = None
        if (
            hooks.sample is None
            and not hooks.extra_loss
            and supports(policy, buffers, config, device) is None
        ):
            self._cpu_update = CpuUpdate(policy, buffers, config, self.optimizer, self.clip)
        self._segments = config.minibatch_size // config.bptt_horizon
        self._minibatches = buffers.num_segments // self._segments
        self._order = torch.empty(
            (config.update_epochs, buffers.num_segments), dtype=torch.int64, device=buffers.device
        )
        self._context: Context | None = None
        self._watching: list[GradientHook] = []
        """Those of the present update."""
        self.bad_rollout: Callable[[], Tensor] | None = None
        """A device scalar, 1 if nothing may be learnt from the rollout; None: the host has looked."""
        why = self._not_capturable() if graphs else None
        if why:
            say(f"the update runs without a CUDA graph, which is slower: {why}")
        self._run = Graph("update", self._work, enabled=graphs and not why, say=say)

    def _make_tail(self) -> Any:
        """Three launches for everything after the first layer, or None."""
        if not has_triton(self.buffers.device) or self.hooks.extra_loss:
            return None
        from metta_fast.ppo.gpu_tail import Tail, supports

        if supports(self.policy, self.config) is not None:
            return None
        return Tail(self.policy, self.buffers, self.config, self.clip)

    def _make_fused_step(self, say: Say) -> Any:
        """Two launches in place of `_count` and `_step`, or None."""
        if not has_triton(self.device) or self.config.precision == "fp16":
            return None
        from metta_fast.ppo.gpu_step import FusedStep, fits

        if not fits(self._parameters):
            say(
                "the optimizer's step is not fused, which is slower: a parameter is not float32 and contiguous"
            )
            return None
        config = self.config
        return FusedStep(
            self._parameters, self.optimizer, self.sums, self.stop, config.max_grad_norm, config.target_kl
        )

    def _not_capturable(self) -> str | None:
        """What needs the host in the middle of an update, or None."""
        if self.hooks.sample is not None:
            return "a feature chooses the segments of each minibatch"
        if self.hooks.extra_loss:
            return "a feature adds to the loss"
        if self.config.precision == "fp16":
            return "trainer.precision=fp16 looks at its loss scale"
        if self.buffers.device.type != self.device.type:
            return "the rollout lies in host memory (trainer.cpu_offload)"
        return None

    def update(self, context: Context, steps: int) -> None:
        """Learn from the buffers.

        Args:
            context: the epoch for the hooks and for the order of segments.
            steps: agent steps before this epoch, for the schedule.
        """
        if not self._adapts:
            self._set_rate(learning_rate(self.config, steps))
        if self.config.clip_schedule != "constant":
            self.clip.fill_(clip_coef(self.config, steps))
        if self.hooks.sample is None:
            for number, order in enumerate(self._order):
                generator = self._keyed(ORDER, context.epoch, number)
                torch.randperm(len(order), generator=generator, out=order)
        context.segments = self._segments
        self._context = context
        self._watching = [hook for hook in self.hooks.on_gradients if hook.due(context.epoch)]
        if self._watching:
            for hook in self._watching:
                hook.begin(context)
            self._work()
        else:
            self._run()
        self.timer.lap("update")
        self.timer.mark("update")

    def rate(self, steps: int) -> float:
        """The learning rate: of the update after `steps` agent steps; adaptive: as it is (waits for the device)."""
        return float(self._rate) if self._adapts else learning_rate(self.config, steps)

    def _set_rate(self, rate: float | Tensor) -> None:
        if isinstance(self._rate, Tensor):
            self._rate.copy_(rate) if isinstance(rate, Tensor) else self._rate.fill_(rate)
            return
        self._rate = float(rate)
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate

    def _adapt(self, before: Tensor) -> None:
        """Move the adaptive rate by the mean KL of the minibatches since the sums were `before`."""
        done = self.sums - before
        kl = done[STATS.index("kl")] / done[SUMS.index("minibatches")].clamp(min=1)
        rate = self._rate if isinstance(self._rate, Tensor) else torch.tensor(self._rate, dtype=torch.float64)
        self._set_rate(adapted(rate, kl, self.config.desired_kl))

    def _work(self) -> None:
        """The update but for what changes with the epoch: learning rate and order of segments."""
        context = self._context
        assert context is not None
        self._advantage()
        if self._revalues:
            self.gather.rollout_value.copy_(self.buffers.value)
        self.sums.zero_()
        if self.bad_rollout is None:
            self.stop.zero_()
        else:
            self.stop.copy_(self.bad_rollout())
        context.update = 0
        for number in range(self.config.update_epochs):
            before = self.sums.clone() if self._adapts else None
            if number and self.config.recompute == "pass":
                revalue(self.policy, self.buffers, self.device, self._autocast)
                self._advantage()
            whole = self._pass(number, context)
            if before is not None:
                self._adapt(before)
            if not whole:
                break

    def rehearse(self) -> None:
        """The host's part of a minibatch as far as kernels of Triton do the rest (cuda/ahead.py): no weight changes,
        no sum counts."""
        if self._tail is None or self._fused_step is None:
            return
        self._advantage()
        stats = self._minibatch(self._order[0, : self._segments].zero_(), None)
        if self._accumulates:
            self._fused_step.count(stats)
        self._fused_step.step(stats)
        self.optimizer.zero_grad(set_to_none=not self._accumulates)

    def _advantage(self) -> None:
        self.timer.lap("update")
        compute_advantage(self.buffers, self.config, self.has_final_obs)
        self.timer.lap("advantage")

    def _pass(self, number: int, context: Context) -> bool:
        """One pass over the buffers. Returns False once target_kl stops the update."""
        if self._cpu_update is not None:
            if float(self.stop):
                return False
            if self._watching:
                return self._watched_cpu_pass(self._order[number])
            return self._cpu_update.run(self._order[number], self.gather.rollout_value, self.sums)
        for i in range(self._minibatches):
            if self._per_minibatch and context.update:
                self._advantage()
            weight = None
            if self.hooks.sample is None:
                segments = self._order[number, i * self._segments : (i + 1) * self._segments]
            else:
                segments, weight = self.hooks.sample(context)
            stats = self._minibatch(segments, weight)
            context.update += 1
            steps = context.update % self.config.gradient_accumulation == 0
            if self._fused_step is not None:
                if steps:
                    self._before_step()
                    self._fused_step.step(stats)
                    self._after_step()
                    self.optimizer.zero_grad(set_to_none=not self._accumulates)
                else:
                    self._fused_step.count(stats)
                continue
            self._count(stats, slice(0, len(STATS)))
            self._count(1, len(STATS) + 1)
            if not steps:
                continue
            if self.config.target_kl is not None:
                kl = stats[STATS.index("kl")]
                if self._on_device:
                    self.stop.copy_(torch.maximum(self.stop, (kl > self.config.target_kl).float()))
                elif float(kl) > self.config.target_kl:
                    self.optimizer.zero_grad(set_to_none=not self._accumulates)
                    return False
            self._step()
        return True

    def _watched_cpu_pass(self, order: Tensor) -> bool:
        """A pass by `_cpu_update`, which keeps its gradients to itself: the hooks see torch's, of the same rows."""
        sums, whole = torch.zeros(len(SUMS), dtype=torch.float64), True
        for segments in order.split(self._segments):
            steps = float(sums[-1])
            self._minibatch(segments, None)
            self._before_step()
            self.optimizer.zero_grad()
            whole = self._cpu_update.run(segments, self.gather.rollout_value, sums)
            self._after_step(sums[-1] > steps)
            if not whole:
                break
        self.sums += sums.to(self.sums.dtype)
        return whole

    def _forward(self, batch: Minibatch) -> tuple[Loss, Any]:
        """Policy and loss; and the policy's output, if anything needs it."""
        output = self.policy(batch.obs, batch.state, batch.reset)
        logprob, entropy = self.policy.head.logprob_entropy(output.params, batch.action)
        result = ppo_loss(logprob, entropy, output.value, batch, self.config, self.clip)
        return result, output if self._wants_output else None

    def _forward_at(self, segments: Tensor, weight: Tensor | None) -> tuple[Loss, Any]:
        """`_forward` of the segments [B] of the buffers."""
        return self._forward(self.gather.minibatch(segments, self.gather.rows(segments), weight))

    def _first_at(self, rows: Tensor) -> Tensor:
        """The first layer's output [R, width] for rows [R] of the buffers, in the dtype of its products."""
        first = self.policy.encoder.first_layer(self.buffers.obs, rows)
        return first.to(product_dtype(rows.device.type))

    def _fused(self, segments: Tensor, weight: Tensor | None) -> tuple[Loss, Any]:
        """`_forward_at`, all after the first layer by `_tail`."""
        batch = self._tail.gather(segments)
        return self._tail(self._first_at(batch.rows), batch, self.gather.rollout_value, weight), None

    def _minibatch(self, segments: Tensor, weight: Tensor | None) -> Tensor:
        """Add the gradients of segments [B]. Returns their statistics [len(STATS)], on the device."""
        batch = None if self._gathers else self.gather.minibatch(segments, self.gather.rows(segments), weight)
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        with self._autocast():
            if self._tail:
                result, output = self._fused(segments, weight)
            elif batch is None:
                result, output = self._step_forward(segments, weight)
            else:
                result, output = self._step_forward(batch)
            loss = result.loss
            for extra in self.hooks.extra_loss:
                loss = loss + extra(batch, output)
        if self._accumulates:
            loss = loss / self.config.gradient_accumulation
        self.scaler.scale(loss).backward()
        if self.config.advantage == "vtrace":
            self.gather.put(self.buffers.ratio, self.gather.rows(segments), result.ratio)
        if self._per_minibatch:
            self.gather.put(self.buffers.value, self.gather.rows(segments), output.value.detach())
        return result.stats

    def _count(self, value: Tensor | int, at: int | slice) -> None:
        """Add to the sums, unless the update is stopped."""
        self.sums[at] += torch.where(self.stop > 0, 0.0, value) if self._on_device else value

    def _before_step(self) -> None:
        for hook in self._watching:
            hook.before_step()

    def _after_step(self, taken: Tensor | None = None) -> None:
        for hook in self._watching:
            hook.after_step(self.stop == 0 if taken is None else taken)

    def _step(self) -> None:
        """Scale the summed gradients to max_grad_norm and step."""
        self.scaler.unscale_(self.optimizer)
        self._before_step()
        norm = nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        if self.config.max_grad_norm > 0:
            nn.utils.clip_grads_with_norm_(self._parameters, self.config.max_grad_norm, norm)
        if self.scaler.is_enabled():  # an overflow under fp16 is the scaler's to handle: that step is skipped
            counted = norm.nan_to_num(0.0, 0.0, 0.0)
        else:
            counted = norm
        self._count(counted, len(STATS))
        self._count(1, len(STATS) + 2)
        if self._on_device and not self.scaler.is_enabled():
            self.stop.copy_(torch.maximum(self.stop, (~torch.isfinite(norm)).float()))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self._after_step()
        self.optimizer.zero_grad(set_to_none=not self._accumulates)

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Copies of weights, optimizer and loss scaler."""
        optimizer = self.optimizer.state_dict()
        groups = [
            group | {"lr": self.config.learning_rate, **PORTABLE} for group in optimizer["param_groups"]
        ]
        rate = {"rate": self._rate} if self._adapts else {}
        copies = {"policy": self.policy.state_dict(), "optimizer": optimizer | {"param_groups": groups}}
        return copied(rate | copies) | {"scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        here = {"lr": self._rate, "capturable": self._on_device, "fused": True}
        groups = [group | here for group in state["optimizer"]["param_groups"]]
        self.optimizer.load_state_dict(state["optimizer"] | {"param_groups": groups})
        for group in self.optimizer.param_groups:  # load_state_dict copies: it must be the one we fill
            group["lr"] = self._rate
        if self._adapts and "rate" in state:
            self._set_rate(float(state["rate"]))
        if self._fused_step is not None:
            self._fused_step.adopt()
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


def copied(value: Any) -> Any:
    """The same nested dicts and lists with every tensor copied: on a GPU all of one dtype by one launch."""
    pairs: dict[tuple[torch.device, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}

    def new(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensor = value.detach()
            copy = torch.empty_like(tensor)
            copies, sources = pairs.setdefault((tensor.device, tensor.dtype), ([], []))
            copies.append(copy)
            sources.append(tensor)
            return copy
        if isinstance(value, dict):
            return {key: new(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(new(entry) for entry in value)
        return value

    made = new(value)
    for copies, sources in pairs.values():
        torch._foreach_copy_(copies, sources)
    return made
