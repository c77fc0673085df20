"""Draws the picture in README: a run's dashboard at its end, from the run's files.

./run_ultra_fast.sh trainer.total_timesteps=20_000_000
python docs/picture.py                                    # the newest run in runs/ → docs/run.svg
python docs/picture.py runs/<name> picture.svg
"""

import io
import re
import sys
from pathlib import Path

import yaml
from rich.console import Console

from metta_fast.metrics.loggers import read_rows
from metta_fast.metrics.progress_text import keep
from metta_fast.metrics.run_panel import Curve, run_panel
from metta_fast.storage.run_folder import RunDir, runs

WIDTH, HEIGHT = 100, 28
"""Characters and lines of the terminal in the picture."""
PICTURE = Path(__file__).with_name("run.svg")


def picture(run: RunDir, command: str) -> str:
    """Returns the SVG of a run's dashboard in a window titled `command`."""
    total = yaml.safe_load(run.config.read_text())["trainer"]["total_timesteps"]
    seen: dict[str, float] = {}
    curve = Curve()
    for row in read_rows(run.metrics):
        kept = keep(row)
        seen.update(kept)
        if "env/return" in kept:
            curve.add(kept["env/return"])
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True)
    console.print(run_panel(seen, total, curve, title=run.name, width=WIDTH, height=HEIGHT))
    drawing = console.export_svg(title=command, unique_id="run")
    drawing = re.sub(
        r"@font-face \{.*?\}", "", drawing, flags=re.DOTALL
    )  # the reader's own fonts: nothing is fetched
    return "\n".join(line.rstrip() for line in drawing.splitlines()) + "\n"


def main() -> None:
    given = [Path(word) for word in sys.argv[1:]]
    run = RunDir(given[0]) if given else next(iter(runs("runs")), None)
    if run is None:
        sys.exit("there is no run in runs/: train one, or name its folder")
    out = given[1] if len(given) > 1 else PICTURE
    out.write_text(picture(run, "./run_ultra_fast.sh"))
    print(f"{run.path} → {out}")


if __name__ == "__main__":
    main()
