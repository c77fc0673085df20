"""Finds out where this process runs, without asking the network: the cloud from the machine's firmware, the scheduler
from the environment.

    place = find("auto")           # run.notices
    place.service, place.scheduler

Place in the flow: trainer.py makes it; watch.py watches its service.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from metta_fast.run.notices.schedulers import AFTER_SIGNAL_S, EXIT_CODE, SCHEDULERS, Scheduler

if TYPE_CHECKING:
    from metta_fast.run.notices.notice import Service

FIRMWARE = Path("/sys/class/dmi/id")
"""Where Linux shows what the machine's firmware says of itself, also within containers."""
_AFTER_NOTICE_S = {"ec2": 90.0, "gcp": 20.0, "azure": 20.0}
"""Seconds from a cloud's notice to the machine's end (120, 30, 30), less what the end of an epoch and a save take."""
AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
"""The asset tag of all Azure machines."""


@dataclass(frozen=True)
class Place:
    """Where this process runs.

    Attributes:
        cloud: the name of the cloud whose service announces the machine's end, or None.
        scheduler: what started this job, or None.
    """

    cloud: str | None = None
    scheduler: Scheduler | None = None

    def service(self) -> Service:
        """Returns the metadata service of `cloud`, which must not be None. Nothing is asked yet."""
        return _SERVICES[self.cloud or ""]()

    @property
    def signals(self) -> tuple[int, ...]:
        """Signals that end the run, besides the usual ones."""
        return () if self.scheduler is None else tuple(self.scheduler.signals)

    def exit_code(self, own: int | None, signum: int | None = None) -> int:
        """Returns the exit code of a run that is ended.

        Args:
            own: run.preempt_exit_code.
            signum: the signal; None: a notice.
        """
        if own is not None:
            return own
        return EXIT_CODE if self.scheduler is None else self.scheduler.code(signum)

    def seconds_left(self, signum: int | None) -> float:
        """Returns how long a run that has saved its state may still upload before it is killed.

        Args:
            signum: the signal; None: a notice.
        """
        if signum is None:
            return _AFTER_NOTICE_S.get(self.cloud or "", AFTER_SIGNAL_S)
        return AFTER_SIGNAL_S if self.scheduler is None else self.scheduler.left_s

    def said(self, signum: int) -> str:
        """Returns what the scheduler does after a signal, as words in brackets; empty if there is none."""
        text = "" if self.scheduler is None else self.scheduler.said(signum)
        return f" ({text})" if text else ""


def find(asked: str) -> Place:
    """Returns where this process runs.

    Args:
        asked: run.notices: auto, none, or the name of a cloud or a scheduler.
    """
    if asked == "none":
        return Place()
    if asked in _SERVICES:
        return Place(asked, None)
    for scheduler in SCHEDULERS:
        if asked == scheduler.name:
            return Place(None, scheduler)
    cloud = next((name for name, found in _CLOUDS if found()), None)
    here = (s for s in SCHEDULERS if any(os.environ.get(name) for name in s.variables))
    return Place(cloud, next(here, None))


def _firmware(name: str) -> str:
    try:
        return (FIRMWARE / name).read_text(errors="replace").strip()
    except OSError:
        return ""


def _on_ec2() -> bool:
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":  # as AWS's programs understand it
        return False
    named = _firmware("sys_vendor") == "Amazon EC2" or "amazon" in _firmware("bios_version")
    return named or bool(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"))


def _on_gcp() -> bool:
    return _firmware("product_name") == "Google Compute Engine" or bool(os.environ.get("GCE_METADATA_HOST"))


def _on_azure() -> bool:
    return _firmware("chassis_asset_tag") == AZURE_TAG


_CLOUDS: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("ec2", _on_ec2),
    ("gcp", _on_gcp),
    ("azure", _on_azure),
)


def _ec2() -> Service:
    from metta_fast.run.notices.ec2 import Ec2  # with Python's HTTP, in the thread of watch.py

    return Ec2()


def _gcp() -> Service:
    from metta_fast.run.notices.gcp import Gcp

    return Gcp()


def _azure() -> Service:
    from metta_fast.run.notices.azure import Azure

    return Azure()


_SERVICES: dict[str, Callable[[], Service]] = {"ec2": _ec2, "gcp": _gcp, "azure": _azure}
