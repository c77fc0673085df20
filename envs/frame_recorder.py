"""Records rendered images of an environment, and reads them from a recording.

    def make_recorder(self, batch):                               # in an EnvFactory
        return FrameRecorder(lambda: renderer.render(batch))      # uint8 [height, width, 3]

Images are stored as JPEG. The page turns them into one film (html.py), about 2 MB for 1000 images; without PyAV it
embeds the JPEGs, about 30 MB. In a long episode only every second, fourth, … step is kept, and the page shows the
latest image at each step.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.recording import Recording, World

MOST = 1024
"""Most images in a recording; when there are more, every second one is dropped."""
QUALITY = 85
"""JPEG quality, 0 … 100."""
HEAD = "data:image/jpeg;base64,"


class FrameRecorder:
    """Keeps the images of `render()` (`metta_fast.episodes.record.Recorder`).

    Args:
        render: returns the current image, uint8 [height, width, 3].
        every: steps between images.
        step_s: simulated seconds per step; None: the environment has no time of its own.
        close: called at the end of the episode.
    """

    def __init__(
        self,
        render: Callable[[], Array],
        *,
        every: int = 1,
        step_s: float | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._render = render
        self.close = close
        self._images: list[bytes] = []
        self._every, self._seen, self._step_s = every, 0, step_s
        self._size = (0, 0)

    def extended(self, change: Callable[[Array], Array]) -> FrameRecorder:
        """Makes this recorder keep `change(image)` in place of each image, and returns it."""
        render = self._render
        self._render = lambda: change(render())
        return self

    def lasting(self, steps: int) -> None:
        """Counts each recorded step as this many steps (env.action_repeat)."""
        self._every = max(1, self._every // steps)
        self._step_s = None if self._step_s is None else self._step_s * steps

    def see(self) -> None:
        if self._seen % self._every == 0:
            if len(self._images) == MOST:
                self._images = self._images[::2]
                self._every *= 2
            if self._seen % self._every == 0:
                self._images.append(self._jpeg())
        self._seen += 1

    def _jpeg(self) -> bytes:
        from PIL import Image

        try:
            frame = np.asarray(self._render())
        except UserError:
            raise
        except Exception as error:  # the environment's code or a graphics library may raise anything
            raise UserError(f"the environment cannot be rendered: {type(error).__name__}: {error}") from error
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise UserError(
                f"the environment rendered {frame.dtype} {frame.shape}, expected uint8 (height, width, 3)"
            )
        self._size = frame.shape[:2]
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=QUALITY)
        return file.getvalue()

    def world(self) -> World:
        """Returns the facts: height, width (pixels), every (steps between images), images (data URIs), step_s if
        known."""
        height, width = self._size
        images = [HEAD + base64.b64encode(image).decode() for image in self._images]
        facts = {"height": height, "width": width, "every": self._every, "images": images}
        return World("frames", facts if self._step_s is None else {**facts, "step_s": self._step_s})


def steps_per_frame(recording: Recording) -> int:
    """Returns the number of steps between frames."""
    return int(recording.world.facts["every"])


def frames(recording: Recording) -> Iterator[Array]:
    """Yields the images, uint8 [height, width, 3]."""
    from PIL import Image

    for image in recording.world.facts["images"]:
        yield np.asarray(Image.open(io.BytesIO(base64.b64decode(image.removeprefix(HEAD)))))
