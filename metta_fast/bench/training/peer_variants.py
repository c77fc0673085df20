"""Lists the variants in which the libraries of peers.py are measured, so that each can show its best.

on the CPU    with one torch thread, and with all threads
with a GPU    Stable-Baselines3: with the policy on the GPU, and on the CPU with all threads
              PufferLib: unchanged, compiled, compiled with CUDA graphs, and the same with two blocks of environments
              both also with a network in plain torch, since our network's first layer is our own kernel
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
class Variant:
    """One variant of a peer."""

    label: str = ""
    """Label in the row's name."""
    words: tuple[str, ...] = ()
    """Overrides added after all others."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the peer's class."""

    @property
    def plain(self) -> bool:
        """Whether its network contains none of our kernels."""
        return bool(self.options.get("plain"))


SB3_ON_GPU = (
    Variant("policy on the GPU"),
    Variant("policy on the CPU", ("trainer.device=cpu", "trainer.torch_threads=auto")),
    Variant(OWN, (), {"plain": True}),
)
PUFFER_ON_GPU = (
    Variant("not compiled"),
    Variant("compiled", (), {"compile_mode": "default"}),
    Variant("compiled with graphs", (), {"compile_mode": GRAPHS}),
    Variant("compiled with graphs, 2 blocks", (), {"compile_mode": GRAPHS, "blocks": 2}),
    Variant(f"compiled with graphs, {OWN}", (), {"compile_mode": GRAPHS, "plain": True}),
)


def on_cpu(counts: Sequence[int]) -> list[Variant]:
    """Returns a variant for each number of torch threads."""
    many = len(counts) > 1
    return [
        Variant(f"{n} thread{'s' * (n > 1)}" if many else "", (f"trainer.torch_threads={n}",)) for n in counts
    ]


def variants(kind: str, config: Config, counts: Sequence[int]) -> list[Variant]:
    """Returns the variants of a peer, "sb3" or "puffer".

    Args:
        config: the resolved configuration that all train.
        counts: numbers of torch threads to try on the CPU.
    """
    if config.trainer.device == "cuda":
        return list(SB3_ON_GPU if kind == "sb3" else PUFFER_ON_GPU)
    found = on_cpu(counts)
    if kind == "puffer" and config.trainer.compile:
        return [Variant(one.label, one.words, {"compile_mode": "default"}) for one in found]
    return found
