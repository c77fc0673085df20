"""Steps an environment with PettingZoo's parallel API (or an AECEnv in PettingZoo's conversion).

    row k of the environment                  possible_agents[k]
    there                                     in `agents` after reset or step
    an agent without a row in observations    zeros, masked

An agent's absence ends its episode (lives.py). A truncation without a last observation cannot bootstrap: it counts as
terminal as well, which is said once. In a turn-taking environment agents that wait have ordinary rows, whose action has
no effect; with action masks they have one legal choice, so that nothing is learnt from it.

Observations of all agents are copied into their rows by one call for each leaf, where they are arrays as their space
says; any other form of a value is converted agent by agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from metta_fast.contracts.env import Array, Rows
from metta_fast.envs.actions import ActionDecoder, action_spec
from metta_fast.envs.actions.mask_values import MaskReader
from metta_fast.envs.actions.masks import unexpected
from metta_fast.envs.agents.joint_space import Fit
from metta_fast.envs.agents.slot import AgentsSlot
from metta_fast.envs.agents.zoo import PARALLEL, as_parallel, takes_turns
from metta_fast.envs.direct_step import direct_step
from metta_fast.envs.python_checks import reset_result
from metta_fast.envs.python_slot import Made
from metta_fast.envs.spaces import FieldError, Part, observation_parts

NOTHING: Mapping[Any, Any] = {}


class Leaf(NamedTuple):
    """One leaf of the observations of all agents, and where it goes."""

    part: Part
    view: Array
    """[n, *shape] rows of this leaf."""
    whole: Array | None
    """The same with the first two axes joined, for one copy of all agents; None: agent by agent."""
    absent: Array
    """[*shape] zeros."""


class Parallel(AgentsSlot):
    """Writes the dicts of a parallel environment as rows, in order of `possible_agents`."""

    def __init__(self, factory: Made, index: int) -> None:
        super().__init__(factory, index)
        self.env = as_parallel(self.env)
        self.call = direct_step(self.env)
        self.turns = takes_turns(self.env)
        kind = factory.kind
        self.names = kind.names
        self.known = frozenset(self.names)
        self.present: Array | bool = True
        """[n] bool, or True: in `agents` now; they get an action."""
        fits: tuple[Fit, ...] | None = kind.fits
        self.fits = None if fits is None else [_Own(fit, factory) for fit in fits]
        self.waiting = np.zeros(sum(factory.spec.action.nvec), np.bool_)
        self.waiting[np.cumsum((0, *factory.spec.action.nvec[:-1]))[: len(factory.spec.action.nvec)]] = True
        """[P] bool: the first choice of each head, for an agent that waits for its turn."""

    def bind(self, rows: Rows) -> None:
        super().bind(rows)
        if self.factory.spec.action_mask:
            self.mask_view = rows.action_mask
        self.leaves = []
        for part, view in zip(self.factory.parts, self.views):
            plain = self.fits is None and not part.nvec and not part.binary and part.shape
            whole = view.reshape(-1, *part.shape[1:]) if plain else None
            self.leaves.append(Leaf(part, view, whole, np.zeros(part.shape, part.dtype)))

    # ---- reset and step ----

    def reset(self, seed: int | None) -> None:
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        obs = reset_result(result)
        infos = result[1]
        self._check(obs, "observations of reset()")
        self._find_present()
        if not np.any(self.present):
            raise FieldError("reset() left nobody in agents: there is nobody to act")
        self.begin(self.present)
        self.steady = self.present is True
        self._write_agents(obs)
        self._write_masks(obs, infos)

    def step(self) -> None:
        rows = self.rows
        result = self.call(self._actions())
        if type(result) is not tuple or len(result) != 5:
            raise FieldError(f"step() gave {_given(result)}, expected PettingZoo's five dicts: {PARALLEL}")
        obs, rewards, terminations, truncations, infos = result
        for value, what in zip(result, ("observations", "rewards", "terminations", "truncations")):
            if type(value) is not dict:
                self._check(value, f"{what} of step()")
        self._find_present()
        rows.reward[:] = self._numbers("reward", rewards, 0.0, "iufb")
        flags = _any(terminations) or _any(truncations)
        calm = self.present is True and not flags
        if not (calm and self.steady):  # else these rows hold what would be written
            rows.terminal[:] = self._numbers("termination", terminations, False, "b")
            rows.truncation[:] = self._numbers("truncation", truncations, False, "b")
            if flags:
                self._without_last(obs)
            rows.mask[:] = self.present
        self.steady = calm
        if flags and self.turns is not None:
            # the conversion observed before the agents that ended left: who is on turn may be another one now
            obs = {**obs, **{agent: self.turns.observe(agent) for agent in self.env.agents}}
        self.info = infos if isinstance(infos, Mapping) else NOTHING
        self._write_agents(obs)
        self._write_masks(obs, self.info)

    def loaded(self) -> None:
        super().loaded()
        self._find_present()

    def finish(self, which: Array) -> None:
        super().finish(which)
        info = self.info
        self.note_agents((agent, info.get(self.names[agent])) for agent in np.flatnonzero(which).tolist())

    def _stats(self, info: Mapping[str, Any], which: Array) -> None:
        """Writes the declared statistics, each agent's from its own info."""
        for agent in np.flatnonzero(which).tolist():
            given = info.get(self.names[agent])
            own = {} if not isinstance(given, Mapping) else given
            super()._stats(own, [agent])

    # ---- who is there, and what they do ----

    def _find_present(self) -> None:
        agents = self.env.agents
        if tuple(agents) == self.names:
            self.present = True
        else:
            there = set(agents)
            if not there <= self.known:
                new = next(agent for agent in agents if agent not in self.known)
                raise FieldError(
                    f"agent {new!r} has come, and possible_agents does not have it: list all agents that may ever come"
                )
            self.present = np.array([name in there for name in self.names])

    def _actions(self) -> dict[Any, Any]:
        """Returns the actions of the agents that are there."""
        if self.fits is None:
            actions = self.decoder.each(self.rows.action)
        else:
            actions = [own.action(row) for own, row in zip(self.fits, self.rows.action)]
        pairs = zip(self.names, actions)
        if self.present is True:
            return dict(pairs)
        return {name: action for (name, action), there in zip(pairs, self.present) if there}  # type: ignore[arg-type]

    def _numbers(self, what: str, given: Mapping[Any, Any], absent: Any, kinds: str) -> list[Any] | Array:
        """Returns each agent's number. Raises FieldError for one of another type."""
        values = [given.get(name, absent) for name in self.names]
        try:
            array = np.array(values)
        except (ValueError, TypeError):
            array = np.empty(0)
        if array.shape == self.agents and array.dtype.kind in kinds:
            return array
        for name, value in zip(self.names, values):
            one = np.asarray(value)
            if one.size != 1 or one.dtype.kind not in kinds:
                raise FieldError(
                    f"{what} of agent {name!r} is {value!r}, expected a {'bool' if kinds == 'b' else 'number'}"
                )
        return [np.asarray(value).item() for value in values]

    def _without_last(self, obs: Mapping[Any, Any]) -> None:
        """Lets truncations without a last observation end by the rules: there is nothing to bootstrap from."""
        rows = self.rows
        for agent in np.flatnonzero(rows.truncation).tolist():
            name = self.names[agent]
            if obs.get(name) is None:
                rows.terminal[agent] = True
                if rows.mask[agent]:
                    self.notes.setdefault(
                        "last",
                        f"agent {name!r} was truncated, and the step gave no observation of it: nothing to bootstrap "
                        "from, so its episode counts as terminated; give the last observation with the truncation",
                    )

    # ---- observations ----

    def _write_agents(self, obs: Mapping[Any, Any]) -> None:
        """Writes all agents' observations, zeros for those without one."""
        given: list[Any] = [obs.get(name) for name in self.names]
        if unseen := [i for i, value in enumerate(given) if value is None]:
            acting = self.acting()
            for i in unseen:
                if acting[i]:
                    raise FieldError(
                        f"agent {self.names[i]!r} is in agents, but there is no observation of it"
                    )
        if self.fits is not None:
            for i, (value, own) in enumerate(zip(given, self.fits)):
                own.write(value, [view[i, ...] for view in self.views])
            return
        for leaf in self.leaves:
            values, part = given, leaf.part
            if unseen or part.path:
                values = [leaf.absent if value is None else part.find(value) for value in given]
            if leaf.whole is not None:
                dtype, shape = part.dtype, part.shape
                for value in values:
                    if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                        break
                else:
                    np.concatenate(values, out=leaf.whole)
                    continue
            for i, value in enumerate(given):
                row = leaf.view[i, ...]
                if value is None:
                    row[...] = 0
                else:
                    part.write(value, row, ())

    # ---- action masks ----

    def _write_masks(self, obs: Mapping[Any, Any], infos: Any) -> None:
        """Writes the masks of the agents that act next; other rows are all True."""
        source = self.mask
        infos = infos if isinstance(infos, Mapping) else NOTHING
        if source is None and self.found_mask is not None and infos:
            for name in self.names:
                if unexpected(infos.get(name)):
                    self.found_mask()
        if not self.factory.spec.action_mask:
            return
        view, acting = self.mask_view, self.acting()
        assert view is not None
        masks = None if source is None or self.method is None else self.method()
        on_turn = None if self.turns is None else self.turns.agent_selection
        view[...] = True
        for agent in np.flatnonzero(acting).tolist():
            name = self.names[agent]
            if on_turn is not None and name != on_turn:
                view[agent] = self.waiting
                continue
            own = None if self.fits is None else self.fits[agent]
            if own is not None:
                view[agent] = own.legal
            if source is None:
                continue
            value = source.find(
                obs[name], infos.get(name), partial(_of_agent, masks, name) if masks is not None else None
            )
            if own is None:
                view[agent] = source.reader.read(value, (), f"{source.place()} of agent {name!r}")
            else:
                view[agent, own.places] = own.reader.read(value, (), f"{source.place()} of agent {name!r}")

    def _hint(self) -> str:
        return ""

    def _check(self, value: Any, what: str) -> None:
        if not isinstance(value, Mapping):
            raise FieldError(
                f"{what} is {type(value).__name__}, expected a dict by agent: the environment is not parallel "
                f"({PARALLEL})"
            )


class _Own:
    """Converts the values of an agent whose spaces are its own (joint_space.py)."""

    def __init__(self, fit: Fit, factory: Made) -> None:
        self.decoder = ActionDecoder(fit.action)
        self.columns, self.legal, self.places = fit.columns, fit.legal, fit.places
        own = {part.name: part for part in observation_parts(fit.observation)}
        self.parts = [own.get(part.name) for part in factory.parts]
        """Of each joint leaf the agent's own, or None: it has none."""
        self.reader = MaskReader(_nvec(fit), fit.action)

    def action(self, row: Array) -> Any:
        return self.decoder.each(row[None, self.columns])[0]

    def write(self, obs: Any, rows: list[Array]) -> None:
        """Writes the agent's observation, or zeros, to its row of each leaf."""
        for part, row in zip(self.parts, rows):
            row[...] = 0
            if part is not None and obs is not None:
                shape = (sum(part.nvec),) if part.nvec else part.shape
                inside: tuple[Any, ...] = (*(slice(0, side) for side in shape), ...)
                part.write(obs, row[inside], ())


def _of_agent(masks: Any, name: Any) -> Any:
    """Returns an agent's mask of what action_masks() gave."""
    if not isinstance(masks, Mapping):
        raise FieldError(f"action_masks() gave {type(masks).__name__}, expected a dict by agent")
    return masks.get(name)


def _nvec(fit: Fit) -> tuple[int, ...]:
    return action_spec(fit.action).nvec


def _any(flags: Mapping[Any, Any]) -> bool:
    """Returns whether one of these may be set."""
    try:
        return any(flags.values())
    except ValueError:  # an array, which is named later
        return True


def _given(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
