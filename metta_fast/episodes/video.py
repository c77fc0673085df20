"""Writes frames to files: a video (mp4, gif) or a still picture (png, jpg).

    check_video("ant.mp4")                        # checks early that it can be written (so does check_picture)
    write_video("ant.mp4", frames, fps=20)        # frames: uint8 [height, width, 3], one after another
    write_picture("ant.png", frame)
    mp4 = encode_film(frames)                     # bytes, small and seekable, for the page

Frames are taken one at a time, so they may come from a generator. A file is complete or absent.
"""

from __future__ import annotations

import importlib.util
import io
import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import install_extra
from metta_fast.storage.atomic_file import whole

if TYPE_CHECKING:
    from PIL.Image import Image

KINDS = (".mp4", ".gif")
PICTURES = (".png", ".jpg")
WATCHED = {"crf": "20"}
"""x264's options for a video file. Constant rate factor: 18 is visually almost lossless, 28 visibly worse."""
SOUGHT = {"crf": "29", "g": "25"}
"""x264's options for a film in a page: small, with a key frame every 25 images, so that seeking is quick."""
FILM_FPS = 25
"""Nominal images per second of a film in a page; the page sets the pace itself."""
GIF_FPS = 50
"""Highest rate of a GIF: viewers replace delays below 20 ms by 100 ms."""


def check_video(path: str | Path) -> None:
    """Checks that `write_video` can write a file of that name.

    Raises:
        UserError: the suffix is not .mp4 or .gif, or PyAV is not installed for an .mp4.
    """
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise UserError(f"{path}: a video's name must end in {' or '.join(KINDS)}")
    if kind == ".mp4" and not has_encoder():
        raise UserError(
            f"{path}: an mp4 needs PyAV, which is not installed: type {install_extra('video')}, or write a .gif"
        )


def has_encoder() -> bool:
    """Whether PyAV, the H.264 encoder, is installed."""
    return importlib.util.find_spec("av") is not None


def check_picture(path: str | Path) -> None:
    """Checks that `write_picture` can write a file of that name.

    Raises:
        UserError: the suffix is not .png or .jpg.
    """
    if Path(path).suffix.lower() not in PICTURES:
        raise UserError(f"{path}: a picture's name must end in {' or '.join(PICTURES)}")


def write_video(path: str | Path, frames: Iterable[Array], fps: float) -> int:
    """Writes frames as H.264 (.mp4) or as an endless GIF of 256 colors (.gif).

    Args:
        frames: uint8 [height, width, 3], all of one shape. mp4: an odd last row or column is cut off.
        fps: frames per second. gif: above 50, only every second, third, … frame is written.

    Returns:
        Number of frames written.

    Raises:
        UserError: see `check_video`; or there is no frame.
        ValueError: a frame has another shape or dtype than the first.
        OSError: the file cannot be written.
    """
    check_video(path)
    if not 0 < fps < 1000:
        raise ValueError(f"fps={fps}: expected frames per second, above 0 and below 1000")
    path = Path(path)
    checked = _checked(frames)
    first = next(checked, None)
    if first is None:
        raise UserError(f"{path}: there is no frame to write")
    write = _write_mp4 if path.suffix.lower() == ".mp4" else _write_gif
    with whole(path) as part:
        return write(part, itertools.chain((first,), checked), first.shape[:2], fps)


def write_picture(path: str | Path, frame: Array) -> None:
    """Writes one frame, uint8 [height, width, 3], as .png or .jpg by the name's suffix.

    Raises:
        UserError: see `check_picture`.
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
                + (f", like the first {shape}" if frame.shape != shape else "")
            )
        yield frame


def encode_film(frames: Iterable[Array]) -> bytes:
    """Encodes an mp4 (H.264) of FILM_FPS frames per second, for random access; needs PyAV.

    Args:
        frames: uint8 [height, width, 3], all of one shape, at least 2 × 2. An odd last row or column is cut off.
    """
    checked = _checked(frames)
    first = next(checked)
    file = io.BytesIO()
    _encode(file, itertools.chain((first,), checked), first.shape[:2], FILM_FPS, SOUGHT)
    return file.getvalue()


def _write_mp4(path: Path, frames: Iterator[Array], size: tuple[int, ...], fps: float) -> int:
    from av.error import FFmpegError

    try:
        return _encode(str(path), frames, size, fps, WATCHED)
    except FFmpegError as error:
        raise OSError(error.errno, error.strerror) from error


def _encode(
    file: str | BinaryIO, frames: Iterator[Array], size: tuple[int, ...], fps: float, options: dict[str, str]
) -> int:
    import av

    height, width = (side - side % 2 for side in size)  # H.264 halves the colors' resolution
    if not height or not width:
        raise ValueError(f"frames of {size[0]} × {size[1]} pixels are too small for a video")
    count = 0
    # faststart moves the index to the front, so that a player can start before the whole file has arrived
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


def _write_gif(path: Path, frames: Iterator[Array], size: tuple[int, ...], fps: float) -> int:
    from PIL import Image

    every = math.ceil(fps / GIF_FPS)
    images = [_of_256_colors(Image.fromarray(frame)) for frame in itertools.islice(frames, 0, None, every)]
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 * every / fps), loop=0)
    return len(images)


def _of_256_colors(image: Image) -> Image:
    """Reduces a picture to 256 colors: exactly if it has no more, else with an octree (fast, small files)."""
    from PIL import Image

    few = image.getcolors(256) is not None
    return image.quantize(method=Image.Quantize.MEDIANCUT if few else Image.Quantize.FASTOCTREE)
