"""Keeps remote files in a bucket through fsspec and the package of its protocol.

Each request ends within `TIMEOUT_S`, or later for a file so large that a slow line needs longer. The packages' own
retries are few: uploads.py retries, and says so. Listings are never cached, because another machine may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from metta_fast.storage.remote.address import PACKAGES, Address
from metta_fast.storage.remote.files import RemoteError

TIMEOUT_S = 60.0
"""Longest request for a file of a part's size."""
SLOWEST = 200_000
"""Bytes a second of the slowest line that counts as working, for larger files."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3fs": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 1}}}
}
"""Arguments of each package's file system."""
_NO_KEYS = ("NoCredentials", "PartialCredentials", "DefaultCredentials", "ClientAuthentication", "TokenRetrieval",
            "CredentialRetrieval", "Unauthorized", "Forbidden", "InvalidAccessKeyId", "ProfileNotFound")  # fmt: skip
"""Beginnings of the names of errors that mean: no keys, or wrong ones."""


@contextmanager
def _told() -> Iterator[None]:
    """Turns whatever a package raises into a RemoteError."""
    try:
        yield
    except RemoteError:
        raise
    except FileNotFoundError as error:
        raise RemoteError("missing", str(error) or "not found") from error
    except PermissionError as error:
        raise RemoteError("denied", str(error) or "forbidden") from error
    except Exception as error:
        name, text = type(error).__name__, str(error)
        status = getattr(error, "status", getattr(error, "status_code", getattr(error, "code", None)))
        denied = (
            name.startswith(_NO_KEYS) or status in (401, 403, "401", "403") or text.startswith("Forbidden")
        )
        raise RemoteError("denied" if denied else "failed", f"{name}: {text}" if text else name) from error


class BucketFiles:
    """Files below a bucket's prefix."""

    def __init__(self, address: Address) -> None:
        self._address, self._root = address, address.path
        self._made: Any = None

    @property
    def _fs(self) -> Any:
        """The file system, made at its first use: the packages take a second to import."""
        if self._made is None:
            import fsspec

            package = PACKAGES.get(self._address.protocol, "")
            options = _OPTIONS.get(package, {})
            if package:
                options = options | {"skip_instance_cache": True, "use_listings_cache": False}
            made = fsspec.filesystem(self._address.protocol, **options)
            if package == "s3fs":
                made.retries = 1
            self._made = made
        return self._made

    def _ask(self, method: str, *words: Any, seconds: float = TIMEOUT_S, **options: Any) -> Any:
        with _told():
            call: Callable[..., Any] = getattr(self._fs, method)
            if self._fs.async_impl:
                options["timeout"] = seconds
            return call(*words, **options)

    def write(self, name: str, data: bytes) -> None:
        self._ask("pipe_file", f"{self._root}/{name}", data)

    def send(self, path: Path, name: str) -> None:
        seconds = max(TIMEOUT_S, path.stat().st_size / SLOWEST)
        self._ask("put_file", str(path), f"{self._root}/{name}", seconds=seconds)

    def read(self, name: str) -> bytes:
        return bytes(self._ask("cat_file", f"{self._root}/{name}"))

    def sizes(self, folder: str) -> Mapping[str, int]:
        top = f"{self._root}/{folder}".strip("/")
        try:
            found = self._ask("find", top, detail=True)
        except RemoteError as error:
            if error.kind == "missing":
                return {}
            raise
        return {
            path.strip("/").removeprefix(top).strip("/"): int(entry["size"] or 0)
            for path, entry in found.items()
            if entry["type"] == "file"
        }

    def folders(self) -> list[str]:
        try:
            found = self._ask("ls", self._root, detail=True)
        except RemoteError as error:
            if error.kind == "missing":
                return []
            raise
        return sorted(
            entry["name"].rstrip("/").rpartition("/")[2] for entry in found if entry["type"] == "directory"
        )

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._ask("rm_file", f"{self._root}/{name}")
            except RemoteError as error:
                if error.kind != "missing":
                    raise
