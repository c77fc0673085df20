"""Runs as the child of `--train`: builds another library's trainer on our environments, then answers messages.

{"do": "build", "kind": "sb3", "overrides": […], …}      then {"do": "burn_in" | "round", "seconds": …}
"""

from __future__ import annotations

from typing import Any

from metta_fast.bench.harness.child_loop import serve
from metta_fast.bench.training.peer_env import Trained


def build(kind: str, overrides: list[str], **options: Any) -> Trained:
    """Builds one of the kinds of peers.py with its options; imports its library."""
    if kind == "sb3":
        from metta_fast.bench.training.sb3_grid import SB3

        return SB3(overrides, **options)
    if kind == "puffer":
        from metta_fast.bench.training.pufferlib import Puffer

        return Puffer(overrides, **options)
    raise ValueError(f"kind {kind!r}: expected sb3 or puffer")


if __name__ == "__main__":
    serve(build)
