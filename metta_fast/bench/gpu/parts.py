"""Measures how long each part of an epoch takes on the device, for `--gpu` (in a child: child_program.py).

    run of some epochs ─► its real buffers, policy, learner ─► each part alone, in three forms

    ours       what the run itself calls
    eager      plain torch: decoded inputs in memory, one kernel per operator (plain_torch.py)
    compiled   plain torch with torch.compile

Every form is replayed as a CUDA graph, so that launching is not measured and differences come from the kernels.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from metta_fast.bench.gpu import rollout_parts, scan_parts, update_parts
from metta_fast.bench.gpu.clock import microseconds
from metta_fast.bench.gpu.measured_run import FORMS, MeasuredRun, Part
from metta_fast.policy.cores import MinGRUCore

EPOCHS_S = 0.3
"""Seconds of whole epochs, from which the parts' shares are computed."""

Maker = Callable[[MeasuredRun], Part]
MINGRU: tuple[Maker, ...] = (
    rollout_parts.row,
    update_parts.minibatch,
    scan_parts.scan_forward,
    scan_parts.scan,
)
FEED_FORWARD: tuple[Maker, ...] = (
    rollout_parts.simulator,
    rollout_parts.row,
    rollout_parts.summary,
    rollout_parts.advantage,
    update_parts.first_forward,
    update_parts.first,
    update_parts.tail,
    update_parts.minibatch,
    update_parts.optimizer,
)


class Parts:
    """Builds a run and measures its parts one by one."""

    def __init__(self, overrides: list[str]) -> None:
        """Builds the run, burns it in, and compiles every form."""
        self.run = MeasuredRun(overrides)
        makers = MINGRU if isinstance(self.run.policy.core, MinGRUCore) else FEED_FORWARD
        self.parts = [self._make(maker) for maker in makers]
        for part in self.parts:
            for form, call in list(part.forms.items()):
                try:
                    call(0)
                except Exception as error:
                    traceback.print_exc()
                    part.failed[form] = _why(error)
                    del part.forms[form]
        self.run.training.sync()

    def _make(self, maker: Maker) -> Part:
        """Makes a part; if that fails, returns one whose forms have all failed."""
        try:
            return maker(self.run)
        except Exception as error:
            traceback.print_exc()
            return Part(maker.__name__.replace("_", " "), 0, {}, dict.fromkeys(FORMS, _why(error)))

    def ready(self) -> dict[str, Any]:
        return {**self.run.training.ready(), "parts": [part.name for part in self.parts]}

    def measure(self) -> dict[str, Any]:
        """Measures all parts.

        Returns:
            {"epoch_us", "phases_ms", "parts": [{"name", "calls", "us": {form: µs}, "failed": {form: reason},
            "launched": {form: reason}}]}.
        """
        self.run.learner.step.optimizer.zero_grad(set_to_none=True)
        epochs = self.run.training.round(EPOCHS_S)
        rows = [self._measure(part) for part in self.parts]
        wall = sorted(epochs["epoch_ms"])[len(epochs["epoch_ms"]) // 2]
        return {"epoch_us": 1e3 * wall, "phases_ms": epochs["phases_ms"], "parts": rows}

    def _measure(self, part: Part) -> dict[str, Any]:
        us: dict[str, float] = {}
        launched: dict[str, str] = {}
        for form, call in part.forms.items():
            try:
                found = microseconds(call, self.run.device)
            except Exception as error:
                traceback.print_exc()
                part.failed[form] = _why(error)
                continue
            us[form] = found.us
            if found.why_launched:
                launched[form] = found.why_launched
        return {
            "name": part.name,
            "calls": part.calls,
            "us": us,
            "failed": part.failed,
            "launched": launched,
        }

    def close(self) -> None:
        self.run.training.close()


def _why(error: BaseException) -> str:
    """Returns an exception's type and first line, at most 200 characters."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"[:200]
