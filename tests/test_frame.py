"""Tests README and docs: names exist, commands work, versions agree."""

import importlib.util
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import metta_fast
from metta_fast.cli import COMMANDS
from metta_fast.config import other_words
from metta_fast.config.keys import GROUPS, keys
from metta_fast.resolve.compose import compose

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def anchor(heading):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def commands(page):
    """Command lines in the indented blocks of a page, as words, comments cut."""
    for line in page.read_text().splitlines():
        if re.match(r"    (\./|python |\.?[\w./]*metta-fast |make\b|\.ci/)", line):
            yield shlex.split(line, comments=True)


@PAGE
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        name, _, part = target.partition("#")
        file = page if not name else page.parent / name
        assert file.exists(), f"{page.name} links to {target}"
        if part:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert part in map(anchor, headings), f"{page.name} links to {target}"


@PAGE
def test_commands_exist_and_their_arguments_are_good(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_maps.txt").write_text("###\n#@#\n###\n")
    for file, text in (("env/my_grid", "{name: my_grid}"), ("hardware/my_machine", "{num_envs: 512}")):
        path = Path(f"my_configs/{file}.yaml")
        path.parent.mkdir(parents=True)
        path.write_text(f"# @package _global_\nenv: {text}\n")
    for words in commands(page):
        command = " ".join(words)
        program, *arguments = words
        if program == "python":
            program, *arguments = arguments
        if program == "-m":
            assert importlib.util.find_spec(arguments[0]), command
            continue
        if program.endswith("metta-fast"):
            assert arguments[0] in (*COMMANDS, "--completion"), command
        elif program == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert set(arguments) <= set(targets), command
        elif "tensorboard" not in program:
            assert (ROOT / program).is_file(), command
            assert program.endswith(".py") or os.access(ROOT / program, os.X_OK), command
        overrides = [word for word in arguments if "=" in word and not word.startswith("-")]
        if program == "benchmark_performance.py":
            overrides = [word for word in arguments if word.startswith("hardware=")]
        if "--config-dir" in arguments:
            overrides += ["--config-dir", "my_configs"]
        for one in [shlex.split(word) for word in overrides] if "benchmark" in program else [overrides]:
            compose(one)


@PAGE
def test_keys_in_pages_are_in_the_schema(page):
    known = {*keys(), other_words.WRIST, other_words.ENGINE}
    text = page.read_text()
    names = re.findall(r"(?<![\w.])(?:env|vector|policy|trainer|run)\.[a-z_0-9]+\b(?!\()", text)
    groups = {path.rpartition(".")[0] for path in known}
    for name in names:
        is_file = name.endswith((".yaml", ".py", ".svg", ".pt", ".pt2", ".onnx", ".bin"))
        assert is_file or name in known or name in groups, f"{page.name} names {name}"
    for name in re.findall(r"(?<![\w.])env\.image\.[a-z_0-9]+\b", text):
        assert name in known, f"{page.name} names {name}"


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == metta_fast.__version__
    assert f"\n## {metta_fast.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_the_one_that_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


@pytest.mark.parametrize("name", ["run_tests.sh", "run_ultra_fast.sh", ".ci/run"])
def test_scripts_can_be_started(name):
    assert os.access(ROOT / name, os.X_OK)
    assert (ROOT / name).read_text().startswith("#!")


@pytest.mark.parametrize("name", ["envs", "configs"])
def test_the_links_of_the_package(name):
    assert (ROOT / "metta_fast" / name).is_symlink()
    assert (ROOT / "metta_fast" / name).resolve() == ROOT / name


def test_the_package_is_typed():
    assert (ROOT / "metta_fast" / "py.typed").is_file()


def test_every_group_is_described():
    text = (ROOT / "docs" / "configuration.md").read_text()
    for group in GROUPS:
        for file in (ROOT / "configs" / group).glob("*.yaml"):
            assert f"`{file.stem}`" in text, f"docs/configuration.md does not name {group}={file.stem}"
