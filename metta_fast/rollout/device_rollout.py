"""One rollout with environments on the policy's device: nothing is copied, nothing is waited for.

    row T ─► row 0 ─► T × ( policy ─► action[t] ─► step: row t+1 ) ─► value of row T
    └► maps of the next episodes, meanwhile ───────┘ of row 0 (and every so many rows where episodes are short)

The vector writes its rows into the buffers (`vec.attach`). All of it, and what follows the rollout (`then`), is
one work on static tensors, so that a CUDA graph replays it. Noise is drawn before, keyed by (seed, epoch) and
laid out by agent as for every other vector.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorError
from metta_fast.rollout.act import Acts
from metta_fast.rollout.check_compiled import check_compiled
from metta_fast.runtime.cuda_graph import Graph, Say
from metta_fast.runtime.keyed_random import NOISE, Keyed, env_seed
from metta_fast.runtime.timer import Timer


class DeviceRollout:
    """As `Rollout` (rollout.py), for a vector that has `attach`, `build_ahead`, `build_every` and `step_row`."""

    def __init__(
        self,
        vec: Any,
        policy: nn.Module,
        buffers: Buffers,
        *,
        device: torch.device,
        seed: int,
        autocast: Callable[[], AbstractContextManager],
        timer: Timer,
        then: Callable[[], None],
        fused: torch.dtype | None = None,
        compile_mode: str | None = None,
        graphs: bool = False,
        say: Say = print,
    ) -> None:
        """then: what follows the last row, on the device. graphs: replay it all as a CUDA graph.
        fused, compile_mode: of the policy's step (act.py)."""
        if vec.spec.action.kind != "discrete":
            raise UserError(
                f"{vec.spec.name} has continuous actions, which env.device=cuda does not take: give env.device=cpu"
            )
        self.vec, self.buffers, self.device, self.seed, self.timer = vec, buffers, device, seed, timer
        self.policy: Any = policy
        self._autocast, self._then = autocast, then
        self._keyed = Keyed(seed, device)
        acts = Acts(policy, fused=fused, compile_mode=compile_mode)
        self._plain, self._fused, self._act = acts.plain, acts.fused, acts.best
        self._unchecked = acts.best is not acts.plain
        agents, width = buffers.num_agents, vec.spec.action.width
        self._noise = torch.empty((buffers.horizon, agents, width), device=device)
        self._state: Tensor = policy.initial_state(agents, device)  # type: ignore[operator]
        self._dropped = (
            torch.empty_like(self._state),
            torch.empty_like(buffers.action[:1]),
            torch.empty_like(buffers.logprob[:1]),
            torch.empty_like(buffers.value[:1]),
        )
        """Core state, action, log-probability and value that nobody wants."""
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._run = Graph("rollout", self._rows, enabled=graphs, say=say)
        self._held = False
        vec.attach(buffers)

    @property
    def held(self) -> bool:
        """False: the next `collect` resets the environments first."""
        return self._held

    def forget(self) -> None:
        """Environments are about to be reset: the core's state is zero."""
        self._held = False
        self._state.zero_()

    def collect(self, epoch: int) -> None:
        """Launch the rollout that fills the buffers. Nothing is waited for."""
        if not self._held:
            self.forget()
            self.vec.async_reset(env_seed(self.seed, epoch), stagger=self.vec.spec.stagger)
        self._noise.uniform_(generator=self._keyed(NOISE, epoch))
        with torch.no_grad(), self._autocast():
            self._run()
            if self._unchecked:
                self._check()
        self._held = True
        self.timer.lap("inference")
        self.timer.mark("rollout")

    def rehearse(self) -> None:
        """The host's part of a rollout as far as kernels of Triton do the rest (cuda/ahead.py)."""
        with torch.no_grad(), self._autocast():
            if self._fused is not None:
                b = self.buffers
                self._fused.update()
                self._value_into(self._fused, 0, self._state, self._dropped[3])
                self.policy(
                    {name: leaf[:1] for name, leaf in b.obs.items()}, self._state, b.reset[:1]
                )  # `_check`

    def _rows(self) -> None:
        b, horizon = self.buffers, self.buffers.horizon
        self._fork()
        if self._fused is not None:
            self._fused.update()
        for rows in (*b.obs.values(), b.mask, b.reset):
            rows[0].copy_(rows[horizon])
        for t in range(horizon):
            builds = t % self.vec.build_every == 0
            if builds and t:
                self._fork()
            if t % b.bptt_horizon == 0 and self._state.numel():
                b.state[t // b.bptt_horizon].copy_(self._state)
            row = slice(t, t + 1)
            self._act(
                {name: leaf[row] for name, leaf in b.obs.items()},
                self._state,
                b.reset[row],
                self._noise[row],
                b.action[row],
                b.logprob[row],
                b.value[row],
            )
            if builds:
                self._join()
            self.vec.step_row(t)
        self._value_into(self._act, horizon, self._state, b.value[horizon:])
        self._then()

    def _value_into(self, act: Any, t: int, before: Tensor, value: Tensor) -> None:
        """V of row t alone; `before` [L, N, H] is the core's state before it."""
        b, (state, action, logprob, _) = self.buffers, self._dropped
        state.copy_(before)
        obs = {name: leaf[t : t + 1] for name, leaf in b.obs.items()}
        act(obs, state, b.reset[t : t + 1], self._noise[:1], action, logprob, value)

    def _fork(self) -> None:
        """Have the next maps of environments that have none built beside the policy's work."""
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
        """Compiled and plain policy say the same of row 0."""
        self._unchecked = False
        value = self._dropped[3]
        before = self.buffers.state[0] if self._state.numel() else self._state
        self._value_into(self._plain, 0, before, value)
        check_compiled(self.buffers.value[0], value[0])

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The core's state [layers, N, H] that goes with the held row."""
        return {"state": self._state.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Go on from the vector's own loaded state. False: it holds none, so the next `collect` resets it."""
        self.forget()
        try:
            self.vec.hold_all()
        except VectorError:  # nothing was loaded into the vector
            return False
        self._state.copy_(state["state"])
        self._held = True
        return True
