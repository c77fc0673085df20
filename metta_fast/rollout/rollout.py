"""Fills the buffers from blocks of environments: every block gives `horizon` rows and is held again at row T.

    held or ready block ─► row t into Buffers ─► policy ─► action[t] ─► send     the first ready block first
                               t = T: only the value; the block stays held, its row is the next epoch's row 0

A rollout can be shortened: blocks are then held at an earlier row, and the rows from there on are masked.

Sampling noise is keyed by (seed, epoch) and laid out by agent, so the order of arrival changes nothing.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.contracts.player import check_legal
from metta_fast.contracts.vector import Block, VectorEnv, VectorError, WorkerError
from metta_fast.policy.base import Policy
from metta_fast.policy.plan import described_by
from metta_fast.rollout.act import Choose, make_act
from metta_fast.rollout.base import RolloutBase
from metta_fast.rollout.check_compiled import check_compiled
from metta_fast.rollout.finite_checks import check_block, check_choice
from metta_fast.rollout.transfer import Transfer, make_transfer


class Rollout(RolloutBase[VectorEnv]):
    """Drives the vector; owns the core's state between rows and epochs."""

    def __init__(
        self,
        vec: VectorEnv,
        policy: Policy,
        buffers: Buffers,
        *,
        zero_copy: bool = True,
        compile_mode: str | None = None,
        **keys: Any,
    ) -> None:
        """compile_mode: torch.compile's mode for policy and sampling; None: eager. keys: as RolloutBase's.

        Raises:
            UserError: the environments give final observations apart from their rows.
        """
        super().__init__(vec, policy, buffers, **keys)
        if buffers.bootstrap is not None:
            raise UserError(
                f"{vec.spec.name} gives final observations of same-step resets, which blocks of environments do not "
                "carry; give vector.backend=gpu and a factory with make_device_vector"
            )
        self._transfer = self._make_transfer(zero_copy)
        self._compiled = compile_mode is not None
        self._plain = act = make_act(policy)
        self._unchecked = self._compiled
        self._act: Choose = (
            torch.compile(act, mode=compile_mode, dynamic=False) if compile_mode is not None else act
        )
        self._checks_choice = self.device.type == "cpu" and vec.spec.action.kind != "box"
        """Before an action is sent; on a GPU, which would have to wait, the summary finds a row without a choice."""
        self._epoch = 0
        self._rows = [0] * len(vec.blocks)
        self._last = buffers.horizon
        """The row at which this epoch's blocks are held: T, or less in a shortened rollout."""
        self._states: list[Tensor] = []
        self.forget()

    def _make_transfer(self, zero_copy: bool) -> Transfer:
        reads = not described_by(self.policy, "reads_reset", "forward") or self.policy.reads_reset()
        can_wait = not reads and self.policy.state_shape[0] * self.policy.state_shape[1] == 0
        return make_transfer(
            self.vec, self.buffers, self.device, zero_copy=zero_copy, reset_can_wait=can_wait
        )

    def _zero_state(self) -> None:
        self._states = [self.policy.initial_state(block.size, self.device) for block in self.vec.blocks]

    def collect(self, epoch: int, rows: int | None = None) -> None:
        """Fill the buffers. Raises what `vec.recv` raises, and NonFiniteError."""
        self._last = rows or self.buffers.horizon
        timer, recv = self.timer, self.vec.recv
        waiting: deque[Block] = deque()
        if self._held:
            waiting.extend(self.vec.blocks)
        else:
            self._reset_environments(epoch)
        self._held = False
        self._epoch = epoch
        self._draw_noise(epoch)
        self._rows[:] = [0] * len(self._rows)
        with self._contexts():
            timer.lap("inference")
            for _ in range(len(self._rows) * (self._last + 1)):
                block = waiting.popleft() if waiting else recv()
                timer.lap("env")
                self._row(block)
            self._transfer.finish()
            self.buffers.leave_out(self._last)
        self._held = True
        timer.lap("copy")

    def _contexts(self) -> AbstractContextManager:
        """Returns the contexts that the policy runs in."""
        contexts = ExitStack()
        contexts.enter_context(torch.no_grad() if self._compiled else torch.inference_mode())
        contexts.enter_context(self._autocast())
        return contexts

    def _row(self, block: Block) -> None:
        """Do the block's next row: in, policy, out."""
        timer, transfer, i = self.timer, self._transfer, block.index
        t = self._rows[i]
        self._rows[i] = t + 1
        if self.buffers.action_mask is not None and t < self._last:
            where = f", row {t} of the rollout of epoch {self._epoch}"
            check_legal(block.rows.action_mask, block.rows.mask, self.vec.spec, block.start, where)
        transfer.load(block, t)
        timer.lap("copy")
        self._act_on(block, t)
        transfer.load_rest(block, t)  # while the device works
        timer.lap("copy")
        if t == self._last:
            return
        transfer.wait(block)
        timer.lap("inference")
        try:
            self.vec.send(block)
        except NonFiniteError:  # named again, with its epoch and row
            check_block(block, self.vec.spec, t, self._epoch)
            raise

    def _act_on(self, block: Block, t: int) -> None:
        """Run the policy on row t into the buffers; except for the last row, start the actions' copy to the slab."""
        timer, buffers, transfer = self.timer, self.buffers, self._transfer
        i, a, b = block.index, block.start, block.stop
        last = t == self._last
        obs, reset = transfer.inputs(block, t)
        action_mask = transfer.action_mask(block, t)
        state = self._states[i]
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        if not last:
            buffers.keep_state(t, state, a, b)
        noise = self._noise[0 if last else t, a:b].unsqueeze(0)
        action, logprob, value, new_state, given = self._act(obs, state, reset, noise, action_mask)
        buffers.value[t, a:b].copy_(value[0], non_blocking=True)
        if self._unchecked:
            self._unchecked = False
            inputs = (obs, state, reset, noise, action_mask)
            check_compiled(value[0], lambda: self._plain(*inputs)[2][0])
        timer.lap("inference")
        if last:
            return
        if self._compiled:  # a graph's outputs are overwritten by its next replay
            state.copy_(new_state)
        else:
            self._states[i] = new_state
        transfer.give(block, given)
        transfer.keep(block, t, action, logprob)
        if self._checks_choice:
            row = logprob[0].numpy()
            if row.min() == -np.inf:
                check_choice(block, row, self.policy, self.vec.spec, t, self._epoch)
        timer.lap("copy")

    # ---- state ----

    def _state_copy(self) -> Tensor:
        return torch.cat(self._states, 1)

    def _take_state(self, state: Tensor) -> None:
        """The number of blocks may be another than when it was saved."""
        for block, own in zip(self.vec.blocks, self._states):
            own.copy_(state[:, block.start : block.stop])

    def _vector_holds(self) -> bool:
        try:
            self.vec.hold_all()
        except WorkerError:
            raise
        except VectorError:  # nothing was loaded into the vector
            return False
        return True
