"""Work on static tensors, replayed as one CUDA graph.

    first call     runs launch by launch: compiles, tunes, allocates
    second call    is captured, then replayed
    later calls    are one launch each

The work must read and write tensors that stay where they are, and must not wait for the device. What cannot be
captured (a user's policy that reads a number, say) goes on launch by launch, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Say = Callable[[str], None]


class Graph:
    """Call it in place of `work`.

    Args:
        name: what it is called in the log.
        enabled: False: `work` is called as it is.
        say: told why the work cannot be captured, if so.
        pool: memory shared with other graphs (torch.cuda.graph_pool_handle), none of which needs what another
            has left there; None: its own.
    """

    def __init__(
        self, name: str, work: Callable[[], None], *, enabled: bool, say: Say, pool: Any = None
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
        """On a stream of its own, as capture will be: what autograd and libraries remember fits both."""
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
            with torch.cuda.graph(graph, pool=self._pool):
                self._work()
        except RuntimeError as error:
            torch.cuda.synchronize()
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())  # it still thinks of itself as captured
            self.enabled = False
            self._say(
                f"the {self.name} runs without a CUDA graph, which is slower: it cannot be captured "
                f"({str(error).strip().splitlines()[0]})"
            )
            return False
        self._graph = graph
        return True
