"""Makes a small film of a robot for the pages: some seconds of `metta-fast replay --video`, in fewer, smaller pictures.

python docs/robot_film.py runs/<name> docs/ant.gif                      # three seconds from the second on
python docs/robot_film.py runs/<name> ant.gif --start 4 --seconds 2 --width 320
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

COLORS = 48
"""Of all pictures together: one palette keeps the film small."""


def shrink(film: Path, out: Path, *, start: float, seconds: float, width: int, per_second: int) -> int:
    """Writes part of a GIF as a smaller one that repeats.

    Args:
        start, seconds: the part, in seconds of the film.
        width: of a picture, in pixels.
        per_second: pictures of a second.

    Returns:
        The number of pictures.
    """
    with Image.open(film) as whole:
        each = whole.info["duration"] / 1000
        numbers = [
            round((start + i / per_second) / each)
            for i in range(round(seconds * per_second))
            if round((start + i / per_second) / each) < whole.n_frames
        ]
        if not numbers:
            raise SystemExit(
                f"{film}: {whole.n_frames * each:.1f} s long, begins to be shown after {start:g} s"
            )
        height = round(whole.height * width / whole.width)
        pictures = []
        for number in numbers:
            whole.seek(number)
            pictures.append(whole.convert("RGB").resize((width, height), Image.Resampling.LANCZOS))
    sheet = Image.new("RGB", (width, height * len(pictures)))
    for i, picture in enumerate(pictures):
        sheet.paste(picture, (0, i * height))
    palette = sheet.quantize(COLORS, method=Image.Quantize.MEDIANCUT)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    frames[0].save(
        out, save_all=True, append_images=frames[1:], duration=round(1000 / per_second), loop=0, optimize=True
    )
    return len(frames)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a small film of a run's robot.")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=float, default=2.0, help="seconds of the episode that are left out")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--width", type=int, default=280, help="pixels")
    parser.add_argument("--per-second", type=int, default=10, help="pictures")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "film.gif"
        words = [sys.executable, "-m", "metta_fast", "replay", str(given.run), "--video", str(film)]
        subprocess.run(words, check=True)
        count = shrink(
            film,
            given.out,
            start=given.start,
            seconds=given.seconds,
            width=given.width,
            per_second=given.per_second,
        )
    print(f"{given.run} → {given.out}: {count} pictures, {given.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
