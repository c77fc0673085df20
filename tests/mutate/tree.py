"""Copies the repository, changes a file of the copy, builds what the change concerns, and runs tests there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.change import Change

ROOT = Path(__file__).resolve().parents[2]
BUILT = ("*.so", "*.c", "list.h", "built_for.txt")
"""Ignored files that a copy needs: extensions, generated C, the list of robot tasks, and the processor that setup.py
builds for again."""
NATIVE = (".h", ".pyx", ".pxd")
INCLUDE = re.compile(r'(?:#\s*include|cdef extern from)\s+"([^"]+)"')


@dataclass(frozen=True)
class Outcome:
    """Holds the result of the tests on a changed copy."""

    found: bool
    seconds: float
    by: str
    """The test that failed, "timeout", or how pytest ended; empty if all passed."""
    output: str = ""


class BuildError(Exception):
    """Reports a change that does not compile."""


class Tree:
    """Holds a copy of the repository in `folder`, with its built extensions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._time = int(time.time())
        given = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        built = [
            str(path.relative_to(ROOT))
            for top in ("envs", "metta_fast")
            for pattern in BUILT
            for path in (ROOT / top).rglob(pattern)
            if not path.relative_to(ROOT).is_relative_to("metta_fast/envs")
        ]
        for name in (*given.stdout.splitlines(), *built):
            source, target = ROOT / name, folder / name
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def test(self, tests: str, timeout_s: float) -> Outcome:
        """Runs pytest with the arguments `tests` until the first failure."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
        begin = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, by = process.communicate(timeout=timeout_s)[0], ""
        except subprocess.TimeoutExpired as error:
            output, by = str(error.output or ""), "timeout"
        finally:
            _kill(process.pid)
            process.wait()
        if process.returncode and not by:
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.M)
            by = failed[1] if failed else f"pytest ended with {process.returncode}"
        return Outcome(bool(by), time.monotonic() - begin, by, output)

    def test_changed(self, change: Change, timeout_s: float) -> Outcome:
        """Runs the change's tests with the change, and takes it back.

        Raises:
            BuildError: the changed code does not compile.
        """
        path = self.folder / change.file
        text = path.read_text()
        names = extensions_of(self.folder, change.file) if path.suffix in NATIVE else {}
        saved = {so: so.read_bytes() for pyx in names.values() for so in pyx.parent.glob(f"{pyx.stem}.*.so")}
        try:
            self._write(path, change.apply(text))
            if names:
                self._build(list(names))
            return self.test(change.tests, timeout_s)
        finally:
            self._write(path, text)
            for so, data in saved.items():
                so.unlink(missing_ok=True)
                so.write_bytes(data)

    def _write(self, path: Path, text: str) -> None:
        """Writes with a new time: Python and Cython tell by it that a file has changed."""
        path.write_text(text)
        self._time = max(self._time, int(time.time())) + 1  # after the C that Cython made of it last
        os.utime(path, (self._time, self._time))

    def _build(self, names: list[str]) -> None:
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"],
            cwd=self.folder,
            env=os.environ | {"MF_ONLY": ",".join(names), "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BuildError(done.stdout[-2000:] + done.stderr[-2000:])


def extensions_of(root: Path, file: str) -> dict[str, Path]:
    """Returns the extensions that a native file is part of: {module: its .pyx}."""
    sources = {
        path: path.read_text()
        for top in ("envs", "metta_fast")
        for suffix in NATIVE
        for path in (root / top).rglob(f"*{suffix}")
        if not path.relative_to(root).is_relative_to("metta_fast/envs")
    }
    by_name: dict[str, list[Path]] = {}
    for path in sources:
        by_name.setdefault(path.name, []).append(path)

    def parts(path: Path, seen: set[Path]) -> set[Path]:
        """Returns the file and all that it includes; headers are told by their names."""
        if path not in seen:
            seen.add(path)
            for included in INCLUDE.findall(sources[path]):
                for header in by_name.get(Path(included).name, []):
                    parts(header, seen)
        return seen

    found = {}
    for pyx in (path for path in sources if path.suffix == ".pyx"):
        own = {pyx.with_suffix(".pxd")} & sources.keys()
        if root / file in set().union(*(parts(path, set()) for path in (pyx, *own))):
            name = ".".join(pyx.relative_to(root).with_suffix("").parts)
            found[name if name.startswith("metta_fast.") else f"metta_fast.{name}"] = pyx
    return found


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
