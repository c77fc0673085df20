"""Runs as the child of `--robot`: builds one case, then answers messages (harness/child_loop.py)."""

from __future__ import annotations

from typing import Any

from metta_fast.bench.harness.child_loop import Served, serve


def build(kind: str, overrides: list[str], **what: Any) -> Served:
    """Builds the object whose method `round` the parent calls."""
    if kind == "train":
        from metta_fast.bench.gpu.training import Training

        return Training(overrides)
    from metta_fast.envs import make_factory
    from metta_fast.resolve.compose import compose

    factory = make_factory(compose(overrides).config.env)
    if kind == "physics":
        from metta_fast.bench.robots.stepping import RobotStepping

        return RobotStepping(factory, **what)
    if kind == "cpu":
        from metta_fast.bench.stepping.steppers import Ours
        from metta_fast.machine.hardware import allowed_cores

        return Ours(factory, backend="threads", cores=allowed_cores(), **what)
    raise ValueError(f"kind {kind!r}: expected train, physics or cpu")


if __name__ == "__main__":
    serve(build)
