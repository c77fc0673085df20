"""Defines the GPU kernels of an environment in C: its rules header with gpu_shell.h, compiled by NVRTC.

Place in the flow: CFactory.gpu_program() → metta_fast/vector/gpu.py, which compiles it and keeps the states.
"""

from __future__ import annotations

from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.gpu_program import Source

NATIVE = Path(__file__).resolve().parents[1] / "native"
MOST_PARAMS = 4000
"""Bytes of ENV_params that fit into a kernel's arguments, beside the rows' addresses (CUDA: 4,096 bytes)."""
CURE = (
    "rules for a GPU use only philox.h, fmath.h and what C and C++ have in common; to step on the CPU instead, type "
    "vector.backend=threads"
)


class CProgram:
    """Describes the kernels of one configuration (contracts/gpu_program.py: Program).

    Args:
        header: the rules.
        rules: their digest, so that a process that has loaded kernels loads those of changed rules.
        params: the prepared ENV_params.
        state_bytes: ENV_state_size.
        lanes: whether the rules share work among lanes.

    Raises:
        UserError: ENV_params is too large for a kernel's argument.
    """

    table = None
    lanes_bytes = 0
    shortest = 0

    def __init__(
        self, name: str, header: Path, rules: str, params: bytes, state_bytes: int, *, lanes: bool
    ) -> None:
        if len(params) > MOST_PARAMS:
            raise UserError(
                f"{header.name}: {name}_params has {len(params)} bytes, a GPU takes at most {MOST_PARAMS}; move tables "
                "out of it (MF_CONST), or type vector.backend=threads"
            )
        self._params, self.state_bytes = params, state_bytes
        self.source = Source(
            name,
            f'#include "{header.name}"\n#define MF_ENV {name}\n#include "gpu_shell.h"\n',
            include=(header.parent, NATIVE),
            options=(
                f"-DMF_PARAMS_BYTES={len(params)}",
                "-DMF_IN_PLACE",
                f"-DMF_RULES_{rules}",
                *(() if lanes else ("-DMF_ONE_LANE",)),
                "--device-as-default-execution-space",  # functions and tables without MF_FN, MF_CONST
            ),
            cure=CURE,
        )

    def params(self, table: int) -> bytes:
        """Returns the kernels' first argument. table: 0."""
        return self._params
