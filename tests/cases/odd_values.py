"""A state that is saved can be loaded; what cannot be loaded is refused when it is saved, by its name."""

import datetime
import enum
import tempfile
from pathlib import Path

import numpy as np

from metta_fast.storage import checkpoint


class Phase(enum.IntEnum):
    WALK = 1


class Text(str):
    pass


VALUES = (
    Phase.WALK, np.datetime64("2024-01-01"), np.timedelta64(3, "s"), np.longdouble(1), np.float16(0.5), np.bool_(True),
    Text("x"), datetime.date(2024, 1, 1), 1 + 2j, np.array(["2024-01-01"], "datetime64[D]"), {Phase.WALK: 1}, {1: {2}},
    np.array([1.5], np.longdouble), np.array(["a", "bc"]), (1, [2.5, None]), b"bytes", {"__bytes__": 1},
)  # fmt: skip
for value in VALUES:
    folder = Path(tempfile.mkdtemp())
    try:
        path = checkpoint.save(folder, 1, {"env": {"walker": [{"odd": value}]}}, {})
    except TypeError as error:
        if "walker[0].odd" not in str(error):
            raise AssertionError("the refusal names no path") from error
        print(f"{value!r}: refused: {error}")
        continue
    loaded = checkpoint.read(path).load("env")["walker"][0]["odd"]
    same = np.array_equal(loaded, value) if isinstance(value, np.ndarray) else loaded == value
    assert same, (value, loaded)
    print(f"{value!r}: {loaded!r}")
