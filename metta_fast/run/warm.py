"""Compiles everything that a run's first update needs, and stops: `metta-fast warm KEY=VALUE…`.

    metta-fast warm env=ant env.device=cuda env.num_envs=4096      # as `train`; nothing is written but the caches

    compose, resolve (as `train`) ─► build_parts, in a folder that is deleted ─► collect, update ─► what caches grew by

By really collecting and learning, what runs is what is compiled. Place in the flow: beside trainer.py, for cli.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.printable import printable
from metta_fast.runtime import kernel_caches

if TYPE_CHECKING:
    from metta_fast.config.keys import Config
    from metta_fast.resolve.resolve import Resolved

REPLAYS = 2
"""Epochs on a GPU: the second captures the CUDA graphs, which may compile other kernels."""
MOST_EPOCHS = 1000
"""Epochs after which an algorithm that has not learned anything yet is given up."""


def run_warm_command(words: Sequence[str]) -> int:
    """Runs `metta-fast warm`. Returns 0, or raises UserError as `train` does."""
    given = parser().parse_args(words)
    chosen = [*given.overrides, *(["--config-dir", given.config_dir] if given.config_dir is not None else [])]
    resolved = _resolved(chosen, trust=given.trust)
    print(printable("\n".join(warm(resolved))))
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast warm",
        description="Compile all that a training with these values needs until its first update, and stop: a later "
        "`metta-fast train` with the same values starts at once. Nothing is written to runs/.",
    )
    found.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for `metta-fast train`")
    found.add_argument(
        "--config-dir", metavar="DIR", help="a folder of your own with hardware/, env/, policy/ … files"
    )
    found.add_argument(
        "--trust", action="store_true", help="with resume= or init_from=: import whatever code that run names"
    )
    return found


def _resolved(words: list[str], *, trust: bool) -> Resolved:
    """Returns the configuration as `train` would have it, and starts what `train` starts early."""
    from metta_fast.config.trust import Given
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve
    from metta_fast.run.early_start import begin
    from metta_fast.run.resume import prepare

    composed = compose(words, default_hardware="auto")
    composed.given = Given(trust=trust)
    resolved = resolve(prepare(composed, words, lock=False).composed)
    begin(resolved)
    return resolved


def warm(resolved: Resolved) -> list[str]:
    """Builds the run, collects and learns once, and returns the lines to print.

    Raises:
        UserError: the run cannot be made, its first update does not fit the GPU's memory, or nothing was learned.
    """
    import torch

    from metta_fast.resolve.smaller_sizes import out_of_memory_advice
    from metta_fast.run.build import build_parts

    before = {name: kernel_caches.size(folder) for name, folder in kernel_caches.folders().items()}
    times: dict[str, float] = {}
    with _somewhere_else(resolved.config) as config:
        try:
            with _timed(times, "build"):
                parts = build_parts(config, resolved.factory)
            try:
                _first_updates(parts, config, times)
            finally:
                parts.close()
        except torch.OutOfMemoryError as error:
            raise UserError(out_of_memory_advice(config)) from error
    return _told(config, times, before)


def _first_updates(parts: Any, config: Config, times: dict[str, float]) -> None:
    """Collects and learns until something was learned, then again where graphs are captured."""
    import torch

    algorithm, device = parts.algorithm, parts.device
    again = REPLAYS if device.type == "cuda" else 1
    for _ in range(MOST_EPOCHS):
        with _timed(times, "collect"):
            algorithm.collect()
        with _timed(times, "update"):
            algorithm.update()
            learned = any(name.startswith("loss/") for name in algorithm.metrics())
        again -= learned
        if again <= 0:
            break
    else:
        raise UserError(f"nothing was learned in {MOST_EPOCHS} epochs ({algorithm.steps} steps)")
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _somewhere_else(config: Config) -> Iterator[Config]:
    """Yields the configuration with a run's folder that is deleted afterwards, and without a viewer."""
    with tempfile.TemporaryDirectory(prefix="metta_fast-warm-") as folder:
        changed = deepcopy(config)
        changed.run.dir, changed.run.name = folder, "warm"
        changed.env.show_viewer = False
        yield changed


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Adds the seconds to times[name]; the first time, says on stderr what begins."""
    if name not in times:
        print(f"{name} …", file=sys.stderr, flush=True)
    began = time.perf_counter()
    yield
    times[name] = times.get(name, 0.0) + time.perf_counter() - began


def _told(config: Config, times: dict[str, float], before: dict[str, kernel_caches.Size]) -> list[str]:
    """Returns what was compiled, how long it took, and where it is."""
    env, trainer = config.env, config.trainer
    lines = [
        f"{env.name}, {env.num_envs} environments on {env.device}, {config.algorithm['name']} on {trainer.device}: "
        + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in times.items())
    ]
    grown = []
    for name, folder in kernel_caches.folders().items():
        was, now = before.get(name, kernel_caches.Size(0, 0)), kernel_caches.size(folder)
        if now.files > was.files:
            more, mib = now.files - was.files, (now.bytes - was.bytes) / 2**20
            grown.append(f"compiled for {name}: {more} files, {mib:.1f} MiB, in {folder}")
    return lines + (
        grown or ["nothing had to be compiled: what this run needs is built in, or in the caches"]
    )
