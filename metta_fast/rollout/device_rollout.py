"""Fills the buffers from environments on the policy's device: nothing is copied, the host waits for nothing.

    row T ─► row 0 ─► T × ( policy ─► action[t] ─► step: row t+1 ─► bootstrap[t] ) ─► value of row T
    └► next episodes, built meanwhile ─────────────┘ of row 0 (and every build_every rows where episodes are short)

The vector (contracts/device_vector.py) writes its rows into the buffers. All of it, and what follows the rollout
(`then`), is one work on static tensors, so a CUDA graph can replay it. Where the host has to call the environments in
every row (`capturable` is False), what is between two calls is a graph of its own. Noise is drawn before, keyed by
(seed, epoch) and laid out by agent as for every other vector. `bootstrap[t]` is computed only where resets are
same-step with final observations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metta_fast.buffers.act_row import Act, ActRow
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.policy.base import Policy
from metta_fast.rollout.act import Acts
from metta_fast.rollout.base import RolloutBase
from metta_fast.rollout.check_compiled import check_compiled
from metta_fast.runtime.cuda_graph import Graph, Say


class DeviceRollout(RolloutBase[DeviceVector]):
    """Drives a vector on the policy's device; owns the core's state between rows and epochs."""

    def __init__(
        self,
        vec: DeviceVector,
        policy: Policy,
        buffers: Buffers,
        *,
        then: Callable[[], None],
        fused: torch.dtype | None = None,
        compile_mode: str | None = None,
        graphs: bool = False,
        say: Say = print,
        **keys: Any,
    ) -> None:
        """then: follows the last row, on the device. graphs: replay it as one CUDA graph, or as one for each row where
        the vector is not capturable. fused, compile_mode: as those of act.Acts. keys: as RolloutBase's."""
        super().__init__(vec, policy, buffers, **keys)
        spec = vec.spec
        self._then = then
        acts = Acts(policy, fused=fused, compile_mode=compile_mode)
        self._plain, self._fused, self._act = acts.plain, acts.fused, acts.best
        self._unchecked = acts.best is not acts.plain
        self._state: Tensor = self.policy.initial_state(buffers.num_agents, self.device)
        self._dropped = tuple(
            torch.empty_like(array)
            for array in (self._state, buffers.action[:1], buffers.logprob[:1], buffers.value[:1])
        )
        """Core state, action, log-probability and value of an inference of which only the value is needed."""
        self._no_reset = torch.zeros_like(buffers.reset[:1])
        if spec.action.kind != "discrete":
            buffers.env_action = torch.empty_like(buffers.action[0])
        vec.attach(buffers)  # it knows then how long a rollout is, and whether that can be captured
        masked = spec.autoreset == "next_step" or spec.agents_per_env > 1
        self._cleaned = [leaf for leaf in buffers.obs.values() if leaf.dtype.is_floating_point and masked]
        """Leaves in which masked rows can hold NaN or infinity."""
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._run = Graph("rollout", self._rows, enabled=graphs and vec.capturable, say=say)
        self._parts: list[Graph] = []
        """What is before, between and after the vector's rows; empty: `_run` has all of it."""
        if not vec.capturable and not vec.build_every:
            pool = torch.cuda.graph_pool_handle() if graphs else None
            self._parts = [
                Graph("policy's part of a row", partial(self._part, t), enabled=graphs, say=say, pool=pool)
                for t in range(buffers.horizon + 1)
            ]
        elif graphs and not vec.capturable:
            say(
                f"the rollout runs without a CUDA graph, which is slower: {spec.name} cannot be captured "
                "(its vector has capturable=False, and builds ahead)"
            )

    def _zero_state(self) -> None:
        self._state.zero_()

    def collect(self, epoch: int, rows: int | None = None) -> None:
        """Launch the rollout that fills the buffers, without waiting for it. `rows` has no effect."""
        if not self._held:
            self._reset_environments(epoch)
        self._draw_noise(epoch)
        with torch.no_grad():
            if self._parts:
                self._run_parts()
            else:
                with self._autocast():
                    self._run()
                self.timer.lap("inference")
                self.timer.mark("rollout")
            if self._unchecked:
                with self._autocast():
                    self._check()
        self._held = True

    def _run_parts(self) -> None:
        with nullcontext() if self._parts[0].enabled else self._autocast():
            for t, part in enumerate(self._parts):
                part()
                self._passed("inference")
                if not part.enabled and self._parts[-1].enabled:  # it could not be captured: said once
                    for other in self._parts:
                        other.enabled = False
                if t < self.buffers.horizon:
                    self.vec.step_row(t)
                    self._passed("env")

    def _passed(self, phase: str) -> None:
        self.timer.lap(phase)
        self.timer.mark(phase)

    def rehearse(self) -> None:
        """Run a rollout's host code once, so that Triton's kernels compile (runtime/compile_ahead.py)."""
        with torch.no_grad(), self._autocast():
            if self._fused is not None:
                b = self.buffers
                self._fused.update()
                self._value_into(self._fused, 0, self._state, self._dropped[3])
                self.policy(
                    {name: leaf[:1] for name, leaf in b.obs.items()}, self._state, b.reset[:1]
                )  # `_check`

    def _rows(self) -> None:
        horizon, every = self.buffers.horizon, self.vec.build_every
        if every:
            self._fork()
        self._begin()
        for t in range(horizon):
            builds = every > 0 and t % every == 0
            if builds and t:
                self._fork()
            self._choose(t)
            if builds:
                self._join()
            self.vec.step_row(t)
            self._complete(t)
        self._end()

    def _part(self, t: int) -> None:
        """Does the work between the vector's rows t-1 and t. Autocast is each part's own: casts of weights that it
        keeps must not outlast the launches they are for."""
        with self._autocast():
            self._complete(t - 1) if t else self._begin()
            self._choose(t) if t < self.buffers.horizon else self._end()

    def _begin(self) -> None:
        b = self.buffers
        if self._fused is not None:
            self._fused.update()
        for rows in (*b.obs.values(), b.mask, b.reset, *([] if b.action_mask is None else [b.action_mask])):
            rows[0].copy_(rows[b.horizon])

    def _choose(self, t: int) -> None:
        """Chooses the actions of row t."""
        b = self.buffers
        b.keep_state(t, self._state)
        self._act(b.act_row(t, self._state, self._noise))
        if b.env_action is not None:
            b.env_action.copy_(self.policy.head.to_env(b.action[t]))

    def _complete(self, t: int) -> None:
        """Completes row t after the vector's step."""
        if self._cleaned:
            self._clean(t)
        self._bootstrap(t)

    def _end(self) -> None:
        b = self.buffers
        self._value_into(self._act, b.horizon, self._state, b.value[b.horizon :])
        self._then()

    def _clean(self, t: int) -> None:
        """Puts 0 in place of entries of row t+1 that are not finite, in masked rows whose value is not used."""
        b = self.buffers
        kept = b.mask[t + 1]
        if self.vec.spec.has_final_obs:
            kept = kept | (b.mask[t] & b.truncation[t] & ~b.terminal[t])
        for leaf in self._cleaned:
            row = leaf[t + 1]
            rows = kept.view(-1, *[1] * (row.dim() - 1))
            row.copy_(torch.where(rows | row.float().isfinite(), row, 0.0))

    def _bootstrap(self, t: int) -> None:
        """Write bootstrap[t]: V of the final observations of agents whose episode action[t] cut."""
        b = self.buffers
        if b.bootstrap is None or b.final_obs is None:
            return
        cut = b.truncation[t] & ~b.terminal[t]
        if cut.device.type == "cpu" and not bool(cut.any()):  # on a GPU the host would have to wait
            b.bootstrap[t].zero_()
            return
        obs = {name: leaf.unsqueeze(0) for name, leaf in b.final_obs.items()}
        value = self._dropped[3]
        self._value(self._act, obs, self._state, self._no_reset, value)
        b.bootstrap[t].copy_(value[0].masked_fill(~cut, 0.0))

    def _value_into(self, act: Act, t: int, before: Tensor, value: Tensor) -> None:
        """Write V of row t; `before` [L, N, H] is the core's state before it."""
        b = self.buffers
        obs = {name: leaf[t : t + 1] for name, leaf in b.obs.items()}
        self._value(act, obs, before, b.reset[t : t + 1], value)

    def _value(self, act: Act, obs: dict[str, Tensor], before: Tensor, reset: Tensor, value: Tensor) -> None:
        state, action, logprob, _ = self._dropped
        state.copy_(before)
        act(ActRow(obs, state, reset, self._noise[:1], action, logprob, value))

    def _fork(self) -> None:
        """Build the next episodes of environments that have none, beside the policy's work."""
        if self._side is None:
            self.vec.build_ahead()
            return
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            self.vec.build_ahead()

    def _join(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)

    def _check(self) -> None:
        """Compare the compiled or fused policy's values of row 0 with the plain policy's."""
        self._unchecked = False
        value = self._dropped[3]
        before = self.buffers.first_state() if self._state.numel() else self._state

        def plain() -> Tensor:
            self._value_into(self._plain, 0, before, value)
            return value[0]

        check_compiled(self.buffers.value[0], plain)

    # ---- state ----

    def _state_copy(self) -> Tensor:
        return self._state.clone()

    def _take_state(self, state: Tensor) -> None:
        self._state.copy_(state)

    def _vector_holds(self) -> bool:
        return self.vec.ready
