"""Steps an environment whose agents come as arrays [n, …] (the protocol in python_env.py's docstring)."""

from __future__ import annotations

from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.actions.masks import unexpected
from metta_fast.envs.agents.slot import AgentsSlot
from metta_fast.envs.episode_length import layers
from metta_fast.envs.python_checks import step_result
from metta_fast.envs.spaces import FieldError


class Arrays(AgentsSlot):
    """Writes arrays of all agents. An agent that has ended is gone until the reset, unless the environment has
    `live_agents`: [n] bool, who acts next."""

    def reset(self, seed: int | None) -> None:
        self._write(self._fresh(seed))
        self.begin()
        self._presence()

    def step(self) -> None:
        rows = self.rows
        obs, reward, terminal, truncation, info = step_result(self.call(self._actions()))
        reward = self._array("reward", reward, "iuf")
        terminal, truncation = (
            self._array("terminal", terminal, "b"),
            self._array("truncation", truncation, "b"),
        )
        self._write(obs)
        rows.reward[:], rows.terminal[:], rows.truncation[:] = reward, terminal, truncation
        self.info = info
        self._presence()
        if self.mask is not None:
            self._write_mask(obs, info, self.acting())
        elif self.found_mask is not None and unexpected(info):
            self.found_mask()

    def _presence(self) -> None:
        """Writes who is there. Without `live_agents` whoever acted; Lives takes out those with a flag."""
        found = (getattr(layer, "live_agents", None) for layer in layers(self.env))
        live = next((value for value in found if value is not None), None)
        if live is not None:
            self.rows.mask[:] = self._array("live_agents", live, "b")

    def _actions(self) -> Any:
        """Returns the actions of all agents, [n, *shape of the action space]; [n, 1] where that is (). A dict or tuple
        of arrays for such a space."""
        actions = self.decoder.decode(self.rows.action)
        if not isinstance(actions, np.ndarray):
            return actions
        return actions if actions.ndim > 1 else actions[:, None]

    def _array(self, name: str, value: Any, kinds: str) -> Array:
        value = np.asarray(value)
        if value.shape == ():  # one for all, as a time limit's wrapper gives it
            value = np.broadcast_to(value, self.agents)
        if value.shape != self.agents or value.dtype.kind not in kinds:
            raise FieldError(
                f"{name} is {value.dtype} {value.shape}, not a {'bool' if kinds == 'b' else 'number'} for "
                f"each of {self.agents[0]} agents"
            )
        return value
