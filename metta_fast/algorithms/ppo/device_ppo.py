"""Runs PPO with environments on the policy's device: the host reads one vector of figures per epoch.

    host     launch update e · copy its state · launch rollout e+1 │ wait for the figures of e, metrics, log, …
    device   … rollout e │ update e                                │ rollout e+1 …

The next rollout is launched before the host waits, so that the device has work while figures are read and logged.
If a rollout or a step is not finite, no weight changes: a flag on the device skips the steps (step.py).
"""

from __future__ import annotations

from typing import Any

import torch

from metta_fast.algorithms.ppo.advantage.figures import FIGURES
from metta_fast.algorithms.ppo.ppo import PPO
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.rollout.device_rollout import DeviceRollout
from metta_fast.runtime.timer import DeviceTimer, Timer


class DevicePPO(PPO):
    """Implements PPO for a DeviceVector (contracts/device_vector.py)."""

    vec: DeviceVector
    checks_masks = True

    def __init__(self, config: Any, *args: Any, **keys: Any) -> None:
        super().__init__(config, *args, **keys)
        self.learner.bad_rollout = self.summary.bad
        self._width = len(SUMS) + len(FIGURES)
        self._figures = torch.zeros(
            self._width + (1 + self.group.active) * len(self.summary.figures),
            dtype=torch.float64,
            pin_memory=self.device.type == "cuda",
        )
        self._read = torch.cuda.Event() if self.device.type == "cuda" else None
        self._ahead = False
        """Whether the previous update has launched this epoch's rollout."""
        self._may_go_ahead = not self.config.trainer.debug
        """True: after an update, only due hooks read the buffers, so the next rollout may overwrite them."""
        self._boundary: tuple[dict[str, Any], Any] | None = None
        """Copies of tensors and environments from before the rollout that was launched ahead."""

    def _make_timer(self) -> Timer:
        return DeviceTimer() if self.device.type == "cuda" else Timer()

    def _make_rollout(self) -> DeviceRollout:
        return DeviceRollout(
            self.vec,
            self.policy,
            self.buffers,
            then=self.summary.run,
            fused=self._fused_dtype(),
            graphs=self.graphs,
            say=self.notes.append,
            **self._rollout_keys,
        )

    def collect(self) -> None:
        """Launches a rollout. `update` checks that it is finite."""
        self._before_rollout()
        if self._ahead:
            self._ahead = False
            return
        self._boundary = None
        self._roll()
        self._after_rollout()

    def update(self) -> None:
        """Learns from the rollout and counts the epoch.

        Raises:
            NonFiniteError: an observation, reward, action, value, loss or gradient is NaN or infinite. The
                weights are unchanged.
        """
        context, epoch = self._context(), self.epoch
        self._keep_steps()  # the steps of the last update are known now; the summary has counted all rows
        self._learn(context)
        self._figures.copy_(
            torch.cat([self._figures_now(), *self._with_others(self.summary.figures)]), non_blocking=True
        )
        if self._read is not None:
            self._read.record()
        self._check_debug()
        self.epoch += 1
        self._boundary = None
        if self._may_go_ahead and not self.hooks.due(epoch):
            self._boundary = self._tensors(), self.vec.snapshot()
            self._roll()
            self._after_rollout()
            self._ahead = True
        if self._read is not None:
            self._read.synchronize()
        figures = self._figures.tolist()
        self._read_summary(self._judged(figures[self._width :]), epoch)
        self._learnt(figures[: self._width], epoch)
        self._finish(context)

    def state_dict(self) -> dict[str, Any]:
        if self._boundary is None:
            return super().state_dict()
        return {**self._boundary[0], **self._counters()}

    def env_state(self) -> Any:
        return self.vec.snapshot() if self._boundary is None else self._boundary[1]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state`. Load the vector's state first; without one, new episodes start."""
        self._ahead, self._boundary = False, None
        super().load_state_dict(state)
