"""Tests that each change of `python -m tests.mutate` still fits the code, and that what it reports is so."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.mutate import CHANGES
from tests.mutate.__main__ import ENOUGH, _report, main
from tests.mutate.change import Change
from tests.mutate.tree import ROOT, Outcome, Tree, extensions_of


def test_every_change_fits_its_file_and_names_its_tests() -> None:
    """A change whose text is gone would be tried no more."""
    wrong = [
        (change.name, change.count((ROOT / change.file).read_text()))
        for change in CHANGES
        if change.count((ROOT / change.file).read_text()) != 1
    ]
    assert not wrong, f"old texts that are not in their file exactly once: {wrong}"
    assert all(change.old != change.new for change in CHANGES)
    missing = {
        name for c in CHANGES for name in c.tests.split() if "/" in name and not (ROOT / name).exists()
    }
    assert not missing
    assert [name for name, count in Counter(change.name for change in CHANGES).items() if count > 1] == []
    assert len(CHANGES) >= 100


def test_changed_python_is_still_python() -> None:
    """One that cannot be imported would be found by any test."""
    for change in CHANGES:
        if change.file.endswith(".py"):
            ast.parse(change.apply((ROOT / change.file).read_text()))


def test_a_change_that_does_not_fit_is_refused() -> None:
    change = Change("a.py", "x", "y", "breaks", "tests")
    assert change.apply("x z") == "y z"
    for text in ("z", "x x"):
        with pytest.raises(ValueError, match=r"a\.py: breaks: its old text occurs"):
            change.apply(text)


def test_a_header_belongs_to_the_extensions_that_include_it() -> None:
    assert list(extensions_of(ROOT, "envs/grid/grid_emit.h")) == ["metta_fast.envs.grid._grid"]
    assert list(extensions_of(ROOT, "envs/native/board.h")) == ["metta_fast.envs.native._sync"]
    assert "metta_fast.envs.native._pool" in extensions_of(ROOT, "metta_fast/runtime/c/sync.h")
    assert list(extensions_of(ROOT, "envs/grid/_grid.pyx")) == ["metta_fast.envs.grid._grid"]
    for change in CHANGES:
        if Path(change.file).suffix in (".h", ".pyx", ".pxd"):
            assert extensions_of(ROOT, change.file), f"{change.file} is part of no extension"


def test_survivors_are_listed_and_too_many_fail(capsys: Any) -> None:
    changes = [Change("a.py", str(i), "y", f"breaks {i}", "tests", "makes no difference") for i in range(20)]
    for survivors, code in ((0, 0), (2, 0), (3, 1)):
        found = {change: Outcome(i >= survivors, 1.0, "") for i, change in enumerate(changes)}
        assert _report(found) == code
        assert capsys.readouterr().out.count("survived: a.py: breaks") == survivors
    assert ENOUGH == 0.9


def test_a_changed_copy_fails_its_tests_and_is_as_before_afterwards(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    test = "tests/run/test_interval.py::test_it_counts_epochs_from_where_it_starts"
    file = "metta_fast/runtime/interval.py"
    change = Change(file, "return self._answer", "return not self._answer", "the opposite", test)
    outcome = tree.test_changed(change, 60.0)
    assert outcome.by == test, outcome.output
    assert (tmp_path / file).read_bytes() == (ROOT / file).read_bytes()
    unchanged = tree.test(test, 60.0)
    assert not unchanged.found, unchanged.output
    slow = Change(file, "return self._answer", "while True: pass", "hangs", test)
    assert tree.test_changed(slow, 2.0).by == "timeout"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SystemExit, match="no change has that in its name"):
        main(["--only", "no such change"])
