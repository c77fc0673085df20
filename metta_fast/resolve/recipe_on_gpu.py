"""Reads a recipe's section `on_gpu`: the values that hold where its environments step on the GPU.

    on_gpu:
      env: {num_envs: 4096}
      trainer: {batch_size: 65536}

    env and algorithm recipes ─► split ─► OnGpu ◄─ drop (policy and algorithm recipes, command line: they win)
                                           │
                                           └─► resolve.py gives them where env.device is cuda, typed or chosen by auto

They win over the plain values of all environment recipes and their own file's, because those are for the CPU; among
sections a later file wins. Place in the flow: compose.py collects them, resolve.py decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from metta_fast.config.keys import Config, check_value, config_from_dict, config_to_dict, find_key, put
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.config_files import leaves

SECTION = "on_gpu"
NOT_HERE = ("env.name", "env.factory", "env.device", "env.agents_per_env", "resume", "init_from")
"""Keys that say which environments these are, and where they step."""


@dataclass
class OnGpu:
    """Holds the values by key: (value, where it comes from, the origin of the value that it replaces)."""

    values: dict[str, tuple[Any, str, str]] = field(default_factory=dict)

    def add(self, section: Any, file: str) -> None:
        """Adds a file's section.

        Raises:
            UserError: no mapping, an unknown key or a wrong value, or a key that a section cannot set.
        """
        where = f"{file}: {SECTION}: "
        if not isinstance(section, Mapping):
            raise UserError(f"{where}expected 'key: value' lines, as in a recipe")
        for path, value in leaves(section):
            find_key(path, where)
            if path in NOT_HERE:
                raise UserError(f"{where}{path} cannot be set here; set it in the recipe itself")
            self.drop(path)
            self.values[path] = check_value(path, value, where), f"{file}, {SECTION}", ""

    def drop(self, path: str) -> None:
        """Removes what a source of a higher priority sets."""
        for known in list(self.values):
            if known == path or known.startswith(path + ".") or path.startswith(known + "."):
                del self.values[known]

    def closed(self, origins: Mapping[str, str]) -> OnGpu:
        """Returns them with the origins of the values that they replace."""
        return OnGpu(
            {path: (value, file, origins.get(path, "")) for path, (value, file, _) in self.values.items()}
        )

    def given(self, config: Config, origins: Mapping[str, str]) -> tuple[Config, dict[str, str]]:
        """Returns a configuration and its origins with these values, except where another value has come since (that of
        a policy which a run begins with)."""
        config, origins = config_from_dict(config_to_dict(config)), dict(origins)
        for path, (value, file, before) in self.values.items():
            if origins.get(path, "") == before:
                put(config, path, value)
                origins[path] = file
        return config, origins


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns a file's plain values, and its section or None."""
    plain = {name: value for name, value in values.items() if name != SECTION}
    return plain, values.get(SECTION)
