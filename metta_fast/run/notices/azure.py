"""Reads Azure's scheduled events: a spot machine is evicted, rebooted, moved or deleted.

GET /metadata/instance/compute/name      → this machine's name: events of its whole scale set are listed
GET /metadata/scheduledevents            → {"Events": [{"EventType": "Preempt", "Resources": ["name"], "NotBefore": …}]}
"""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any

from metta_fast.run.notices.notice import ADDRESS, Notice, ask

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
TYPES = {"Preempt": "evicts", "Terminate": "deletes", "Reboot": "reboots", "Redeploy": "moves"}
"""Events that end the machine. Freeze pauses it for some seconds, which does not disturb the run."""


class Azure:
    """Azure's metadata service. An eviction is announced at least 30 s ahead, other events 5 to 15 minutes."""

    every_s = 1.0  # as Azure advises

    def __init__(self, base: str = ADDRESS) -> None:
        self._base = base
        self._name = ""

    def look(self) -> list[Notice]:
        """Returns the events of this machine that end it."""
        header = {"Metadata": "true"}
        if not self._name:
            self._name = (ask(self._base, NAME, header) or "").strip()
        told = json.loads(ask(self._base, EVENTS, header) or "")
        return [
            self._notice(event)
            for event in told["Events"]
            if event["EventType"] in TYPES and self._name.lower() in map(str.lower, event["Resources"])
        ]

    def _notice(self, event: dict[str, Any]) -> Notice:
        """Returns one event as a notice. An eviction ends the run now, the others shortly before their time."""
        kind, by = event["EventType"], None
        if event.get("NotBefore"):  # empty once the event has started
            by = parsedate_to_datetime(event["NotBefore"]).timestamp()
        now = by is None or kind == "Preempt"
        return Notice(f"Azure {TYPES[kind]} this machine", by, "now" if now else "before")
