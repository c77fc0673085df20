"""Builds the native extensions: every `*.pyx` under envs/ and metta_fast/ becomes one extension module.

All other metadata is in pyproject.toml. `metta_fast/envs` and `metta_fast/configs` are committed links to `envs/` and
`configs/`, so the checkout, an editable install and the wheel have the same package tree.

envs/robot is built only if MuJoCo 4.0.0 (mujoco-core) is installed. Its tasks are the headers in envs/robot/tasks that
define NAME_params; this script lists them for the compiler in list.h.

    python setup.py build_ext --inplace             # a development build
    MF_DEBUG=1 python setup.py build_ext --inplace  # bounds checks, line tracing, -O1 -g
    MF_ARCH=native python setup.py build_ext --inplace   # for this processor (docs/hardware.md)
    MF_SANITIZE=address,undefined python setup.py build  # a debug build with gcc's or clang's sanitizers, in
                                                         # build/sanitize-address-undefined (used by .ci/sanitize)
    MF_ONLY=metta_fast.envs.grid._grid python setup.py build_ext --inplace   # these extensions alone, by commas
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import zlib
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

FAST_MATH = ["-ffp-contract=fast", "-fno-math-errno"]
NEVER_ON_A_GPU = {"_c_act", "_mlp_update", "_sparse_layer"}
"""Extensions that may fuse products and sums, because no GPU kernel has to give the same bits."""
ROOT = Path(__file__).parent
ONLY = set(filter(None, os.environ.get("MF_ONLY", "").split(",")))  # empty: all extensions
SANITIZE = os.environ.get("MF_SANITIZE", "")  # value of -fsanitize=: address, undefined, thread, …
DEBUG = os.environ.get("MF_DEBUG") == "1" or bool(SANITIZE)
MUJOCO_LIBRARY = "libmujoco.so.4.0.0"  # envs/robot/__init__.py and pyproject.toml name the same version
ARCH = os.environ.get("MF_ARCH", "x86-64-v3" if os.uname().machine == "x86_64" else "")

BUILT_FOR = ROOT / "metta_fast/machine/built_for.txt"
"""Written here, read by metta_fast/machine/processor.py. A new MF_ARCH rebuilds every extension."""
NAMES = {"BMI": "bmi1", "LZCNT": "abm"}
SETS = "SSSE3 SSE4_1 SSE4_2 POPCNT AVX AVX2 F16C FMA MOVBE LZCNT BMI BMI2"
SETS += " AVX512F AVX512BW AVX512CD AVX512DQ AVX512VL"
"""Instruction sets that the compiler may use, by its macros __SSSE3__ …; NAMES: Linux's names, where not the same."""

# No fast-math and no contraction: the same header must give the same bits when compiled for the GPU.
CFLAGS = ["-O1", "-g"] if DEBUG else ["-O3"]
CFLAGS += ["-std=c11", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread"]
LDFLAGS = ["-pthread"]
if ARCH:
    CFLAGS.append(f"-march={ARCH}")
if SANITIZE:
    if "--inplace" in sys.argv or "-i" in sys.argv:
        sys.exit(
            "MF_SANITIZE needs a build folder of its own under build/: type `setup.py build`, without --inplace"
        )
    LDFLAGS.append(f"-fsanitize={SANITIZE}")
    CFLAGS += [LDFLAGS[-1], "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
BUILD = "build/sanitize-" + SANITIZE.replace(",", "-") if SANITIZE else None
"""Folder of a sanitized build: objects, generated C and, in lib, the whole package. None: setuptools' default."""


def mujoco_folder() -> Path | None:
    """Finds the folder with MuJoCo's headers and library in the version that envs/robot needs; None if not installed.

    The library is linked by its path; at run time envs/robot/__init__.py loads it before the extension.
    """
    spec = importlib.util.find_spec("mujoco")
    for folder in map(Path, (spec.submodule_search_locations or []) if spec else []):
        if (folder / "include/mujoco/mujoco.h").is_file() and (folder / MUJOCO_LIBRARY).is_file():
            return folder
    return None


def write_if_changed(target: Path, text: str) -> None:
    """Leaves the file's time as it is if it has this content, so that nothing is built again."""
    if not target.is_file() or target.read_text() != text:
        target.write_text(text)


def write_built_for() -> None:
    """Writes ARCH, and the instruction sets that the compiler uses for it, to BUILT_FOR."""
    names = []
    if os.uname().machine == "x86_64" and ARCH:
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        macros = subprocess.run(
            [*compiler, f"-march={ARCH}", "-dM", "-E", "-x", "c", "/dev/null"],
            stdout=subprocess.PIPE,
            text=True,
        )
        if macros.returncode:
            sys.exit(
                f"the compiler does not know -march={ARCH}: name another with MF_ARCH (MF_ARCH= for none)"
            )
        names = [NAMES.get(s, s.lower()) for s in SETS.split() if f"#define __{s}__ 1\n" in macros.stdout]
    write_if_changed(BUILT_FOR, f"{ARCH or 'any processor'}\n{' '.join(names)}\n")


def list_tasks() -> None:
    """Writes envs/robot/tasks/list.h (see all.h there) if its content changes."""
    folder = ROOT / "envs/robot/tasks"
    found = {}
    for header in sorted(folder.glob("*.h")):
        text = header.read_bytes()
        if re.search(rb"\}\s*" + header.stem.encode() + rb"_params\s*;", text):
            found[header.stem] = zlib.crc32(text)
    lines = ["/* list.h: written by setup.py (list_tasks). */"]
    lines += [f'#include "{name}.h"' for name in found]
    lines += ["#define MF_ROBOT_TASKS(X) " + " ".join(f"X({name}, {crc}u)" for name, crc in found.items())]
    write_if_changed(folder / "list.h", "\n".join(lines) + "\n")


def extensions() -> list[Extension]:
    """Makes one extension per .pyx file, named by its path in the package."""
    found = []
    list_tasks()
    write_built_for()
    mujoco = mujoco_folder()
    for top, package in (("envs", "metta_fast.envs"), ("metta_fast", "metta_fast")):
        for source in sorted((ROOT / top).rglob("*.pyx")):
            parts = source.relative_to(ROOT / top).with_suffix("").parts
            if top == "metta_fast" and parts[0] == "envs":
                continue  # the link: these files were found under envs/
            name = ".".join((package, *parts))
            if ONLY and name not in ONLY:
                continue
            include, objects = [], []
            if parts[:1] == ("robot",):
                if mujoco is None:
                    print(
                        "envs/robot is not built: MuJoCo 4.0.0 is not installed; to build it, type "
                        "pip install mujoco==4.0.0 (or install the extra `robots`)"
                        if sys.platform.startswith("linux")
                        else "envs/robot is not built: robots need Linux"
                    )
                    continue
                include, objects = [str(mujoco / "include")], [str(mujoco / MUJOCO_LIBRARY)]
            source = source.relative_to(ROOT)
            headers = [
                str(h.relative_to(ROOT))
                for folder in {
                    source.parent,
                    Path("envs/native"),
                    Path("metta_fast/policy"),
                    Path("metta_fast/runtime/c"),
                    Path("metta_fast/algorithms/ppo/c"),
                }
                for h in (ROOT / folder).rglob("*.h")
            ]
            headers.append(str(BUILT_FOR.relative_to(ROOT)))
            found.append(
                Extension(
                    name,
                    [str(source)],
                    depends=headers,
                    extra_compile_args=CFLAGS + FAST_MATH * (source.stem in NEVER_ON_A_GPU),
                    include_dirs=[
                        numpy.get_include(),
                        str(source.parent),
                        "envs/native",
                        "metta_fast",
                        "metta_fast/runtime/c",
                        *include,
                    ],
                    extra_objects=objects,
                    extra_link_args=LDFLAGS,
                    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                )
            )
    return found


setup(
    ext_modules=cythonize(
        extensions(),
        build_dir=f"{BUILD}/c"
        if BUILD
        else None,  # generated C next to the sources belongs to the fast build
        compiler_directives={
            "language_level": "3",
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "cdivision": True,
            "embedsignature": True,
        },
    ),
    options={"build": {"build_base": BUILD, "build_lib": f"{BUILD}/lib"}} if BUILD else {},
)
