"""Starts the processes of distributed.processes=N on this machine, with torchrun's own agent.

The command line is the same for each process; torchrun's variables tell them who they are (place.py). The agent notices
a process that ends, ends the others, and passes a signal on.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def launch(count: int, words: Sequence[str]) -> int:
    """Trains with `count` processes and returns the run's exit code.

    Args:
        words: the arguments of `train`.
    """
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # torchrun would set it, with a warning; torch_threads decides
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in ("launcher", "elastic"):  # what they say is said below, or by the run
        logging.getLogger(f"torch.distributed.{name}").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        run_id=uuid.uuid4().hex,
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "metta_fast", "train", *words)
    except ChildFailedError as error:
        return _code(error.failures)
    except SignalException as stop:
        return SIGNALS.get(stop.sigval, 128 + stop.sigval)
    return 0


def _code(failures: Mapping[int, object]) -> int:
    """Returns the exit code of the first process that ended by itself; a killed one says which signal."""
    codes = {rank: int(getattr(failure, "exitcode", 1)) for rank, failure in failures.items()}
    killed = [rank for rank, code in codes.items() if code < 0 and -code != signal.SIGTERM]
    for rank in killed:
        name = signal.Signals(-codes[rank]).name
        print(f"process {rank} of {len(failures)} was killed by {name}", file=sys.stderr)
    if killed:
        return 1
    return next((codes[rank] for rank in sorted(codes) if codes[rank] > 0), 1)
