"""Builds the native extensions: every `*.pyx` under envs/ and metta_fast/ becomes one extension module.

All other metadata is in pyproject.toml. `metta_fast/envs` and `metta_fast/configs` are committed links to `envs/` and
`configs/`, so the checkout, an editable install and the wheel have the same package tree.

envs/robot is built only if MuJoCo 4.0.0 (mujoco-core) is installed. Its tasks are the headers in envs/robot/tasks that
define NAME_params; this script lists them for the compiler in list.h.

    metta-fast build                                # in a checkout: what changed, with messages for a user
    python setup.py build_ext --inplace             # the same, for a developer
    MF_DEBUG=1 python setup.py build_ext --inplace  # bounds checks, line tracing, -O1 -g
    MF_ARCH=native python setup.py build_ext --inplace   # for this processor (docs/hardware.md)
    MF_SANITIZE=address,undefined python setup.py build  # a debug build with gcc's or clang's sanitizers, in
                                                         # build/sanitize-address-undefined (used by .ci/sanitize)
    MF_ONLY=metta_fast.envs.grid._grid python setup.py build_ext --inplace   # these extensions alone, by commas

Compiled extensions are kept by the content of all that they are made from (metta_fast/machine/build_cache.py), so only
what changed is compiled. MF_DEBUG and MF_SANITIZE builds are not kept.
"""

import importlib.util
import os
import re
import shlex
import sys
import sysconfig
import time
import zlib
from importlib import metadata
from pathlib import Path

import Cython
import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FAST_MATH = ["-ffp-contract=fast", "-fno-math-errno"]
NEVER_ON_A_GPU = {"_c_act", "_mlp_update", "_sac_update", "_sparse_layer"}
"""Extensions that may fuse products and sums, because no GPU kernel has to give the same bits."""
ROOT = Path(__file__).resolve().parent
ONLY = set(filter(None, os.environ.get("MF_ONLY", "").split(",")))  # empty: all extensions
SANITIZE = os.environ.get("MF_SANITIZE", "")  # value of -fsanitize=: address, undefined, thread, …
DEBUG = os.environ.get("MF_DEBUG") == "1" or bool(SANITIZE)
MUJOCO_LIBRARY = "libmujoco.so.4.0.0"  # envs/robot/__init__.py and pyproject.toml name the same version

BUILT_FOR = ROOT / "metta_fast/machine/built_for.txt"
"""Written here, read by metta_fast/machine/processor.py. A new MF_ARCH rebuilds every extension."""
ANY = "any processor"
NAMES = {"BMI": "bmi1", "LZCNT": "abm"}
SETS = "SSSE3 SSE4_1 SSE4_2 POPCNT AVX AVX2 F16C FMA MOVBE LZCNT BMI BMI2"
SETS += " AVX512F AVX512BW AVX512CD AVX512DQ AVX512VL"
"""Instruction sets that the compiler may use, by its macros __SSSE3__ …; NAMES: Linux's names, where not the same."""


def load(name: str):
    """Loads a module of metta_fast/machine by its path: the package may be built for another processor."""
    spec = importlib.util.spec_from_file_location(f"mf_{name}", ROOT / "metta_fast/machine" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_cache, compilers = load("build_cache"), load("compiler")


def arch() -> str:
    """Returns MF_ARCH; else, to build again in place, what the modules there were built for; else x86-64-v3."""
    if "MF_ARCH" in os.environ:
        return os.environ["MF_ARCH"]
    if os.uname().machine != "x86_64":
        return ""
    if {"--inplace", "-i", "editable_wheel"} & set(sys.argv) and BUILT_FOR.is_file():
        built_for = BUILT_FOR.read_text().partition("\n")[0]
        return "" if built_for == ANY else built_for
    return "x86-64-v3"


def compiler():
    """Returns the C compiler that is used."""
    obstacle = compilers.interpreter_obstacle() or compilers.build_obstacle()
    found = None if obstacle else compilers.find_compiler()
    if found is None:
        sys.exit(
            "error: "
            + (
                obstacle
                or f"no C compiler was found; type: {compilers.install_compiler()}, or "
                f"{shlex.quote(sys.executable)} -m pip install ziglang"
            )
        )
    if SANITIZE and found.zig:
        sys.exit("error: MF_SANITIZE needs gcc or clang, but the only compiler here is ziglang")
    return found


ARCH, COMPILER = arch(), compiler()
if not COMPILER.zig:
    os.environ["CC"] = shlex.join(COMPILER.command)  # otherwise distutils takes the one that built Python

# No fast-math and no contraction: the same header must give the same bits when compiled for the GPU.
CFLAGS = ["-O1", "-g"] if DEBUG else ["-O3"]
CFLAGS += ["-std=c11", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread"]
LDFLAGS = ["-pthread"]
CFLAGS += COMPILER.arch_flags(ARCH)
if SANITIZE:
    if "--inplace" in sys.argv or "-i" in sys.argv:
        sys.exit(
            "MF_SANITIZE needs a build folder of its own under build/: type `setup.py build`, without --inplace"
        )
    LDFLAGS.append(f"-fsanitize={SANITIZE}")
    CFLAGS += [LDFLAGS[-1], "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
BUILD = "build/sanitize-" + SANITIZE.replace(",", "-") if SANITIZE else None
"""Folder of a sanitized build: objects, generated C and, in lib, the whole package. None: setuptools' default."""


INCLUDE = ["envs/native", "metta_fast", "metta_fast/runtime/c"]
"""Where the compiler looks for headers, beside the source's own folder."""
PACKAGES = {"metta_fast.envs": ROOT / "envs", "metta_fast": ROOT / "metta_fast"}
KEPT = not DEBUG
"""Whether what is compiled is kept in the cache, and taken from there."""


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
        macros = COMPILER.macros(ARCH)
        if macros is None:
            sys.exit(
                f"error: the compiler does not know MF_ARCH={ARCH}: name another processor (MF_ARCH= for any)"
            )
        names = [NAMES.get(s, s.lower()) for s in SETS.split() if f"#define __{s}__ 1\n" in macros]
    write_if_changed(BUILT_FOR, f"{ARCH or ANY}\n{' '.join(names)}\n")


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
    for package, top in PACKAGES.items():
        for source in sorted(top.rglob("*.pyx")):
            parts = source.relative_to(top).with_suffix("").parts
            if package == "metta_fast" and parts[0] == "envs":
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
            files = build_cache.sources(ROOT / source, [ROOT / folder for folder in INCLUDE], PACKAGES)
            headers = [str(file.relative_to(ROOT)) for file in sorted(files) if file.suffix == ".h"]
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
                        *INCLUDE,
                        *include,
                    ],
                    extra_objects=objects,
                    extra_link_args=LDFLAGS,
                    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                )
            )
    return found


DIRECTIVES = {
    "language_level": "3",
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "cdivision": True,
    "embedsignature": True,
}


def translate(found: list[Extension], force: bool) -> None:
    """Replaces Cython sources by the C made from them; C next to its source belongs to the fast build."""
    folder = f"{BUILD}/c" if BUILD else None
    for extension, made in zip(
        found, cythonize(found, build_dir=folder, compiler_directives=DIRECTIVES, force=force, quiet=True)
    ):
        assert extension.name == made.name
        extension.sources = made.sources


def key(extension: Extension) -> str:
    """Returns the digest of all that an extension is made from."""
    parts = [
        COMPILER.version,
        sys.version,
        sysconfig.get_config_var("SOABI"),
        Cython.__version__,
        numpy.__version__,
    ]
    parts += [extension.name, DIRECTIVES, extension.extra_compile_args, extension.extra_link_args]
    if extension.extra_objects:
        parts += [MUJOCO_LIBRARY, metadata.version("mujoco-core")]
    files = build_cache.sources(ROOT / extension.sources[0], [ROOT / folder for folder in INCLUDE], PACKAGES)
    return build_cache.digest(map(str, parts), files, ROOT)


class Build(build_ext):
    """Compiles the extensions that are not in the cache."""

    def build_extensions(self) -> None:
        if COMPILER.zig:
            self.use_zig()
        every, missing, kept = self.extensions, [], []
        self.cache = build_cache.folder(ROOT / "build/cache")
        self.keys = {extension.name: key(extension) for extension in every} if KEPT else {}
        for extension in every:
            data = build_cache.read(self.cache, self.keys[extension.name]) if KEPT else None
            if data is None:
                missing.append(extension)
            else:
                target = Path(self.get_ext_fullpath(extension.name))
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists() or target.read_bytes() != data:
                    kept.append(extension.name.rpartition(".")[2])
                target.unlink(missing_ok=True)  # a running process may have the old file in memory
                target.write_bytes(data)
        began = time.monotonic()
        translate(missing, force=KEPT)
        self.extensions, self.force = missing, self.force or KEPT
        super().build_extensions()
        self.extensions = every
        if kept:
            print(f"took {', '.join(kept)} from the cache, compiled before from the same sources", flush=True)
        if missing:
            names = ", ".join(extension.name.rpartition(".")[2] for extension in missing)
            print(f"compiled {names} in {time.monotonic() - began:.0f} s with {COMPILER.version}", flush=True)

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        if KEPT:
            data = Path(self.get_ext_fullpath(ext.name)).read_bytes()
            build_cache.write(self.cache, self.keys[ext.name], data)

    def use_zig(self) -> None:
        """Sets the whole commands: Python's own flags are for the compiler that built it."""
        command = [*COMPILER.command, *compilers.ZIG_FLAGS]
        self.compiler.set_executables(
            preprocessor=[*command, "-E"],
            compiler=command,
            compiler_so=[*command, "-fPIC"],
            linker_so=[*command, "-shared"],
            linker_exe=command,
        )


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": Build},
    options={"build": {"build_base": BUILD, "build_lib": f"{BUILD}/lib"}} if BUILD else {},
)
