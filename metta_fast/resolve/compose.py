"""Composes `key=value` arguments and configs/**.yaml into one typed Config, each value with its origin.

    defaults (schema.py) < hardware profile < env and policy recipe < command line

A recipe's section `on_gpu` waits for resolve.py (recipe_on_gpu.py). For an environment that is not ours, resolve.py
puts derived values among these (derived/defaults.py).

    words ─► arguments.py ─► config_files.py ─► compose.py ─► Composed

Hydra parses the arguments, then chooses and orders the files. Nothing is written and the working folder does not
change. For your own profiles and recipes: `--config-dir DIR`, where DIR has hardware/, env/, policy/… like configs/.
hydra and omegaconf are imported only in these three files, inside functions; torch never is.

    python run_optimized.py hardware=cpu env=grid_solo trainer.total_timesteps=1e6 --explain
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metta_fast.config.gymnasium_id import folder_name
from metta_fast.config.keys import (
    LEAF_KINDS,
    Config,
    check_value,
    config_from_dict,
    config_to_dict,
    find_key,
    keys,
    path_parts,
)
from metta_fast.config.trust import NOTHING, Given, check_code, code_named
from metta_fast.contracts.errors import UserError
from metta_fast.envs import is_ours
from metta_fast.machine import hardware
from metta_fast.resolve import choose_profile as profiles
from metta_fast.resolve.arguments import parse
from metta_fast.resolve.config_files import first_line, leaves, read_files
from metta_fast.resolve.recipe_on_gpu import OnGpu, split
from metta_fast.storage.env_folder import path_name, with_recipe

COMMAND_LINE = "command line"
DEFAULT = "default"
DERIVED = "derived: "
"""Start of the origin of a derived value (derived/defaults.py)."""
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
    on_gpu: OnGpu = field(default_factory=OnGpu)
    """Values that hold where the environments step on the GPU."""
    horizon: tuple[str, int] | None = None
    """(as typed, steps of each agent in a batch), which resolve.py makes a batch of."""
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
    arguments = parse(list(overrides))
    chosen = {"hardware": default_hardware} | arguments.groups
    profile_typed = arguments.groups.get("hardware", "auto") != "auto"
    notes = list(arguments.notes)
    scaled: dict[str, tuple[Any, str]] = {}
    if chosen["hardware"] == "auto":
        machine = machine or hardware.detect()
        pick = profiles.choose_profile(machine)
        chosen["hardware"] = pick.profile
        scaled = pick.values
        notes.append(f"hardware=auto: {pick.reason}")
        notes += machine.notes
    files, groups = read_files(chosen, arguments.folders)
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

    on_gpu = OnGpu()
    for name, content in files:
        of_the_env = name.startswith(("env/", "/"))  # a recipe, or that of env.path's folder
        has_section = of_the_env or name.startswith("algorithm/")
        values, section = split(content) if has_section else (content, None)
        for path, value in leaves(values):
            give(path, value, f"{name}: ", name)
            if name.startswith("hardware/"):
                from_profile[path] = name
            if not of_the_env:
                on_gpu.drop(path)
        if section is not None:
            on_gpu.add(section, name)
        if name.startswith("hardware/"):
            for path, (value, why) in scaled.items():
                give(path, value, "", f"auto: {why}")
    for path, value in arguments.values:
        several = path + "." == LEAF_KINDS and isinstance(value, Mapping) and value
        for name, item in value.items() if several else [("", value)]:
            give(f"{LEAF_KINDS}{name}" if several else path, item, "", COMMAND_LINE)
        on_gpu.drop(path)
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
        raise UserError(f"a ${{…}} reference cannot be resolved: {first_line(error)}") from None
    _check(plain, origins)
    config = config_from_dict(plain)
    if "hardware" not in arguments.groups and default_hardware != "auto" and not is_ours(config.env):
        machine = machine or hardware.detect()
        if not machine.gpus:
            return compose(overrides, default_hardware="auto", machine=machine)
    groups |= arguments.named
    on_gpu = on_gpu.closed(origins)
    return Composed(
        config, origins, groups, notes, machine, profile_typed, from_profile, on_gpu, arguments.horizon
    )


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
