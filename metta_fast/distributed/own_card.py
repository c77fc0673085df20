"""Gives each process on a machine a GPU of its own, before anything looks at GPUs.

Each process sees one card, number 0: everything that names a device then names the right one.
"""

from __future__ import annotations

import os

from metta_fast.distributed.place import Place
from metta_fast.machine import hardware


def own_card(place: Place) -> int:
    """Lets this process see one card.

    Returns:
        The number of cards of the machine if there are fewer than processes on it, which then share them; else 0.
    """
    name = "HIP_VISIBLE_DEVICES" if hardware.torch_build()[0] == "hip" else "CUDA_VISIBLE_DEVICES"
    given = os.environ.get(name)
    if given is not None:
        cards = [card.strip() for card in given.split(",") if card.strip()]
    else:
        cards = [str(number) for number in range(len(hardware.detect().gpus))]
    if not cards:
        return 0
    os.environ[name] = cards[place.local_rank % len(cards)]
    return len(cards) if place.local_world > len(cards) else 0
