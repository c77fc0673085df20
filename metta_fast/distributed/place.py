"""Tells who this process is among those of a run, from the variables that torchrun sets. Imports no torch.

place = found()
place.rank, place.world, place.active
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from metta_fast.contracts.errors import UserError

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """A process's place in its run. `active` is False for a process that torchrun did not start."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    active: bool = False
    restarts: int = 0
    """How often torchrun has started this run's processes again."""

    @property
    def first(self) -> bool:
        """Whether this process writes the run's files and its messages."""
        return self.rank == 0


def found(environment: Mapping[str, str] | None = None) -> Place:
    """Returns this process's place.

    Raises:
        UserError: some of torchrun's variables are set and others are missing, or one is no number.
    """
    given = os.environ if environment is None else environment
    if "RANK" not in given or "WORLD_SIZE" not in given:
        return Place()
    missing = [name for name in NEEDED if not given.get(name)]
    if missing:
        raise UserError(
            f"RANK and WORLD_SIZE are set, but not {', '.join(missing)}: start the processes with torchrun, or unset "
            "RANK and WORLD_SIZE"
        )
    numbers = {}
    for name in (*NEEDED[:4], "TORCHELASTIC_RESTART_COUNT"):
        text = given.get(name, "0")
        if not text.isdecimal():
            raise UserError(f"{name}={text!r}: expected a whole number; start the processes with torchrun")
        numbers[name] = int(text)
    rank, world, local_rank, local_world, restarts = numbers.values()
    if not (0 <= rank < world and 0 <= local_rank < local_world <= world):
        raise UserError(
            f"RANK={rank}, WORLD_SIZE={world}, LOCAL_RANK={local_rank}, LOCAL_WORLD_SIZE={local_world} do not fit "
            "together; start the processes with torchrun"
        )
    return Place(rank, world, local_rank, local_world, True, restarts)
