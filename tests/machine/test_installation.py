"""Commands that install something: they work for this interpreter and this copy of metta_fast."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.machine import installation
from metta_fast.machine.installation import install_extra, install_packages

ROOT = Path(__file__).resolve().parents[2]


def test_in_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv/bin/python"))
    assert install_extra("robots") == ".venv/bin/python -m pip install -e '.[robots]'"
    assert install_packages("wandb", "cuda-bindings==12.*") == (
        ".venv/bin/python -m pip install wandb 'cuda-bindings==12.*'"
    )
    monkeypatch.chdir(tmp_path)
    python = shlex.quote(f"{ROOT}/.venv/bin/python")
    assert install_extra("robots") == f"{python} -m pip install -e '{ROOT}[robots]'"


def installed(site: Path, origin: dict | None) -> None:
    """Puts an installed copy's metadata into `site`, as pip writes it."""
    info = site / "metta_fast-0.1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: metta_fast\nVersion: 0.1.0\nRequires-Dist: numpy>=2\n"
        'Requires-Dist: mujoco==4.0.0; extra == "robots"\nRequires-Dist: av>=14; extra == "robots"\n'
        'Requires-Dist: cuda-bindings<14; sys_platform == "linux" and extra == "gpu"\n'
    )
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ({"url": "file:///{}/a%20b.whl", "archive_info": {}}, "install '{}/a b.whl[robots]'"),
        ({"url": "file:///nowhere/a.whl", "archive_info": {}}, "install mujoco==4.0.0 'av>=14'"),
        ({"url": "https://x.org/m", "vcs_info": {"vcs": "git", "commit_id": "12"}},
         "install 'metta_fast[robots] @ git+https://x.org/m@12'"),
        ({"url": "https://x.org/m.whl", "archive_info": {}}, "install 'metta_fast[robots] @ https://x.org/m.whl'"),
        (None, "install mujoco==4.0.0 'av>=14'"),
    ],
)  # fmt: skip
def test_from_a_wheel(
    origin: dict | None, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / "site-packages"
    (tmp_path / "a b.whl").write_text("")
    if origin is not None:
        origin["url"] = origin["url"].replace("/{}", str(tmp_path))
    installed(site, origin)
    monkeypatch.setattr(installation, "ROOT", site)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    told = install_extra("robots")
    assert told == f"{installation.interpreter()} -m pip {words.replace('{}', str(tmp_path))}"
    with pytest.raises(KeyError):
        installation.requirements("no_such")


def test_without_pip_uv_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "has_pip", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert install_packages("wandb") == f"uv pip install --python {installation.interpreter()} wandb"


def test_naming_an_install_command_leaves_setuptools_usable() -> None:
    """torch.compile imports it, and needs its distutils."""
    code = "from metta_fast.machine.installation import has_pip; assert has_pip(); import setuptools"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_page_or_message_installs_it_from_an_index() -> None:
    files = [ROOT / "README.md", ROOT / "mkdocs.yml", *(ROOT / "docs").glob("*.md")]
    files += [*(ROOT / "metta_fast").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]
    wrong = re.compile(
        r"""pip install ['"]?metta[-_]fast"""  # it is on no index
        r"""|(?<!-m )pip install (?!with )(?=.*"$|.*"\)$)"""  # a message: another python's pip
    )
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file.name != "installation.py"
        for line in file.read_text(encoding="utf-8").splitlines()
        if wrong.search(line)
    ]
    assert found == []
