"""Reads a replay with MettaScope's own compiled reader: python read_replay.py episode.json.z; prints what it finds.

The reader checks the replay before it opens a window, which fails here without a display.
"""

from __future__ import annotations

import ctypes
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("mettagrid")
assert spec is not None
assert spec.origin is not None
root = Path(spec.origin).parent / "nim" / "mettascope"
library = ctypes.cdll.LoadLibrary(str(root / "bindings" / "generated" / "libmettascope.so"))
library.mettascope_init.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_bool]
library.mettascope_init.restype = ctypes.c_ulonglong
text = zlib.decompress(Path(sys.argv[1]).read_bytes())
library.mettascope_init(str(root / "data").encode(), b"0", text, False)
