"""Lists the libraries that we compare with: whether they are installed, and the command that installs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

from metta_fast.machine.installation import install_extra, install_packages


@dataclass(frozen=True)
class Library:
    """A library that may be installed."""

    name: str
    module: str
    """Name in an import statement."""
    packages: tuple[str, ...]
    """Names of the packages that provide it."""
    needed: tuple[str, ...] = ()
    """What pip is given to install it; empty: the first of `packages`."""
    extra: str = ""
    """Extra of pyproject.toml that brings it; "": none."""

    @property
    def install(self) -> str:
        """The command that installs it."""
        if self.extra:
            return install_extra(self.extra)
        return install_packages(*(self.needed or self.packages[:1]))

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


ENVPOOL = Library("EnvPool", "envpool", ("envpool",))
MUJOCO = Library("MuJoCo", "mujoco", ("mujoco",), extra="robots")
GYMNASIUM = Library("Gymnasium", "gymnasium", ("gymnasium",))
SB3 = Library("Stable-Baselines3", "stable_baselines3", ("stable-baselines3",))
PUFFERLIB = Library(
    "PufferLib",
    "pufferlib",
    ("pufferlib-core", "pufferlib"),
    needed=(
        *("--no-deps", "pufferlib-core"),
        *("pyro-ppl", "pyro-api", "opt-einsum", "tqdm", "rich-argparse"),
    ),
)
"""Installed without dependencies, since its wheel pins a torch version; its kernel loads only with torch for CUDA."""
