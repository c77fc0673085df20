"""Reads EC2's announcements: a spot machine is taken back, or will probably be (IMDSv2).

PUT /latest/api/token                                       → a token, for all other requests
GET /latest/meta-data/spot/instance-action                  → 404, or {"action": "terminate", "time": "…Z"}
GET /latest/meta-data/events/recommendations/rebalance      → 404, or {"noticeTime": "…Z"}
"""

from __future__ import annotations

import json
import os
from datetime import datetime

from metta_fast.run.notices.notice import ADDRESS, Notice, ServiceError, ask

ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""The variable by which AWS's programs are given another address."""
TOKEN_S = 21600
"""How long a token is valid."""
ACTIONS = {"terminate": "terminates", "stop": "stops", "hibernate": "hibernates"}


class Ec2:
    """EC2's metadata service. Two minutes pass between the announcement and the end."""

    every_s = 5.0  # as AWS advises

    def __init__(self) -> None:
        self._base = os.environ.get(ENDPOINT) or ADDRESS
        self._token = ""

    def look(self) -> list[Notice]:
        """Returns the announced interruption and the advice to move elsewhere, if there are any."""
        found = []
        action = self._get("/latest/meta-data/spot/instance-action")
        if action is not None:
            told = json.loads(action)
            what = ACTIONS.get(told["action"], told["action"])
            found.append(Notice(f"EC2 {what} this spot machine", _seconds(told.get("time"))))
        if self._get("/latest/meta-data/events/recommendations/rebalance") is not None:
            found.append(
                Notice("EC2 will probably take this spot machine back soon (a rebalance advice)", end="no")
            )
        return found

    def _get(self, path: str) -> str | None:
        """Returns an item, or None if there is none. A token that is no longer valid is replaced."""
        if self._token:
            try:
                return self._item(path)
            except ServiceError:
                pass
        header = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        self._token = (ask(self._base, "/latest/api/token", header, method="PUT") or "").strip()
        return self._item(path)

    def _item(self, path: str) -> str | None:
        return ask(self._base, path, {"X-aws-ec2-metadata-token": self._token}, absent=True)


def _seconds(time: str | None) -> float | None:
    """Returns a time such as 2017-09-18T08:22:00Z in seconds since 1970; None if it is unreadable."""
    try:
        return datetime.fromisoformat(time).timestamp() if time else None
    except ValueError:
        return None
