"""Defines the vector contract: blocks of agents step independently while the policy works on other blocks.

    vec.async_reset(seed)
    block = vec.recv()            # the block that was ready first
    …                             # read block.rows, choose actions [block.size, width]
    vec.send(block, actions)      # it steps; other blocks can be received meanwhile

A block is a contiguous range of agents `[start, stop)`. The number of blocks, `num_blocks`, does not depend on the
number of threads or workers. Several blocks may be held at once. Sending a block that is not held, or receiving with
none in flight, raises `VectorError`. Every backend passes tests/vector/test_contract.py and writes the
same bytes for the same seed and sequence of actions.

Backends own a slab of one row per agent. A block's rows do not change while the block is held.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from metta_fast.contracts.env import Array, EnvSpec, Rows


class VectorError(RuntimeError):
    """Reports a call outside the contract, or a worker that died, hung or raised (the message names it)."""


class WorkerError(VectorError):
    """Reports that a worker died or hung, or that its environment raised. The message holds the worker's traceback.

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
    """Holds a contiguous range of agents and views of their rows. Each block is one object for the whole run."""

    index: int
    start: int
    stop: int
    rows: Rows

    @property
    def size(self) -> int:
        return self.stop - self.start


class VectorEnv(Protocol):
    """Steps environments in blocks (see the module's docstring). `metta_fast.vector.make_vector` makes one."""

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
    """The whole slab, [num_agents, …], for tests. Only rows of held blocks may be read."""
    slab: Array
    """The memory of all rows, uint8 [bytes], page-aligned: for pinning. Unpin it before closing the vector."""

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        """Resets everything; all blocks are in flight afterwards. Waits for steps in flight first. Blocks that the
        caller holds are held no longer. seed: 0 … 2^64−1."""

    def recv(self, timeout: float | None = None) -> Block:
        """Returns the next ready block. Raises WorkerError (a worker died, hung longer than worker_timeout_s, or its
        env raised; everything is then closed), VectorError (none in flight), TimeoutError (after `timeout`
        seconds)."""

    def send(self, block: Block, actions: Array | None = None) -> None:
        """Returns the block to the vector with actions [size, width] (None: already written into block.rows.action).
        Raises VectorError for a block not held, ValueError or TypeError for another shape or dtype,
        NonFiniteError for continuous actions with NaN or infinity (the block stays held)."""

    def notes(self) -> list[str]:
        """Returns messages for the user about environments that keep running, each kind once per vector. Only while
        every block is held, else VectorError."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of all environments and the slab's rows. Only while every block is held, else
        VectorError."""

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Copies the state now. Returns a function that joins the copies into the result of `state_dict`."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state: all blocks are held afterwards, with the saved rows. The numbers of blocks and
        workers may differ from those it was saved with. Raises ValueError for the state of another environment."""

    def hold_all(self) -> list[Block]:
        """Receives until every block is held. Returns the blocks in index order."""

    def close(self) -> None:
        """Stops everything and frees shared memory, within seconds also beside hanging or stopped processes. May be
        called twice and after an error."""
