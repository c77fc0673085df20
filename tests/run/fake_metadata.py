"""Fakes the metadata services of EC2, Google Cloud and Azure: a local HTTP server whose answers a test changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EC2_ACTION = "/latest/meta-data/spot/instance-action"
EC2_REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
GCP = "/computeMetadata/v1/instance/"
AZURE_EVENTS = "/metadata/scheduledevents"
AZURE_NAME = "/metadata/instance/compute/name"


class Metadata:
    """One fake service for all three clouds.

    Attributes:
        items: the text of each path; others are answered with 404, as EC2 does where nothing is announced.
        status: this status for every request, if it is not None.
        asked: "METHOD path" of each request.
        tokens: how many EC2 tokens were given; only the newest is valid.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.items: dict[str, str] = {}
        self.status: int | None = None
        self.asked: list[str] = []
        self.tokens = 0
        self.hang = threading.Event()
        self.hang.set()

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Returns status and text, as the services do: each wants its own header."""
        path = path.partition("?")[0]
        self.asked.append(f"{method} {path}")
        self.hang.wait(20)
        if self.status is not None:
            return self.status, ""
        if path.startswith("/latest/"):
            if path == "/latest/api/token":
                if method != "PUT" or not headers.get("x-aws-ec2-metadata-token-ttl-seconds", "").isdigit():
                    return 400, ""
                self.tokens += 1
                return 200, f"token{self.tokens}"
            if headers.get("x-aws-ec2-metadata-token") != f"token{self.tokens}":
                return 401, ""
        elif path.startswith("/computeMetadata/") and headers.get("metadata-flavor") != "Google":
            return 403, ""
        elif path.startswith("/metadata/") and headers.get("metadata") != "true":
            return 400, ""
        return (200, self.items[path]) if path in self.items else (404, "")


@contextmanager
def metadata() -> Iterator[Metadata]:
    """Serves until the context ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = service.answer(
                self.command, self.path, {name.lower(): value for name, value in self.headers.items()}
            )
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())
            except OSError:
                pass  # the asker has gone

        do_PUT = do_GET

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = Metadata(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.hang.set()
        server.shutdown()
        server.server_close()
        thread.join()
