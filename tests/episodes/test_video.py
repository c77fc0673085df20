"""Tests videos and pictures by reading the written files again."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.episodes.video import FILM_FPS, check_video, encode_film, write_picture, write_video
from metta_fast.machine.installation import install_extra

HEIGHT, WIDTH, COUNT = 49, 64, 12


def frames(count: int = COUNT, height: int = HEIGHT) -> list[Array]:
    """A white bar that moves to the right over red."""
    out = np.zeros((count, height, WIDTH, 3), np.uint8)
    out[..., 0] = 200
    for t in range(count):
        out[t, :, 5 * t : 5 * t + 5] = 255
    return list(out)


def bar(image: Array) -> float:
    """Column of the bar's middle."""
    blue = image[:, :, 2].astype(float)
    return float((blue.sum(0) * np.arange(image.shape[1])).sum() / blue.sum())


def test_an_mp4_plays_the_frames_in_order(tmp_path: Path) -> None:
    av: Any = pytest.importorskip("av")
    assert write_video(tmp_path / "a.mp4", iter(frames()), fps=12.5) == COUNT
    with av.open(str(tmp_path / "a.mp4")) as file:
        stream = file.streams.video[0]
        assert float(stream.average_rate) == 12.5
        assert stream.codec_context.name == "h264"
        images = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
    assert [image.shape for image in images] == [(HEIGHT - 1, WIDTH, 3)] * COUNT
    for t, image in enumerate(images):
        assert bar(image) == pytest.approx(5 * t + 2, abs=2)
        assert abs(int(image[10, -1 if t < 6 else 0, 0]) - 200) < 12
    assert [file.name for file in tmp_path.iterdir()] == ["a.mp4"]


def test_a_film_has_every_frame_and_whole_ones_to_jump_to() -> None:
    av: Any = pytest.importorskip("av")
    wanted = [frame for _ in range(6) for frame in frames()]
    with av.open(io.BytesIO(encode_film(iter(wanted)))) as file:
        stream = file.streams.video[0]
        assert float(stream.average_rate) == FILM_FPS
        decoded = list(file.decode(stream))
    assert len(decoded) == len(wanted)
    assert [round(frame.time * FILM_FPS) for frame in decoded] == list(range(len(wanted)))
    for frame, image in zip(decoded, wanted):
        assert bar(frame.to_ndarray(format="rgb24")) == pytest.approx(bar(image), abs=2)
    whole = [t for t, frame in enumerate(decoded) if frame.key_frame]
    assert whole[0] == 0
    assert max(np.diff([*whole, len(wanted)])) <= 25


@pytest.mark.parametrize(("fps", "count", "milliseconds"), [(10, 12, 100), (125, 4, 20)])
def test_a_gif_plays_the_frames_in_order(tmp_path: Path, fps: float, count: int, milliseconds: int) -> None:
    assert write_video(tmp_path / "a.gif", frames(), fps) == count
    file = Image.open(tmp_path / "a.gif")
    assert file.info["duration"] == pytest.approx(milliseconds, abs=10)
    images = [np.asarray(image.convert("RGB")) for image in ImageSequence.Iterator(file)]
    assert len(images) == count
    for k, image in enumerate(images):
        assert bar(image) == pytest.approx(5 * k * COUNT // count + 2, abs=1)


def test_a_picture_is_the_frame(tmp_path: Path) -> None:
    frame = frames()[3]
    write_picture(tmp_path / "a.png", frame)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), frame)


def test_what_cannot_be_written_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"a\.avi: a video's name must end in \.mp4 or \.gif"):
        check_video(tmp_path / "a.avi")
    with pytest.raises(UserError, match=r"a picture's name must end in \.png"):
        write_picture(tmp_path / "a.xyz", frames()[0])
    with pytest.raises(UserError, match="no frame"):
        write_video(tmp_path / "a.gif", [], 10)
    with pytest.raises(ValueError, match=r"\(50, 64, 3\), expected .* like the first \(49, 64, 3\)"):
        write_video(tmp_path / "a.gif", frames() + frames(1, height=50), 10)
    with pytest.raises(ValueError, match="float64"):
        write_video(tmp_path / "a.gif", [np.zeros((4, 4, 3))], 10)
    with pytest.raises(OSError, match="No such file"):
        write_video(tmp_path / "none/a.gif", frames(), 10)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "av" else find(name))
    with pytest.raises(UserError, match="needs PyAV.*" + re.escape(install_extra("video"))):
        write_video(tmp_path / "a.mp4", frames(), 10)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_in_the_middle_keeps_the_old_file(tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "a.mp4").write_text("old")

    def breaks() -> Any:
        yield from frames(3)
        raise RuntimeError("the renderer died")

    with pytest.raises(RuntimeError, match="the renderer died"):
        write_video(tmp_path / "a.mp4", breaks(), 10)
    assert (tmp_path / "a.mp4").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
