"""Returns to the last boundary with new workers, after some died, hung or raised (vector.restart_workers)."""

from __future__ import annotations

import dataclasses

from metta_fast.run.build import Parts
from metta_fast.run.snapshot import Snapshot
from metta_fast.storage.checkpoint import Checkpoint


def restart_workers(
    parts: Parts, snapshot: Snapshot | None, start: Checkpoint | None
) -> tuple[Snapshot | None, str]:
    """Makes a new vector in place of the broken one and loads the last state.

    Args:
        snapshot: of the last boundary; None: it is the first epoch of a resumed run.
        start: the checkpoint of a resumed run.

    Returns:
        The snapshot that now holds, and where the run continues, for the log.

    Raises:
        WorkerError: the environments cannot be made.
    """
    if snapshot is not None:
        step, algorithm, env = snapshot.step, snapshot.states["algorithm"], snapshot.states["env"]
        env = env() if callable(env) else env
    else:
        assert start is not None
        step, algorithm, env = start.step, start.load("algorithm"), start.load("env")
    parts.restart(algorithm, env)
    if snapshot is not None:  # loading may have taken its tensors, which training changes
        states = snapshot.states | {"algorithm": parts.algorithm.state_dict(), "env": env}
        snapshot = dataclasses.replace(snapshot, states=states)
    where = f"the run continues from step {step}"
    return snapshot, where + ("" if env is not None or step == 0 else " with new episodes")
