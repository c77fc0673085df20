"""Runs as the child of `--camera`: builds one side, then answers messages (harness/child_loop.py)."""

from __future__ import annotations

from typing import Any

from metta_fast.bench.harness.child_loop import Served, serve


def build(kind: str, overrides: list[str], num_envs: int = 0, pictures: bool = True) -> Served:
    """Builds the object whose method `round` the parent calls.

    Args:
        kind: cpu or cuda (robots with random actions, on that device), or run.
        pictures: False: the robots see none.
    """
    if kind == "run":
        from metta_fast.bench.cameras.collecting import Collecting

        return Collecting(overrides)
    from metta_fast.envs import make_factory
    from metta_fast.resolve.compose import compose

    factory: Any = make_factory(compose(overrides).config.env)
    factory = factory if pictures else factory.robot
    if kind == "cuda":
        from metta_fast.bench.robots.stepping import RobotStepping

        return RobotStepping(factory, num_envs)
    if kind == "cpu":
        from metta_fast.bench.stepping.steppers import Ours
        from metta_fast.bench.stepping.vector_backends import BLOCKS
        from metta_fast.machine.hardware import allowed_cores

        return Ours(factory, num_envs, "threads", allowed_cores(), min(BLOCKS, num_envs))
    raise ValueError(f"kind {kind!r}: expected cpu, cuda or run")


if __name__ == "__main__":
    serve(build)
