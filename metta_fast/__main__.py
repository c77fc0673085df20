"""Runs `metta-fast` as `python -m metta_fast`."""

import sys

from metta_fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
