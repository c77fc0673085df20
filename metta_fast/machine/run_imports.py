"""Keeps Python from importing anything from a run's folder, which may come from a stranger.

    stay_out()            # at the import of metta_fast: the current folder, or an entry of sys.path, is in a run
    stay_out(folder)      # a run or checkpoint that is opened, wherever it is
    refused("wandb")      # whether a module was found in a run only

A `yaml.py` there shadows the installed package where Python searches the current folder (`python -m`, `python -c`),
and a run's configuration can name a module there. Entries of sys.path in a run are removed; a finder drops those that
are added later, and the parts of namespace packages.

No import but of sys and os, which Python has loaded: any other could itself come from such a folder.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, PathFinder
else:
    PathFinder = sys.modules["_frozen_importlib_external"].PathFinder


def _own() -> tuple[str, ...]:
    """Returns the folders of Python, of installed packages and of metta_fast: also if they are within a run's."""
    site = sys.modules.get("site")
    found = [os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(__file__))]
    if sys.prefix != sys.base_prefix:
        found.append(sys.prefix)
    if site is not None:
        found += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(os.path.join(os.path.realpath(path), "") for path in found)


OWN = _own()
_opened: set[str] = set()
"""Real paths of the runs that this process opened."""
named_folder: list[str] = []
"""The folder in which a command was given, if Python does not search it itself."""
_answers: dict[str, bool] = {}
"""What `in_run` found for absolute paths."""
_known: dict[str, bool] = {}
"""Real path of a folder → whether it is a run's, for folders that nobody opened."""


def stay_out(folder: "str | os.PathLike[str] | None" = None) -> None:
    """Removes entries of sys.path that are in a run's folder, and keeps later imports out of such folders.

    Args:
        folder: a run, or a checkpoint, that is being opened.
    """
    if folder is not None:
        _opened.add(os.path.realpath(folder))
        _answers.clear()
    inside = [entry for entry in sys.path if in_run(entry)]
    if inside:
        sys.path[:] = [entry for entry in sys.path if entry not in inside]
    if folder is None and not inside:
        return
    if in_run(""):
        os.environ["PYTHONSAFEPATH"] = "1"  # for Python programs that this process starts
    if _Outside not in sys.meta_path:
        places = [i for i, finder in enumerate(sys.meta_path) if finder is PathFinder]
        sys.meta_path[places[0] if places else 0 : places[0] + 1 if places else 0] = [_Outside]


def see_current_folder() -> None:
    """Lets modules of the current folder be named (env=my_module:make), as Python itself does for `python -m` only.

    The folder is searched after all others, and only once a module is named: what we import ourselves is never there.
    """
    named_folder.clear()
    try:
        here = os.getcwd()
    except OSError:  # it was deleted
        return
    if not {"", here} & set(sys.path):
        named_folder.append(here)


def add_named_folder() -> None:
    """Adds the folder of `see_current_folder` to the end of sys.path, unless it is a run's."""
    sys.path += [folder for folder in named_folder if folder not in sys.path and not in_run(folder)]


def in_run(entry: str) -> bool:
    """Whether an entry of sys.path ("": the current folder) is a run's folder or within one."""
    if not os.path.isabs(entry):
        return _look(entry)
    if entry not in _answers:
        _answers[entry] = _look(entry)
    return _answers[entry]


def _look(entry: str) -> bool:
    try:
        path = os.path.realpath(entry or os.curdir)
    except (OSError, ValueError):  # the current folder was deleted
        return False
    if os.path.join(path, "").startswith(OWN):
        return False
    while True:
        if path in _opened or _is_run(path):
            return True
        above = os.path.dirname(path)
        if above == path:
            return False
        path = above


def run_of(path: "str | os.PathLike[str]") -> str:
    """Returns the run's folder of a checkpoint `…/checkpoints/step_…`, or the path itself."""
    above, _ = os.path.split(os.path.realpath(path))
    return os.path.dirname(above) if os.path.basename(above) == "checkpoints" else os.path.realpath(path)


def refused(module: str) -> bool:
    """Whether a top-level module is in a run's folder of the current sys.path or in the current folder, if that is
    one."""
    here = [""] if in_run("") else []
    return PathFinder.find_spec(module, [*here, *filter(in_run, sys.path)]) is not None


def _is_run(path: str) -> bool:
    """Whether a folder is a checkpoint, or holds some."""
    if path not in _known:
        _known[path] = _has(path, "manifest.json", "meta.json") or any(
            "step_" in name and _has(os.path.join(path, "checkpoints", name), "manifest.json")
            for name in _names(os.path.join(path, "checkpoints"))
        )
    return _known[path]


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _has(path: str, *names: str) -> bool:
    return all(os.path.exists(os.path.join(path, name)) for name in names)


class _Outside(PathFinder):
    """Python's finder of modules on sys.path, without the entries that are in a run."""

    @classmethod
    def find_spec(cls, fullname: str, path: "object" = None, target: "object" = None) -> "ModuleSpec | None":
        entries = sys.path if path is None else path
        kept = [entry for entry in entries if not (isinstance(entry, str) and in_run(entry))]  # type: ignore[attr-defined]
        return PathFinder.find_spec(fullname, kept, target)  # type: ignore[arg-type]
