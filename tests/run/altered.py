"""Alters each leaf of a real checkpoint, under right checksums, and looks at what every command says.

    python -m tests.run.altered                 # every leaf of meta.json and algorithm.pt, every command: an hour
    python -m tests.run.altered --sample 40     # so many alterations, drawn by --seed

A command must end with 0, or with 2 and one line that names the file. `tests/run/test_altered.py` does the same for
every leaf without a process or a training, and a few of them through every command.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from metta_fast.cli import main as command
from metta_fast.storage import checkpoint
from tests.tiny import COUNTER, trained

KEYS = (
    *COUNTER,
    "trainer.total_timesteps=500",
    "trainer.normalize_reward=true",
    "env.max_steps=10",
    "policy.core=lstm",
    "policy.hidden_size=8",
    "run.checkpoint_interval=1",
    "run.min_interval_s=0",
)
HUGE = 10**30


class Gone:
    """Stands for a leaf that is taken away."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every entry of nested dicts and lists, inner ones too."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from leaves(inside, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, inside in enumerate(value):
            yield from leaves(inside, (*path, index))


def get(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Returns a copy in which the entry at `path` is `new`, or is missing if that is Gone."""
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if not rest and new is Gone:
        del copy[key]
    else:
        copy[key] = changed(value[key], tuple(rest), new)
    return copy


def others(value: Any) -> list[Any]:
    """Returns what a leaf is replaced by: nothing, another type, another shape, NaN, something huge."""
    found: list[Any] = [Gone, None, "x", [1, "y"], {"z": 1}]
    if isinstance(value, torch.Tensor):
        found += [torch.zeros(3, 1, 2), value.unsqueeze(0), value.to(torch.complex64)]
        found += [value.bool()] if value.dtype != torch.bool else []
        if value.is_floating_point() and value.numel():
            found += [torch.full_like(value, torch.nan), torch.full_like(value, torch.inf)]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found += [HUGE, -1, 0.5, float("nan"), 1e308]
    return found


def write(path: Path, name: str, state: Any) -> None:
    """Writes a file of a checkpoint and its right checksum."""
    if name.endswith(".json"):
        (path / name).write_text(json.dumps(state))
    else:
        torch.save(state, path / name)
    manifest = json.loads((path / "manifest.json").read_text())
    data = (path / name).read_bytes()
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (path / "manifest.json").write_text(json.dumps(manifest))


def read(path: Path, name: str) -> Any:
    if name.endswith(".json"):
        return json.loads((path / name).read_text())
    return torch.load(path / name, weights_only=True)


def commands(run: Path, path: Path, out: Path) -> dict[str, list[str]]:
    """Returns the words of every command that reads a checkpoint."""
    end = ["trainer.total_timesteps=600", "run.dashboard=none"]
    return {
        "resume": ["train", f"run.dir={run.parent}", "resume=auto", *end],
        "resume it": ["train", f"run.dir={run.parent}", f"resume={path}", *end],
        "init_from": ["train", *KEYS, *end, f"run.dir={out}", f"init_from={path}"],
        "eval": ["eval", str(path), "--episodes", "2"],
        "eval --best": ["eval", str(run), "--episodes", "2", "--best"],
        "replay": ["replay", str(path), "--html", str(out / "page.html")],
        "export": ["export", str(path), "--out", str(out / "policy.pt"), "--overwrite"],
    }


def tried(words: list[str]) -> tuple[int, str]:
    """Returns a command's exit code, and what it said on stderr."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = command(words)
        except BaseException:
            said.write(traceback.format_exc())
            code = 1
    return code, said.getvalue()


def wrong(code: int, said: str, path: Path) -> bool:
    """Whether that is neither success nor one line that names the checkpoint."""
    if code == 0:
        return "Traceback" in said
    return code != 2 or "Traceback" in said or said.count("error: ") != 1 or path.name not in said


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run.altered", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, help="number of alterations; all without it")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as top:
        made = trained(Path(top) / "made", *KEYS)
        newest = checkpoint.steps(made / "checkpoints")[-1][1]
        todo = [
            (name, leaf, new)
            for name in ("meta.json", "algorithm.pt")
            for leaf in leaves(read(newest, name))
            for new in others(get(read(newest, name), leaf))
        ]
        random.Random(given.seed).shuffle(todo)
        faults = count = 0
        for name, leaf, new in todo[: given.sample]:
            for kind in commands(made, newest, made):
                folder = Path(top) / "try"
                run = shutil.copytree(made, folder / "r")
                path = run / "checkpoints" / newest.name
                write(path, name, changed(read(path, name), leaf, new))
                code, said = tried(commands(run, path, folder)[kind])
                count += 1
                if wrong(code, said, path):
                    faults += 1
                    print(f"{kind}: {name} {leaf} = {new!r:.80}: {code}: {said[-1500:]}\n", flush=True)
                shutil.rmtree(folder)
    print(f"{count} tried, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
