"""Robots on the GPU that do not fit its memory are refused by an estimate, before the start, with sizes that fit."""

from __future__ import annotations

import dataclasses
import re

import pytest

pytest.importorskip("mujoco_warp")

from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.memory_estimate import ROOM, total
from metta_fast.resolve.resolve import Resolved, resolve

CARD = Gpu("NVIDIA L4", 22 * GIB, (8, 9), free=20 * GIB)
MACHINE = Machine(16, 16, 128 * GIB, (CARD,), "cuda", driver=(13, 0), nvrtc=13)
SMALL = dataclasses.replace(MACHINE, gpus=(dataclasses.replace(CARD, free=2 * GIB),))


def resolved(envs: int, machine: Machine, *words: str) -> Resolved:
    sizes = (f"env.num_envs={envs}", f"trainer.batch_size={16 * envs}", f"trainer.minibatch_size={4 * envs}")
    typed = ["hardware=auto", "env=humanoid", "env.device=cuda", *sizes, *words]
    return resolve(compose(typed, machine=machine), machine=machine)


def of_environments(found: Resolved) -> int:
    return next(part.bytes for part in found.memory if part.name == "environments")


def test_worlds_are_part_of_the_estimate() -> None:
    few, more = resolved(4096, MACHINE), resolved(8192, MACHINE)
    each = (of_environments(more) - of_environments(few)) // 4096
    assert 20_000 < each < 100_000  # 38,000 with the room that a trial finds
    roomier = resolved(4096, MACHINE, "env.params.njmax=200")
    assert of_environments(roomier) > of_environments(few)


def test_too_many_are_refused_with_the_most_that_fit() -> None:
    with pytest.raises(
        UserError, match=r"GiB of GPU memory are needed \(.*environments.*has 20\.0 GiB free"
    ) as found:
        resolved(1_000_000, MACHINE)
    text = str(found.value)
    sizes = dict(re.findall(r"(env\.num_envs|trainer\.\w+)=(\d+)", text.partition("try ")[2]))
    most = int(sizes["env.num_envs"])
    assert int(sizes["trainer.batch_size"]) == 16 * most
    fits = resolved(most, MACHINE)
    assert total(fits.memory, on_gpu=True) <= ROOM * CARD.free
    with pytest.raises(UserError, match="GPU memory"):
        resolved(most + 1024, MACHINE)


def test_a_card_that_is_nearly_full_says_what_else_helps() -> None:
    with pytest.raises(
        UserError, match=r"has 2\.0 GiB free\ntry env\.num_envs=\d+ .*or end the programs that use 20"
    ):
        resolved(16384, SMALL)
