"""Public names are `metta_fast.X`; the old paths of those that had one still work and log the new path."""

from __future__ import annotations

import importlib
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import metta_fast
from metta_fast.compat.old_paths import OLD

ROOT = Path(__file__).resolve().parent.parent
NAMES = [(module, name, new) for module, names in OLD.items() for name, new in names.items()]


def test_every_public_name_is_there():
    for name in [*metta_fast._PLACES, *metta_fast._MODULES]:
        assert getattr(metta_fast, name) is not None
        assert name in dir(metta_fast)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = metta_fast.nonsense


def test_type_checkers_know_each_of_them():
    text = (ROOT / "metta_fast/__init__.py").read_text()
    known = set(re.findall(r"import (\w+) as \1$", text, re.M)) - {"__version__"}
    assert known == {*metta_fast._PLACES, *metta_fast._MODULES}


@pytest.mark.parametrize(("module", "name", "new"), NAMES, ids=[f"{m}.{n}" for m, n, _ in NAMES])
def test_an_old_path_works_and_logs_the_new_one_once(module, name, new, caplog):
    sys.modules.pop(module, None)
    with caplog.at_level(logging.WARNING, logger="metta_fast"):
        old = getattr(importlib.import_module(module), name)
        assert getattr(importlib.import_module(module), name) is old
    place, _, attribute = new.rpartition(".")
    home = metta_fast.hooks if place == "metta_fast.hooks" else importlib.import_module(place)
    assert old is getattr(home, attribute)
    assert [r.getMessage() for r in caplog.records] == [
        f"{module}.{name} is now {new}; the old path still works"
    ]


def test_a_name_that_an_old_path_never_had():
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from metta_fast.errors import Nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("metta_fast.trainer")


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, metta_fast; print([m for m in ('torch', 'numpy', 'yaml', 'logging') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pages_and_templates_show_names_by_their_public_path():
    """`from metta_fast.… import X` in a page, where X is public, is `from metta_fast import X`."""
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "metta_fast/scaffold/templates").glob("*"),
    ]
    found = []
    for page in pages:
        for module, names in re.findall(r"from (metta_fast\.[\w.]+) import ([\w, ]+)", page.read_text()):
            found += [
                f"{page.name}: {module}.{n.strip()}"
                for n in names.split(",")
                if n.strip() in metta_fast._PLACES
            ]
    assert found == []
