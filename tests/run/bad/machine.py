# ruff: noqa: E501  (tables)
"""Machines that do not give what a command needs: rights, descriptors, folders, letters, /proc, disk."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.run.bad.case import Case
from tests.run.bad.keys import TINY

NOBODY = 65534


def nobody(folder: Path) -> None:
    """Another user, who may not write here."""
    os.chmod(folder, 0o755)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def nobody_here(folder: Path) -> None:
    """Another user, in a folder that is theirs."""
    os.chmod(folder, 0o777)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def closed_run(folder: Path) -> None:
    """Another user, and a run that they may not read."""
    closed = folder / "runs" / "closed"
    (closed / "checkpoints").mkdir(parents=True)
    (closed / "config.yaml").write_text("x")
    os.chmod(closed, 0o700)
    nobody_here(folder)


def closed_files(folder: Path) -> None:
    """Another user, and files that they may not read."""
    for name in ("map.txt", "model.xml", "figures.json"):
        (folder / name).write_text("x")
        os.chmod(folder / name, 0)
    (folder / "c" / "env").mkdir(parents=True)
    (folder / "c" / "env" / "mine.yaml").write_text("seed: 3\n")
    os.chmod(folder / "c" / "env" / "mine.yaml", 0)
    (folder / "shut").mkdir()
    os.chmod(folder / "shut", 0)
    nobody_here(folder)


def gone(folder: Path) -> None:
    """A working folder that was deleted."""
    inside = folder / "inside"
    inside.mkdir()
    os.chdir(inside)
    inside.rmdir()


def _limit(what: int, value: int) -> None:
    resource.setrlimit(what, (value, value))


def descriptors_16(folder: Path) -> None:
    _limit(resource.RLIMIT_NOFILE, 16)


def descriptors_32(folder: Path) -> None:
    _limit(resource.RLIMIT_NOFILE, 32)


def descriptors_64(folder: Path) -> None:
    _limit(resource.RLIMIT_NOFILE, 64)


def small_files(folder: Path) -> None:
    """Files of at most 4 KiB: as a full disk, but EFBIG."""
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _limit(resource.RLIMIT_FSIZE, 4096)


def no_proc(folder: Path) -> None:
    """An empty /proc, in this process's own view of the file system."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0:
        raise PermissionError("unshare")
    libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)
    if libc.mount(b"none", b"/proc", b"tmpfs", 0, None) != 0:
        raise PermissionError("mount")


def may_hide_proc() -> bool:
    """Whether this process may hide /proc from a child."""
    child = os.fork()
    if child == 0:
        try:
            no_proc(Path())
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


ASCII = (
    ("PYTHONIOENCODING", "ascii"),
    ("LANG", "C"),
    ("LC_ALL", "C"),
    ("PYTHONUTF8", "0"),
    ("PYTHONCOERCECLOCALE", "0"),
)


def cases() -> Iterator[Case]:
    """Yields the cases."""
    yield from _users()
    for limit in (descriptors_16, descriptors_32, descriptors_64):
        small = limit is not descriptors_64
        yield Case(TINY, rc=(0, 2), before=limit, started=small)
        yield Case((*TINY, "vector.backend=workers"), rc=(0, 2), before=limit, started=small)
        yield Case((*TINY, "vector.backend=threads"), rc=(0, 2), before=limit, started=small)
        yield Case(("eval", "{run}", "--episodes", "4"), rc=(0, 2), before=limit, started=small)
        yield Case(("doctor",), rc=(0, 1, 2), before=limit, started=small)
        yield Case(("monitor", "{run}", "--once"), rc=(0, 2), before=limit, started=small)
        yield Case(("replay", "{run}", "--html", "x.html"), rc=(0, 2), before=limit, started=small)
        yield Case(("export", "{run}", "--out", "x.pt"), rc=(0, 2), before=limit, started=small)
    for words in (TINY, ("doctor",), ("eval", "{run}"), ("monitor", "--once"), ("--help",), (*TINY, "--explain"), ("eval", "nonesuch"),
                  ("replay", "{run}"), ("export", "{run}", "--out", "x.pt"), ("new-robot", "A"), ("bench", "--from", "x.json", "--plot", "x.png"),
                  (*TINY, "run.dir={here}/runs"), (*TINY, "resume=auto")):  # fmt: skip
        yield Case(words, rc=(0, 1, 2) if words == ("doctor",) else (0, 2), before=gone)
    for words in (
        TINY,
        ("doctor",),
        ("run_optimized.py", *TINY[1:]),
        ("benchmark_performance.py", "--nonesuch"),
    ):
        yield Case(words, rc=(0, 1, 2) if words == ("doctor",) else (0, 2), before=gone, started=True)
    for words in (
        (*TINY, "run.dashboard=plain"), ("--help",), ("train", "--help"), (*TINY, "--explain"), (*TINY, "--cfg", "job"),
        (*TINY, "run.dashboard=rich"), ("doctor",), ("eval", "{run}", "--episodes", "4"), ("replay", "{grid}", "--terminal"), ("replay", "{run}"),
        ("monitor", "{run}", "--once"), ("export", "{run}", "--out", "x.pt"), ("eval", "--help"), ("bench", "--help"),
        (*TINY, "trainer.gamma=é"), ("eval", "é"), ("eval", "{run}", "--json"), ("new-robot", "é"),
    ):  # fmt: skip
        rc = (0, 1) if words == ("doctor",) else (2,) if words[-1].endswith("é") else (0,)
        yield Case(words, rc=rc, variables=ASCII, started=True)
    if may_hide_proc():
        for words in (TINY, ("doctor",), (*TINY, "vector.backend=workers"), (*TINY, "vector.backend=threads"), ("eval", "{run}"),
                      ("monitor", "{run}", "--once"), ("replay", "{run}"), ("export", "{run}", "--out", "x.pt"), (*TINY, "--explain")):  # fmt: skip
            yield Case(words, rc=(0, 1) if words == ("doctor",) else (0, 2), before=no_proc)
        yield Case((*TINY, "run.monitor_interval=1"), rc=(0, 2), before=no_proc, started=True)
    for words in (TINY, ("replay", "{grid}", "--html", "x.html"), ("export", "{run}", "--out", "x.pt"), ("export", "{run}", "--out", "x.pt2"),
                  ("replay", "{grid}", "--json", "x.json"), ("replay", "{grid}", "--picture", "x.png"), ("replay", "{grid}", "--video", "x.gif"),
                  (*TINY, "run.tensorboard=true"), ("bench", "--from", "{bad}/one.json", "--plot", "x.png")):  # fmt: skip
        yield Case(words, rc=(0, 2), before=small_files)
    for count in (200_000, 4096):
        yield Case((*TINY, f"trainer.torch_threads={count}"), rc=(0, 2))
    yield Case((*TINY, "trainer.torch_threads=1000000"), ("trainer.torch_threads", "1000000"))
    yield Case((*TINY, "trainer.update_epochs=1e9"), ("trainer.update_epochs", "1000000000"))


def _users() -> Iterator[Case]:
    if os.geteuid() != 0 or sys.platform != "linux":
        return
    yield Case(TINY, ("runs", "Permission denied"), before=nobody)
    yield Case((*TINY, "run.dir={runs}"), ("Permission denied",), before=nobody_here)
    yield Case((*TINY, "run.dir=/root/x"), ("/root/x", "Permission denied"), before=nobody_here)
    yield Case((*TINY, "trainer.batch_size=64", "resume={run}"), ("denied",), before=nobody_here)
    yield Case(
        (*TINY, "trainer.batch_size=64", "resume=auto", "run.dir={runs}", "run.name=good"),
        ("denied",),
        before=nobody_here,
    )
    yield Case(("eval", "{run}", "--episodes", "2"), rc=(0,), before=nobody_here)
    yield Case(("replay", "{run}"), ("denied",), before=nobody_here)
    yield Case(("replay", "{run}", "--html", "{run}/x.html"), ("permission",), before=nobody_here)
    yield Case(("export", "{run}", "--out", "{run}/x.pt"), ("permission",), before=nobody_here)
    yield Case(("export", "{run}", "--out", "/root/x.pt"), ("/root/x.pt",), before=nobody_here)
    yield Case(("monitor", "{run}", "--once"), rc=(0,), before=nobody_here)
    yield Case(("new-robot", "mf_bad"), ("write",), before=nobody_here)
    for command in ("eval", "replay", "monitor"):
        yield Case((command, "runs/closed"), ("runs/closed",), before=closed_run)
        yield Case((command, "closed"), ("closed",), before=closed_run)
    yield Case(("export", "runs/closed", "--out", "x.pt"), ("runs/closed",), before=closed_run)
    yield Case((*TINY, "resume=runs/closed"), ("runs/closed",), before=closed_run)
    yield Case((*TINY, "resume=closed"), ("closed",), before=closed_run)
    yield Case((*TINY, "init_from=runs/closed"), ("runs/closed",), before=closed_run)
    yield Case((*TINY, "resume=auto", "run.name=closed"), ("closed", "denied"), before=closed_run)
    grid = (*TINY, "env=grid_map", "trainer.batch_size=64")
    yield Case((*grid, "env.params.map=map.txt"), ("map.txt", "Permission denied"), before=closed_files)
    yield Case((*TINY, "env=ant", "env.params.xml_file=./model.xml"), ("model.xml",), before=closed_files)
    yield Case(
        ("bench", "--from", "figures.json", "--plot", "x.png"),
        ("figures.json", "denied"),
        before=closed_files,
    )
    yield Case((*TINY, "--config-dir", "c", "env=mine"), ("mine.yaml", "denied"), before=closed_files)
    yield Case((*TINY, "--config-dir", "shut"), ("shut",), before=closed_files)
    yield Case((*TINY, "--config-dir", "shut/x"), ("shut/x",), before=closed_files)
    yield Case((*TINY, "run.dir=shut/x"), ("shut", "denied"), before=closed_files)
    yield Case(("eval", "shut/x"), ("shut/x",), before=closed_files)
    yield Case(("bench", "--json", "shut/x"), ("shut/x",), before=closed_files)
    yield Case(("replay", "{run}", "--html", "shut/x.html"), ("shut/x.html",), before=closed_files)
    yield Case(("export", "{run}", "--out", "shut/x.pt"), ("shut/x.pt",), before=closed_files)
    yield Case((*TINY, "env=this_shut:make"), ("this_shut",), before=closed_files)
