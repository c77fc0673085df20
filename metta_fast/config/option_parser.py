"""Parses command-line options; a mistake is one line without argparse's usage text."""

from __future__ import annotations

import argparse
from typing import NoReturn

from metta_fast.contracts.errors import UserError


class OptionParser(argparse.ArgumentParser):
    """An ArgumentParser that raises UserError where argparse prints its usage and exits."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")
