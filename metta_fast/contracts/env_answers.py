"""Asks a factory for what only some environments have, so that general code names no environment.

    player = scripted_player(factory)          # None: this environment has none

A factory answers by a method of the same name, without arguments; for one that lacks it the default below holds.
Place in the flow: evaluation, recorded episodes, the viewer, resolve and benchmarks ask; envs/grid and envs/robot
answer. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.player import Player
from metta_fast.contracts.vector import VectorEnv

T = TypeVar("T")


class Window(Protocol):
    """An open window."""

    def close(self) -> None:
        """Closes it; may be called twice."""


class Viewer(Protocol):
    """A window on one environment while a run trains (env.show_viewer=true)."""

    def check(self) -> None:
        """Raises UserError if this machine cannot open the window."""

    def open(self, vec: VectorEnv) -> Window:
        """Opens the window on the first environment of `vec`, whose batches are in this process."""
        ...


def scripted_player(factory: EnvFactory) -> Player | None:
    """Returns a player that follows hand-written rules; None if the environment has none.

    Raises:
        UserError: it has one, but not for this configuration.
    """
    return _ask(factory, "scripted_player", None)


def viewer(factory: EnvFactory) -> Viewer | None:
    """Returns the environment's own viewer; None if it has none."""
    return _ask(factory, "viewer", None)


def observations(factory: EnvFactory) -> tuple[str, ...]:
    """Returns the values of env.observation that the environment knows; none if it has one observation only."""
    return _ask(factory, "observations", ())


def unseen(factory: EnvFactory) -> str:
    """Returns what an evaluation's seeds change: "unseen maps"; by default "episodes"."""
    return _ask(factory, "unseen", "episodes")


def has_state(factory: EnvFactory) -> bool:
    """Returns whether the environments' state can be saved and loaded exactly; True unless the factory denies it."""
    return _ask(factory, "has_state", True)


def fixed_num_envs(factory: EnvFactory) -> int:
    """Returns the number of environments that a batched environment was made with; 0: any number can be made."""
    return _ask(factory, "fixed_num_envs", 0)


def tensors_device(factory: EnvFactory) -> str:
    """Returns the type of the device that an environment's tensors are on, cpu or cuda; "": it has none of its own."""
    return _ask(factory, "tensors_device", "")


def gpu_obstacle(factory: EnvFactory) -> tuple[str, str] | None:
    """Returns why environments with EnvSpec.gpu still cannot step on the GPU, and the cure; None if they can."""
    return _ask(factory, "gpu_obstacle", None)


def gpu_bytes(factory: EnvFactory) -> tuple[int, int]:
    """Returns what environments take of a GPU's memory beside EnvSpec.state_bytes: (once, for each environment)."""
    return _ask(factory, "gpu_bytes", (0, 0))


def gpu_only_if_asked(factory: EnvFactory) -> str:
    """Returns why env.device=auto does not choose the GPU for environments that can step there; "": it does."""
    return _ask(factory, "gpu_only_if_asked", "")


def has_gpu_states(factory: EnvFactory) -> bool:
    """Returns whether states of environments on the GPU are of another form than those on the CPU."""
    return _ask(factory, "has_gpu_states", False)


def gpu_keys(factory: EnvFactory) -> tuple[str, ...]:
    """Returns keys ("env.params.preset") that were given and have an effect only on the GPU."""
    return _ask(factory, "gpu_keys", ())


def unread_keys(factory: EnvFactory) -> frozenset[str]:
    """Returns keys ("env.max_steps", "env.params.goal") that the user's function was given and certainly does not
    read."""
    found: frozenset[str] = getattr(factory, "unread_keys", frozenset())
    return found if isinstance(found, frozenset) else frozenset()


def rules_digest(factory: EnvFactory) -> str | None:
    """Returns a digest of rules that a user may edit; a checkpoint's states of environments fit only the same rules.
    None: there are no such rules."""
    return _ask(factory, "rules_digest", None)


def advice(factory: EnvFactory) -> str:
    """Returns a sentence for the user before training, on a better form of this environment; "" if there is none."""
    found = getattr(factory, "advice", "")
    return found if isinstance(found, str) else ""


def differences(factory: EnvFactory) -> list[str]:
    """Returns how environments differ from each other by their configuration, in words: the ranges of what is drawn."""
    return _ask(factory, "differences", [])


def gymnasium_id(factory: EnvFactory) -> str:
    """Returns the name of the same environment in Gymnasium's registry; "" if it is not there."""
    return _ask(factory, "gymnasium_id", "")


def as_gymnasium(factory: EnvFactory) -> EnvFactory:
    """Returns a factory of the environment with the options of `gymnasium_id`'s registration; else the given one."""
    return _ask(factory, "as_gymnasium", factory)


def _ask(factory: EnvFactory, name: str, default: T) -> T:
    method: Callable[[], T] | None = getattr(factory, name, None)
    return default if method is None else method()
