"""Lists the schedulers of jobs: how each is recognised, what follows its signal, and the exit code for it.

Place in the flow: places.py finds the scheduler of this machine; trainer.py asks it for the exit code.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

EXIT_CODE = 128 + signal.SIGTERM
"""Without a scheduler: that of a program that SIGTERM ends."""
AFTER_SIGNAL_S = 20.0
"""What starts programs usually kills them 30 s or more after the signal (`docker stop` after 10: give `-t 60`)."""


@dataclass(frozen=True)
class Scheduler:
    """What starts jobs on this machine and ends them."""

    name: str
    """Its word for run.notices."""
    variables: tuple[str, ...]
    """Environment variables, each of which shows that a job runs under it."""
    after: str
    """What follows SIGTERM."""
    exit_code: int = EXIT_CODE
    left_s: float = AFTER_SIGNAL_S
    """Seconds after SIGTERM that a run may still upload, when it has saved."""
    signals: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Other signals that announce the end: what follows each, and the exit code."""

    def said(self, signum: int) -> str:
        """Returns what follows a signal."""
        if signum in self.signals:
            return self.signals[signum][0]
        return self.after if signum == signal.SIGTERM else ""

    def code(self, signum: int | None) -> int:
        """Returns the exit code after a signal, or after a notice (None)."""
        return self.signals[signum][1] if signum is not None and signum in self.signals else self.exit_code


SCHEDULERS = (
    # Its jobs recover on this code (cloud/skypilot.yaml); 0 would count as success.
    Scheduler("skypilot", ("SKYPILOT_TASK_ID",), "SkyPilot ends the job", 33),
    Scheduler(
        "sagemaker",
        ("TRAINING_JOB_NAME", "SM_TRAINING_ENV"),
        "SageMaker kills the job 120 s later",
        left_s=100.0,
    ),
    Scheduler("runpod", ("RUNPOD_POD_ID",), "RunPod kills the pod about 5 s later", left_s=3.0),
    # cloud/slurm.sbatch asks for SIGUSR1 before the time limit and queues the job again on 85; SIGTERM comes with
    # `scancel`, where nobody wants that, or with a preemption, where SLURM does it itself.
    Scheduler(
        "slurm",
        ("SLURM_JOB_ID",),
        "SLURM cancels or preempts the job",
        signals={signal.SIGUSR1: ("SLURM's time limit is near", 85)},
    ),
    # Last, because the others may run on it.
    Scheduler(
        "kubernetes",
        ("KUBERNETES_SERVICE_HOST",),
        "Kubernetes kills the pod after its grace period, 30 s unless terminationGracePeriodSeconds is set",
    ),
)
"""In the order in which they are looked for."""
