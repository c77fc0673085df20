"""Chooses how the files of an address are read and written: in a folder, or by the package of a bucket's protocol."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.storage.remote.address import PACKAGES, Address
from metta_fast.storage.remote.bucket_files import BucketFiles
from metta_fast.storage.remote.files import Files
from metta_fast.storage.remote.folder_files import FolderFiles


def open_files(address: Address, key: str = "run.remote") -> Files:
    """Opens an address. Nothing is asked of a bucket yet.

    Raises:
        UserError: the package for this protocol is not installed.
    """
    if address.protocol == "file":
        return FolderFiles(Path(address.path))
    package = PACKAGES.get(address.protocol)
    for needed in filter(None, ("fsspec", package)):
        if importlib.util.find_spec(needed) is None:
            raise UserError(
                f"{key}={address}: {address.protocol}:// needs the package {needed}, which is not installed: pip "
                f"install {needed} (the extra metta_fast[remote] has s3fs, gcsfs and adlfs)"
            )
    return BucketFiles(address)
