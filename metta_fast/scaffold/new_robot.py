"""`metta-fast new-robot NAME`: writes the files of your own robot into the checkout, ready to build and train.

    metta-fast new-robot arm                      # an arm of two links
    metta-fast new-robot crab --model crab.xml    # your own MJCF model

    envs/robot/tasks/NAME.xml   the model          configs/env/NAME.yaml       the recipe: env=NAME
    envs/robot/tasks/NAME.h     the rules          tests/robot/test_NAME.py    their test
    envs/robot/tasks/NAME.py    names, options

The build finds the header by itself. Its rules are a complete task: the robot must hold its model's first pose.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import command, install_extra
from metta_fast.scaffold.names import check_name
from metta_fast.storage.user_files import read_text, user_path

TEMPLATES = Path(__file__).parent / "templates"
PLACES = {
    "robot_model": "envs/robot/tasks/{}.xml",
    "robot_header": "envs/robot/tasks/{}.h",
    "robot_task": "envs/robot/tasks/{}.py",
    "robot_recipe": "configs/env/{}.yaml",
    "robot_test": "tests/robot/test_{}.py",
}
"""Template → path of the file written from it."""


def checkout() -> Path:
    """Returns the folder of the checkout that this package runs from.

    Raises:
        UserError: the package was installed from a wheel.
    """
    root = Path(__file__).resolve().parents[2]
    if not all(
        (root / part).exists() for part in ("setup.py", "envs/robot/tasks", "configs/env", "tests/robot")
    ):
        raise UserError(
            f"new-robot needs a checkout, where robots are built, but {root} is an installed copy. Clone metta_fast, "
            "run ./run_ultra_fast.sh --setup-only in its folder, then type .venv/bin/metta-fast new-robot NAME "
            "there. (A robot written in Python does not need this: env=my_robot:make)"
        )
    return root


def new_robot(name: str, root: Path, model: Path | None = None) -> list[Path]:
    """Writes the files of robot `name` below `root`; all of them or none.

    Args:
        model: an MJCF file to copy; None: the arm of templates/.

    Returns:
        The files written.

    Raises:
        UserError: the name is invalid or taken, or the model cannot be loaded or has nothing to move.
    """
    check_name("robot", name, "two_link_arm", words="a Python keyword")
    texts = {key: (TEMPLATES / f"{key}.txt").read_text() for key in PLACES}
    values = {"name": name, "guard": name.upper()}
    files = {
        root / place.format(name): Template(texts[key]).substitute(values) for key, place in PLACES.items()
    }
    for path in files:
        if path.exists():
            raise UserError(
                f"the name {name!r} is taken: {path.relative_to(root)} exists; choose another name"
            )
    model_file = next(iter(files))
    if model is not None:
        files[model_file] = _read(model)
    written: list[Path] = []
    try:
        for path, text in files.items():
            written.append(path)
            path.write_text(text)
        if model is not None:
            _check_model(model, model_file)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
        raise
    return written


def _read(model: Path) -> str:
    return read_text(model, f"--model {model}")


def _check_model(model: Path, copied: Path) -> None:
    """Checks that MuJoCo loads the copy and that it has joints and actuators. Raises UserError if not."""
    try:
        import mujoco
    except ImportError as error:
        raise UserError(f"--model needs MuJoCo: {install_extra('robots')}") from error
    mujoco.set_mju_user_warning(
        lambda message: print(f"MuJoCo: {message}", file=sys.stderr)
    )  # otherwise MuJoCo writes them to a file
    try:
        loaded = mujoco.MjModel.from_xml_path(str(copied))
    except ValueError as error:
        raise UserError(
            f"--model {model}: MuJoCo cannot load a copy of it in {copied.parent}: {' '.join(str(error).split())} "
            "(included files and meshes must be in that folder too, or be given by their full path)"
        ) from error
    finally:
        mujoco.set_mju_user_warning(None)
    if loaded.nq == 0 or loaded.nu == 0:
        raise UserError(
            f"--model {model}: it has {loaded.nq} joint positions and {loaded.nu} actuators; a robot needs both"
        )


def run_new_robot_command(words: Sequence[str]) -> int:
    """Runs `metta-fast new-robot` and returns 0.

    Raises:
        UserError: see `new_robot` and `checkout`.
    """
    given = parser().parse_args(list(words))
    root = checkout()
    files = new_robot(given.name, root, given.model)
    print("\n".join(f"wrote {path.relative_to(root)}" for path in files))
    print(
        f"\nbuild, then train; {files[-1].relative_to(root)} tests the rules:\n"
        f"  {command(f'build {given.name}')}\n"
        f"  {command(f'train env={given.name}')}\n"
        f"  {shlex.quote(str(root / 'run_tests.sh'))} {files[-1].relative_to(root)}"
    )
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast new-robot",
        description="Write the files of your own robot into the checkout: model, rules, recipe, test.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("name", metavar="NAME", help="the robot's name in lower case, e.g. two_link_arm")
    found.add_argument(
        "--model", type=user_path, metavar="FILE", help="MJCF file to copy (default: an arm of two links)"
    )
    return found
