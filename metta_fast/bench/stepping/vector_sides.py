"""Lists the sides of `--vector`: ours, and other libraries' vectors; vector_rivals.py steps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metta_fast.bench.harness.libraries import ENVPOOL, GYMNASIUM, PUFFERLIB, SB3, Library
from metta_fast.bench.stepping.vector_tasks import TASKS
from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.errors import UserError


@dataclass(frozen=True)
class Side:
    """One way to step an environment."""

    kind: str
    variant: str
    """As vector_rivals.py takes them."""
    column: str
    """The column of the table; of several sides in one, the fastest is shown."""
    library: Library | None = None
    """Library that must be installed; None for metta_fast."""
    processes: bool = False
    """Whether it has one process for each environment."""
    tasks: tuple[str, ...] = ("cartpole", "sleep", "busy", "image")

    @property
    def name(self) -> str:
        """Its name in rows and notes."""
        if self.library is None:
            return f"ours, {self.variant}"
        return f"{self.library.name} {self.variant}"


ALL = tuple(TASKS)
SIDES = (
    Side("ours", "auto", "auto", tasks=ALL),
    Side("ours", "serial", "serial", tasks=ALL),
    Side("ours", "threads", "threads", tasks=ALL),
    Side("ours", "workers", "workers", tasks=ALL),
    Side("gymnasium", "SyncVectorEnv", "Sync", GYMNASIUM),
    Side("gymnasium", "AsyncVectorEnv", "Async", GYMNASIUM, True),
    Side("sb3", "DummyVecEnv", "Dummy", SB3),
    Side("sb3", "SubprocVecEnv", "Subproc", SB3, True),
    Side("pufferlib", "Serial", "Serial", PUFFERLIB),
    Side("pufferlib", "Multiprocessing", "Multipr.", PUFFERLIB),
    Side("pufferlib", "Multiprocessing, half the cores", "Multipr.", PUFFERLIB),
    Side("pufferlib", "Multiprocessing, one each", "Multipr.", PUFFERLIB, True, ("sleep",)),
    Side("envpool", "all", "all", ENVPOOL, tasks=("cartpole_c",)),
    Side("envpool", "half at a time", "half", ENVPOOL, tasks=("cartpole_c",)),
)
RIVALS = tuple(dict.fromkeys(side.kind for side in SIDES if side.library is not None))
"""The names that `--vector-rival` takes."""

OWN_COST = "backends"
"""The part that measures what our backends cost by themselves (vector_backends.py)."""
PARTS = (OWN_COST, *TASKS)
"""The names that `--vector-env` takes."""
ENVS, QUICK = "8,64,512", "8"
"""Numbers of environments, and those of --quick."""
MOST_ENVS = 65536


@dataclass(frozen=True)
class Wanted:
    """What is to be measured."""

    own_cost: bool
    tasks: tuple[str, ...]
    rivals: tuple[str, ...]
    envs: tuple[int, ...]


def wanted(parts: str | None, rivals: str | None, envs: str | None) -> Wanted:
    """Reads the lists of `--vector-env`, `--vector-rival` and `--envs`; None: the default.

    Raises:
        UserError: a name is unknown, or a number is none.
    """
    names = _chosen("--vector-env", parts, PARTS)
    sizes = sorted({_count(envs or ENVS, word.strip()) for word in (envs or ENVS).split(",")})
    tasks = tuple(name for name in names if name != OWN_COST)
    return Wanted(OWN_COST in names, tasks, _chosen("--vector-rival", rivals, RIVALS), tuple(sizes))


def _chosen(option: str, given: str | None, names: Sequence[str]) -> tuple[str, ...]:
    if given is None:
        return tuple(names)
    words = [word.strip() for word in given.split(",")]
    for word in words:
        if word not in names:
            raise UserError(
                f"{option} {given}: {word!r} is not known; {did_you_mean(word, names)}there are {', '.join(names)}"
            )
    return tuple(name for name in names if name in words)


def _count(given: str, word: str) -> int:
    if not word.isdecimal() or not 0 < int(word) <= MOST_ENVS:
        raise UserError(f"--envs {given}: {word!r} is not a whole number from 1 to {MOST_ENVS}")
    return int(word)
