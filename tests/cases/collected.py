"""Objects over native memory survive the garbage collector: `python -m tests.cases.collected ready|own|robot|board`."""

import faulthandler
import gc
import sys

import numpy as np

from metta_fast.envs.native._sync import Board, Memory, Ready, board_size

faulthandler.enable()


class Cycle:
    """Holds itself, so that only the collector frees it, with what it holds."""

    def __init__(self, *held):
        self.held, self.me = held, self


def made(which):
    if which == "own":
        return (Ready(4),)
    if which == "robot":
        from metta_fast.envs import make_factory
        from metta_fast.resolve.compose import compose
        from metta_fast.resolve.resolve import resolve

        config = resolve(compose(["env=ant", "env.num_envs=256", "trainer.device=cpu"])).config
        batch = make_factory(config.env).make_batch(0, 256, 256)
        cycle = [batch]
        cycle.append(cycle)
        return (cycle,)
    board = Board(Memory(board_size(1, 2)), 1, [(0, 1), (0, 1)])
    return (board.ready,) if which == "ready" else (board, board.ready)


gc.collect()
gc.disable()
for _ in range(20):
    Cycle(*made(sys.argv[1]))
    gc.collect()
    refilled = [np.full(64, 0xAB, np.uintp) for _ in range(100)]
