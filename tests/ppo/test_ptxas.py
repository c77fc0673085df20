"""Tests Triton's assembler on kernels with warp-group products; no GPU is needed.

ptxas 12.8 can lose an address on its way to a product (wgmma): the instruction that adds an offset to it reads a
uniform register that nobody has written. What is multiplied then is whatever lies there, without an error. Whether it
happens depends on small things (the order of two products, a size), so that what is built is looked at.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1",
    reason="needs Triton's compiler",
)
TYPES = {
    "x": "*bf16", "rows": "*i64", "weight": "*bf16", "moments": "*fp32", "mask": "*i1", "action": "*i32",
    "logprob": "*fp32", "value": "*fp32", "advantage": "*fp32", "returns": "*fp32", "heads": "*fp32",
    "heads_bias": "*fp32", "source": "*i32", "empty": "*fp32", "grad_x": "*bf16", "partials": "*fp32",
    "clip_coef": "*fp32", "count": "i32", "segments": "i32", "parts": "i32", "line": "i32", "vf_clip": "fp32",
    "vf_coef": "fp32", "entropy_coef": "fp32",
}  # fmt: skip
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s+(.*?);")
REGISTER = re.compile(r"\bUR(\d+)\b")


def unwritten(sass: str) -> dict[int, str]:
    """Uniform registers that are read before anything was written there, and the instruction that does."""
    written, found = set(), {}
    for name, arguments in INSTRUCTION.findall(sass):
        registers = [int(number) for number in REGISTER.findall(arguments)]
        writes = name.startswith(("U", "R2UR", "S2UR", "REDUX")) and arguments.startswith("UR")
        for number in registers[1:] if writes else registers:
            if number not in written:
                found.setdefault(number, f"{name} {arguments}")
        if writes:
            first = registers[0]
            written |= {first, first + 1} if ".64" in name or "WIDE" in name else {first}
    return found


def tail(*, second: bool, width: int, tiles: int, heads: int = 2, choices: int = 16) -> bytes:
    """gpu_loss.py's kernel for sm_90."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from metta_fast.algorithms.ppo.triton.loss_kernels import tail_kernel

    constants = {
        "H": width, "SECOND": second, "HEADS": heads, "W": heads, "P": choices, "PARTS": 32, "NORMALIZE": True,
        "CLIP_VALUE": False, "WEIGHTED": False, "SPLIT": True, "HOW": "ieee", "TILES": tiles, "B": 128,
    }  # fmt: skip
    layer = "*fp32" if second else "*bf16"
    types = TYPES | {"second": layer, "second_bias": layer}
    names = tail_kernel.arg_names
    source = ASTSource(
        fn=tail_kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (i,): [["tt.divisibility", 16]]
            for i, name in enumerate(names)
            if types.get(name, "")[:1] == "*" or name in ("count", "segments", "line", "parts")
        },
    )
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    assembled: bytes = compiled.asm["cubin"]
    return assembled


def disassembled(cubin: bytes, folder: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    return subprocess.run([tool, "-sass", file], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "case",
    [
        {"second": False, "width": 128, "tiles": 1},
        {"second": False, "width": 128, "tiles": 2},
        {"second": False, "width": 64, "tiles": 1},
        {"second": False, "width": 128, "tiles": 1, "choices": 32},
        {"second": True, "width": 128, "tiles": 1},
        {"second": True, "width": 64, "tiles": 1},
    ],
    ids=str,
)
def test_no_address_is_lost(case: dict[str, int], tmp_path: Path) -> None:
    text = disassembled(tail(**case), tmp_path)  # type: ignore[arg-type]
    assert "HGMMA" in text
    assert unwritten(text) == {}


def test_what_is_lost_is_seen() -> None:
    """As ptxas 12.8 wrote it where the two products stood the other way round."""
    good = "/*9370*/ R2UR UR16, R20 ;\n/*9380*/ ULEA UR11, UR16, 0x8, URZ ;\n"
    lost = (
        "/*9390*/ UIADD3 UR14, UP0, UR9, 0x40, URZ ;\n/*93a0*/ HGMMA.64x32x16.F32.BF16 R24, gdesc[UR14] ;\n"
    )
    assert unwritten(good) == {}
    assert unwritten(good + lost) == {9: "UIADD3 UR14, UP0, UR9, 0x40, URZ "}
    assert unwritten("/*9360*/ UMOV UR9, 0x40 ;\n" + good + lost) == {}
