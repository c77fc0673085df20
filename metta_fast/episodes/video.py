"""Frames to files: a video (mp4), a moving picture (gif), a still picture (png).

    check_video("ant.mp4")                        # before work starts: can it be written at all? (check_picture too)
    write_video("ant.mp4", frames, fps=20)        # frames: uint8 [height, width, 3], one after another
    write_picture("ant.png", frame)
    mp4 = encode_film(frames)                     # bytes, small and made to be jumped about in: for the page

Frames are taken one at a time, so they may come from a generator. A file is whole or not there.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.storage.atomic_file import whole

KINDS = (".mp4", ".gif")
PICTURES = (".png", ".jpg")
CURE = "pip install 'metta-fast[video]' brings it; a .gif needs nothing"
WATCHED = {"crf": "20"}
"""x264's options for a file to watch. Constant rate factor: 18 is hardly told from the original, 28 visibly worse."""
SOUGHT = {"crf": "29", "g": "25"}
"""For a film in a page: small, and every 25th image is whole, for a scrubber jumps: none is far from one."""
FILM_FPS = 25
"""Images a second of a film in a page, which takes its own pace."""
GIF_FPS = 50
"""Viewers show faster GIFs slowly: their unit is 10 ms, and below 20 ms they take 100."""


def check_video(path: str | Path) -> None:
    """Whether `write_video` can write a file of that name.

    Raises:
        UserError: another kind than .mp4 or .gif, or what writes it is not installed.
    """
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise UserError(f"{path}: a video is {' or '.join(KINDS)}")
    if kind == ".mp4" and not has_encoder():
        raise UserError(f"{path}: an mp4 needs PyAV, which is not installed: {CURE}")


def has_encoder() -> bool:
    """Whether PyAV is installed, which writes H.264."""
    return importlib.util.find_spec("av") is not None


def check_picture(path: str | Path) -> None:
    """Whether `write_picture` can write a file of that name.

    Raises:
        UserError: another kind of picture.
    """
    if Path(path).suffix.lower() not in PICTURES:
        raise UserError(f"{path}: a picture is {' or '.join(PICTURES)}")


def write_video(path: str | Path, frames: Iterable[Array], fps: float) -> int:
    """Write frames as H.264 (.mp4) or as a GIF (.gif, endless, of 256 colors).

    Args:
        frames: uint8 [height, width, 3], all of one shape. mp4: an odd last row or column is left out.
        fps: frames a second. gif: above 50 only every second, third, … frame is taken.

    Returns:
        Number of frames written.

    Raises:
        UserError: as `check_video`, or there is no frame.
        ValueError: a frame of another shape or dtype than the first.
        OSError: the file cannot be written.
    """
    check_video(path)
    if not 0 < fps < 1000:
        raise ValueError(f"fps={fps}: expected frames a second, above 0 and below 1000")
    path = Path(path)
    checked = _checked(frames)
    first = next(checked, None)
    if first is None:
        raise UserError(f"{path}: there is no frame to write")
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_gif
    with whole(path) as part:
        return write(part, itertools.chain((first,), checked), first.shape[:2], fps)


def write_picture(path: str | Path, frame: Array) -> None:
    """Write one frame, uint8 [height, width, 3], as a picture of the kind that the name says (.png, .jpg).

    Raises:
        UserError: as `check_picture`.
        OSError: the file cannot be written.
    """
    from PIL import Image

    check_picture(path)
    with whole(Path(path)) as part:
        Image.fromarray(next(_checked([frame]))).save(part)


def _checked(frames: Iterable[Array]) -> Iterator[Array]:
    shape = None
    for frame in frames:
        shape = shape or frame.shape
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != shape:
            raise ValueError(
                f"a frame is {frame.dtype} {frame.shape}, expected uint8 (height, width, 3)"
                + (f", as the first {shape}" if frame.shape != shape else "")
            )
        yield frame


def encode_film(frames: Iterable[Array]) -> bytes:
    """An mp4 (H.264) of FILM_FPS frames a second, for random access; needs PyAV.

    Args:
        frames: uint8 [height, width, 3], all of one shape, 2 × 2 at least. An odd last row or column is left out.
    """
    checked = _checked(frames)
    first = next(checked)
    file = io.BytesIO()
    _encode(file, itertools.chain((first,), checked), first.shape[:2], FILM_FPS, SOUGHT)
    return file.getvalue()


def _write_mp4(path: Path, frames: Iterator[Array], size: Any, fps: float) -> int:
    return _encode(str(path), frames, size, fps, WATCHED)


def _encode(
    file: str | BinaryIO, frames: Iterator[Array], size: Any, fps: float, options: dict[str, str]
) -> int:
    import av

    height, width = (side - side % 2 for side in size)  # H.264 halves the colors' resolution
    if not height or not width:
        raise ValueError(f"frames of {size[0]} × {size[1]} pixels are too small for a video")
    count = 0
    # to begin before all has come, a file is rewritten with its index in front
    layout = {"movflags": "faststart"} if isinstance(file, str) else {}
    with av.open(file, "w", format="mp4", options=layout) as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = options
        for frame in frames:
            image = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[:height, :width]), format="rgb24")
            container.mux(stream.encode(image))
            count += 1
        container.mux(stream.encode())
    return count


def _write_gif(path: Path, frames: Iterator[Array], size: Any, fps: float) -> int:
    from PIL import Image

    every = math.ceil(fps / GIF_FPS)
    images = [_of_256_colors(Image.fromarray(frame)) for frame in itertools.islice(frames, 0, None, every)]
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 * every / fps), loop=0)
    return len(images)


def _of_256_colors(image: Any) -> Any:
    """Exact where it has no more; else by an octree, ten times faster than Pillow's own way and smaller in a file."""
    from PIL import Image

    few = image.getcolors(256) is not None
    return image.quantize(method=Image.Quantize.MEDIANCUT if few else Image.Quantize.FASTOCTREE)
