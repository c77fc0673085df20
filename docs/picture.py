"""Draws the picture in README: a run's dashboard at the end of the run, from its metrics.

python docs/picture.py runs/<name> docs/run.svg './run_ultra_fast.sh'
"""

import io
import re
import sys
from pathlib import Path

import yaml
from rich.console import Console

from metta_fast.metrics.dashboard import RichDashboard
from metta_fast.metrics.loggers import read_rows
from metta_fast.storage.run_folder import RunDir


def main() -> None:
    run, picture, command = RunDir(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
    config = yaml.safe_load(run.config.read_text())
    dashboard = RichDashboard(run.name, config["trainer"]["total_timesteps"])
    for row in read_rows(run.metrics):
        dashboard.update({name: value for name, value in row.items() if value is not None})
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    dashboard._console = console
    console.print(dashboard._panel())
    dashboard.close()
    drawing = console.export_svg(title=command)
    drawing = re.sub(
        r"@font-face \{.*?\}", "", drawing, flags=re.DOTALL
    )  # the reader's own fonts: nothing is fetched
    Path(picture).write_text("\n".join(line.rstrip() for line in drawing.splitlines()) + "\n")


if __name__ == "__main__":
    main()
