"""Writes the page of a recording: one HTML file that contains its data, styles and scripts and fetches nothing.

    write_page(recording, "replay.html")

The parts are in page/. page.html has placeholders, which are filled in here; scripts come in the order of SCRIPTS.
"""

from __future__ import annotations

import base64
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from metta_fast.contracts.recording import Recording
from metta_fast.envs.frame_recorder import frames
from metta_fast.episodes.video import FILM_FPS, encode_film, has_encoder
from metta_fast.storage.atomic_file import whole

SCRIPTS = ("data.js", "icons.js", "grid.js", "frames.js", "plot.js", "charts.js", "page.js")


def page(recording: Recording) -> str:
    """Returns the text of the HTML file."""
    parts = files("metta_fast.episodes") / "page"
    scripts = "\n".join((parts / name).read_text(encoding="utf-8") for name in SCRIPTS)
    # within a script element only `</` and `<!--` have a meaning
    data = json.dumps(_data(recording), separators=(",", ":")).replace("<", "\\u003c")
    about = recording.about
    title = html.escape(f"{about.get('run') or about.get('env') or 'episode'} · replay")
    texts = {
        "TITLE": title,
        "STYLE": (parts / "page.css").read_text(encoding="utf-8"),
        "DATA": data,
        "SCRIPT": f'"use strict";\n(() => {{\n{scripts}\n}})();',
    }
    # in one pass: a text may hold what looks like a placeholder
    template = (parts / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda place: texts[place[1]], template)


def _data(recording: Recording) -> dict[str, Any]:
    """Converts the recording to JSON values; with PyAV, images become one film of a tenth of their size."""
    data, facts = recording.to_json(), recording.world.facts
    if recording.world.kind != "frames" or not has_encoder() or min(facts["height"], facts["width"]) < 2:
        return data
    film = base64.b64encode(encode_film(frames(recording))).decode()
    size = {side: facts[side] - facts[side] % 2 for side in ("height", "width")}
    named = {"film": film, "film_fps": FILM_FPS, "count": len(facts["images"]), **size}
    rest = {name: value for name, value in facts.items() if name != "images"}
    return {**data, "world": {**data["world"], "facts": rest | named}}


def write_page(recording: Recording, path: str | Path) -> None:
    """Writes the page atomically, since a browser may be reading the file."""
    with whole(Path(path)) as beside:
        beside.write_text(page(recording), encoding="utf-8")
