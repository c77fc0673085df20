"""In which ways peers of beside.py are measured, so that each can show its best.

on the CPU    one thread of torch, and all of them
with a GPU    Stable-Baselines3: the policy on the GPU, and on the CPU with all threads
              PufferLib: as it is, compiled, compiled with torch's graphs, the same with two blocks of environments
              both also with a network of torch's operators alone, for our first layer is a kernel of ours
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from metta_fast.config.keys import Config

OWN = "a network of torch alone"
GRAPHS = "reduce-overhead"
"""torch.compile's mode with CUDA graphs."""


@dataclass(frozen=True)
class Way:
    """A label for the row, arguments after all others, and options of the peer's class."""

    label: str = ""
    words: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Without any kernel of ours in its network."""
        return bool(self.options.get("plain"))


SB3_ON_GPU = (
    Way("policy on the GPU"),
    Way("policy on the CPU", ("trainer.device=cpu", "trainer.torch_threads=auto")),
    Way(OWN, (), {"plain": True}),
)
PUFFER_ON_GPU = (
    Way("not compiled"),
    Way("compiled", (), {"compile_mode": "default"}),
    Way("compiled with graphs", (), {"compile_mode": GRAPHS}),
    Way("compiled with graphs, 2 blocks", (), {"compile_mode": GRAPHS, "blocks": 2}),
    Way(f"compiled with graphs, {OWN}", (), {"compile_mode": GRAPHS, "plain": True}),
)


def on_cpu(counts: Sequence[int]) -> list[Way]:
    """A way for each number of torch's threads."""
    many = len(counts) > 1
    return [
        Way(f"{n} thread{'s' * (n > 1)}" if many else "", (f"trainer.torch_threads={n}",)) for n in counts
    ]


def ways(kind: str, config: Config, counts: Sequence[int]) -> list[Way]:
    """Those of a peer, "sb3" or "puffer".

    Args:
        config: the configuration that all train, resolved.
        counts: numbers of torch's threads that are tried on the CPU.
    """
    if config.trainer.device == "cuda":
        return list(SB3_ON_GPU if kind == "sb3" else PUFFER_ON_GPU)
    found = on_cpu(counts)
    if kind == "puffer" and config.trainer.compile:
        return [Way(one.label, one.words, {"compile_mode": "default"}) for one in found]
    return found
