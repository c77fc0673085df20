"""The page of a recording: one HTML file with its data, styles and scripts, which fetches nothing.

    write_page(recording, "replay.html")

The parts lie in page/: page.html has the places that are filled in here, in the order of SCRIPTS.
"""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path

from metta_fast.replay.recording import Recording

SCRIPTS = ("data.js", "icons.js", "grid.js", "frames.js", "plot.js", "page.js")


def page(recording: Recording) -> str:
    """The text of the HTML file."""
    parts = files("metta_fast.replay") / "page"
    scripts = "\n".join((parts / name).read_text(encoding="utf-8") for name in SCRIPTS)
    # within a script element only `</` and `<!--` could end or change it
    data = json.dumps(recording.to_json(), separators=(",", ":")).replace("<", "\\u003c")
    about = recording.about
    title = html.escape(f"{about.get('run') or about.get('env') or 'episode'} · replay")
    filled = (parts / "page.html").read_text(encoding="utf-8")
    for place, text in {
        "TITLE": title,
        "STYLE": (parts / "page.css").read_text(encoding="utf-8"),
        "DATA": data,
        "SCRIPT": f'"use strict";\n(() => {{\n{scripts}\n}})();',
    }.items():
        before, after = filled.split(f"{{{{{place}}}}}")
        filled = before + text + after
    return filled


def write_page(recording: Recording, path: str | Path) -> None:
    """Write the page, whole or not at all: a browser may be reading the file."""
    path = Path(path)
    beside = path.with_name(path.name + ".tmp")
    try:
        beside.write_text(page(recording), encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
