"""Sends lists of infos through a few bytes of a slab, from a worker process to its parent.

    put(box, infos, folder)              # in the worker; box [n] uint8, its first 8 bytes are aligned
    if length(box): infos = take(box)    # in the parent

What does not fit goes to a file in `folder`, which `take` removes.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array

HEAD = 8
"""Bytes before the content: its length; negative: it is in a file, whose name is the content."""
SIZE = 1 << 16
"""Bytes of one environment's box. Pages that are not written take no memory."""


def put(box: Array, infos: list[Any], folder: str) -> None:
    """Writes infos, replacing what is there. Raises TypeError and the like for what cannot be pickled."""
    head = box[:HEAD].view(np.int64)
    if not infos:
        head[0] = 0
        return
    content, sign = pickle.dumps(infos, pickle.HIGHEST_PROTOCOL), 1
    if len(content) > len(box) - HEAD:
        fd, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        content, sign = os.fsencode(name), -1
    box[HEAD : HEAD + len(content)] = np.frombuffer(content, np.uint8)
    head[0] = sign * len(content)


def take(box: Array) -> list[Any]:
    """Returns the infos in a box, [] if it is empty."""
    length = int(box[:HEAD].view(np.int64)[0])
    content = box[HEAD : HEAD + abs(length)].tobytes()
    if length < 0:
        name = os.fsdecode(content)
        with open(name, "rb") as file:
            content = file.read()
        os.unlink(name)
    return pickle.loads(content) if content else []


def filled(boxes: Array) -> list[int]:
    """Returns the numbers of the boxes that are not empty. boxes: [n, SIZE]."""
    return np.flatnonzero(boxes[:, :HEAD].view(np.int64)[:, 0]).tolist()  # type: ignore[no-any-return]
