"""Composes `key=value` arguments and configs/**.yaml into one typed Config, each value with its origin.

    defaults (schema.py) < hardware profile < env and policy recipe < command line

For an environment that is not ours, resolve.py puts derived values among these (derived_defaults.py).

Hydra parses the arguments, then chooses and orders the files. Nothing is written and the working folder does not
change. For your own profiles and recipes: `--config-dir DIR`, where DIR has hardware/, env/, policy/… like configs/.
hydra and omegaconf are imported only here, inside functions; torch never is.

    python run_optimized.py hardware=cpu env=grid_solo trainer.total_timesteps=1e6 --explain
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metta_fast.config.extension import ALGORITHMS, ENVS, FEATURES, POLICIES, entry_point_names
from metta_fast.config.gymnasium_id import folder_name, is_gymnasium_id, recipe_of
from metta_fast.config.keys import (
    GROUPS,
    LEAF_KINDS,
    Config,
    check_value,
    config_from_dict,
    config_to_dict,
    find_key,
    keys,
    nearest,
    path_parts,
    shown,
)
from metta_fast.config.trust import NOTHING, Given, check_code, code_named
from metta_fast.contracts.errors import UserError
from metta_fast.envs import is_ours
from metta_fast.machine import hardware
from metta_fast.resolve import choose_profile as profiles
from metta_fast.storage.env_folder import path_name, take_folder, with_recipe
from metta_fast.storage.user_files import is_folder, user_path
from metta_fast.storage.user_yaml import MOST_DEPTH, check_file

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
COMMAND_LINE = "command line"
DEFAULT = "default"
DERIVED = "derived: "
"""Start of the origin of a derived value (derived_defaults.py)."""
OWN = {
    "env": ", an id of Gymnasium such as CartPole-v1, or your own as package.module:function",
    "policy": ", or your own as package.module:Class",
    "algorithm": ", or your own as package.module:Kind",
    "features": ", or your own as package.module:function",
}
"""Text that messages add to the names of a group."""
NAMED, NAMED_BY_ID = "named after env.factory", "named after env.id"
NAMED_BY_FACTORY = ("custom", "pufferlib")
"""Recipes whose environment is named after env.factory."""
NAMED_BY_PATH = "the name of env.path's folder"
"""Origins of env.name for a user's own environment, one of Gymnasium's registry, and one in C."""
MAKERS = (
    "make",
    "make_env",
    "make_environment",
    "create",
    "create_env",
    "build",
    "get_env",
    "env",
    "factory",
)
"""Names of functions that say nothing of the environment."""
ENTRY_POINTS = {"env": ENVS, "policy": POLICIES, "algorithm": ALGORITHMS, "features": FEATURES}


@dataclass
class Composed:
    """Holds a configuration from files and arguments, before values are checked against each other."""

    config: Config
    """The typed configuration; values may still be `auto`."""
    origins: dict[str, str]
    """Where each leaf comes from: default, hardware/ultra_fast, env/grid, command line, or auto: why."""
    groups: dict[str, str]
    """The chosen option of each group, e.g. {"hardware": "cpu", "env": "grid"}."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user: the profile chosen by hardware=auto, and why."""
    machine: hardware.Machine | None = None
    """The machine, if it was inspected (hardware=auto)."""
    profile_typed: bool = True
    """False: the profile was chosen by hardware=auto, or is the program's default."""
    from_profile: Mapping[str, str] = field(default_factory=dict)
    """Keys that the profile gave → its file, also if another source has overridden the value."""
    given: Given = NOTHING
    """Whether code that another run names is trusted (resume=, init_from=)."""

    def typed(self, path: str) -> bool:
        """Returns whether the user typed this key."""
        return self.origins.get(path) == COMMAND_LINE

    def check_code(self, config: Config, meta: Mapping[str, Any], run: Path) -> None:
        """Raises UserError if `config` names code that may not be imported (metta_fast/config/trust.py).

        Code that this configuration, which comes from the command alone, names as well may be.

        Args:
            config: with keys of a run.
            meta: of the run's checkpoint.
            run: its folder, for the message.
        """
        own = code_named(config_to_dict(self.config))
        given = replace(self.given, typed=frozenset(own))
        check_code(code_named(config_to_dict(config)), meta, run, given)


@dataclass
class _Arguments:
    groups: dict[str, Any]
    values: list[tuple[str, Any]]
    folders: list[Path]
    named: dict[str, str] = field(default_factory=dict)
    """Choices that are not files of configs/: the user's own, by group."""


def compose(
    overrides: Sequence[str], *, default_hardware: str = "ultra_fast", machine: hardware.Machine | None = None
) -> Composed:
    """Composes the configuration.

    Args:
        overrides: `key=value` and `group=option` arguments, and `--config-dir DIR`.
        default_hardware: the profile to use without `hardware=`. On a machine without a GPU, an environment that is not
            ours gets the profile of the machine (hardware=auto) instead.
        machine: the machine for hardware=auto; None: inspect this one.

    Raises:
        UserError: malformed argument, unknown key, group option or file, wrong type.
    """
    arguments = _parse(list(overrides))
    chosen = {"hardware": default_hardware} | arguments.groups
    profile_typed = arguments.groups.get("hardware", "auto") != "auto"
    notes: list[str] = []
    scaled: dict[str, tuple[Any, str]] = {}
    if chosen["hardware"] == "auto":
        machine = machine or hardware.detect()
        pick = profiles.choose_profile(machine)
        chosen["hardware"] = pick.profile
        scaled = pick.values
        notes.append(f"hardware=auto: {pick.reason}")
        notes += machine.notes
    files, groups = _files(chosen, arguments.folders)
    files = with_recipe(files, arguments.values)

    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    merged = OmegaConf.create(config_to_dict(Config()))
    origins = dict.fromkeys(keys(), DEFAULT)
    from_profile: dict[str, str] = {}

    def give(path: str, value: Any, where: str, origin: str) -> None:
        if find_key(path, where).kind == "named" and path in keys() and isinstance(value, str):
            path += ".name"
        if path.startswith(LEAF_KINDS):  # a leaf's name may hold dots and brackets
            kinds = {**merged.env.leaf_kinds, path.removeprefix(LEAF_KINDS): value}
            OmegaConf.update(merged, "env.leaf_kinds", kinds, merge=False)
        else:
            place = ".".join(f"[{part}]" if "." in part else part for part in path_parts(path))
            OmegaConf.update(merged, place.replace(".[", "["), value, merge=False, force_add=True)
        for known in [
            known for known in origins if known.startswith(path + ".") or path.startswith(known + ".")
        ]:
            del origins[known]
        origins[path] = origin

    for name, values in files:
        for path, value in _leaves(values):
            give(path, value, f"{name}: ", name)
            if name.startswith("hardware/"):
                from_profile[path] = name
        if name.startswith("hardware/"):
            for path, (value, why) in scaled.items():
                give(path, value, "", f"auto: {why}")
    for path, value in arguments.values:
        several = path + "." == LEAF_KINDS and isinstance(value, Mapping) and value
        for name, item in value.items() if several else [("", value)]:
            give(f"{LEAF_KINDS}{name}" if several else path, item, "", COMMAND_LINE)
    if groups.get("env") in NAMED_BY_FACTORY and origins["env.name"] == f"env/{groups['env']}":
        factories = [value for path, value in arguments.values if path == "env.factory"]
        if factories and isinstance(factories[-1], str):
            give("env.name", own_name(factories[-1]), "", NAMED)
    if groups.get("env") == "c" and origins["env.name"] == "env/c":
        give("env.name", path_name(arguments.values), "", NAMED_BY_PATH)
    if origins["env.name"] == f"env/{groups.get('env')}" and isinstance(merged.env.get("id"), str):
        give("env.name", folder_name(merged.env.id), "", NAMED_BY_ID)
    try:
        plain: Any = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(f"a ${{…}} reference cannot be resolved: {_first_line(error)}") from None
    _check(plain, origins)
    config = config_from_dict(plain)
    if "hardware" not in arguments.groups and default_hardware != "auto" and not is_ours(config.env):
        machine = machine or hardware.detect()
        if not machine.gpus:
            return compose(overrides, default_hardware="auto", machine=machine)
    return Composed(config, origins, groups | arguments.named, notes, machine, profile_typed, from_profile)


def own_name(factory: str) -> str:
    """Returns the name of a user's own environment: its module's, with the function's unless that is `make` or such.

    A script's is the file's name; an installed package's is the entry point's.
    """
    module, colon, function = factory.rpartition(":")
    if not colon:
        return factory
    last = module.rpartition(".")[2]
    if last == "__main__":
        file = getattr(sys.modules.get("__main__"), "__file__", None)
        last = Path(file).stem if file else ""
    return last if last and function in MAKERS else "-".join(filter(None, (last, function)))


def options(group: str, folders: Sequence[Path] = ()) -> list[str]:
    """Returns the options of a group: the names of its files."""
    return sorted({file.stem for folder in (CONFIGS, *folders) for file in (folder / group).glob("*.yaml")})


def _check(plain: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    """Checks types and ranges of all values; an error names the file of the value."""
    for path in origins:
        node: Any = plain
        for part in path_parts(path):
            node = node[part]
        if node == "???":
            raise UserError(f"{path} has no value in {origins[path]}; give it one, {path}=…")
        if path in keys():
            where = "" if origins[path] in (COMMAND_LINE, DEFAULT) else f"{origins[path]}: "
            check_value(path, node, where)


def _parse(arguments: list[str]) -> _Arguments:
    """Splits arguments into group choices, values and --config-dir folders."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    found = _Arguments({}, [], [])
    words: list[str] = []
    queue = iter(arguments)
    for word in queue:
        name, _, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            folder = user_path(value or next(queue, ""))
            if not (value or folder.name) or not is_folder(folder):
                raise UserError(
                    f"--config-dir: '{folder}' is not a folder; give one that holds env/, hardware/, …"
                )
            found.folders.append(folder.resolve())
        elif word.startswith("-"):
            known = ("--help", "--explain", "--cfg", "--config-dir", "--trust")
            guess = nearest(name, known)
            hint = f"did you mean '{guess}'?" if guess else "known: " + ", ".join(known)
            raise UserError(f"unknown option '{word}'; {hint}")
        else:
            words.append(word)
    parser = OverridesParser.create()
    for word in words:
        if "=" not in word or word.startswith(("=", "~")):
            raise UserError(_not_an_assignment(word, found.folders))
        name, _, value = word.partition("=")
        own = name if _has_own_name(name) else None
        try:
            override = parser.parse_override(f"features={value}" if own else _guarded(word))
        except (HydraException, ValueError, RecursionError):  # Hydra's parser raises the others itself
            raise UserError(
                f"malformed argument '{word}'; a value with special characters goes in quotes: "
                f"'{name}=\"{value}\"'"
            ) from None
        name = own or override.key_or_group
        if override.is_sweep_override():
            hint = "" if name in GROUPS else f"; a list is written {name}=[a,b]"
            raise UserError(f"'{word}' gives several values, but a run takes one{hint}")
        if name.split(".")[0] == "hydra":
            raise UserError(f"'{word}': Hydra's own keys have no effect here; runs are written to run.dir")
        given = _unguarded(override.value())
        if _depth(given) > MOST_DEPTH:
            raise UserError(f"'{word}': its values are nested more than {MOST_DEPTH} deep")
        if name in GROUPS and override.package is None:
            _choose(name, given, found)
        else:
            found.values.append((name, given))
    take_folder(found.groups, found.values)
    return found


GUARD = "@@"
"""Placeholder for the colon of a feature's module:name: Hydra's grammar allows no colon in a dict's keys."""


def _guarded(word: str) -> str:
    """Returns the argument `features={my_module:add: …}` with GUARD in place of the first of the two colons."""
    if not word.startswith("features="):
        return word
    return re.sub(r"""(['"]?)([A-Za-z_][\w.]*):([A-Za-z_]\w*)\1(?=\s*:)""", rf"\2{GUARD}\3", word)


def _unguarded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name.replace(GUARD, ":") if isinstance(name, str) else name: _unguarded(item)
            for name, item in value.items()
        }
    return value


def _has_own_name(path: str) -> bool:
    """Returns whether a path ends with a name of the user's that Hydra's grammar may not allow in a key."""
    return path.startswith(LEAF_KINDS) or (path.startswith("features.") and ":" in path)


def _depth(value: Any) -> int:
    """Returns how deep lists and dicts are nested."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inside), default=0)


def _is_own(group: str, name: object, found: _Arguments) -> bool:
    """Returns whether a group's choice is user code (module:name, or a policy's package.module.Class) or an installed
    package's entry point, rather than a file."""
    if not isinstance(name, str) or group not in ENTRY_POINTS:
        return False
    if group == "env" and _is_id(name, found):
        return False
    if ":" in name or (group == "policy" and "." in name):
        return True
    return name not in options(group, found.folders) and name in entry_point_names(ENTRY_POINTS[group])


def _is_id(name: str, found: _Arguments) -> bool:
    """Returns whether `env=name` is an id of Gymnasium. A recipe of this name, or an installed package's entry point,
    comes first."""
    return (
        is_gymnasium_id(name)
        and name not in options("env", found.folders)
        and name not in entry_point_names(ENVS)
    )


def _choose(group: str, value: Any, found: _Arguments) -> None:
    """Adds a group's choice: a file, or the values that select user code (typed values override them)."""
    if isinstance(value, Mapping):
        found.values += _leaves({group: value})
        return
    several = group == "features" and (value is None or isinstance(value, list))
    choices = list(value or []) if several else [value]
    own = [choice for choice in choices if _is_own(group, choice, found)]
    if own and group == "policy":
        found.values.insert(0, ("policy.name", value))
        return
    if own and group == "algorithm":
        found.named[group] = value
        found.values.insert(0, ("algorithm.name", value))
        return
    if own and group == "env":
        found.groups["env"] = "custom"
        found.values[:0] = [("env.factory", value)]
        return
    if group == "env" and isinstance(value, str) and _is_id(value, found):
        found.groups["env"] = recipe_of(value)
        found.values[:0] = [("env.id", value)]
        return
    found.values[:0] = [(f"features.{name}", {}) for name in own]
    choices = [choice for choice in choices if choice not in own]
    known = options(group, found.folders)
    if group == "hardware":
        known = sorted({*known, "auto"})
    for choice in choices:
        if choice not in known:
            guess = nearest(str(choice), [*known, *_ids(choice)] if group == "env" else known)
            raise UserError(
                f"unknown {group} '{shown(choice)}'"
                + (f"; did you mean '{group}={guess}'?" if guess else ";")
                + f" known: {', '.join(known) or 'none'}{OWN.get(group, '')}"
            )
    found.groups[group] = choices if group == "features" else value


def _ids(choice: object) -> list[str]:
    """Returns the ids of Gymnasium's registry, for `did you mean`: of `env=CartPole` only the versions of CartPole."""
    import gymnasium

    return [name for name in gymnasium.registry if name.rpartition("-v")[0].lower() == str(choice).lower()][
        -1:
    ]


def _not_an_assignment(word: str, folders: Sequence[Path]) -> str:
    if word.startswith("~"):
        return f"'{word}': a key cannot be removed; give it another value, key=value"
    for group in GROUPS:
        if word in options(group, folders):
            return f"'{word}' is not key=value; did you mean '{group}={word}'?"
    example = f"{word}=…" if word in (*keys(), *GROUPS) else "env.num_envs=512"
    return f"'{word}' is not key=value; write for example '{example}'"


def _files(
    chosen: Mapping[str, Any], folders: Sequence[Path]
) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Returns the files in Hydra's defaults lists, lowest priority first, as (name, content under its package)."""
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
        raise UserError(f"a configuration file cannot be read: {_first_line(error)}") from None
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


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (dotted path, value) of every leaf; an empty dict is a leaf."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, path + ".")
        else:
            yield path, value


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split("\n")[:2]).strip()
