"""`metta-fast new-robot NAME`: the files of a robot of one's own, in the checkout, ready to build and to train.

    metta-fast new-robot arm                      # an arm of two links
    metta-fast new-robot crab --model crab.xml    # an MJCF model that you have

    envs/robot/tasks/NAME.xml   the model          configs/env/NAME.yaml       the recipe: env=NAME
    envs/robot/tasks/NAME.h     the rules          tests/robot/test_NAME.py    their test
    envs/robot/tasks/NAME.py    names, options

The build finds the header by itself. What stands in it is whole: the robot must hold its model's first pose.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError

TEMPLATES = Path(__file__).parent / "templates"
LONGEST = 40
PLACES = {
    "robot_model": "envs/robot/tasks/{}.xml",
    "robot_header": "envs/robot/tasks/{}.h",
    "robot_task": "envs/robot/tasks/{}.py",
    "robot_recipe": "configs/env/{}.yaml",
    "robot_test": "tests/robot/test_{}.py",
}
"""Template → where its text goes."""


def checkout() -> Path:
    """The folder of the checkout that this package runs from.

    Raises:
        UserError: it was installed from a wheel.
    """
    root = Path(__file__).resolve().parents[2]
    if not all(
        (root / part).exists() for part in ("setup.py", "envs/robot/tasks", "configs/env", "tests/robot")
    ):
        raise UserError(
            f"new-robot writes into a checkout, where the robots are built; {root} is an installed copy. Clone "
            "metta_fast, run ./run_ultra_fast.sh --setup-only there, and give the command in that folder as "
            "python -m metta_fast new-robot NAME. (A robot in Python needs none of it: docs/robots.md)"
        )
    return root


def new_robot(name: str, root: Path, model: Path | None = None) -> list[Path]:
    """Write the files of robot `name` below `root`; all of them or none.

    Args:
        model: an MJCF file that is copied; None: the arm of templates/.

    Returns:
        The files written.

    Raises:
        UserError: a name that cannot be or is taken, a model that MuJoCo cannot load or that cannot move.
    """
    _check_name(name)
    texts = {key: (TEMPLATES / f"{key}.txt").read_text() for key in PLACES}
    values = {"name": name, "guard": name.upper()}
    files = {
        root / place.format(name): Template(texts[key]).substitute(values) for key, place in PLACES.items()
    }
    for path in files:
        if path.exists():
            raise UserError(f"the name {name!r} is taken: there is {path.relative_to(root)}; choose another")
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


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > LONGEST or keyword.iskeyword(name):
        raise UserError(
            f"robot name {name!r}: expected a lower-case letter and then such letters, digits and _ "
            f"({LONGEST} at most, no word of Python's), as two_link_arm"
        )


def _read(model: Path) -> str:
    try:
        return model.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--model {model}: cannot be read: {error}") from error


def _check_model(model: Path, copied: Path) -> None:
    """Raises UserError unless MuJoCo loads the copy, and it has something to move."""
    try:
        import mujoco
    except ImportError as error:
        raise UserError("--model needs MuJoCo: pip install 'metta-fast[robots]'") from error
    mujoco.set_mju_user_warning(
        lambda message: print(f"MuJoCo: {message}", file=sys.stderr)
    )  # else to a file
    try:
        loaded = mujoco.MjModel.from_xml_path(str(copied))
    except ValueError as error:
        raise UserError(
            f"--model {model}: MuJoCo cannot load a copy of it in {copied.parent}: {' '.join(str(error).split())} "
            "(meshes and files that it includes must lie there too, or be named by their full path)"
        ) from error
    finally:
        mujoco.set_mju_user_warning(None)
    if loaded.nq == 0 or loaded.nu == 0:
        raise UserError(
            f"--model {model}: it has {loaded.nq} joints and {loaded.nu} actuators: a robot needs both"
        )


def run_new_robot_command(words: Sequence[str]) -> int:
    """The command line; 0."""
    parser = OptionParser(
        prog="metta-fast new-robot",
        description="Write the files of a robot of your own into the checkout: model, rules, recipe, test.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="of the robot: lower case, as two_link_arm")
    parser.add_argument("--model", type=Path, metavar="FILE", help="an MJCF file to copy (default: an arm)")
    given = parser.parse_args(list(words))
    root = checkout()
    files = new_robot(given.name, root, given.model)
    print("\n".join(f"wrote {path.relative_to(root)}" for path in files))
    print(
        f"\nin {root}, build and test, then train:\n"
        "  python setup.py build_ext --inplace\n"
        f"  python -m pytest tests/robot/test_{given.name}.py\n"
        f"  python run_optimized.py env={given.name}"
    )
    return 0
