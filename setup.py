"""Build of the native extensions: every `*.pyx` under envs/ and metta_fast/ becomes one extension module.

All other metadata lives in pyproject.toml. `metta_fast/envs` and `metta_fast/configs` are committed links to
`envs/` and `configs/`, so the checkout, an editable install and the wheel all see one package tree.

    python setup.py build_ext --inplace             # a development build
    MF_DEBUG=1 python setup.py build_ext --inplace  # bounds checks, line tracing, -O1 -g
    MF_ARCH=native python setup.py build_ext --inplace   # tuned for this processor (not portable)
"""

import os
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).parent
DEBUG = os.environ.get("MF_DEBUG") == "1"
ARCH = os.environ.get("MF_ARCH", "x86-64-v3" if os.uname().machine == "x86_64" else "")

# No fast-math and no contraction: the same header compiled for the GPU must give the same bits.
CFLAGS = ["-O1", "-g"] if DEBUG else ["-O3"]
CFLAGS += ["-std=c11", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread"]
if ARCH:
    CFLAGS.append(f"-march={ARCH}")


def extensions() -> list[Extension]:
    """One extension per .pyx file, named by its place in the package."""
    found = []
    for top, package in (("envs", "metta_fast.envs"), ("metta_fast", "metta_fast")):
        for source in sorted((ROOT / top).rglob("*.pyx")):
            parts = source.relative_to(ROOT / top).with_suffix("").parts
            if top == "metta_fast" and parts[0] == "envs":
                continue  # the link: already found under envs/
            source = source.relative_to(ROOT)
            headers = [
                str(h.relative_to(ROOT))
                for folder in {source.parent, Path("envs/native")}
                for h in (ROOT / folder).glob("*.h")
            ]
            found.append(
                Extension(
                    ".".join((package, *parts)),
                    [str(source)],
                    depends=headers,
                    extra_compile_args=CFLAGS,
                    include_dirs=[numpy.get_include(), str(source.parent), "envs/native"],
                    extra_link_args=["-pthread"],
                    define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
                )
            )
    return found


setup(
    ext_modules=cythonize(
        extensions(),
        compiler_directives={
            "language_level": "3",
            "boundscheck": DEBUG,
            "wraparound": DEBUG,
            "cdivision": True,
            "embedsignature": True,
        },
    )
)
