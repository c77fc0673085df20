"""Implements `metta-fast export`: a run's policy as one file.

metta-fast export runs/<name> --out policy.onnx
metta-fast export runs/<name> --best --format torch_export --out policy.pt2
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from metta_fast.config.option_parser import OptionParser
from metta_fast.config.trust import add_code_arguments, given_code
from metta_fast.contracts.printable import printable

SLOW = {"onnx": " (ONNX takes up to a minute)"}
"""Format → what is said of its duration."""


def run_export_command(words: Sequence[str]) -> int:
    """Runs `metta-fast export`. Returns 0, or raises UserError."""
    given = parser().parse_intermixed_args(words)
    from metta_fast.export.formats import choose_format

    form = choose_format(given.format, given.out)
    from metta_fast.export.main import export_run

    print(f"{form}: writing and checking{SLOW.get(form, '')} …", file=sys.stderr, flush=True)
    done = export_run(
        given.run,
        given.out,
        format=form,
        best=given.best,
        overwrite=given.overwrite,
        given=given_code(given),
    )
    if given.json:
        print(json.dumps(done.metadata, indent=1))
    else:
        print(printable(_told(str(done.path), done.path.stat().st_size, done.metadata)))
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast export",
        description="Write a run's policy as one file for other programs, and check its outputs against the policy's.",
    )
    found.add_argument("run", metavar="RUN", help="a run's folder or name, or one of its checkpoints")
    found.add_argument(
        "--out",
        metavar="FILE",
        required=True,
        help="the file; FILE.json beside it describes inputs and outputs",
    )
    found.add_argument(
        "--format",
        metavar="{torchscript,torch_export,onnx}",
        help="file format (default: by FILE's ending: .pt, .pt2, .onnx)",
    )
    found.add_argument(
        "--best", action="store_true", help="use the checkpoint with the best score instead of the newest"
    )
    found.add_argument("--overwrite", action="store_true", help="replace an existing FILE")
    found.add_argument("--json", action="store_true", help="print FILE.json's content")
    add_code_arguments(found)
    return found


def _told(path: str, size: int, metadata: dict[str, Any]) -> str:
    check = metadata["check"]
    lines = [
        f"{path} ({metadata['format']}, {size / 1024:.0f} KiB): {metadata['run']} at step {metadata['step']}"
    ]
    for kind in ("inputs", "outputs"):
        each = [f"{x['name']} {x['dtype']} [{', '.join(map(str, x['shape']))}]" for x in metadata[kind]]
        lines.append(f"  {kind:8} " + ", ".join(each))
    lines.append(
        f"  equal to the policy on {check['rows']} rows: largest difference {check['largest_difference']:.1e}, "
        f"allowed {check['tolerance']:.0e}"
        + ("" if check["random_observations"] else " (the environment's observations only)")
    )
    lines.append(f"  described in {path}.json")
    return "\n".join(lines)
