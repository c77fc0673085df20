"""Serves moto's S3 on a port of this machine, with faults: `python -m tests.remote.s3_server FOLDER [PORT]`.

FOLDER/port gets the port. FOLDER/fault tells what requests get: nothing, 500, 403, or seconds of delay ("slow 0.5").
Run with moto on the path; metta_fast is not needed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

TEXT = {
    "500": (
        "500 Internal Server Error",
        b"<Error><Code>InternalError</Code><Message>fault</Message></Error>",
    ),
    "403": ("403 Forbidden", b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"),
}


def main() -> None:
    folder = Path(sys.argv[1])
    inside = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        fault = (folder / "fault").read_text() if (folder / "fault").exists() else ""
        if fault.startswith("slow"):
            time.sleep(float(fault.split()[1]))
        if fault in TEXT:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, text = TEXT[fault]
            start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]
        return inside(environ, start_response)

    server = make_server("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0, app, threaded=True)
    (folder / "port.part").write_text(str(server.server_port))
    (folder / "port.part").rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main()
