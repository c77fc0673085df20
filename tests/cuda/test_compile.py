"""Tests NVRTC without a GPU: kernels compile, the cache is kept and repaired, errors show the line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.gpu_program import Source
from metta_fast.envs.grid.env import GridFactory
from metta_fast.machine.installation import install_extra
from metta_fast.runtime.nvrtc import compile as compiling
from metta_fast.runtime.nvrtc.compile import CompileError, cache_folder, compile_source


def _has_nvrtc() -> bool:
    try:
        from cuda.bindings import nvrtc

        return nvrtc.nvrtcVersion()[0] == 0
    except (ImportError, RuntimeError):  # no bindings; bindings without the library
        return False


pytestmark = pytest.mark.skipif(not _has_nvrtc(), reason="needs cuda-bindings and NVRTC")
KERNEL = '#include "a.h"\nextern "C" __global__ void f(float *x) {\n    x[threadIdx.x] += AMOUNT;\n}\n'


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))
    (tmp_path / "include").mkdir()
    (tmp_path / "include/a.h").write_text("#define AMOUNT 1.0f\n")
    return Source("toy", KERNEL, include=(tmp_path / "include",))


@pytest.fixture
def compiled(monkeypatch):
    """Counts what NVRTC really compiles."""
    calls = []
    real = compiling._compile
    monkeypatch.setattr(compiling, "_compile", lambda *a, **k: calls.append(a) or real(*a, **k))
    return calls


@pytest.mark.parametrize("arch", [80, 90, 120])
def test_the_grids_kernels_compile(arch, tmp_path, monkeypatch):
    """Without a warning, for several generations; no register is spilled."""
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path))
    keys = {
        80: {"map": "maze", "observation": "tokens"},
        90: {},
        120: {"map": "rooms", "observation": "dense"},
    }
    program = GridFactory(**keys[arch]).gpu_program()
    strict = (
        "--ptxas-options=--warn-on-spills",
        "--ptxas-options=--warning-as-error",
    )
    source = Source("grid", program.source.text, program.source.include, program.source.options + strict)
    code = compile_source(source, arch)
    assert code.startswith(b"\x7fELF")
    for name in ("reset", "build", "step", "step_threads", "observe"):
        assert f".text.mf_{name}".encode() in code


def test_the_cache_is_used_and_follows_the_sources(source, compiled):
    code = compile_source(source, 90)
    assert compile_source(source, 90) == code
    assert len(compiled) == 1
    (file,) = cache_folder().iterdir()
    assert file.name.startswith("toy-")
    (source.include[0] / "a.h").write_text("#define AMOUNT 2.0f\n")
    assert compile_source(source, 90) != code
    compile_source(source, 80)
    compile_source(Source("toy", KERNEL, source.include, ("-DX",)), 90)
    assert len(compiled) == 4
    assert len(list(cache_folder().iterdir())) == 4


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 200])
def test_a_damaged_file_is_compiled_again(source, compiled, damage):
    code = compile_source(source, 90)
    (file,) = cache_folder().iterdir()
    file.write_bytes(damage)
    assert compile_source(source, 90) == code
    assert compile_source(source, 90) == code
    assert len(compiled) == 2


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("METTA_FAST_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/me/.cache/metta_fast/cuda")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_folder() == Path("/scratch/metta_fast/cuda")
    monkeypatch.setenv("METTA_FAST_CACHE", "~/own")
    assert cache_folder() == Path("/home/me/own/cuda")


def test_a_folder_that_cannot_be_written_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write the cache .*file/cuda.*METTA_FAST_CACHE"):
        compile_source(source, 90)


def test_an_error_shows_the_line_of_the_header(source):
    (source.include[0] / "a.h").write_text("\n\nthis is wrong\n#define AMOUNT 1\n")
    with pytest.raises(CompileError, match="toy does not compile for the GPU") as raised:
        compile_source(source, 90)
    assert re.search(r"a\.h\(3\): error", str(raised.value))
    assert "in 'this is wrong'" in str(raised.value)
    assert "\n" not in str(raised.value)
    (log,) = cache_folder().iterdir()
    assert f"(NVRTC's whole output: {log})" in str(raised.value)
    assert "a.h(3): error" in log.read_text()


def test_an_error_shows_the_line_of_the_source(source):
    wrong = Source("toy", KERNEL.replace("AMOUNT", "unheard_of"), source.include, cure="use the CPU")
    with pytest.raises(CompileError, match=r"toy\.cu\(3\): error") as raised:
        compile_source(wrong, 90)
    assert "in 'x[threadIdx.x] += unheard_of;'; use the CPU (" in str(raised.value)


def test_a_missing_header_is_named(source):
    with pytest.raises(CompileError, match=r'cannot open source file "a\.h"'):
        compile_source(Source("toy", KERNEL), 90)


def test_gpus_that_nvrtc_does_not_know(source):
    assert b".target sm_" in compile_source(source, 999), "newer than NVRTC: PTX, which the driver compiles"
    with pytest.raises(CompileError, match=r"compute capability 6\.1.*env\.device=cpu"):
        compile_source(source, 61)


def test_without_the_bindings_the_cure_is_told(source, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(CompileError, match=re.escape(install_extra("gpu"))):
        compile_source(source, 90)


def test_importing_the_compiler_loads_neither_torch_nor_cuda():
    code = "import sys, metta_fast.runtime.nvrtc.compile; print([m for m in ('torch', 'cuda') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
