"""The registry of fast paths: which plain path each replaces, and why a run cannot use it.

    C_ROLLOUT = register(FastPath("rollout in C", replaces="…", why_not=why_not, test="tests/…::test_…"))

    paths = choose(PATHS, Situation(policy, config, spec, device))     # once, when an algorithm is built
    paths.uses(C_ROLLOUT)                                              # asked where the path would be taken
    paths.choices                                                      # for train.log, --explain and the dashboard

A path is registered by the module that chooses it or implements it; an algorithm lists those that it can take. Each has
a differential test against the plain path, which tests/test_fast_paths.py looks for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from metta_fast.config.keys import Config, TrainerConfig
from metta_fast.contracts.algorithm import Choice
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import VectorEnv


@dataclass(frozen=True)
class Situation:
    """The run for which paths are chosen."""

    policy: nn.Module
    config: Config
    """Resolved: no value is `auto`."""
    spec: EnvSpec
    device: torch.device
    """Of the policy."""
    extra_loss: bool = False
    """A feature adds to the loss."""
    chooses_segments: bool = False
    """A feature chooses the segments of each minibatch."""
    vec: VectorEnv | None = None
    """None: not made yet (--explain)."""

    @property
    def trainer(self) -> TrainerConfig:
        return self.config.trainer

    @property
    def on_gpu(self) -> bool:
        """The policy is on a GPU."""
        return self.device.type == "cuda"

    @property
    def envs_on_gpu(self) -> bool:
        """Environments step on the policy's GPU, and no vector of the CPU's is between them."""
        return self.config.vector.backend == "gpu"

    @property
    def graphs(self) -> bool:
        """CUDA graphs of our own."""
        return self.trainer.cuda_graphs is True

    @property
    def offloaded(self) -> bool:
        """The rollout's buffers are in host memory."""
        return self.on_gpu and self.trainer.cpu_offload


Why = Callable[[Situation], str | None]


@dataclass(frozen=True)
class FastPath:
    """A quicker way to compute what a plain path computes."""

    name: str
    replaces: str
    """The plain path."""
    why_not: Why
    """Returns why the run cannot use it, which costs speed, or None."""
    test: str
    """The differential test against the plain path, as pytest names it: `tests/…/test_x.py::test_y`."""
    unneeded: Why = lambda _: None
    """Returns why the run has no use for it, which costs nothing, or None. Asked before `why_not`."""
    modules: tuple[str, ...] = ()
    """The modules that choose or implement it, besides that of `why_not`."""


REGISTRY: dict[str, FastPath] = {}
"""All registered paths by name."""


def register(path: FastPath) -> FastPath:
    """Adds a path to the registry.

    Raises:
        ValueError: another path has its name, or it names no test.
    """
    if REGISTRY.get(path.name, path) != path:
        raise ValueError(f"two fast paths are named {path.name!r}: choose another name")
    if "::" not in path.test:
        raise ValueError(
            f"fast path {path.name!r} has test={path.test!r}: expected tests/…/test_x.py::test_y"
        )
    REGISTRY[path.name] = path
    return path


class FastPaths:
    """The paths that a run takes."""

    def __init__(self, choices: Iterable[Choice] = ()) -> None:
        self.choices = list(choices)
        self._used = {choice.name for choice in self.choices if choice.why is None}

    def uses(self, path: FastPath) -> bool:
        return path.name in self._used

    def missed(self, *paths: FastPath) -> str | None:
        """Returns why the first of these that is left out at a cost is left out, or None."""
        names = {path.name for path in paths}
        return next((c.why for c in self.choices if c.name in names and c.costs_speed), None)


def choose(paths: Iterable[FastPath], situation: Situation) -> FastPaths:
    """Decides on each of the paths."""
    return FastPaths(_choice(path, situation) for path in paths)


def _choice(path: FastPath, situation: Situation) -> Choice:
    choice = Choice(path.name, path.replaces, path.unneeded(situation))
    if choice.why is None:
        why = path.why_not(situation)
        choice = replace(choice, why=why, costs_speed=why is not None)
    return choice


# ---- reasons that several paths share ----


def only_on_gpu(situation: Situation) -> str | None:
    return None if situation.on_gpu else "it needs a GPU (trainer.device=cpu)"


def only_on_cpu(situation: Situation) -> str | None:
    return "it is for a policy on the CPU (trainer.device=cuda)" if situation.on_gpu else None


def without_triton(_: Situation) -> str | None:
    return None if importlib.util.find_spec("triton") else "Triton is not installed"


def no_graphs(situation: Situation) -> str | None:
    return None if situation.graphs else "trainer.cuda_graphs=false"


def action_masks(situation: Situation) -> str | None:
    return "the environment gives action masks" if situation.spec.action_mask else None


def other_optimizer(situation: Situation) -> str | None:
    optimizer = situation.trainer.optimizer
    return None if optimizer == "adam" else f"trainer.optimizer={optimizer} is stepped by torch's operators"


def random_shift(situation: Situation) -> str | None:
    pixels = situation.trainer.random_shift
    return f"trainer.random_shift={pixels} has a loss of its own" if pixels else None


def missed(choices: Iterable[Choice]) -> list[str]:
    """Returns `names: reason` of the paths whose absence costs speed, those with one reason together."""
    return [f"{names}: {why}" for why, names in _by_reason(choices, costs_speed=True)]


def in_words(choices: Iterable[Choice]) -> list[str]:
    """Returns the lines of a log: the paths in use, then those that are not, with the reasons."""
    choices = list(choices)
    used = [choice.name for choice in choices if choice.why is None]
    return [
        f"fast paths: {', '.join(used) or 'none'}",
        *(f"slower without {line}" for line in missed(choices)),
        *(f"not needed: {names}: {why}" for why, names in _by_reason(choices, costs_speed=False)),
    ]


def _by_reason(choices: Iterable[Choice], *, costs_speed: bool) -> list[tuple[str, str]]:
    """Returns (reason, names) of the paths that are not used."""
    found: dict[str, list[str]] = {}
    for choice in choices:
        if choice.why is not None and choice.costs_speed == costs_speed:
            found.setdefault(choice.why, []).append(choice.name)
    return [(why, ", ".join(names)) for why, names in found.items()]
