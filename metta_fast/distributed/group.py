"""Starts the process group, and holds every exchange between the processes of a run.

    group = current()                 # of this process; one process unless `start` was called
    group.sum_(tensor)                # in place, over all processes: the one place where sums are taken
    group.broadcast(thing)            # rank 0's, on every process
    group.gather(thing)               # a list by rank at rank 0, else None

Tensors on the CPU go through gloo, those on a GPU through NCCL (or gloo, with distributed.backend=gloo). Objects are
pickled: the processes of a run trust each other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from metta_fast.config.keys import DistributedConfig
from metta_fast.contracts.errors import UserError
from metta_fast.distributed.place import Place

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class PeerLost(RuntimeError):
    """Reports that an exchange failed because another process ended or does not answer."""


class PeerFault(RuntimeError):
    """Reports that another process found a fault, which it names."""


class Group:
    """The processes of a run, or one process alone.

    Attributes:
        rank, world: this process's number and how many there are.
        active: torchrun started this process, be it the only one: the code for several processes is used.
    """

    def __init__(self, place: Place | None = None) -> None:
        self.place = place or Place()
        self.rank, self.world, self.active = self.place.rank, self.place.world, self.place.active

    @property
    def key(self) -> tuple[int, ...]:
        """What random numbers that are each process's own are keyed by, after their other keys; (): one process."""
        return (self.rank,) if self.world > 1 else ()

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all processes, in place, and returns it.

        Raises:
            PeerLost: another process ended.
        """
        if self.active:
            import torch.distributed as dist

            self._try(lambda: dist.all_reduce(tensor, group=_tensors))
        return tensor

    def max_(self, tensor: Tensor) -> Tensor:
        """Takes the largest of all processes' numbers, in place, and returns the tensor."""
        if self.active:
            import torch.distributed as dist

            self._try(lambda: dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=_tensors))
        return tensor

    def copy_(self, tensor: Tensor) -> Tensor:
        """Copies rank 0's tensor into every process's, and returns it."""
        if self.active:
            import torch.distributed as dist

            self._try(lambda: dist.broadcast(tensor, 0, group=_tensors))
        return tensor

    def broadcast(self, thing: T) -> T:
        """Returns rank 0's `thing` on every process."""
        if self.world == 1:
            return thing
        import torch.distributed as dist

        things = [thing]
        self._try(lambda: dist.broadcast_object_list(things, 0))
        return things[0]

    def gather(self, thing: T) -> list[T] | None:
        """Returns every process's `thing` by rank at rank 0, None elsewhere."""
        if self.world == 1:
            return [thing]
        import torch.distributed as dist

        things: list[Any] | None = [None] * self.world if self.first else None
        self._try(lambda: dist.gather_object(thing, things))
        return things

    def all_of(self, thing: T) -> list[T]:
        """Returns every process's `thing` by rank, on every process."""
        if self.world == 1:
            return [thing]
        import torch.distributed as dist

        things: list[Any] = [None] * self.world
        self._try(lambda: dist.all_gather_object(things, thing))
        return things

    def _try(self, exchange: Callable[[], Any]) -> None:
        try:
            exchange()
        except RuntimeError as error:
            raise PeerLost(str(error).strip().partition("\n")[0]) from error


ALONE = Group()
_current = ALONE
_tensors: Any = None
"""torch's group for tensors; None: the one for objects, which is gloo's."""
START_S = 1800.0
"""Seconds in which all processes are to start, and rank 0 to find the configuration."""


def current() -> Group:
    """Returns this process's group."""
    return _current


def start(place: Place) -> Group:
    """Finds the other processes, and makes the group of `place` the current one. It exchanges objects until `open_`.

    Raises:
        UserError: the rendezvous failed: the port is taken, or processes are missing.
    """
    global _current
    if not place.active:
        return _current
    import torch.distributed as dist

    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=START_S))
    except (RuntimeError, ValueError) as error:
        raise UserError(_why(place, error)) from error
    _current = Group(place)
    return _current


def open_(config: DistributedConfig, *, gpu: bool) -> None:
    """Opens the current group for tensors, as configured. All processes call it.

    Args:
        gpu: tensors on GPUs are exchanged.
    """
    global _tensors
    if _current.active:
        import torch.distributed as dist

        backend = "cpu:gloo,cuda:nccl" if gpu and config.backend != "gloo" else "gloo"
        _tensors = dist.new_group(backend=backend, timeout=timedelta(seconds=config.timeout_s))


def _why(place: Place, error: Exception) -> str:
    import os

    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    text = str(error).strip().partition("\n")[0]
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        return (
            f"MASTER_PORT: {where} is in use by another program; give torchrun another one (--master-port=29501, or "
            "--standalone, which takes a free one)"
        )
    return f"the {place.world} processes of this run did not find each other at {where}: {text}"


def end() -> None:
    """Ends the process group, if one was started. Does not wait for processes that are gone."""
    global _current, _tensors
    if _current.active:
        import torch.distributed as dist

        with suppress(RuntimeError, ValueError, AssertionError):
            dist.destroy_process_group()
    _current, _tensors = ALONE, None
