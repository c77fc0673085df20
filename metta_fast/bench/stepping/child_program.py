"""The child's program of `--env`: keeps to its share of the cores, then builds one stepper and answers (serve.py).

Affinity is set first: threads and processes of the stepper inherit it, so that every peer has the same cores.
"""

from __future__ import annotations

import os
from typing import Any

from metta_fast.bench.harness.child_loop import serve


def build(kind: str, cores: int, **what: Any) -> Any:
    """A stepper of peers.py on the first `cores` of the cores allowed."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    from metta_fast.bench.stepping import peers

    return peers.make(kind, **what)


if __name__ == "__main__":
    serve(build)
