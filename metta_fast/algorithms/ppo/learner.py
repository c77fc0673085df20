"""Updates the policy: passes over the buffers in minibatches of whole segments.

    advantages ─► each pass: order of segments ─► each minibatch: gradients.py ─► step.py

Nothing here waits for the device: step.py's sums stay there until `sums` is read after the update. (On the CPU,
target_kl ends the update at once.) On a GPU the whole update can be one CUDA graph; if that would be too large, each
minibatch is one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.algorithms.ppo.advantage.value_sums import VALUE_SUMS
from metta_fast.algorithms.ppo.c.mlp_update import C_UPDATE, MLPUpdate
from metta_fast.algorithms.ppo.fast_paths import MINIBATCH_GRAPHS, STEP_KERNELS, UPDATE_GRAPH
from metta_fast.algorithms.ppo.gradients import Gradients
from metta_fast.algorithms.ppo.revalue import revalue
from metta_fast.algorithms.ppo.schedule import clip_coef, learning_rate
from metta_fast.algorithms.ppo.shared_rows import SharedRows
from metta_fast.algorithms.ppo.step import SUMS, Step
from metta_fast.buffers.random_shift import RandomShift
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.algorithm import POLICY_STATE
from metta_fast.distributed.group import current
from metta_fast.policy.base import Policy
from metta_fast.policy.weights import load_weights, outer_layers
from metta_fast.runtime.copied import copied
from metta_fast.runtime.cuda_graph import Graph, Say
from metta_fast.runtime.fast_paths import FastPaths
from metta_fast.runtime.keyed_random import ORDER, SHIFT, Keyed
from metta_fast.runtime.timer import Timer
from metta_fast.storage.altered import entry


class Learner:
    """Updates the policy's weights."""

    def __init__(
        self,
        policy: Policy,
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
        paths: FastPaths,
        shift: RandomShift | None = None,
        say: Say = print,
    ) -> None:
        """compile_mode: torch.compile's mode for the policy's forward and the loss; None: eager.
        graphs: use CUDA graphs. paths: the run's choices. shift: moves images (trainer.random_shift); None: off. say:
        called with notes on parts that are not captured."""
        self.policy = policy
        self.buffers, self.config, self.device = buffers, config, device
        self.hooks, self.has_final_obs, self.timer = hooks, has_final_obs, timer
        self._autocast = autocast
        self.step = Step(
            [p for p in policy.parameters() if p.requires_grad],
            config,
            device,
            outer=outer_layers(policy) if config.optimizer == "muon" else (),
            kernels=paths.uses(STEP_KERNELS),
        )
        self.group = current()
        self.shared: SharedRows | None = None
        """Advantages normalised over all processes' rows, and this process's share of them; None: one process."""
        own, own_config = buffers, config
        if self.group.active:
            self.shared = SharedRows(buffers, config, self.group)
            own, own_config = self.shared.buffers, self.shared.config
        if config.optimizer == "muon":
            say(self._which_by_muon())
        self.sums = self.step.sums
        """step.SUMS of the last update."""
        self.value_sums = torch.zeros(len(VALUE_SUMS), dtype=torch.float64, device=buffers.device)
        """VALUE_SUMS of the last update's rollout, on the buffers' device."""
        self._adds_up = False
        """Whether the next advantage is an update's first, which gives value_sums."""
        self.gradients = Gradients(
            policy,
            own,
            own_config,
            device=device,
            hooks=hooks,
            shared=self.shared is not None,
            scaler=self.step.scaler,
            autocast=autocast,
            compile_mode=compile_mode,
            graphs=graphs,
            paths=paths,
            shift=shift,
        )
        self.gather = self.gradients.gather
        self._keyed = Keyed(seed, buffers.device)
        self._revalues = config.recompute != "epoch"
        if self._revalues:
            self.gather.rollout_value = torch.empty_like(buffers.value)
        self._cpu_update: MLPUpdate | None = None
        if paths.uses(C_UPDATE):
            self._cpu_update = MLPUpdate(policy, buffers, config, self.step.optimizer, self.gradients.clip)
        self._segments = config.minibatch_size // config.bptt_horizon
        self._minibatches = buffers.num_segments // self._segments
        self._order = torch.empty(
            (config.update_epochs, buffers.num_segments), dtype=torch.int64, device=buffers.device
        )
        self._offsets: Tensor | None = None
        """[update_epochs, minibatches, segments, 2] int64: how far each segment's images are moved, by the segment's
        place in the minibatch; None: they are not."""
        if shift is not None:
            size = config.update_epochs, self._minibatches, self._segments, 2
            self._offsets = torch.zeros(size, dtype=torch.int64, device=buffers.device)
        self._context: Context | None = None
        self.bad_rollout: Callable[[], Tensor] | None = None
        """Returns a device scalar, 1 if the rollout must not be used to learn; None: the host has checked it."""
        self._make_graphs(paths, graphs, say)

    def _which_by_muon(self) -> str:
        """Returns which weights are stepped by Muon."""
        groups = self.step.optimizer.param_groups
        muons = {id(p) for group in groups if "momentum" in group for p in group["params"]}
        names = [name for name, p in self.policy.named_parameters() if id(p) in muons]
        rest = len(self.step.parameters) - len(names)
        return (
            f"trainer.optimizer=muon: Muon steps {', '.join(names) or 'no weight'}; AdamW steps {rest} others"
        )

    def _make_graphs(self, paths: FastPaths, graphs: bool, say: Say) -> None:
        """Prepares CUDA graphs of the whole update, of each minibatch, or none."""
        why = paths.missed(UPDATE_GRAPH, MINIBATCH_GRAPHS) if graphs else None
        if why:
            say(f"the update runs without a CUDA graph, which is slower: {why}")
        self._run = Graph("update", self._work, enabled=paths.uses(UPDATE_GRAPH), say=say)
        self._now_share = torch.ones((), device=self.device)
        """This process's share of that minibatch."""
        self._single = self._make_single(say) if paths.uses(MINIBATCH_GRAPHS) else None
        """Graphs of one minibatch, with and without a step due; None: not used."""
        self._now = torch.empty_like(self._order[0, : self._segments])
        """Segments of the minibatch that those graphs process."""
        self._now_offset = None if self._offsets is None else torch.zeros_like(self._offsets[0, 0])
        """How far their images are moved."""

    def _make_single(self, say: Say) -> dict[bool, Graph]:
        pool = torch.cuda.graph_pool_handle()

        def graph(due: bool) -> Graph:
            def work() -> None:
                share = None if self.shared is None else self._now_share
                self._minibatch(self._now, None, due, self._now_offset, share)

            return Graph("update's minibatch", work, enabled=True, say=say, pool=pool)

        return {due: graph(due) for due in (False, True)}

    def update(self, context: Context, steps: int) -> None:
        """Learns from the buffers.

        Args:
            context: the epoch for the hooks and for the order of segments.
            steps: agent steps before this epoch, for the schedules.
        """
        if not self.step.adapts:
            self.step.set_rate(learning_rate(self.config, steps, self.group.world))
        if self.config.clip_schedule != "constant":
            self.gradients.clip.fill_(clip_coef(self.config, steps, self.group.world))
        if self.hooks.sample is None:
            for number, order in enumerate(self._order):
                generator = self._keyed(ORDER, context.epoch, number, *self.group.key)
                torch.randperm(len(order), generator=generator, out=order)
        self._draw_offsets(context.epoch)
        context.segments = self._segments
        self._context = context
        self.step.watching = [hook for hook in self.hooks.on_gradients if hook.due(context.epoch)]
        if self.step.watching:
            for hook in self.step.watching:
                hook.begin(context)
            self._work()
        else:
            self._run()
        self.timer.lap("update")
        self.timer.mark("update")

    def _draw_offsets(self, epoch: int) -> None:
        if self._offsets is None:
            return
        most = self.config.random_shift
        for number, offsets in enumerate(self._offsets):
            generator = self._keyed(SHIFT, epoch, number, *self.group.key)
            torch.randint(-most, most + 1, offsets.shape, generator=generator, out=offsets)

    def rate(self, steps: int) -> float:
        """Returns the learning rate after `steps` agent steps; adaptive: the current one (waits for the device)."""
        return (
            float(self.step.rate) if self.step.adapts else learning_rate(self.config, steps, self.group.world)
        )

    def _work(self) -> None:
        """Runs the part of the update that does not change with the epoch (learning rate, clip, order of segments)."""
        context = self._context
        assert context is not None
        self._adds_up = True
        self._advantage()
        self._adds_up = False
        if self._revalues:
            self.gather.rollout_value.copy_(self.buffers.value)
        self.sums.zero_()
        if self.bad_rollout is None:
            self.step.stop.zero_()
        else:
            self.step.stop.copy_(self.bad_rollout())
            self.group.max_(self.step.stop)
        context.update = 0
        for number in range(self.config.update_epochs):
            before = self.sums.clone() if self.step.adapts else None
            if number and self.config.recompute == "pass":
                revalue(self.policy, self.buffers, self.device, self._autocast)
                self._advantage()
            whole = self._pass(number, context)
            if before is not None:
                self.step.adapt(before)
            if not whole:
                break

    def rehearse(self) -> None:
        """Runs the host's part of a minibatch that Triton kernels compute (runtime/compile_ahead.py). Changes no
        weights and no sums."""
        if self.gradients.tail is None or self.step.fused is None:
            return
        self._advantage()
        self.step.rehearse(self.gradients.rehearse(self._order[0, : self._segments].zero_()))

    def _advantage(self) -> None:
        self.timer.lap("update")
        sums = self.value_sums if self._adds_up else None
        compute_advantage(self.buffers, self.config, self.has_final_obs, sums)
        self.timer.lap("advantage")

    def _pass(self, number: int, context: Context) -> bool:
        """Passes over the buffers once. Returns False once target_kl stops the update."""
        if self._cpu_update is not None:
            if float(self.step.stop):
                return False
            if self.step.watching:
                return self._watched_cpu_pass(self._order[number])
            return self._cpu_update.run(self._order[number], self.gather.rollout_value, self.sums)
        one_by_one = self.hooks.sample is not None or self.config.recompute == "minibatch"
        if self.shared is not None and not one_by_one:
            self.shared.take(self._order[number].view(self._minibatches, self._segments))
        for i in range(self._minibatches):
            if self.config.recompute == "minibatch" and context.update:
                self._advantage()
            weight = None
            if self.hooks.sample is None:
                segments = self._order[number, i * self._segments : (i + 1) * self._segments]
            else:
                segments, weight = self.hooks.sample(context)
            offset = None if self._offsets is None else self._offsets[number, i]
            share = None
            if self.shared is not None:
                if one_by_one:
                    self.shared.take(segments.view(1, -1))
                share = self.shared.share[0 if one_by_one else i]
            context.update += 1
            due = context.update % self.config.gradient_accumulation == 0
            if self._single is not None and not self.step.watching:
                self._now.copy_(segments)
                if self._now_offset is not None and offset is not None:
                    self._now_offset.copy_(offset)
                if share is not None:
                    self._now_share.copy_(share)
                self._single[due]()
            elif not self._minibatch(segments, weight, due, offset, share):
                return False
        return True

    def _minibatch(
        self,
        segments: Tensor,
        weight: Tensor | None,
        due: bool,
        offset: Tensor | None,
        share: Tensor | None,
    ) -> bool:
        """Computes the gradients of segments [B], and steps if a step is due. Returns False if target_kl stops the
        update."""
        return self.step(self.gradients(segments, weight, offset, share), due=due)

    def _watched_cpu_pass(self, order: Tensor) -> bool:
        """Runs a pass with `_cpu_update`. It has no gradients for hooks, so hooks get torch's, of the same rows."""
        assert self._cpu_update is not None
        sums, whole = torch.zeros(len(SUMS), dtype=torch.float64), True
        for segments in order.split(self._segments):
            steps = float(sums[-1])
            self.gradients(segments, None)
            self.step.before()
            self.step.optimizer.zero_grad()
            whole = self._cpu_update.run(segments, self.gather.rollout_value, sums)
            self.step.after(sums[-1] > steps)
            if not whole:
                break
        self.sums += sums.to(self.sums.dtype)
        return whole

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of weights, optimizer and loss scaler."""
        step = self.step.state_dict()
        scaler = step.pop("scaler")
        return copied({POLICY_STATE: self.policy.state_dict(), **step}) | {"scaler": scaler}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_weights(self.policy, entry(state, POLICY_STATE), POLICY_STATE, OTHER_RUN)
        self.step.load_state_dict(state)


OTHER_RUN = (
    "they were altered, or the policy's code has changed: use an earlier checkpoint, or undo the change"
)
"""The cure for resume."""
