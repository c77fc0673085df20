"""Walks the imports of the whole product: data flows one way, so no circle, and no folder imports one above it.

Edges are read from the text, so imports inside functions and under TYPE_CHECKING count as well: Python's `import`,
Cython's `cimport` and `cdef extern from`, and C's `#include`. `metta_fast.envs` is the folder `envs`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = (
    *(
        "version",
        "contracts",
        "machine",
        "config",
        "storage",
        "distributed",
        "buffers",
        "runtime",
        "metrics",
        "scaffold",
        "envs",
    ),
    *("watch", "policy", "vector", "rollout", "inference", "algorithms", "episodes", "export", "features"),
    *("resolve", "run", "compat", "sweep", "report", "bench", "completion", "cli", "__init__", "__main__"),
)
"""Folders and root files of metta_fast, from the ground up (docs/design.md): each may import those before it."""
FLOOR = {name: number for number, name in enumerate(ORDER)}
SUFFIXES = (".py", ".pyx", ".pxd", ".h")
GENERATED = {"envs/robot/tasks/list.h"}
INCLUDE_FOLDERS = ("envs/native", "metta_fast", "metta_fast/runtime/c")
"""Where setup.py has the compiler look for headers, beside the file's own folder."""

CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+\(?([\w, ]*)|c?import\s+([\w.]+))", re.M)
EXTERN = re.compile(r'^\s*cdef extern from\s+"([^"]+)"', re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def sources() -> dict[str, Path]:
    """Every source file of the product by its path in the package: "envs/grid/env.py", "policy/base.py"."""
    found = {}
    for top in ("envs", "metta_fast"):
        for file in sorted((ROOT / top).rglob("*")):
            inside = file.relative_to(ROOT / top).as_posix()
            if file.suffix not in SUFFIXES or (
                top == "metta_fast" and inside.startswith(("envs/", "configs/"))
            ):
                continue
            name = f"envs/{inside}" if top == "envs" else inside
            if name not in GENERATED and "templates/" not in name:
                found[name] = file
    return found


def module_file(
    module: str, files: dict[str, Path], suffixes: tuple[str, ...] = (".py", ".pyx")
) -> str | None:
    """The file of a module `metta_fast.….name`, or None: not of this package."""
    parts = module.split(".")
    if parts[0] != "metta_fast":
        return None
    path = "/".join(parts[1:])
    options = [f"{path}{suffix}" for suffix in suffixes] + [f"{path}/__init__.py" if path else "__init__.py"]
    return next((option for option in options if option in files), None)


def python_imports(text: str, package: str) -> list[tuple[str, tuple[str, ...]]]:
    """(module, names) of every import statement, wherever it is in the file; relative ones resolved."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            found.append((".".join([*base, *filter(None, [node.module])]), tuple(a.name for a in node.names)))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found += [(arg.value, ()) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return found


def imports_of(name: str, files: dict[str, Path]) -> set[str]:
    """Files of the package that file `name` imports or includes."""
    text, found = files[name].read_text(), set()
    package = ".".join(("metta_fast", *PurePosixPath(name).parent.parts))
    if name.endswith(".py"):
        statements = python_imports(text, package)
    elif name.endswith((".pyx", ".pxd")):
        statements = []
        for base, names, plain in CIMPORT.findall(text):
            statements.append(
                (base or plain, tuple(n.strip().split(" ")[0] for n in names.split(",") if n.strip()))
            )
    else:
        statements = []
    suffixes = (".pxd", ".py", ".pyx") if name.endswith((".pyx", ".pxd")) else (".py", ".pyx")
    for module, names in statements:
        inside = [module_file(f"{module}.{n}", files, suffixes) for n in names]
        found |= {file for file in inside if file}
        if not names or not all(inside):
            found.add(module_file(module, files, suffixes) or "")
    for header in (INCLUDE if name.endswith(".h") else EXTERN).findall(text):
        folders = [PurePosixPath(name).parent.as_posix()]
        folders += [f.removeprefix("metta_fast").strip("/") for f in INCLUDE_FOLDERS]
        paths = [str(PurePosixPath(f, header)) for f in folders]
        paths = [Path(p).as_posix() for p in (normal(path) for path in paths)]
        found |= set(next(([p] for p in paths if p in files), []))
    return found - {"", name}


def normal(path: str) -> str:
    """The path without `a/../`."""
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def folder_graph(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The same between folders; `__init__.py`, which re-exports, left out.

    A folder and a folder inside it count as one here: the inner one may share a small base file of the outer one.
    """
    folders: dict[str, set[str]] = {}
    for name, others in graph.items():
        if PurePosixPath(name).name == "__init__.py":
            continue
        here = PurePosixPath(name).parent.as_posix()
        targets = {
            PurePosixPath(other).parent.as_posix() for other in others if not other.endswith("__init__.py")
        }
        apart = {
            t
            for t in targets
            if not (t + "/").startswith(here + "/") and not (here + "/").startswith(t + "/")
        }
        folders.setdefault(here, set()).update(apart - {"."})
    folders.pop(".", None)
    return folders


def floor(name: str) -> int:
    top = PurePosixPath(name).parts[0].removesuffix(".py")
    assert top in FLOOR, f"{name}: where does {top} stand? Give it a floor in ORDER (and in docs/design.md)"
    return FLOOR[top]


def against_the_flow(graph: dict[str, set[str]]) -> list[str]:
    """Imports of a folder that is above."""
    return sorted(
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in others
        if PurePosixPath(name).parts[0] != PurePosixPath(other).parts[0] and floor(other) >= floor(name)
    )


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    files = sources()
    return {name: imports_of(name, files) for name in files}


def test_the_walk_sees_every_kind_of_import(graph):
    assert "contracts/env.py" in graph["envs/counter.py"]  # through the link metta_fast/envs
    assert "envs/native/philox.h" in graph["envs/grid/grid_state.h"]  # #include
    assert any(other.endswith(".pxd") for name in graph if name.endswith(".pyx") for other in graph[name])
    assert "run/trainer.py" in graph["cli.py"]  # inside a function
    assert "cli.py" in graph["__main__.py"]
    assert python_imports('importlib.import_module("metta_fast.cli")', "metta_fast") == [
        ("metta_fast.cli", ())
    ]


def test_no_circle_of_files(graph):
    assert circles(graph) == []


def test_no_circle_of_folders(graph):
    assert circles(folder_graph(graph)) == []


def test_no_folder_imports_one_above_it(graph):
    assert against_the_flow(graph) == []


def test_few_files_at_the_root_and_in_each_folder():
    root = [p.name for p in (ROOT / "metta_fast").glob("*.py")]
    assert len(root) <= 6, sorted(root)
    counts: dict[str, int] = {}
    for name, _ in sources().items():
        if name.endswith(".py"):
            folder = PurePosixPath(name).parent.as_posix()
            counts[folder] = counts.get(folder, 0) + 1
    full = {f: n for f, n in counts.items() if n > 16 and not f.startswith("envs/robot/tasks")}
    assert full == {}


def test_circles_and_arrows_back_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert against_the_flow({"policy/x.py": {"run/y.py"}, "run/y.py": {"policy/x.py"}}) == [
        "policy/x.py imports run/y.py"
    ]
