"""Other libraries that parts are measured beside: whether they are there, and the command that installs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """A library by the name that it is imported by."""

    name: str
    module: str
    packages: tuple[str, ...]
    """What it may be installed as."""
    install: str

    def version(self) -> str:
        """The installed version, "" if it is not there."""
        if importlib.util.find_spec(self.module) is None:
            return ""
        for package in self.packages:
            try:
                return importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        return "of unknown version"

    def absent(self, why: str = "not installed") -> str:
        """A note that it could not be measured, with what to do."""
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
"""Its wheel pins a torch of its own; its kernel loads beside torch for CUDA only."""
