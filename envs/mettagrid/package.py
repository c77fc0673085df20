"""Says whether the package `mettagrid` can be used.

needs_mettagrid("env=mettagrid")      # UserError with the command that installs it, or the version that fits
"""

from __future__ import annotations

import importlib
from importlib import metadata

from metta_fast.config.extension import described
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.machine.installation import install_extra

VERSION = "0.26.22"
"""The version whose simulator this folder was tested with; its buffers and handlers change between versions."""


def needs_mettagrid(where: str) -> None:
    """Imports the package's simulator.

    Raises:
        UserError: it is not installed, is another version, or cannot be imported.
    """
    try:
        version = metadata.version("mettagrid")
    except metadata.PackageNotFoundError:
        raise UserError(
            f"{where} needs the package mettagrid, which is not installed: type {install_extra('mettagrid')}"
        ) from None
    if version != VERSION:
        raise UserError(
            f"{where} needs mettagrid {VERSION}, but {version} is installed: type {install_extra('mettagrid')}"
        )
    try:
        importlib.import_module("mettagrid.simulator")
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise UserError(
            f"{where}: mettagrid cannot be imported: {described(error)}; type {install_extra('mettagrid')}"
        ) from error
