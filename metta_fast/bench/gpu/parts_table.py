"""Formats the table of an epoch's parts: time of our kernels, torch eager and torch.compile; share of the epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

FORMS = ("ours", "eager", "compiled")


def with_shares(run: str, measured: dict[str, Any]) -> dict[str, Any]:
    """Turns the result of parts.Parts.measure into a row of the report, with each part's share of the epoch, 0 … 1."""
    epoch = measured["epoch_us"]
    parts = [
        part | {"share": part["calls"] * part["us"]["ours"] / epoch if "ours" in part["us"] else None}
        for part in measured["parts"]
    ]
    return {"run": run, "epoch_us": epoch, "phases_ms": measured["phases_ms"], "parts": parts}


def parts_lines(row: dict[str, Any]) -> Iterable[str]:
    """Formats one line per part, then the reasons why a form is missing or was launched call by call."""
    if "failed" in row:
        yield f"parts: {row['run']}: failed: {row['failed']}"
        return
    phases = ", ".join(f"{name} {ms:.2f}" for name, ms in row["phases_ms"].items() if ms >= 0.005)
    yield f"parts: {row['run']}, an epoch of {row['epoch_us'] / 1000:.2f} ms ({phases})"
    heads = " ".join(f"{head:>9}" for head in (*FORMS, "of epoch"))
    yield f"  {'µs a call, replayed as a graph':38} {'calls':>5} {heads}"
    remarks = []
    for part in row["parts"]:
        cells = []
        for form in FORMS:
            us = part["us"].get(form)
            mark = "*" if form in part["launched"] else " "
            cells.append(f"{'–':>8} " if us is None else f"{us:8.1f}{mark}")
        share = "" if part["share"] is None else f"{100 * part['share']:8.1f}%"
        yield f"  {part['name']:38} {part['calls']:5} {cells[0]} {cells[1]} {cells[2]} {share}".rstrip()
        remarks += [f"  {part['name']}, {form}: {why}" for form, why in part["failed"].items()]
        remarks += [f"  * {part['name']}, {form}: {why}" for form, why in part["launched"].items()]
    yield from remarks
