"""Reads what `env.path=./snake` means: the recipe env=c, the folder's own recipe NAME.yaml, and its name.

Place in the flow: resolve/arguments.py and compose.py call these while they read the command line. Nothing of the
folder is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.storage.user_files import user_path
from metta_fast.storage.user_yaml import check_file

KEY = "env.path"
Values = list[tuple[str, Any]]
Files = list[tuple[str, Any]]


def take_folder(groups: dict[str, Any], values: Values) -> None:
    """Makes the typed folder's path absolute, and chooses the recipe env=c unless another was typed."""
    for i, (name, value) in enumerate(values):
        if name == KEY and isinstance(value, str) and value:
            values[i] = (name, str(user_path(value).resolve()))
            groups.setdefault("env", "c")


def path_name(values: Values) -> str:
    """Returns the name of the folder that was typed."""
    folder = _typed(values)
    return "c" if folder is None else folder.name


def with_recipe(files: Files, values: Values) -> Files:
    """Returns the configuration files with the typed folder's NAME.yaml, which overrides env/c.yaml.

    Raises:
        UserError: it cannot be read, or is no mapping.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    folder = _typed(values)
    names = [name for name, _ in files]
    if folder is None or "env/c" not in names or not (file := folder / f"{folder.name}.yaml").is_file():
        return files
    check_file(file)
    try:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except (OmegaConfBaseException, YAMLError, OSError, UnicodeError) as error:
        raise UserError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(content, Mapping):
        raise UserError(f"{file}: expected 'key: value' lines")
    place = names.index("env/c") + 1
    return [*files[:place], (str(file), content), *files[place:]]


def _typed(values: Values) -> Path | None:
    """Returns the folder that was typed; None for values that are refused later."""
    return next((Path(v) for name, v in reversed(values) if name == KEY and isinstance(v, str) and v), None)
