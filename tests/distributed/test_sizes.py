"""Sizes that do not divide among the processes are refused, or rounded down where nobody typed them."""

from __future__ import annotations

import pytest

from metta_fast.config.keys import Config
from metta_fast.contracts.errors import UserError
from metta_fast.distributed.place import found
from metta_fast.distributed.share import share
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.tiny import COUNTER, QUIET


def resolved(*words: str) -> Config:
    return resolve(compose([*COUNTER, *words])).config


def test_a_process_has_its_share() -> None:
    config = resolved("distributed.processes=2")
    own = share(config, 2)
    assert (own.env.num_envs, own.trainer.batch_size, own.trainer.minibatch_size) == (4, 128, 128)
    assert share(config, 1) is config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("distributed.processes=3",), "env.num_envs=8 does not divide among 3 processes"),
        (("distributed.processes=4", "trainer.minibatch_size=32"), "nearest that work: 64"),
        (("distributed.processes=4", "vector.async_factor=4"), "each of 4 processes"),
        (("distributed.processes=2", "vector.restart_workers=1"), "leave it out"),
    ],
)
def test_what_does_not_divide_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolved(*words)


def test_torchruns_variables_must_be_whole() -> None:
    assert not found({}).active
    with pytest.raises(UserError, match="MASTER_PORT"):
        found(
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}
        )


def test_an_algorithm_for_one_process_is_refused() -> None:
    words = (*QUIET, "distributed.processes=2", "env=inverted_pendulum", "algorithm=sac")
    with pytest.raises(UserError, match="algorithm=sac trains with one process"):
        resolve(compose(list(words)))
