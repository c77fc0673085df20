"""Divides a replay buffer's rows into files of checkpoints: a checkpoint writes only rows that no earlier one has.

    row number  0 … S−1 │ S … 2S−1 │ … │ … A     A: rows so far; the last file holds the open row too
    file        replay-000000 │ replay-000001 │ … │ replay-00000k

A file whose last row is older than the newest row never changes (KeptState): later checkpoints link to it. Rows of the
last boundary stay in memory until the next (buffers/replay.py), so nothing is copied until a checkpoint is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metta_fast.buffers.replay import FIELDS, OPEN, Replay
from metta_fast.contracts.algorithm import KeptState
from metta_fast.runtime.state_tensors import tensor
from metta_fast.storage.altered import WrongState, count, entry

FILES = 32
"""Files of a full buffer, about."""
NAME = re.compile(r"replay-(\d+)")


class ReplayFiles:
    """Saves and loads the rows of one buffer."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.segment = -(-replay.rows // FILES)
        """Rows of each agent in a file: S."""
        self._whole: dict[int, KeptState] = {}

    def position(self) -> dict[str, int]:
        """Returns where the buffer is, and how it is divided: what `load` takes."""
        return {**self.replay.position(), "segment": self.segment}

    def states(self) -> dict[str, KeptState | Callable[[], Any]]:
        """Returns the states of the present boundary by name."""
        replay, size = self.replay, self.segment
        first, added = replay.first, replay.added
        last = max(added - 1, 0) // size
        found: dict[str, KeptState | Callable[[], Any]] = {}
        for number in range(first // size, last):
            begin = max(number * size, first)
            state = self._whole.setdefault(number, KeptState(lambda: None))
            if state.entry is None:
                state.make = partial(self._rows, begin, (number + 1) * size)
            found[_name(number)] = state
        self._whole = {number: state for number, state in self._whole.items() if number >= first // size}
        if added or replay.is_open:
            begin = max(last * size, first)
            found[_name(last)] = partial(self._rows, begin, added, with_open=replay.is_open)
        return found

    def _rows(self, begin: int, end: int, *, with_open: bool = False) -> dict[str, Any]:
        """Returns copies of rows begin … end−1 on the CPU, and of row `end` as the open one."""
        replay = self.replay
        places = torch.arange(begin, end, device=replay.device) % replay.places
        state: dict[str, Any] = {"first": begin, "rows": end - begin}
        state["obs"] = {name: leaf[places].cpu() for name, leaf in replay.obs.items()}
        state |= {name: array[places].cpu() for name, array in self._fields(FIELDS).items()}
        if with_open:
            place = end % replay.places
            row = {name: array[place].clone().cpu() for name, array in self._fields(OPEN).items()}
            state["open"] = row | {
                "obs": {name: leaf[place].clone().cpu() for name, leaf in replay.obs.items()}
            }
        return state

    def _fields(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        masks = () if self.replay.action_mask is None else ("action_mask",)
        return {name: getattr(self.replay, name) for name in (*names, *masks)}

    def load(self, position: Mapping[str, int], states: Mapping[str, KeptState]) -> bool:
        """Loads a checkpoint's rows. Returns False, with an empty buffer, if it has none.

        Raises:
            WrongState: a file holds something else, or one is missing.
        """
        replay = self.replay
        self.segment = size = max(position.get("segment", self.segment), 1)
        added = position["added"]
        first = max(position["first"], added - replay.rows - replay.past)  # the buffer may be smaller now
        replay.forget(added)
        mine = {int(match[1]): state for name, state in states.items() if (match := NAME.fullmatch(name))}
        if not mine:
            return False
        last = max(added - 1, 0) // size
        for number in range(first // size, last + 1):
            if number not in mine:
                raise WrongState(_name(number), "is missing")
            whole = number < last
            self._load(number, mine[number].make(), first, min((number + 1) * size, added), not whole)
            if whole:
                self._whole[number] = mine[number]
        replay.first, replay.is_open = first, bool(position["open"])
        return True

    def _load(self, number: int, state: Any, first: int, end: int, last: bool) -> None:
        replay, where = self.replay, f"{_name(number)}."
        begin, rows = count(entry(state, "first", where), f"{where}first"), entry(state, "rows", where)
        if begin + rows != end or begin > max(first, number * self.segment):
            raise WrongState(f"{where}first", f"is {begin} with {rows} rows, expected rows up to {end}")
        places = torch.arange(begin, end, device=replay.device) % replay.places
        fresh = torch.arange(begin, end, device=replay.device) >= first
        arrays = [
            (entry(state, "obs", where), replay.obs, f"{where}obs."),
            (state, self._fields(FIELDS), where),
        ]
        for saved, own, prefix in arrays:
            for name, array in own.items():
                shape = (rows, *array.shape[1:])
                value = tensor(entry(saved, name, prefix), prefix + name, shape, like=array.dtype)
                array[places[fresh]] = value[fresh.cpu()].to(array)
        if last and "open" in state:
            place = end % replay.places
            row = state["open"]
            for saved, own in ((entry(row, "obs", f"{where}open."), replay.obs), (row, self._fields(OPEN))):
                for name, array in own.items():
                    key = f"{where}open.{name}"
                    value = tensor(
                        entry(saved, name, f"{where}open."), key, array.shape[1:], like=array.dtype
                    )
                    array[place] = value.to(array)


def _name(number: int) -> str:
    return f"replay-{number:06d}"
