"""The picture in README is what docs/picture.py draws of a run with the dashboard of today."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

from tests.tiny import COUNTER, trained

ROOT = Path(__file__).resolve().parent.parent


def words(svg: str) -> set[str]:
    text = " ".join(html.unescape(part) for part in re.findall(r">([^<>]+)</text>", svg)).replace("\xa0", " ")
    return set(re.findall(r"[A-Za-z]{3,}", text))


def test_the_picture_in_readme_is_made_by_its_command(tmp_path: Path) -> None:
    run = trained(tmp_path, *COUNTER, "trainer.total_timesteps=2000", "run.monitor_interval=1")
    out = tmp_path / "run.svg"
    subprocess.run([sys.executable, ROOT / "docs/picture.py", run, out], check=True, timeout=60)
    drawn, shown = words(out.read_text()), words((ROOT / "docs/run.svg").read_text())
    assert "@font-face" not in out.read_text()  # nothing is fetched
    layout = {
        "steps",
        "left",
        "return",
        "last",
        "episodes",
        "time",
        "loss",
        "env",
        "run",
        "machine",
        "CPU",
        "busy",
    }
    assert layout <= drawn
    assert layout <= shown, "docs/run.svg is of an older dashboard: python docs/picture.py"
    assert "run_ultra_fast" in (ROOT / "docs/run.svg").read_text()
