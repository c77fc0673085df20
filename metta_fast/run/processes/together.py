"""Keeps the processes of a run together at its boundaries: one decision, one state. Alone it does nothing.

    orders = together.exchange(save=…, stop=…, reason=…)     # rank 0's wishes; a reason to end of any process
    snapshot = together.whole(snapshot)                      # at rank 0 with the states of all processes' environments

Policy, optimizer and counters are the same on every process. What belongs to environments is each process's own, and is
joined in the order of global environments: a checkpoint does not tell how many processes wrote it, and `part` takes a
process's own out of it again.

Place in the flow: trainer.py calls it at each boundary, before a checkpoint and when it loads one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metta_fast.contracts import batch_state
from metta_fast.distributed.group import Group
from metta_fast.run.signals import Reason
from metta_fast.run.snapshot import Snapshot


@dataclass(frozen=True)
class Orders:
    """What all processes do at a boundary."""

    save: bool = False
    stopped: str | None = None
    """Why the training ends here, or None."""
    reason: Reason | None = None
    """Why the run is interrupted here, or None."""


class Together:
    """The processes of a run at their boundaries."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._flags = torch.zeros(3, dtype=torch.int64)

    def exchange(self, *, save: bool, stopped: str | None, reason: Reason | None) -> Orders:
        """Agrees on what all processes do. `save` and `stopped` count at rank 0 alone.

        Raises:
            PeerLost: another process ended.
        """
        group = self.group
        if group.world == 1:
            return Orders(save, stopped)  # a process alone is interrupted wherever it is
        first = group.first
        self._flags[0], self._flags[1] = save and first, stopped is not None and first
        self._flags[2] = reason is not None
        group.sum_(self._flags)
        save, stops, reasons = (bool(flag) for flag in self._flags.tolist())
        if stops:
            stopped = group.broadcast(stopped)
        found = None
        if reasons:
            found = next(one for one in group.all_of(reason) if one is not None)
        return Orders(save, stopped if stops else None, found)

    def whole(self, snapshot: Snapshot) -> Snapshot:
        """Returns the snapshot with every process's environments, at rank 0; elsewhere as it is."""
        if self.group.world == 1:
            return snapshot
        env = snapshot.states["env"]
        env = env() if callable(env) else env
        parts = self.group.gather((env, _own(snapshot.states["algorithm"])))
        if parts is None:
            return snapshot
        states = dict(snapshot.states)
        states["env"] = _joined([part[0] for part in parts])
        states["algorithm"] = snapshot.states["algorithm"] | _joined_own([part[1] for part in parts])
        return dataclasses.replace(snapshot, states=states)

    def alone(self, snapshot: Snapshot) -> Snapshot:
        """Returns the snapshot without what belongs to environments: those of processes that are gone would lack."""
        if self.group.world == 1:
            return snapshot
        algorithm = {name: value for name, value in snapshot.states["algorithm"].items() if name != "rollout"}
        return dataclasses.replace(snapshot, states=snapshot.states | {"algorithm": algorithm, "env": None})

    def part_of_env(self, env: Any, num_envs: int, agents: int) -> Any:
        """Returns this process's part of the joined state of `num_envs` environments."""
        if self.group.world == 1 or env is None:
            return env
        size = num_envs // self.group.world
        first = self.group.rank * size
        return {
            "envs": batch_state.cut(env["envs"], first, first + size),
            "rows": batch_state.cut(env["rows"], first * agents, (first + size) * agents),
        }

    def part_of_algorithm(self, state: dict[str, Any], num_agents: int) -> dict[str, Any]:
        """Returns the algorithm's state with this process's part of what belongs to `num_agents` agents."""
        if self.group.world == 1:
            return state
        size = num_agents // self.group.world
        own = slice(self.group.rank * size, (self.group.rank + 1) * size)
        state = dict(state)
        if isinstance(scale := state.get("reward_scale"), dict) and len(scale["discounted"]) == num_agents:
            state["reward_scale"] = scale | {"discounted": scale["discounted"][own]}
        if isinstance(rollout := state.get("rollout"), dict):
            core = {name: value[:, own] for name, value in rollout["core"].items()}
            episodes = {name: value[own] for name, value in rollout["episodes"].items()}
            state["rollout"] = {"core": core, "episodes": episodes}
        return state


def _own(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the parts of an algorithm's state that belong to a process's agents."""
    return {name: state[name] for name in ("reward_scale", "rollout") if name in state}


def _joined(states: list[Any]) -> Any:
    """Returns the joined state of all processes' environments; None if a process has none."""
    if not all(isinstance(state, dict) and state.keys() == {"envs", "rows"} for state in states):
        return None  # an environment's own form, which cannot be divided again
    rows = {"rows": batch_state.join([state["rows"] for state in states])}
    return {"envs": batch_state.join([state["envs"] for state in states])} | rows


def _joined_own(states: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if all("reward_scale" in state for state in states):
        discounted = torch.cat([state["reward_scale"]["discounted"].cpu() for state in states])
        found["reward_scale"] = states[0]["reward_scale"] | {"discounted": discounted}
    if all("rollout" in state for state in states):
        rollouts = [state["rollout"] for state in states]
        found["rollout"] = {
            "core": _side_by_side([one["core"] for one in rollouts], 1),
            "episodes": _side_by_side([one["episodes"] for one in rollouts], 0),
        }
    return found


def _side_by_side(states: list[dict[str, Tensor]], axis: int) -> dict[str, Tensor]:
    return {name: torch.cat([state[name].cpu() for state in states], axis) for name in states[0]}
