"""The child's program of `--train`: builds another library's trainer on our environments, then answers (serve.py).

{"do": "build", "kind": "sb3", "overrides": […]}      then {"do": "round", "seconds": …}
"""

from __future__ import annotations

from metta_fast.bench.peer_env import Trained
from metta_fast.bench.serve import serve


def build(kind: str, overrides: list[str]) -> Trained:
    """One of the kinds of beside.py; imports its library."""
    if kind == "sb3":
        from metta_fast.bench.train_sb3 import SB3

        return SB3(overrides)
    if kind == "puffer":
        from metta_fast.bench.train_puffer import Puffer

        return Puffer(overrides)
    raise ValueError(f"kind {kind!r}: expected sb3 or puffer")


if __name__ == "__main__":
    serve(build)
