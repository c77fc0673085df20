"""What a callback may read of a training."""

from __future__ import annotations

from typing import Any, Protocol

from metta_fast.config.schema import Config


class TrainingView(Protocol):
    config: Config
    folder: Any
    metrics: dict[str, float]
    failure: BaseException | None
    policy: Any
    steps: int
    epoch: int

    def stop(self, reason: str = ...) -> None: ...
