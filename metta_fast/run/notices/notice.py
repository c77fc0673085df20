"""Describes an announced end of the machine, and where announcements are read: a cloud's metadata service.

Place in the flow: ec2.py, gcp.py and azure.py are services; watch.py asks one of them in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Literal, Protocol
from urllib.parse import urlsplit

ADDRESS = "http://169.254.169.254"
"""Where all three clouds answer, on the machine itself."""
TIMEOUT_S = 1.0
"""Longest wait for a connection or an answer; a service on the machine itself needs milliseconds."""
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Notice:
    """An announced end of this machine."""

    text: str
    """What is announced, without the time."""
    by: float | None = None
    """When it happens, in seconds since 1970; None: unknown."""
    end: Literal["now", "before", "no"] = "now"
    """When the run has to end: now, shortly before `by`, or not: it may never happen, so the state is saved."""

    def said(self) -> str:
        """Returns the notice with its time."""
        if self.by is None:
            return self.text
        return f"{self.text} by {datetime.fromtimestamp(self.by, UTC):%Y-%m-%d %H:%M:%S} UTC"


class ServiceError(Exception):
    """The metadata service gave no usable answer."""


class Service(Protocol):
    """A cloud's metadata service."""

    every_s: float
    """Seconds between two looks."""

    def look(self) -> list[Notice]:
        """Returns what is announced now.

        Raises:
            Exception: of any kind; the service could not be asked or answered something else.
        """
        ...


def ask(
    base: str, path: str, headers: Mapping[str, str], *, method: str = "GET", absent: bool = False
) -> str | None:
    """Returns the answer to one request; never through a proxy, and never following a redirection.

    Args:
        base: http://host or http://host:port, perhaps with a path.
        absent: whether 404 means that there is nothing: None is returned.

    Raises:
        ServiceError: another status than 200.
        OSError, HTTPException: the service cannot be reached in `TIMEOUT_S`, or speaks no HTTP.
    """
    parts = urlsplit(base if "://" in base else f"http://{base}")
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
        answer = connection.getresponse()
        text = answer.read(MOST_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()
    if absent and answer.status == 404:
        return None
    if answer.status != 200:
        raise ServiceError(f"{method} {path} was answered with status {answer.status}")
    return text
