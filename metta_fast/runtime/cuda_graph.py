"""Captures a function as a CUDA graph and replays it with one launch.

    first call     runs launch by launch: compiles, tunes, allocates
    second call    is captured, then replayed
    later calls    are one launch each

The function must read and write tensors with fixed addresses, and must not wait for the device. A function that cannot
be captured (e.g. because a user's policy reads a value on the host) keeps running launch by launch, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

Say = Callable[[str], None]


class Graph:
    """Replaces `work`: call the graph instead.

    Args:
        name: name in the log.
        enabled: False: calls `work` directly.
        say: receives the reason if the work cannot be captured.
        pool: memory pool shared with other graphs (torch.cuda.graph_pool_handle()), none of which may read another's
            intermediate results; None: a pool of its own.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        *,
        enabled: bool,
        say: Say,
        pool: _POOL_HANDLE | None = None,
    ) -> None:
        self.name, self.enabled = name, enabled
        self._work, self._say, self._pool = work, say, pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    @property
    def captured(self) -> bool:
        return self._graph is not None

    def __call__(self) -> None:
        if not self.enabled:
            self._work()
        elif self._graph is not None:
            self._graph.replay()
        elif not self._warm:
            self._first()
        elif self._capture():
            self._graph.replay()  # type: ignore[attr-defined]
        else:
            self._work()

    def _first(self) -> None:
        """Runs on a side stream, as the capture will: state kept by autograd and libraries then suits both."""
        here, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            self._work()
        here.wait_stream(side)
        self._warm = True

    def _capture(self) -> bool:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=_stream(torch.cuda.current_device())):
                self._work()
        except RuntimeError as error:
            torch.cuda.synchronize()
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(
                generator.clone_state()
            )  # otherwise it stays in its capturing state
            self.enabled = False
            self._say(
                f"the {self.name} runs without a CUDA graph, which is slower: it cannot be captured "
                f"({str(error).strip().splitlines()[0]})"
            )
            return False
        self._graph = graph
        return True


@cache
def _stream(card: int) -> torch.cuda.Stream:
    """Returns the stream on which graphs of a card are captured. It is one, so that graphs that share a pool use its
    memory again; torch's own default is of the card on which the process captured first."""
    return torch.cuda.Stream(card)
