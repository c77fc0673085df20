"""The options of benchmark_performance.py and `metta-fast bench`, and which of them go together."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from metta_fast.bench.charts import chart
from metta_fast.bench.stepping import command as stepping
from metta_fast.bench.training.two_settings import ORIGINAL, ULTRA_FAST
from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError

EXAMPLES = """examples:
  python benchmark_performance.py                      original against ultra_fast on grid_bench
  python benchmark_performance.py --b "hardware=auto"  against the best profile for this machine
  python benchmark_performance.py --a "hardware=cpu" --b "hardware=cpu vector.backend=workers" --seconds 5
  python benchmark_performance.py --plot speed.png --json speed.json    and as a picture
  python benchmark_performance.py --from speed.json --plot speed.png    the picture alone, later or elsewhere
  python benchmark_performance.py --ablate --plot ladder.png    from original to ultra_fast, one change at a time
  python benchmark_performance.py --simulator          the grid alone, per core
  python benchmark_performance.py --vector             what the vector backends cost, beside others'
  python benchmark_performance.py --advantage          the advantage kernels beside plainer forms
  python benchmark_performance.py --train              training beside Stable-Baselines3 and PufferLib
  python benchmark_performance.py --env ant --json ant.json    a robot's stepping against EnvPool, Gymnasium, SB3
  python benchmark_performance.py --env ant --quick            the same on all threads with 16 envs, for a moment
  python benchmark_performance.py --sb3 ant            training a robot against Stable-Baselines3's PPO on Gymnasium's
  python benchmark_performance.py --gpu --json gpu.json     all on the GPU: training, its parts, the simulator
  python benchmark_performance.py --gpu --quick             the first shape and the parts, in a minute
  python benchmark_performance.py --gpu-scale --plot scale.png    speed by size, as a picture
  metta-fast bench --find-batch                        the largest batch that fits this device's memory"""


@dataclass(frozen=True)
class Length:
    """Seconds of a round and number of rounds."""

    seconds: float
    repeats: int


LENGTHS = {
    "compare": Length(10.0, 5),
    "ablate": Length(5.0, 5),
    "simulator": Length(1.0, 5),
    "vector": Length(1.0, 5),
    "advantage": Length(0.5, 5),
    "train": Length(5.0, 5),
    "env": Length(1.0, 5),
    "sb3": Length(10.0, 5),
    "gpu": Length(0.5, 5),
}
"""What is measured → how long, unless --seconds and --repeats say so."""
QUICK = {
    "ablate": Length(1.0, 2),
    "vector": Length(0.3, 1),
    "advantage": Length(0.1, 1),
    "train": Length(1.0, 2),
    "env": Length(0.3, 1),
    "gpu": Length(0.3, 2),
}
"""The same with --quick; --repeats is then at most this."""


def parser() -> argparse.ArgumentParser:
    """All options and their defaults."""
    found = OptionParser(
        prog="benchmark_performance.py",
        description="Measure speed: two settings in turns, or a part alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = found.add_mutually_exclusive_group()
    for name, help_text in (
        ("--ablate", "from side A to side B one change at a time: what each brings"),
        ("--simulator", "the CPU simulator alone, no policy"),
        ("--vector", "the vector backends alone, no policy, beside Gymnasium's and PufferLib's"),
        ("--advantage", "the advantage kernels beside plain loops of NumPy and torch"),
        (
            "--train",
            "training beside Stable-Baselines3 and PufferLib: the same environment, policy and sizes",
        ),
        ("--gpu", "all on the GPU: training, its parts, the simulator"),
        ("--find-batch", "the largest batch that fits this device's memory"),
    ):
        what.add_argument(name, action="store_true", help=help_text)
    what.add_argument(
        "--env",
        metavar="NAME",
        help="the stepping alone of a recipe (ant, hopper, …), against the peers that are installed",
    )
    what.add_argument(
        "--sb3",
        metavar="NAME",
        help="training a robot (ant, hopper, …) against Stable-Baselines3's PPO at the same settings",
    )
    found.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="with --find-batch and --train: as for training"
    )
    found.add_argument(
        "--threads",
        metavar="LIST",
        help=f"with --env: numbers of threads, each on as many cores (default: {stepping.THREADS})",
    )
    found.add_argument(
        "--envs", metavar="LIST", help=f"with --env: numbers of environments (default: {stepping.ENVS})"
    )
    found.add_argument(
        "--gpu-scale",
        action="store_true",
        help="speed and memory on the GPU by agents, horizon and observation; with --gpu after its tables",
    )
    found.add_argument(
        "--quick",
        action="store_true",
        help=f"short rounds and few cases; with {_listed('--' + k for k in QUICK)}",
    )
    found.add_argument(
        "--a", default=ORIGINAL, metavar="OVERRIDES", help=f"side A's overrides (default: {ORIGINAL!r})"
    )
    found.add_argument(
        "--b",
        default=ULTRA_FAST,
        metavar="OVERRIDES",
        help=f"side B's overrides (default: {ULTRA_FAST!r}); the ratio is B / A",
    )
    lengths = ", ".join(f"{length.seconds:g} {name}" for name, length in LENGTHS.items())
    found.add_argument(
        "--seconds",
        type=_positive,
        metavar="N",
        help=f"per side and round, at least (default: {lengths})",
    )
    found.add_argument("--repeats", type=_count, metavar="N", help="rounds of each side (default: 5)")
    found.add_argument(
        "--return",
        type=float,
        dest="target",
        metavar="X",
        help="also the time that each side takes from fresh weights to a mean return of X",
    )
    found.add_argument(
        "--limit",
        type=_positive,
        default=300.0,
        metavar="S",
        help="with --return: give up after so many seconds (default: 300)",
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    found.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures: a .png, .svg or .pdf")
    found.add_argument(
        "--from",
        type=Path,
        dest="figures",
        metavar="FILE",
        help="with --plot: draw the figures of this --json file instead of measuring",
    )
    return found


def mode(given: argparse.Namespace) -> str:
    """What is to be measured: a name of LENGTHS, or "find_batch"."""
    if given.gpu or given.gpu_scale:
        return "gpu"
    for name in ("ablate", "simulator", "vector", "advantage", "train", "find_batch"):
        if getattr(given, name):
            return name
    return "env" if given.env else "sb3" if given.sb3 else "compare"


def length(given: argparse.Namespace) -> Length:
    """How long the rounds are and how many."""
    usual = LENGTHS[mode(given)]
    if given.quick:
        usual = QUICK[mode(given)]
        return Length(given.seconds or usual.seconds, min(given.repeats or usual.repeats, usual.repeats))
    return Length(given.seconds or usual.seconds, given.repeats or usual.repeats)


def check(given: argparse.Namespace) -> None:
    """Raises UserError: options that do not go together, files that cannot be written; before anything runs."""
    what = mode(given)
    others = [
        name for name in (*LENGTHS, "find_batch") if name not in ("gpu", "compare") and getattr(given, name)
    ]
    if given.gpu_scale and others:
        raise UserError(f"--gpu-scale goes with --gpu or alone, not with --{others[0].replace('_', '-')}")
    if given.quick and (what not in QUICK or (what == "gpu" and not given.gpu)):
        raise UserError(f"--quick goes with {_listed('--' + name for name in QUICK)}")
    if (given.threads or given.envs) and not given.env:
        raise UserError("--threads and --envs go with --env")
    if given.overrides and what not in ("find_batch", "train"):
        raise UserError(
            f"{given.overrides[0]}: key=value goes with --find-batch and --train; sides have --a and --b"
        )
    if what == "find_batch" and (given.json or given.plot):
        raise UserError("--find-batch gives no figures for --json or --plot: it prints what to type")
    if given.target is not None and what not in ("compare", "ablate"):
        raise UserError("--return goes with two sides or --ablate")
    if given.figures is not None and given.plot is None:
        raise UserError("--from draws figures that were measured before: say where to with --plot FILE")
    if given.plot is not None:
        chart.check(given.plot)
    if given.json is not None and not given.json.absolute().parent.is_dir():
        raise UserError(f"--json {given.json}: no folder {given.json.absolute().parent}")


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return ", ".join(first) + (" and " if first else "") + last


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return int(text)
