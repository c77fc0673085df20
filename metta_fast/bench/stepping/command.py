"""Compares stepping one environment with other libraries (peers.py), by threads and number of environments.

    python benchmark_performance.py --env ant
    python benchmark_performance.py --env hopper --threads 2 --envs 64 --seconds 2

    for each number of threads and of environments
        a child for each peer, on the same cores ─► burn-in ─► rounds in turns ─► rows, ratios

There is no policy: actions are random and drawn beforehand. A step is one step of one environment. "Per core" divides
by the number of threads, which run on as many cores. Peers step Gymnasium's robots only; other environments have rows
of metta_fast alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from metta_fast.bench.harness.child_handle import BUILD_LIMIT_S, Child, Failed
from metta_fast.bench.harness.libraries import Library
from metta_fast.bench.harness.report import Report, show_count
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.bench.stepping.peers import PEERS, Peer
from metta_fast.contracts.env_answers import gymnasium_id
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.machine import hardware
from metta_fast.resolve.compose import compose

THREADS, ENVS = "1,2,all", "16,64,512"
WORKER = (sys.executable, "-m", "metta_fast.bench.stepping.child_program")
PROCESS_BYTES = 20 << 20
"""Memory to assume for each process of a peer with one process per environment."""


@dataclass(frozen=True)
class Case:
    """Number of threads (and cores) and of environments."""

    threads: int
    envs: int

    def __str__(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads > 1)}, {self.envs} envs"


class StepReport(Report):
    """A Report whose rows also have `peer`, `threads`, `envs`, `per_core`; other libraries' have a ratio, `ours_is`."""

    def show(self) -> str:
        """Formats the table as plain text."""
        lines = [self.head(), self.command, ""]
        width = max((len(row["peer"]) for row in self.rows), default=4)
        names = ("steps/s", "low", "high", "per core")
        lines.append(
            f"{'threads':>7} {'envs':>5}  {'':{width}}  " + "  ".join(f"{n:>10}" for n in names) + "  ours is"
        )
        last = None
        for row in self.rows:
            case = row["threads"], row["envs"]
            lines += [""] if last not in (None, case) else []
            last = case
            figures = [row[key] for key in ("steps_per_s", "low", "high", "per_core")]
            ratio = row.get("ours_is")
            against = (
                f"{ratio['value']:.2f} times ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else ""
            )
            lines.append(
                f"{case[0]:>7} {case[1]:>5}  {row['peer']:{width}}  "
                + "  ".join(map(show_count, figures))
                + f"  {against}".rstrip()
            )
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def check(env: str) -> bool:
    """Whether `env` is one of Gymnasium's robots, which peers can step.

    Raises:
        UserError: there is no such recipe, or its environment cannot be made on this machine.
    """
    config = compose(["hardware=cpu", f"env={env}"]).config.env
    return bool(gymnasium_id(make_factory(config)))


def cases(threads: str, envs: str) -> list[Case]:
    """Combines every number of threads with every number of environments, given as `1,2,all` and `16,64,512`.

    Raises:
        UserError: a list is malformed, or there are more threads than cores.
    """
    cores = hardware.allowed_cores()
    named = threads == THREADS  # of the default, numbers above the machine's cores are dropped
    counts = [
        cores if word.strip() == "all" else _count("--threads", word, " or all")
        for word in threads.split(",")
    ]
    counts = [count for count in counts if count <= cores] if named else counts
    if max(counts) > cores:
        raise UserError(
            f"--threads {threads}: this process may use {cores} cores; give at most as many threads"
        )
    sizes = [_count("--envs", word) for word in envs.split(",")]
    return [Case(count, size) for count in sorted(set(counts)) for size in sorted(set(sizes))]


def _count(option: str, word: str, more: str = "") -> int:
    if not word.strip().isdecimal() or int(word) < 1:
        raise UserError(f"{option}: {word.strip()!r} is not a whole number of at least 1{more}")
    return int(word)


def measure(
    report: Report,
    env: str,
    todo: Sequence[Case],
    seconds: float,
    repeats: int,
    say: Callable[[str], None],
) -> None:
    """Adds rows and ratios for every case to the report; peers that are not installed are named in its notes."""
    peers = _present(report, check(env))
    seen: dict[str, str] = {}
    for case in todo:
        _measure(
            report,
            env,
            case,
            _fitting(report, case, peers),
            seconds,
            repeats,
            headed(say, f"{env}, {case}"),
            seen,
        )
    report.notes += [f"{name}: {what}" for name, what in seen.items()]


def _present(report: Report, robot: bool) -> list[Peer]:
    """Returns the installed peers, and notes the others in the report."""
    if not robot:
        report.notes.append(
            "peers step Gymnasium's robots only: this environment has rows of metta_fast alone"
        )
        return [peer for peer in PEERS if peer.library is None]
    missing: dict[Library, Peer] = {}
    for peer in PEERS:
        if peer.library is not None and not peer.library.version():
            missing.setdefault(peer.library, peer)
    for library, peer in missing.items():
        report.notes.append(f"absent: {peer.name}, which is not installed ({library.install})")
    return [peer for peer in PEERS if peer.library not in missing]


def _fitting(report: Report, case: Case, peers: Sequence[Peer]) -> list[Peer]:
    """Leaves out peers with one process per environment if memory does not suffice for all of them at once."""
    needed = case.envs * PROCESS_BYTES * sum(peer.processes for peer in peers)
    memory = hardware.detect().memory
    if needed <= memory:
        return list(peers)
    left_out = ", ".join(peer.name for peer in peers if peer.processes)
    report.notes.append(
        f"{case}: absent: {left_out}: a process for each environment needs about "
        f"{needed / hardware.GIB:.0f} GiB, this machine has {memory / hardware.GIB:.0f}"
    )
    return [peer for peer in peers if not peer.processes]


def _measure(
    report: Report,
    env: str,
    case: Case,
    peers: Sequence[Peer],
    seconds: float,
    repeats: int,
    say: Callable[[str], None],
    seen: dict[str, str],
) -> None:
    """Measures one case: builds, burns in, measures rounds in turns, adds rows.

    Args:
        seen: receives for each peer the environments that it steps.
    """
    with ExitStack() as stack:
        children: list[tuple[Peer, Child]] = []
        for peer in peers:
            child = stack.enter_context(Child(peer.name, command=WORKER))
            try:
                build = {"kind": peer.kind, "env": env, "num_envs": case.envs}
                ready = child.ask(
                    BUILD_LIMIT_S, do="build", cores=case.threads, threads=case.threads, **build
                )
                burnt = child.ask(do="round", seconds=seconds)
            except Failed as failed:
                if peer.library is None:
                    raise UserError(f"{env}, {case}: {failed.why}\n{failed.printed}") from None
                report.notes.append(f"{case}: absent: {peer.name} failed: {failed.why}")
                say(f"{peer.name} failed: {failed.why}\n{failed.printed}")
                continue
            if peer.library is not None:
                seen[peer.name] = f"{ready['envs']}, {peer.library.module} {peer.library.version()}"
            say(f"{peer.name}: {burnt['steps_per_s']:,.0f} steps/s in the burn-in")
            children.append((peer, child))
        rounds_of = [partial(child.ask, do="round", seconds=seconds) for _, child in children]
        try:
            results, notes = in_turns(rounds_of, repeats, say)
        except Failed as failed:
            report.notes.append(f"{case}: not measured: a process failed: {failed.why}")
            say(f"{failed.why}\n{failed.printed}")
            return
    report.notes += [f"{case}: {note}" for note in notes]
    speeds = {
        peer: [one["steps_per_s"] for one in rounds]
        for (peer, _), rounds in zip(children, results, strict=True)
    }
    _add_rows(report, env, case, speeds)


def _add_rows(report: Report, env: str, case: Case, speeds: Mapping[Peer, Sequence[float]]) -> None:
    """Adds a row and a ratio for each peer.

    Args:
        speeds: steps per second of each peer's rounds.
    """
    by_kind = {peer.kind: found for peer, found in speeds.items()}
    for peer, found in speeds.items():
        ratio: dict[str, Any] | None = None
        if peer.library is not None:
            report.add_ratio(f"{env}, {case}: ours / {peer.name}", by_kind[peer.against], found)
            ratio = {key: report.ratios[-1][key] for key in ("value", "low", "high")}
        report.add_row(
            f"{env}, {case}: {peer.name}",
            found,
            peer=peer.name,
            threads=case.threads,
            envs=case.envs,
            ours_is=ratio,
        )
        report.rows[-1]["per_core"] = report.rows[-1]["steps_per_s"] / case.threads
