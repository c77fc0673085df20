"""The vector contract: blocks of agents that step on their own while the policy works on other blocks.

    vec.async_reset(seed)
    block = vec.recv()            # a ready block, the first one first
    …                             # read block.rows, choose actions [block.size, width]
    vec.send(block, actions)      # it steps; other blocks can be received meanwhile

A block is a contiguous range of agents `[start, stop)`; there are `num_blocks` of them whatever the number of
threads or workers. Several blocks may be held at once. Sending a block that is not held, or receiving with
none in flight, raises `VectorError`. Every backend passes tests/vector/test_contract.py and gives the same
bytes for the same seed and tape of actions.

Backends own a slab of one row per agent; what a block's rows show stays untouched while the block is held.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from metta_fast.contracts.env import Array, EnvSpec, Rows


class VectorError(RuntimeError):
    """A call outside the contract, or a worker that died, hung or raised (the message names it)."""


class WorkerError(VectorError):
    """A worker died, hung or its environment raised: carries the worker's traceback text in the message.

    Attributes:
        env: global index of the environment that raised, or None where none is known.
        worker: index of the worker process, or None on backends without.
    """

    def __init__(self, message: str, *, env: int | None = None, worker: int | None = None) -> None:
        super().__init__(message)
        self.env = env
        self.worker = worker


@dataclass(frozen=True, eq=False)
class Block:
    """A contiguous range of agents and the views of their rows; one object per block for the run's life."""

    index: int
    start: int
    stop: int
    rows: Rows

    @property
    def size(self) -> int:
        return self.stop - self.start


class VectorEnv(Protocol):
    """See the module's docstring. Made by `metta_fast.vector.make_vector`."""

    spec: EnvSpec
    num_envs: int
    num_agents: int
    """num_envs · spec.agents_per_env."""
    first_env: int
    """Global id of the first environment: the others follow."""
    total_envs: int
    """Environments of the whole run, over all vectors; first episodes are staggered over them."""
    blocks: tuple[Block, ...]
    rows: Rows
    """The whole slab, [num_agents, …]: for tests; contents belong to the held blocks."""
    slab: Array
    """The memory of all rows, uint8 [bytes], page-aligned: for pinning. Unpin before the vector goes."""

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        """Reset everything; all blocks are in flight afterwards. Blocks still held are given up; a step in
        flight is waited for first. seed: 0 … 2^64−1."""

    def recv(self, timeout: float | None = None) -> Block:
        """The next ready block. Raises WorkerError (worker died, hung longer than worker_timeout_s, env
        raised; everything is closed then), VectorError (none in flight), TimeoutError (timeout, seconds)."""

    def send(self, block: Block, actions: Array | None = None) -> None:
        """Give the block back with actions [size, width] (None: already written into block.rows.action).
        Raises VectorError for a block not held, ValueError or TypeError for another shape or dtype,
        NonFiniteError for continuous actions with NaN or infinity (the block stays held)."""

    def notes(self) -> list[str]:
        """What the user should be told of environments that go on, each kind once in the vector's life. Only
        while every block is held, else VectorError."""

    def state_dict(self) -> dict[str, Any]:
        """State of all environments and the slab's rows. Only while every block is held, else VectorError."""

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """What `state_dict` gives now, as a function that gives it later: copied at once, joined then."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state: all blocks are held afterwards, rows as saved. Numbers of blocks and workers
        may differ from when it was saved. Raises ValueError for the state of another environment."""

    def hold_all(self) -> list[Block]:
        """Receive until every block is held; blocks in index order."""

    def close(self) -> None:
        """Stop everything and free shared memory; may be called twice and after an error."""
