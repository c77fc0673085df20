"""Finds the YAML files of the groups, in configs/ and in the user's --config-dir, and reads those that were chosen.

Place in the flow: arguments.py asks which options a group has; compose.py reads the chosen ones. Hydra orders the files
by their defaults lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from metta_fast.config.keys import GROUPS
from metta_fast.contracts.errors import UserError
from metta_fast.storage.user_yaml import check_file

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def options(group: str, folders: Sequence[Path] = ()) -> list[str]:
    """Returns the options of a group: the names of its files."""
    return sorted({file.stem for folder in (CONFIGS, *folders) for file in (folder / group).glob("*.yaml")})


def read_files(
    chosen: Mapping[str, Any], folders: Sequence[Path]
) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Returns the files in Hydra's defaults lists, and the option that each group has after them.

    Args:
        chosen: option of each group; of features, a list.
        folders: of the user's, searched after configs/.

    Returns:
        (name, content under its package), lowest priority first; and {group: option}.

    Raises:
        UserError: a file cannot be read, or has the name of a built-in one.
    """
    import yaml
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for folder in folders:
        for file in _config_files(folder):
            check_file(file)
            if (CONFIGS / file.relative_to(folder)).exists():
                raise UserError(f"{file} has the name of a built-in file, which has priority; rename it")
    picks = [
        f"{group}=[{','.join(v)}]" if isinstance(v, list) else f"{group}={v}" for group, v in chosen.items()
    ]
    if folders:
        picks.append("hydra.searchpath=[" + ",".join(f"'file://{folder}'" for folder in folders) + "]")
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            chain = loader.compute_defaults_list("train", picks, RunMode.RUN)
        files = []
        for entry in chain.defaults:
            name = str(entry.config_path)
            if name.startswith("hydra/") or entry.package.startswith("hydra"):
                continue
            path = next(p for p in (folder / f"{name}.yaml" for folder in (CONFIGS, *folders)) if p.exists())
            content = OmegaConf.load(path)
            plain = OmegaConf.to_container(content, resolve=False)
            if not isinstance(plain, dict):
                raise UserError(f"{path}: expected 'key: value' lines")
            plain.pop("defaults", None)
            if not plain:
                continue
            for part in reversed(entry.package.split(".") if entry.package else []):
                plain = {part: plain}
            files.append((name, plain))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, UnicodeError) as error:
        raise UserError(f"a configuration file cannot be read: {first_line(error)}") from None
    except RecursionError:
        raise UserError(
            f"the defaults of {', '.join(picks)} lead back to themselves; remove the circle from the files' defaults"
        ) from None
    groups = {
        k: ",".join(v) if isinstance(v, list) else str(v)
        for k, v in chain.overrides.known_choices.items()
        if k in GROUPS and v
    }
    return files, groups


def _config_files(folder: Path) -> list[Path]:
    """Returns the files of the groups in a folder of the user's. Raises UserError: a folder cannot be read."""
    try:
        return [file for group in GROUPS if (folder / group).is_dir() for file in _yaml_files(folder / group)]
    except OSError as error:
        raise UserError(
            f"--config-dir {folder}: {error.filename} cannot be read: {error.strerror}"
        ) from error


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".yaml")


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted path, value) of every leaf; an empty dict is a leaf."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path + ".")
        else:
            yield path, value


def first_line(error: Exception) -> str:
    """Returns the first two lines of an error of Hydra's or OmegaConf's, joined."""
    return " ".join(str(error).split("\n")[:2]).strip()
