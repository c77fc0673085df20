"""Names what remote storage can do: whole files by name, nothing more, since buckets can neither append nor rename.

    put(files, "states/step_000000000123.json", data)

Place in the flow: folder_files.py and bucket_files.py are the two kinds, open_files.py chooses; run_store.py uses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from metta_fast.contracts.errors import UserError
from metta_fast.storage.remote.address import CREDENTIALS, PACKAGES, Address, masked

RIGHTS = "reading, writing, listing and deleting"
"""What a run needs to be allowed to do."""


class RemoteError(Exception):
    """Remote storage refused something or did not answer.

    Attributes:
        kind: "missing": no such file or bucket; "denied": no rights or no keys; "failed": anything else, which may
            work again later.
    """

    def __init__(self, kind: Literal["missing", "denied", "failed"], text: str) -> None:
        super().__init__(masked(" ".join(text.split()))[:300])
        self.kind = kind


class Files(Protocol):
    """Files below one address, by names with slashes. Every method raises RemoteError."""

    def write(self, name: str, data: bytes) -> None:
        """Writes a whole file: readers see the old one or the new one."""

    def send(self, path: Path, name: str) -> None:
        """Writes a local file of any size."""

    def read(self, name: str) -> bytes:
        """Returns a whole file."""
        ...

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Returns the bytes of each file in a folder and its folders, by the names below it; {} if there is none."""
        ...

    def folders(self) -> list[str]:
        """Returns the names of the folders just below the address."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Removes files; missing ones are no error."""


def put(files: Files, name: str, data: bytes) -> None:
    """Uploads a file. Every upload of bytes goes through here, so that tests can make one fail."""
    files.write(name, data)


def send(files: Files, path: Path, name: str) -> None:
    """Uploads a local file. Every upload of a file goes through here, so that tests can make one fail."""
    files.send(path, name)


def refused(key: str, address: Address, error: RemoteError) -> UserError:
    """Returns the user's error for an address that cannot be used."""
    package = PACKAGES.get(address.protocol)
    keys = f"; keys come from {CREDENTIALS[package]}" if package else ""
    if error.kind == "missing":
        where = "bucket" if package else "folder"
        return UserError(
            f"{key}={address}: there is no such {where}, or it is not visible ({error}); make it first"
        )
    return UserError(
        f"{key}={address}: access is denied ({error}); the run needs rights for {RIGHTS} there{keys}"
    )
