"""Lists the libraries that we compare with: whether they are installed, and the command that installs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """A library that may be installed."""

    name: str
    module: str
    """Name in an import statement."""
    packages: tuple[str, ...]
    """Names of the packages that provide it."""
    install: str
    """Command that installs it."""

    def version(self) -> str:
        """Returns the installed version, or "" if it is not installed."""
        if importlib.util.find_spec(self.module) is None:
            return ""
        for package in self.packages:
            try:
                return importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        return "of unknown version"

    def absent(self, why: str = "not installed") -> str:
        """Returns a note that it could not be measured, with the command that installs it."""
        return f"absent: {self.name}: {why} ({self.install})"


ENVPOOL = Library("EnvPool", "envpool", ("envpool",), "pip install envpool")
MUJOCO = Library("MuJoCo", "mujoco", ("mujoco",), "pip install 'metta-fast[robots]'")
GYMNASIUM = Library("Gymnasium", "gymnasium", ("gymnasium",), "pip install gymnasium")
SB3 = Library(
    "Stable-Baselines3", "stable_baselines3", ("stable-baselines3",), "pip install stable-baselines3"
)
PUFFERLIB = Library(
    "PufferLib",
    "pufferlib",
    ("pufferlib-core", "pufferlib"),
    "pip install --no-deps pufferlib-core pyro-ppl pyro-api opt-einsum tqdm rich-argparse",
)
"""Installed without dependencies, since its wheel pins a torch version; its kernel loads only with torch for CUDA."""
