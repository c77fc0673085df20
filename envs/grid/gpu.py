"""Defines the grid world's GPU kernels: their source and parameters.

Place in the flow: GridFactory.gpu_program() → metta_fast/vector/gpu.py, which compiles it and keeps the states.
"""

from __future__ import annotations

from pathlib import Path

from metta_fast.contracts.env import Array
from metta_fast.contracts.gpu_program import Source
from metta_fast.envs.grid._grid import GridParams
from metta_fast.envs.grid.names import OBSERVATIONS

HERE = Path(__file__).resolve().parent
LANES_BYTES = 1296
"""Scratch bytes of a warp that writes tokens: a word per cell and token (grid_tokens.h checks the size)."""


class GridProgram:
    """Describes the kernels of one configuration (contracts/gpu_program.py: Program)."""

    def __init__(self, record: Array, table: Array | None) -> None:
        """The arguments of `GridParams`."""
        self._params = GridParams(record, table)
        self.table = table
        self.state_bytes: int = self._params.layout()["size"]
        self.lanes_bytes = LANES_BYTES if record["observation"] == tuple(OBSERVATIONS).index("tokens") else 0
        self.shortest = int(record["max_steps"])
        kinds = {"MAP": int(record["map_kind"]), "OBSERVATION": int(record["observation"])}
        self.source = Source(
            "grid",
            "".join(f"#define GRID_ONLY_{name}(c) {kind}\n" for name, kind in kinds.items())
            + '#include "grid_rules.h"\n#define MF_ENV grid\n#include "gpu_shell.h"\n',
            include=(HERE, HERE.parent / "native"),
            options=(f"-DMF_PARAMS_BYTES={len(self.params(0))}", f"-DMF_LANES_BYTES={LANES_BYTES}"),
        )

    def params(self, table: int) -> bytes:
        """Returns the kernels' first argument; `table`: address on the device of `self.table`, 0 without one."""
        return self._params.gpu_bytes(table)
