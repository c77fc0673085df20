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


def test_a_film_is_cut_and_shrunk(tmp_path: Path) -> None:
    from PIL import Image

    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from robot_film import shrink  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    pictures = [Image.new("RGB", (80, 60), (2 * i, 100, 250 - 2 * i)) for i in range(100)]
    whole, small = tmp_path / "whole.gif", tmp_path / "small.gif"
    pictures[0].save(whole, save_all=True, append_images=pictures[1:], duration=50)
    assert shrink(whole, small, start=1.0, seconds=2.0, width=40, per_second=10) == 20
    with Image.open(small) as film:
        assert (film.size, film.n_frames, film.info["duration"], film.info["loop"]) == ((40, 30), 20, 100, 0)
        first = film.convert("RGB").getpixel((20, 15))
    assert all(abs(a - b) < 8 for a, b in zip(first, (40, 100, 210)))
