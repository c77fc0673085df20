"""Fills the buffers from CPU environments with the policy on a GPU: a row's launches are one CUDA graph.

    held or ready block ─► row t into Buffers ─► [ row t of Buffers ─► policy ─► row t of Buffers, action ] ─► send
                                                 └────────────── one graph for each block ──────────────┘

A graph's tensors stay in place, so the row it works on is a number on the device, which it counts up itself.
The core's state is changed in place. Row T, which needs only the value, has a graph of its own.

Place in the flow: as rollout.py, which drives the vector for both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metta_fast.buffers.act_row import ActRow
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.vector import Block, VectorEnv
from metta_fast.policy.base import Policy
from metta_fast.rollout.act import Acts
from metta_fast.rollout.check_compiled import check_compiled
from metta_fast.rollout.rollout import Rollout
from metta_fast.runtime.cuda_graph import Graph, Say


class GraphRollout(Rollout):
    """Rollout whose policy and buffers are on the GPU."""

    def __init__(
        self,
        vec: VectorEnv,
        policy: Policy,
        buffers: Buffers,
        *,
        fused: torch.dtype | None = None,
        compile_mode: str | None = None,
        graphs: bool = True,
        say: Say = print,
        **keys: Any,
    ) -> None:
        """fused, compile_mode: as those of act.Acts. graphs: False: launch by launch. keys: as `Rollout`'s."""
        super().__init__(vec, policy, buffers, **keys)
        self._acts = Acts(policy, fused=fused, compile_mode=compile_mode)
        self._unchecked = self._acts.best is not self._acts.plain
        self._at = torch.zeros(len(vec.blocks), dtype=torch.int64, device=self.device)
        """The row that each block's graph comes to next."""
        pool = torch.cuda.graph_pool_handle() if graphs else None
        self._steps = [
            BlockStep(
                buffers, block, self._at[i : i + 1], self._noise, self._states[i], self._acts, self._autocast,
                lambda name, work: Graph(name, work, enabled=graphs, say=say, pool=pool),
            )
            for i, block in enumerate(vec.blocks)
        ]  # fmt: skip

    def _zero_state(self) -> None:
        if not self._states:
            super()._zero_state()
        for state in self._states:  # graphs keep these tensors
            state.zero_()

    def rehearse(self) -> None:
        """Run a rollout's host code once, so that Triton's kernels compile (runtime/compile_ahead.py)."""
        if self._acts.fused is None:
            return
        with torch.no_grad():
            self._acts.fused.update()
            for step in self._steps:
                step.work()
                step.work_last()
                step.plain_value()

    def collect(self, epoch: int, rows: int | None = None) -> None:
        """`rows` has no effect: the graphs count the rows themselves."""
        self._at.zero_()
        if self._acts.fused is not None:
            with torch.no_grad():
                self._acts.fused.update()
        super().collect(epoch)

    def _contexts(self) -> AbstractContextManager:
        """Autocast is each graph's own: casts of weights that it keeps must not outlast the launches they are for."""
        return torch.no_grad()

    def _act_on(self, block: Block, t: int) -> None:
        step = self._steps[block.index]
        if t == self.buffers.horizon:
            step.last()
            self.timer.lap("inference")
            return
        self.buffers.keep_state(t, self._states[block.index], block.start, block.stop)
        step.row()
        if self._unchecked:
            self._unchecked = False
            with self._autocast():
                check_compiled(self.buffers.value[0, block.start : block.stop], step.plain_value)
        self.timer.lap("inference")
        self._transfer.give(block, step.given)
        self.timer.lap("copy")


class BlockStep:
    """Runs the policy's step of one block's row, on tensors that stay in place.

    Attributes:
        row, last: of the row that `at` names, and of row T; graphs where they are enabled.
        given: [1, n, W], the action as the environment gets it.
    """

    def __init__(
        self,
        buffers: Buffers,
        block: Block,
        at: Tensor,
        noise: Tensor,
        state: Tensor,
        acts: Acts,
        autocast: Callable[[], AbstractContextManager],
        graph: Callable[[str, Callable[[], None]], Graph],
    ) -> None:
        """at: [1] int64, the row; counted up. noise: [T, N, W]. state: [L, n, H] of the block; changed."""
        mine = slice(block.start, block.stop)
        self._obs = {name: leaf[:, mine] for name, leaf in buffers.obs.items()}
        self._words = {name: words(leaf) for name, leaf in self._obs.items()}
        self._reset, self._noise, self._state = buffers.reset[:, mine], noise[:, mine], state
        self._action, self._logprob, self._value = (
            array[:, mine] for array in (buffers.action, buffers.logprob, buffers.value)
        )
        self._first_state = partial(buffers.first_state, mine)
        self._mask = None if buffers.action_mask is None else buffers.action_mask[:, mine]
        self._at, self._acts, self._autocast = at, acts, autocast
        self._zero = torch.zeros_like(at)
        self._to_env: Callable[[Tensor], Tensor] = acts.plain.policy.head.to_env
        new = partial(torch.empty_like, memory_format=torch.contiguous_format)
        self._chosen = new(self._action[:1]), new(self._logprob[:1]), new(self._value[:1])
        """Action, log-probability and value of a row."""
        self._dropped = torch.empty_like(state)
        """The core's state after a row of which only the value is needed."""
        self.given = self._to_env(self._chosen[0].clone())
        self.row = graph("policy's row in the rollout", self.work)
        self.last = graph("last row of the rollout", self.work_last)

    def work(self) -> None:
        """Do row `at`."""
        at = self._at
        self._act(self._state, at)
        for rows, row in zip((self._action, self._logprob, self._value), self._chosen):
            rows.index_copy_(0, at, row)
        self.given.copy_(self._to_env(self._chosen[0]))
        at.add_(1)

    def work_last(self) -> None:
        """The value of row `at`, which is T: as `work` gathers it, so that nothing is compiled twice."""
        self._dropped.copy_(self._state)
        self._act(self._dropped, self._zero)
        self._value[-1:].copy_(self._chosen[2])

    def _act(self, state: Tensor, noise_at: Tensor) -> None:
        at = self._at
        obs = {
            name: rows.index_select(0, at).view(leaf.dtype).view(1, *leaf.shape[1:])
            for (name, leaf), rows in zip(self._obs.items(), self._words.values())
        }
        reset, noise = self._reset.index_select(0, at), self._noise.index_select(0, noise_at)
        mask = None if self._mask is None else self._mask.index_select(0, at)
        with self._autocast():
            self._acts.best(ActRow(obs, state, reset, noise, *self._chosen, mask))

    def plain_value(self) -> Tensor:
        """Returns V of row 0 [n] by the plain policy."""
        self._dropped.copy_(self._first_state() if self._state.numel() else self._state)
        obs = {name: leaf[:1] for name, leaf in self._obs.items()}
        mask = None if self._mask is None else self._mask[:1]
        self._acts.plain(ActRow(obs, self._dropped, self._reset[:1], self._noise[:1], *self._chosen, mask))
        return self._chosen[2][0]


def words(rows: Tensor) -> Tensor:
    """Returns rows [T, n, …] as [T, words] in the widest integers that fit: copying single bytes is slow.

    Raises:
        ValueError: the bytes of a row are not contiguous.
    """
    if not rows[0].is_contiguous():
        raise ValueError(f"rows of shape {list(rows.shape)} and strides {rows.stride()} are not contiguous")
    size, length = rows.element_size(), rows[0].numel()
    flat = rows.as_strided((len(rows), length), (rows.stride(0), 1))
    for wide in (torch.int64, torch.int32, torch.int16):
        ratio = wide.itemsize // size
        whole = (length, rows.stride(0), rows.storage_offset())
        if ratio > 1 and all(number % ratio == 0 for number in whole):
            return flat.view(wide)
    return flat
