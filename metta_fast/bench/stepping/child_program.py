"""Runs as the child of `--env`: restricts itself to some cores, builds one stepper, then answers messages.

Affinity is set first, so that all threads and processes of the stepper inherit it and every peer has the same cores.
"""

from __future__ import annotations

import os
from typing import Any

from metta_fast.bench.harness.child_loop import Served, serve
from metta_fast.contracts.errors import UserError


def build(kind: str, cores: int, **what: Any) -> Served:
    """Builds a stepper of peers.py on the first `cores` of the allowed cores.

    Raises:
        UserError: this system cannot restrict a process to some cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise UserError("--env compares on a fixed number of cores, which needs Linux's sched_setaffinity")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from metta_fast.bench.stepping import peers

    return peers.make(kind, **what)


if __name__ == "__main__":
    serve(build)
