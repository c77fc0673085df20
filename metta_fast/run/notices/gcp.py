"""Reads Google Cloud's announcements: a spot machine is taken back, or the host is maintained.

GET /computeMetadata/v1/instance/preempted            → TRUE or FALSE
GET /computeMetadata/v1/instance/maintenance-event    → NONE, MIGRATE_ON_HOST_MAINTENANCE, TERMINATE_ON_HOST_MAINTENANCE
"""

from __future__ import annotations

import os

from metta_fast.run.notices.notice import ADDRESS, Notice, ServiceError, ask

ENDPOINT = "GCE_METADATA_HOST"
"""The variable by which Google's programs are given another host, as name or name:port."""


class Gcp:
    """Google Cloud's metadata service. A spot machine has 30 s after the announcement, 25 s within GKE."""

    every_s = 2.0

    def __init__(self) -> None:
        self._base = os.environ.get(ENDPOINT) or ADDRESS

    def look(self) -> list[Notice]:
        """Returns the announced end. A live migration does not disturb the run; it is left out."""
        found = []
        preempted = self._get("preempted")
        if preempted not in ("TRUE", "FALSE"):
            raise ServiceError(f"preempted is {preempted[:40]!r}, not TRUE or FALSE")
        if preempted == "TRUE":
            found.append(Notice("Google Cloud takes this spot machine back, within 30 s"))
        if self._get("maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE":
            found.append(
                Notice("Google Cloud will stop this machine for maintenance within an hour", end="no")
            )
        return found

    def _get(self, item: str) -> str:
        path = f"/computeMetadata/v1/instance/{item}"
        return (ask(self._base, path, {"Metadata-Flavor": "Google"}) or "").strip()
