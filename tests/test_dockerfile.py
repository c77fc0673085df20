"""Tests the Dockerfile: a linter's rules, and that it sets up and starts as README says."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def instructions(text):
    """(word, argument) of each instruction, continued lines joined, comments left out."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    lines = re.sub(r"\\\n\s*", "", lines)
    return [tuple(line.split(maxsplit=1)) for line in lines.splitlines() if line.strip()]


def faults(text, readme, python):
    """What is wrong with a Dockerfile, in words; `python` is pyproject's requires-python as (least, below)."""
    found = []
    steps = instructions(text)
    users = [at for at, (word, _) in enumerate(steps) if word == "USER"]
    first_user = users[0] if users else len(steps)
    version = re.fullmatch(r"python:3\.(\d+)-slim-[a-z]+", steps[0][1]) if steps[0][0] == "FROM" else None
    if version is None or not python[0] <= int(version[1]) < python[1]:
        found.append("the base is no python:3.N-slim-RELEASE that pyproject.toml allows")
    if not users or steps[users[-1]][1] in ("root", "0"):
        found.append("it ends as root")
    if [word for word, _ in steps].count("CMD") != 1:
        found.append("not one CMD")
    for at, (word, argument) in enumerate(steps):
        if word not in ("FROM", "RUN", "COPY", "WORKDIR", "USER", "CMD"):
            found.append(f"{word} is not used here")
        if word == "WORKDIR" and not argument.startswith("/home/"):
            found.append("a relative WORKDIR, or one that belongs to root")
        if word == "COPY" and "--chown=" not in argument:
            found.append("COPY leaves files to root")
        if word == "CMD":
            try:
                words = json.loads(argument)
            except ValueError:
                found.append("CMD is no JSON array, so that signals do not reach the program")
                continue
            if f"    {' '.join(words)} " not in readme:
                found.append(f"{' '.join(words)} is no command of README")
        if word == "RUN":
            if "apt-get" in argument:
                if "--no-install-recommends" not in argument or "-y" not in argument.split():
                    found.append("apt-get installs what is only recommended, or asks")
                if "apt-get update" not in argument or "rm -rf /var/lib/apt/lists/*" not in argument:
                    found.append("apt's lists are of another layer, or stay in the image")
            elif at > first_user and not argument.startswith(("./run_ultra_fast.sh --setup-only", "mkdir ")):
                found.append(f"{argument}: set-up is ./run_ultra_fast.sh --setup-only")
            if re.search(r"\bsudo\b|\bcd \b|curl|wget|pip install", argument):
                found.append(f"{argument}: sudo, cd, downloads and pip have no place here")
    return found


README = (ROOT / "README.md").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def allowed():
    least, below = re.search(
        r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text()
    ).groups()
    return int(least), int(below)


def test_the_dockerfile_has_no_fault():
    assert faults(DOCKERFILE, README, allowed()) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("python:3.12-slim-bookworm", "python:latest", "the base"),
        ("python:3.12", "python:3.15", "the base"),
        ("USER trainer", "USER root", "as root"),
        (" --no-install-recommends", "", "recommended"),
        (" \\\n    && rm -rf /var/lib/apt/lists/*", "", "stay in the image"),
        ('["./run_ultra_fast.sh"]', "./run_ultra_fast.sh", "JSON"),
        ('["./run_ultra_fast.sh"]', '["./start.sh"]', "no command of README"),
        ("COPY --chown=trainer:trainer", "COPY", "to root"),
        ("RUN ./run_ultra_fast.sh --setup-only", "RUN python setup.py install", "set-up is"),
        ("/home/trainer/metta_fast\nRUN chown", "app\nRUN chown", "WORKDIR"),
        ("CMD", "ADD . .\nCMD", "ADD"),
    ],
)
def test_a_fault_is_found(old, new, fault):
    assert old in DOCKERFILE
    found = faults(DOCKERFILE.replace(old, new), README, allowed())
    assert any(fault in one for one in found), found


def test_what_set_up_makes_stays_out_of_the_context():
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", "build", "runs", "**/*.so"} <= set(ignored)
