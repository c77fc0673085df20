"""Implements `export_policy`: write, check, rename into place. The flow is drawn in __init__.py."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from metta_fast.config.policy_inputs import only
from metta_fast.config.trust import Given, given_in_call
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.export.check import TOLERANCE, Batch, Different, compare, played
from metta_fast.export.describe import describe
from metta_fast.export.formats import FORMATS, Work, choose_format, quiet
from metta_fast.export.step import Step, example_inputs, has_memory, input_names, output_names, plain_copy
from metta_fast.inference.evaluate import load_run
from metta_fast.policy.base import Policy
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.user_files import check_output, user_path

ENVS = 2
"""Number of environments that provide observations for the check."""


@dataclass(frozen=True)
class Exported:
    """Holds the result of an export."""

    path: Path
    metadata: dict[str, Any]
    """The content of `path`.json: inputs, outputs, actions, versions, and the check's result."""


def export_policy(
    run: str | PathLike[str],
    out: str | PathLike[str],
    *,
    format: str | None = None,
    best: bool = False,
    overwrite: bool = False,
    trust: bool = False,
    **code: Any,
) -> Exported:
    """Writes a run's policy as one file, which computes on the CPU, and its description as `out`.json.

    Args:
        run: a run's folder, a run's name in runs/, or one of a run's checkpoints.
        out: the file. Its ending selects the format: .pt, .pt2, .onnx.
        format: torchscript, torch_export or onnx; overrides the ending.
        best: export the run's checkpoint with the best score instead of the newest.
        overwrite: replace an existing file.
        trust, code: as in `load_policy`.

    Raises:
        UserError: no such run or format, a missing package, a file that exists or cannot be written, a policy
            that the format does not support, or a file whose outputs differ (nothing is kept then).
    """
    return export_run(
        run, out, format=format, best=best, overwrite=overwrite, given=given_in_call(trust, code)
    )


def export_run(
    run: str | PathLike[str],
    out: str | PathLike[str],
    *,
    format: str | None,
    best: bool,
    overwrite: bool,
    given: Given,
) -> Exported:
    """Implements `export_policy` and the command. given: what the user says about the code that the run names."""
    form = choose_format(format, str(out))
    FORMATS[form].check_packages(form)
    target = _target(user_path(os.fspath(out)), overwrite=overwrite)
    config, policy, _, found, factory = load_run(str(run), best=best, device="cpu", given=given)
    spec = only(factory.spec, policy.actor_leaves)
    seen = played(factory, ENVS, spec)
    metadata = describe(config, policy, spec, form=form, run=found.path.parent.parent.name, step=found.step)
    work = _work(policy, spec, seen, json.dumps(metadata))
    description = target.with_name(target.name + ".json")
    try:
        with whole(description) as words, whole(target) as beside:  # the description last: it needs the check
            with quiet():
                _write(work, beside, form, config.policy.name)
                metadata["check"] = _check(beside, form, policy, spec, seen)
            words.write_text(json.dumps(metadata, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"--out {target}: cannot be written ({error.strerror}); nothing was kept") from error
    return Exported(target, metadata)


def _target(path: Path, *, overwrite: bool) -> Path:
    check_output(path, f"--out {path}")
    beside = path.with_name(path.name + ".json")
    check_output(beside, f"--out {path}: {beside}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UserError(f"--out {path}: the folder {path.parent} cannot be written; give another file")
    if path.exists() and not overwrite:
        raise UserError(f"--out {path} exists already; give another name, or --overwrite")
    return path


def _work(policy: Policy, spec: EnvSpec, seen: list[Batch], metadata: str) -> Work:
    """Returns the policy's step in torch's own operators, with example inputs and names."""
    return Work(
        Step(plain_copy(policy), spec).eval().requires_grad_(False),
        example_inputs(policy, _three(seen)),
        input_names(spec, memory=has_memory(policy)),
        output_names(policy),
        metadata,
    )


def _check(path: Path, form: str, policy: Policy, spec: EnvSpec, seen: list[Batch]) -> dict[str, Any]:
    """Loads the file, compares it with the policy, and returns the result for FILE.json.

    Raises:
        UserError: their outputs differ.
    """
    try:
        report = compare(FORMATS[form].load(path), policy, spec, seen)
    except Different as error:
        raise UserError(
            f"--format {form}: the file's outputs differ from the policy's: {error}; "
            f"nothing is kept. Try another format of {', '.join(FORMATS)}"
        ) from error
    return {
        "rows": report.rows,
        "random_observations": report.random,
        "largest_difference": report.largest,
        "tolerance": TOLERANCE,
    }


def _three(seen: list[Batch]) -> dict[str, torch.Tensor]:
    """Returns observations {leaf: [3, *shape]} of the first step, repeated if there are fewer agents."""
    return {name: leaf[torch.arange(3) % len(leaf)] for name, leaf in seen[0][0].items()}


def _write(work: Work, path: Path, form: str, name: str) -> None:
    """Writes the file. Raises UserError for a policy that the exporter does not support."""
    try:
        with torch.no_grad():
            work.step(*work.example)  # heads keep constants by device: made here, not while tracing
        FORMATS[form].write(work, path)
    except OSError:
        raise
    except Exception as error:  # exporters raise dozens of kinds of their own
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        raise UserError(
            f"--format {form}: policy {name} cannot be exported ({type(error).__name__}: {first.strip()[:300]}); "
            f"in forward, use torch's own operators and no Python branches on values. "
            f"Try another format of {', '.join(FORMATS)}"
        ) from error
