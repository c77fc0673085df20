"""The command line of benchmark_performance.py."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from metta_fast.bench import stepping
from metta_fast.bench.gpu_report import GpuReport
from metta_fast.bench.machine import describe
from metta_fast.bench.report import Report
from metta_fast.bench.train import ORIGINAL, ULTRA_FAST, Comparison, compare
from metta_fast.errors import UserError
from metta_fast.options import OptionParser

EXAMPLES = """examples:
  python benchmark_performance.py                      original against ultra_fast on grid_bench
  python benchmark_performance.py --b "hardware=auto"  against the best profile for this machine
  python benchmark_performance.py --a "hardware=cpu" --b "hardware=cpu vector.backend=workers" --seconds 5
  python benchmark_performance.py --simulator          the grid alone, per core
  python benchmark_performance.py --vector             what the vector backends cost
  python benchmark_performance.py --env ant --json ant.json    a robot's stepping against EnvPool, Gymnasium, SB3
  python benchmark_performance.py --env ant --quick            the same on all threads with 16 envs, for a moment
  python benchmark_performance.py --gpu --json gpu.json     all on the GPU: training, its parts, the simulator
  python benchmark_performance.py --gpu --quick             the first shape and the parts, in a minute
  python benchmark_performance.py --gpu-scale --json scale.json    speed by size, and scale.svg"""


def parser() -> argparse.ArgumentParser:
    """All options and their defaults."""
    found = OptionParser(
        prog="benchmark_performance.py",
        description="Measure speed: two settings in turns, or a part alone.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = found.add_mutually_exclusive_group()
    what.add_argument("--simulator", action="store_true", help="the CPU simulator alone, no policy")
    what.add_argument("--vector", action="store_true", help="the vector backends alone, no policy")
    what.add_argument("--gpu", action="store_true", help="all on the GPU: training, its parts, the simulator")
    what.add_argument(
        "--env",
        metavar="NAME",
        help="the stepping alone of a recipe (ant, hopper, …), against the peers that are installed",
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
        help="with --gpu: one shape, short rounds, under a minute; with --env: one case, one short round",
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
    found.add_argument(
        "--seconds",
        type=_positive,
        metavar="N",
        help="per side and round, at least (default: 10; 1 with --simulator, --vector and --env, 0.5 with --gpu)",
    )
    found.add_argument(
        "--repeats", type=_count, metavar="N", help="rounds of each side (default: 5; 1 with --env --quick)"
    )
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
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Run a benchmark; 0, or 2 after a user's mistake."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        given = parser().parse_args(words)
        if given.quick and not (given.gpu or given.env):
            raise UserError("--quick goes with --gpu or --env")
        if (given.threads or given.envs) and not given.env:
            raise UserError("--threads and --envs go with --env")
        on_gpu = given.gpu or given.gpu_scale
        if on_gpu:
            _check_gpu(given)
        kind = GpuReport if on_gpu else stepping.StepReport if given.env else Report
        report = kind(describe(), shlex.join(["python", "benchmark_performance.py", *words]))
        if given.json is not None and not given.json.absolute().parent.is_dir():
            raise UserError(f"--json {given.json}: no folder {given.json.absolute().parent}")
        run(given, report)
        if given.json is not None:
            report.write(given.json)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(report.show())
    return 0


def run(given: argparse.Namespace, report: Report) -> None:
    """The benchmark that was asked for, into `report`; progress goes to stderr."""
    repeats = given.repeats or (1 if given.env and given.quick else 5)
    if isinstance(report, GpuReport):
        from metta_fast.bench import gpu, gpu_chart

        def save() -> None:
            if given.json is not None:
                report.write(given.json)
                if report.scale:
                    gpu_chart.write(given.json.with_suffix(".svg"), report.command, report.scale)

        gpu.measure(
            report,
            tables=given.gpu,
            scale=given.gpu_scale,
            quick=given.quick,
            seconds=given.seconds,
            repeats=repeats,
            say=_say,
            save=save,
        )
    elif given.env:
        short = given.quick
        todo = stepping.cases(
            given.threads or ("all" if short else stepping.THREADS),
            given.envs or ("16" if short else stepping.ENVS),
        )
        stepping.measure(report, given.env, todo, given.seconds or (0.3 if short else 1.0), repeats, _say)
    elif given.simulator:
        from metta_fast.bench.env import simulate

        simulate(report, given.seconds or 1.0, repeats, _say)
    elif given.vector:
        from metta_fast.bench.vector import overhead

        overhead(report, given.seconds or 1.0, repeats, _say)
    else:
        compare(
            report,
            Comparison(given.a, given.b, given.seconds or 10.0, repeats, given.target, given.limit),
            _say,
        )


def _check_gpu(given: argparse.Namespace) -> None:
    """Raises UserError: options that do not go together, or no GPU to measure."""
    from metta_fast.bench.gpu import check_machine

    if given.simulator or given.vector or given.env:
        raise UserError("--gpu-scale goes with --gpu or alone, not with --simulator, --vector or --env")
    check_machine()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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
