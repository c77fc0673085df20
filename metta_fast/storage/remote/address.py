"""Reads and checks the address of remote storage: a bucket's URL or a folder.

    parse("s3://bucket/runs").child("job")      → s3://bucket/runs/job
    parse("/mnt/share/runs")                    a folder needs no URL; file:///mnt/share/runs is the same

Keys and tokens in a URL are refused: configurations and logs would show them. What an error of a library says is shown
through `masked`.

Place in the flow: run/take_over/remote_run.py parses run.remote; files.py opens an address.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.printable import printable

PACKAGES = {
    **dict.fromkeys(("s3",), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
}
"""The package that each bucket's protocol needs."""
KNOWN = (*PACKAGES, "file", "memory")
EXPECTED = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, abfs://…, or a folder"
CREDENTIALS = {
    "s3fs": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role",
    "gcsfs": "GOOGLE_APPLICATION_CREDENTIALS, or the machine's service account",
    "adlfs": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
"""Where each package reads keys from."""
_SECRET_VARIABLES = re.compile(r"(SECRET|TOKEN|PASSWORD|ACCOUNT_KEY|CONNECTION_STRING|ACCESS_KEY)", re.I)
_SECRETS = (
    (re.compile(r"//[^/\s@]*:[^/\s@]*@"), "//…@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), "…"),
    (
        re.compile(
            r"(?i)\b((?:x-amz-|x-goog-)?(?:sig|signature|credential|security-token|accountkey|account_key|"
            r"sharedaccesskey|password|secret|key|token|se|sp|sv)=)[^&\s;\"']+"
        ),
        r"\1…",
    ),
)
_MOST_BYTES = 700
"""Longest path: stores take 1024 bytes, and names follow."""


@dataclass(frozen=True)
class Address:
    """Where something is kept remotely."""

    protocol: str
    path: str
    """bucket/prefix, or the absolute path of a folder; without a slash at its end."""

    def child(self, name: str) -> Address:
        """Returns the address of `name` below this one."""
        return Address(self.protocol, f"{self.path}/{name}")

    @property
    def parent(self) -> Address:
        return Address(self.protocol, self.path.rpartition("/")[0])

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.path if self.protocol == "file" else f"{self.protocol}://{self.path}"


def is_url(text: str) -> bool:
    """Returns whether a text is a URL, and not the path or name of a local run."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def parse(text: str, key: str = "run.remote") -> Address:
    """Reads an address. key: what was typed, for messages.

    Raises:
        UserError: an unknown protocol, no bucket, keys in the URL, or a path that stores do not take.
    """
    if re.match(r"[a-z0-9]+:(?!//)", text) and not os.path.isdir(text):
        raise UserError(f"{key}={_shown(text)}: a URL has two slashes after the colon; expected {EXPECTED}")
    if not is_url(text):
        return Address("file", _folder(text, text, key))
    protocol, _, rest = text.partition("://")
    protocol = protocol.lower()
    if protocol not in KNOWN:
        raise UserError(f"{key}={protocol}://…: unknown protocol {protocol}; expected {EXPECTED}")
    if protocol == "file":
        return Address("file", _folder(rest, text, key))
    rest = rest.strip("/")
    bucket, *names = rest.split("/")
    azure = PACKAGES.get(protocol) == "adlfs"
    if re.search(r"[?#]", rest) or (":" in bucket if azure else re.search("[@:]", bucket)):
        package = PACKAGES.get(protocol, "s3fs")
        raise UserError(
            f"{key}={protocol}://…: keys and tokens do not belong in a URL, which configurations and logs show; set "
            f"them in the environment ({CREDENTIALS[package]}) and give {protocol}://bucket/prefix"
        )
    least = 1 if protocol == "memory" else 3
    if not re.fullmatch(r"[A-Za-z0-9$][A-Za-z0-9._@-]*", bucket) or len(bucket) < least:
        raise UserError(f"{key}={_shown(text)}: no bucket of that name is possible; expected {EXPECTED}")
    if any(name in ("", ".", "..") for name in names) or not rest.isprintable() or "\\" in rest:
        raise UserError(
            f"{key}={_shown(text)}: the prefix has an empty part, '.', '..', a backslash or an unprintable character; "
            f"expected {EXPECTED}"
        )
    if len(os.fsencode(rest)) > _MOST_BYTES:
        raise UserError(f"{key}={_shown(text)}: expected at most {_MOST_BYTES} bytes")
    return Address(protocol, rest)


def _folder(path: str, text: str, key: str) -> str:
    try:
        if not path or not path.isprintable():
            raise ValueError
        found = os.path.abspath(Path(path).expanduser())
        os.fsencode(found)
    except (ValueError, RuntimeError) as error:  # no such user's ~; lone surrogates
        raise UserError(f"{key}={_shown(text)}: no such folder is possible; expected {EXPECTED}") from error
    if len(os.fsencode(found)) > 2 * _MOST_BYTES or found == "/":
        raise UserError(f"{key}={_shown(text)}: cannot be used as a folder of runs; expected {EXPECTED}")
    return found


def _shown(text: str) -> str:
    shown = printable(masked(text))
    return shown if len(shown) <= 120 else f"{shown[:117]}…"


def masked(text: str) -> str:
    """Returns a text without keys: those in URLs, signatures, tokens, and values of the environment's secrets."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_VARIABLES.search(name):
            text = text.replace(value, "…")
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text
