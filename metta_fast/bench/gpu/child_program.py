"""Runs as the child of `--gpu`: builds one configuration, then answers messages (harness/child_loop.py)."""

from __future__ import annotations

from typing import Any

from metta_fast.bench.harness.child_loop import Served, serve


def build(kind: str, **what: Any) -> Served:
    """Builds the object whose methods the parent calls: `ready()`, and `round`, `measure`, …"""
    if kind == "train":
        from metta_fast.bench.gpu.training import Training

        return Training(**what)
    if kind == "parts":
        from metta_fast.bench.gpu.parts import Parts

        return Parts(**what)
    if kind == "simulator":
        from metta_fast.bench.gpu.simulator import Stepping

        return Stepping(**what)
    raise ValueError(f"kind {kind!r}: expected train, parts or simulator")


if __name__ == "__main__":
    serve(build)
