"""Defines the options of benchmark_performance.py and `metta-fast bench`, and checks which go together."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from metta_fast.bench.cameras import cases as cameras
from metta_fast.bench.charts import chart
from metta_fast.bench.robots import cases as robots
from metta_fast.bench.stepping import command as stepping
from metta_fast.bench.stepping import vector_sides
from metta_fast.bench.training.two_settings import ORIGINAL, ULTRA_FAST
from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.storage.user_files import check_output, user_path

EXAMPLES = """examples:
  python benchmark_performance.py                      compare original with ultra_fast on grid_bench
  python benchmark_performance.py --b "hardware=auto"  compare original with this machine's best profile
  python benchmark_performance.py --a "hardware=cpu" --b "hardware=cpu vector.backend=workers" --seconds 5
  python benchmark_performance.py --plot speed.png --json speed.json    also write a chart and the results
  python benchmark_performance.py --from speed.json --plot speed.png    draw the chart later, on any machine
  python benchmark_performance.py --ablate --plot ladder.png    from original to ultra_fast, one change at a time
  python benchmark_performance.py --simulator          the grid without a policy, per core; --quick: in seconds
  python benchmark_performance.py --vector             Python environments: our backends, and other libraries'
  python benchmark_performance.py --vector --vector-env sleep --vector-rival gymnasium --envs 64    a part of that
  python benchmark_performance.py --advantage          the advantage kernels, and plainer implementations
  python benchmark_performance.py --train              compare training with Stable-Baselines3 and PufferLib
  python benchmark_performance.py --env ant --json ant.json    compare stepping with EnvPool, Gymnasium, SB3
  python benchmark_performance.py --env ant --quick            the same on all threads with 16 envs, in short rounds
  python benchmark_performance.py --sb3 ant            compare training a robot with Stable-Baselines3 on Gymnasium
  python benchmark_performance.py --robot ant          a robot on the GPU by preset and number, beside the CPU's
  python benchmark_performance.py --camera lift_cube_wrist  robots that see pictures, by renderer, size and number
  python benchmark_performance.py --gpu --json gpu.json     everything on the GPU: training, its parts, the simulator
  python benchmark_performance.py --gpu --quick             the first shape and the parts, in a minute
  python benchmark_performance.py --gpu-scale --plot scale.png    speed by size, as a chart
  metta-fast bench --find-batch                        the largest batch that fits this device's memory"""


@dataclass(frozen=True)
class Length:
    """Duration of a round in seconds, and number of rounds."""

    seconds: float
    repeats: int


ROBOT, CAMERA = "robot", "camera"
"""Modes, and the options that choose them."""
LENGTHS = {
    "compare": Length(10.0, 5),
    "ablate": Length(5.0, 5),
    "simulator": Length(1.0, 5),
    "vector": Length(1.0, 5),
    "advantage": Length(0.5, 5),
    "train": Length(5.0, 5),
    "env": Length(1.0, 5),
    "sb3": Length(10.0, 5),
    ROBOT: Length(1.0, 5),
    CAMERA: Length(1.0, 3),
    "gpu": Length(0.5, 5),
}
"""Mode → its length, unless --seconds and --repeats are given."""
QUICK = {
    "compare": Length(1.0, 2),
    "ablate": Length(1.0, 2),
    "simulator": Length(0.2, 2),
    "vector": Length(0.3, 1),
    "advantage": Length(0.1, 1),
    "train": Length(1.0, 2),
    "env": Length(0.3, 1),
    "sb3": Length(1.0, 2),
    ROBOT: Length(0.5, 1),
    CAMERA: Length(0.5, 1),
    "gpu": Length(0.3, 2),
}
"""Mode → its length with --quick; --repeats is then at most this."""


def parser() -> argparse.ArgumentParser:
    """Makes the parser of all options."""
    found = OptionParser(
        prog="benchmark_performance.py",
        description="Measure speed: compare two settings in turns, or measure one part.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_modes(found)
    _add_cases(found)
    _add_lengths(found)
    _add_files(found)
    return found


def _add_modes(found: argparse.ArgumentParser) -> None:
    """Adds the options that choose what is measured."""
    modes = found.add_mutually_exclusive_group()
    for name, help_text in (
        ("--ablate", "go from side A to side B one change at a time and measure each"),
        ("--simulator", "the CPU simulator alone, without a policy"),
        ("--vector", "the vector backends without a policy, compared with installed libraries'"),
        ("--advantage", "the advantage kernels, and plain loops of NumPy and torch"),
        (
            "--train",
            "training, compared with Stable-Baselines3 and PufferLib: same environment, policy and sizes",
        ),
        ("--gpu", "everything on the GPU: training, its parts, the simulator"),
        ("--find-batch", "the largest batch that fits this device's memory"),
    ):
        modes.add_argument(name, action="store_true", help=help_text)
    for name, help_text in (
        ("--env", "stepping a recipe (ant, hopper, …) without a policy, compared with installed libraries"),
        ("--robot", "a robot (ant, hopper, …) on the GPU: stepping and training by preset, beside the CPU's"),
        ("--camera", "robots that see pictures (lift_cube_wrist, …): physics, pictures, policy, training"),
        ("--sb3", "training a robot (ant, hopper, …), compared with Stable-Baselines3's PPO"),
    ):
        modes.add_argument(name, metavar="NAME", help=help_text)


def _add_cases(found: argparse.ArgumentParser) -> None:
    """Adds the options that choose the cases of a mode."""
    add = found.add_argument
    add(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="with --camera, --find-batch and --train: as for training",
    )
    threads = f"with --env: numbers of threads, each on as many cores (default: {stepping.THREADS})"
    add("--threads", metavar="LIST", help=threads)
    envs = (
        "with --env, --vector, --robot and --camera: numbers of environments "
        f"(default: {stepping.ENVS}; {vector_sides.ENVS}; {robots.ENVS}; {cameras.ENVS})"
    )
    add("--envs", metavar="LIST", help=envs)
    add("--sizes", metavar="LIST", help=f"with --camera: pixels of a side (default: {cameras.SIZES})")
    names = ", ".join(vector_sides.PARTS)
    add("--vector-env", metavar="LIST", help=f"with --vector: what is stepped, of {names} (default: all)")
    rivals = ", ".join(vector_sides.RIVALS)
    add("--vector-rival", metavar="LIST", help=f"with --vector: compared with, of {rivals} (default: all)")
    add(
        "--gpu-scale",
        action="store_true",
        help="speed and memory on the GPU by agents, horizon and observation; with --gpu, after its tables",
    )
    add("--quick", action="store_true", help="short rounds and few cases: a trial, not a measurement")
    add("--a", default=ORIGINAL, metavar="OVERRIDES", help=f"side A's overrides (default: {ORIGINAL!r})")
    second = f"side B's overrides (default: {ULTRA_FAST!r}); the ratio is B / A"
    add("--b", default=ULTRA_FAST, metavar="OVERRIDES", help=second)


def _add_lengths(found: argparse.ArgumentParser) -> None:
    """Adds the options that choose how long is measured."""
    add = found.add_argument
    lengths = ", ".join(f"{length.seconds:g} {name}" for name, length in LENGTHS.items())
    seconds = f"least seconds per side and round (default: {lengths})"
    add("--seconds", type=_positive, metavar="N", help=seconds)
    add("--repeats", type=_count, metavar="N", help="rounds of each side (default: 5)")
    target = "also measure the time that each side takes from fresh weights to a mean return of X"
    add("--return", type=float, dest="target", metavar="X", help=target)
    limit = "with --return: seconds after which a side gives up (default: 300)"
    add("--limit", type=_positive, default=300.0, metavar="S", help=limit)


def _add_files(found: argparse.ArgumentParser) -> None:
    """Adds the options that name files."""
    add = found.add_argument
    add("--json", type=user_path, metavar="FILE", help="write the results to this file")
    add("--plot", type=user_path, metavar="FILE", help="draw the results as a chart: .png, .svg or .pdf")
    source = "with --plot: draw the results in this --json file instead of measuring"
    add("--from", type=user_path, dest="figures", metavar="FILE", help=source)


def mode(given: argparse.Namespace) -> str:
    """Returns what is to be measured: a name of LENGTHS, or "find_batch"."""
    if given.gpu or given.gpu_scale:
        return "gpu"
    for name in ("ablate", "simulator", "vector", "advantage", "train", "find_batch"):
        if getattr(given, name):
            return name
    return next((name for name in ("env", "sb3", ROBOT, CAMERA) if getattr(given, name)), "compare")


def length(given: argparse.Namespace) -> Length:
    """Returns the rounds' duration and number."""
    usual = LENGTHS[mode(given)]
    if given.quick:
        usual = QUICK[mode(given)]
        return Length(given.seconds or usual.seconds, min(given.repeats or usual.repeats, usual.repeats))
    return Length(given.seconds or usual.seconds, given.repeats or usual.repeats)


def check(given: argparse.Namespace) -> None:
    """Checks the options before anything runs. Raises UserError: options that contradict, files not writable."""
    what = mode(given)
    others = [
        name for name in (*LENGTHS, "find_batch") if name not in ("gpu", "compare") and getattr(given, name)
    ]
    if given.gpu_scale and others:
        raise UserError(
            f"--gpu-scale goes with --gpu or alone, not with --{others[0].replace('_', '-')}; remove one of them"
        )
    if given.quick and what == "find_batch":
        raise UserError("--quick has no effect with --find-batch: it measures what fits; remove it")
    if given.quick and given.gpu_scale and not given.gpu:
        raise UserError("--quick has no effect with --gpu-scale alone; add --gpu, or remove it")
    if given.threads is not None and not given.env:
        raise UserError(f"--threads {given.threads} goes with --env NAME")
    if given.envs is not None and what not in ("env", "vector", ROBOT, CAMERA):
        raise UserError(f"--envs {given.envs} goes with --env NAME, --robot NAME, --camera NAME or --vector")
    if given.sizes is not None and what != CAMERA:
        raise UserError(f"--sizes {given.sizes} goes with --camera NAME")
    for option, value in (("--vector-env", given.vector_env), ("--vector-rival", given.vector_rival)):
        if value is not None and what != "vector":
            raise UserError(f"{option} {value} goes with --vector")
    if what == "vector":
        vector_sides.wanted(given.vector_env, given.vector_rival, given.envs)
    if given.overrides and what not in ("find_batch", "train", CAMERA):
        raise UserError(
            f"{given.overrides[0]}: key=value goes with --camera, --find-batch and --train; for sides use --a and --b"
        )
    if what == "find_batch" and (given.json or given.plot):
        raise UserError(
            "--find-batch has no results for --json or --plot: it prints what to type; remove them"
        )
    if given.target is not None and what not in ("compare", "ablate"):
        raise UserError(f"--return {given.target:g} goes with two sides or --ablate")
    if given.target is not None and not math.isfinite(given.target):
        raise UserError(f"--return {given.target:g}: expected a number")
    if given.figures is not None and given.plot is None:
        raise UserError("--from draws saved results: name the chart's file with --plot FILE")
    if given.plot is not None:
        chart.check(given.plot)
    if given.json is not None:
        check_output(given.json, f"--json {given.json}")


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
