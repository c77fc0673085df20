"""Gives the commands that install packages and extras, as this copy of metta_fast was installed.

    install_extra("robots")        # .venv/bin/python -m pip install -e '.[robots]'      in a checkout
    install_extra("robots")        # /opt/env/bin/python -m pip install '/tmp/metta_fast-….whl[robots]'    from a wheel
    install_packages("wandb")      # .venv/bin/python -m pip install wandb
    command("train env=grid")      # .venv/bin/metta-fast train env=grid

metta_fast is on no package index, so `pip install metta_fast` would fail or install something else.
Used by every message that names such a command; nothing is imported or run.
"""

from __future__ import annotations

import importlib.machinery
import json
import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the package: a checkout, or site-packages."""


def install_packages(*packages: str) -> str:
    """Returns the command that installs packages for the running interpreter.

    Args:
        packages: requirements or options, as pip reads them.
    """
    words = " ".join(shlex.quote(package) for package in packages)
    return f"{_pip_install()} {words}"


def install_extra(extra: str) -> str:
    """Returns the command that installs an extra of pyproject.toml (robots, gpu, …) beside this copy of metta_fast."""
    if is_checkout():
        place = "." if _here() == ROOT else ROOT
        return install_packages("-e", f"{place}[{extra}]")
    source = _source()
    if source:
        return install_packages(
            f"metta_fast[{extra}] @ {source}" if "://" in source else f"{source}[{extra}]"
        )
    return install_packages(*requirements(extra))


def command(words: str) -> str:
    """Returns how a command of metta_fast is typed for the running interpreter: `metta-fast WORDS` by its path, unless
    a shell finds it by its name."""
    script, here = Path(sys.executable or "python3").with_name("metta-fast"), _here()
    found = shutil.which("metta-fast")
    if found and Path(found) == script:
        return f"metta-fast {words}"
    if script.is_file():
        path = script.relative_to(here) if here and script.is_relative_to(here) else script
        return f"{shlex.quote(str(path))} {words}"
    return f"{interpreter()} -m metta_fast {words}"


def is_checkout() -> bool:
    """Whether this copy runs from a checkout, which has the build's files."""
    return (ROOT / "setup.py").is_file() and (ROOT / "pyproject.toml").is_file()


def requirements(extra: str) -> list[str]:
    """Returns the packages of an extra, as in pyproject.toml, from the installed package's metadata.

    Raises:
        KeyError: there is no such extra.
    """
    found = []
    for line in metadata.requires("metta_fast") or ():
        package, _, marker = line.partition(";")
        if re.search(rf"extra == ['\"]{extra}['\"]", marker):
            found.append(package.strip())
    if not found:
        raise KeyError(extra)
    return found


def _source() -> str:
    """Returns what this copy was installed from: a file or folder that still exists, or an address; else ""."""
    try:
        text = metadata.distribution("metta_fast").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    if not text:
        return ""  # from an index, or by another tool
    told = json.loads(text)
    url = str(told["url"])
    if url.startswith("file:"):
        path = unquote(urlsplit(url).path)
        return path if Path(path).exists() else ""
    if "vcs_info" in told:
        return f"{told['vcs_info']['vcs']}+{url}@{told['vcs_info']['commit_id']}"
    return url


def _pip_install() -> str:
    """Returns how pip is called for the running interpreter, which uv sets up without pip."""
    if not has_pip() and shutil.which("uv"):
        return f"uv pip install --python {interpreter()}"
    return f"{interpreter()} -m pip install"


def has_pip() -> bool:
    """Whether the running interpreter has pip.

    Asks Python's own finder: setuptools's takes any question after pip for its use, and then leaves Python's distutils
    in place, with which torch.compile fails (Python 3.11).
    """
    return importlib.machinery.PathFinder.find_spec("pip") is not None


def interpreter() -> str:
    """Returns the running interpreter as a word to type: relative to the current folder where it is inside."""
    path, here = Path(sys.executable or "python3"), _here()
    return shlex.quote(str(path.relative_to(here) if here and path.is_relative_to(here) else path))


def _here() -> Path | None:
    """Returns the current folder; None if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return None
