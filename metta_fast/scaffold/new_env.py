"""`metta-fast new-env NAME`: writes the files of your own environment in C, anywhere, ready to train.

    metta-fast new-env walk                                   # the folder walk
    metta-fast train env.path=./walk trainer.total_timesteps=500_000

    NAME/NAME.h     the rules, in C             NAME/NAME.yaml      its settings
    NAME/NAME.py    observation, actions, …     NAME/test_NAME.py   their test: type pytest in the folder

The rules are compiled when they are first used and again when they change; that needs a C compiler only.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template

from metta_fast.config.option_parser import OptionParser
from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import command, interpreter
from metta_fast.scaffold.names import check_name
from metta_fast.storage.user_files import user_path

TEMPLATES = Path(__file__).parent / "templates"
FILES = {
    "env_header": "{}.h",
    "env_python": "{}.py",
    "env_recipe": "{}.yaml",
    "env_test": "test_{}.py",
}
"""Template → name of the file written from it."""
C_WORDS = frozenset(
    ("auto", "case", "char", "const", "default", "do", "double", "enum", "extern", "float", "goto", "inline", "int",
     "long", "mf", "register", "restrict", "short", "signed", "sizeof", "static", "struct", "switch", "typedef",
     "union", "unsigned", "void", "volatile")
)  # fmt: skip
"""Words that no name in C may be; those of Python are refused as well."""


def new_env(name: str, folder: Path) -> list[Path]:
    """Writes the files of environment `name` to folder/name; all of them or none.

    Returns:
        The files written.

    Raises:
        UserError: the name is invalid or taken, or the folder cannot be written.
    """
    check_name("environment", name, "walk", words="a word of Python or C", more=C_WORDS)
    place = folder / name
    values = {"name": name, "guard": name.upper()}
    texts = {
        place / file.format(name): Template((TEMPLATES / f"{key}.txt").read_text()).substitute(values)
        for key, file in FILES.items()
    }
    try:
        place.mkdir(parents=True)
    except FileExistsError as error:
        raise UserError(
            f"the name {name!r} is taken: {place} exists; choose another name or --dir"
        ) from error
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror}") from error
    try:
        for path, text in texts.items():
            path.write_text(text)
    except BaseException as error:
        shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
        raise
    return list(texts)


def run_new_env_command(words: Sequence[str]) -> int:
    """Runs `metta-fast new-env` and returns 0.

    Raises:
        UserError: see `new_env`.
    """
    given = parser().parse_args(list(words))
    files = new_env(given.name, given.dir)
    place = files[0].parent
    typed = shlex.quote(str(place) if place.is_absolute() else f"./{place}")
    print("\n".join(f"wrote {path}" for path in files))
    print(f"\ntrain; {files[-1].name} tests the rules:")
    print(f"  {command(f'train env.path={typed} trainer.total_timesteps=500_000')}")
    if importlib.util.find_spec("pytest") is not None:
        print(f"  {interpreter()} -m pytest {typed}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast new-env",
        description="Write the files of your own environment in C: rules, description, settings, test.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("name", metavar="NAME", help="the environment's name in lower case, e.g. walk")
    found.add_argument(
        "--dir",
        type=user_path,
        default=Path(),
        metavar="FOLDER",
        help="where to write the folder (default: here)",
    )
    return found
