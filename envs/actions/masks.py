"""Finds the action mask of a Python environment and writes it into its rows.

    env.action_mask=auto         a leaf `action_mask` of a Dict observation, a method action_masks(), or
                                 info["action_mask"]: the first of them that is there. Only a reset shows what is in
                                 info, so a process of its own looks (vector/first_look.py)
    env.action_mask=obs:LEAF     a leaf of the observation; the network does not see it
    env.action_mask=method       action_masks()
    env.action_mask=info         info["action_mask"] of every reset and step
    env.action_mask=none         no mask; a leaf of this name is an observation like any other, info is ignored
    env.action_mask=absent       no mask, and one in info is an error: what auto becomes where none was found

A mask has one entry for each choice, True or 1 where it is legal: [n] for Discrete(n), all heads side by side or a
tuple of masks for MultiDiscrete. Several agents give [agents, …]. The row after an episode's end needs none.

Place in the flow: python_env.py detects the source, python_slot.py writes masks with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions.mask_keys import WITHOUT
from metta_fast.envs.episode_length import layers
from metta_fast.envs.spaces import FieldError, Part

NAME = "action_mask"
"""Key of a Dict observation and of `info`."""
METHOD = "action_masks"
CHOICES = "auto, none, absent, info, method or obs:LEAF"
OFF = "env.action_mask=none turns masks off"


@dataclass(frozen=True)
class MaskSource:
    """Says where the mask is: in an observation (`path`), in info, or in a method."""

    kind: str
    """"obs", "info" or "method"."""
    nvec: tuple[int, ...]
    path: tuple[Any, ...] = ()

    def describe(self) -> str:
        """Returns the source as env.action_mask takes it: obs:LEAF, info or method."""
        return "obs:" + "/".join(str(key) for key in self.path) if self.kind == "obs" else self.kind

    def place(self) -> str:
        """Names the source in a message."""
        if self.kind == "obs":
            return f"action mask (observation {'/'.join(str(key) for key in self.path)!r})"
        return 'action mask (info["action_mask"])' if self.kind == "info" else "action mask (action_masks())"

    def find(self, obs: Any, info: Any, method: Callable[[], Any] | None) -> Any:
        """Returns the mask as the environment gives it. Raises FieldError if it gives none."""
        if self.kind == "method" and method is not None:
            return method()
        value = obs if self.kind == "obs" else info
        try:
            for key in self.path or (NAME,):
                value = value[key]
        except (KeyError, IndexError, TypeError):
            value = None
        if value is None:
            raise FieldError(f"{self.place()} is missing: give it with every reset and step; {OFF}")
        return value

    def write(self, value: Any, to: Array, agents: tuple[int, ...]) -> None:
        """Writes a mask to `to`, bool [*agents, P].

        Raises:
            FieldError: a wrong length or dtype.
        """
        mask = value if isinstance(value, np.ndarray) else self._joined(value)
        if mask.shape != to.shape:
            raise FieldError(
                f"{self.place()} has shape {list(mask.shape)}, expected {list(to.shape)}: one entry for each choice"
            )
        if mask.dtype != np.bool_ and (mask.dtype.kind not in "iu" or not ((mask == 0) | (mask == 1)).all()):
            raise FieldError(
                f"{self.place()} is {mask.dtype} {mask.tolist()}, expected bool, or whole numbers 0 and 1"
            )
        to[...] = mask

    def check_legal(self, mask: Array, live: Array) -> None:
        """Raises FieldError if a live row [n] of a mask [n, P] leaves a head without a legal choice."""
        if not bool(live.any()):
            return
        at = 0
        for head, n in enumerate(self.nvec):
            if not np.asarray(mask[:, at : at + n].any(1))[live].all():
                which = f" for action head {head}" if len(self.nvec) > 1 else ""
                raise FieldError(
                    f"{self.place()} leaves no legal action{which}: allow at least one, or end the episode in the step "
                    "before"
                )
            at += n

    def _joined(self, value: Any) -> Array:
        """Converts a list, or a tuple of a mask for each head, to one array."""
        try:
            if isinstance(value, (tuple, list)) and len(value) == len(self.nvec) and np.ndim(value[0]):
                parts = [np.asarray(part) for part in value]
                if [part.shape[-1] for part in parts] == list(self.nvec):
                    return np.concatenate(parts, -1)
            mask = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise FieldError(f"{self.place()} cannot be converted to an array ({error})") from None
        if mask.dtype.kind not in "biuf":
            raise FieldError(f"{self.place()} is a {type(value).__name__}, expected an array of bool")
        return mask


def method_of(env: Any) -> Callable[[], Any] | None:
    """Returns `action_masks` of the environment or of one that it wraps; None if there is none."""
    found = (getattr(layer, METHOD, None) for layer in layers(env))
    return next((method for method in found if callable(method)), None)


def find_source(
    given: str, env: Any, action: ActionSpec, parts: Sequence[Part], agents: int | None
) -> MaskSource | None:
    """Returns where the environment's mask is, or None: it has none, or with "auto" perhaps one in `info`.

    Args:
        given: env.action_mask.
        agents: number of agents of an environment of several, else None.

    Raises:
        UserError: an unknown value, a source that is not there, or actions that have no mask.
    """
    kind, _, leaf = given.partition(":")
    if given not in ("auto", "info", "method", *WITHOUT) and not (kind == "obs" and leaf):
        raise UserError(f"env.action_mask={given!r}: expected {CHOICES}")
    if given in WITHOUT or (given == "auto" and action.kind != "discrete"):
        return None
    if action.kind != "discrete":
        raise UserError(
            f"env.action_mask={given}: masks are for discrete actions alone, and these are {action.kind}; leave it out"
        )
    nvec = action.nvec
    if kind == "obs":
        paths = {
            "/".join(map(str, path)): path
            for part in parts
            for path in (part.path[:i] for i in range(1, len(part.path) + 1))
        }
        if leaf not in paths:
            raise UserError(
                f"env.action_mask=obs:{leaf}: no such leaf; the observation has "
                f"{', '.join(sorted(paths)) or 'obs alone'}"
            )
        return _checked_leaf(MaskSource("obs", nvec, paths[leaf]), given, parts)
    if given == "info":
        return MaskSource("info", nvec)
    if given == "method":
        if method_of(env) is None:
            raise UserError("env.action_mask=method: the environment has no method action_masks()")
        return MaskSource("method", nvec)
    if any(part.path[:1] == (NAME,) for part in parts):
        return _checked_leaf(MaskSource("obs", nvec, (NAME,)), given, parts)
    return None if method_of(env) is None else MaskSource("method", nvec)


def _checked_leaf(source: MaskSource, given: str, parts: Sequence[Part]) -> MaskSource:
    """Raises UserError for a leaf whose space is no mask of these actions."""
    inside = [part for part in parts if is_mask(part, source)]
    size = sum(part.shape[-1] if part.shape else 1 for part in inside)
    if any(part.dtype.kind not in "biu" or part.nvec for part in inside) or size != sum(source.nvec):
        shapes = ", ".join(f"{part.leaf.dtype} {list(part.shape)}" for part in inside)
        raise UserError(
            f"env.action_mask={given}: observation {'/'.join(map(str, source.path))!r} is {shapes}, expected bool or "
            f"int8 [{sum(source.nvec)}], one entry for each choice; env.action_mask=none makes it an observation like "
            "any other"
        )
    if len(inside) == len(parts):
        raise UserError(
            f"env.action_mask={given}: the observation holds nothing but the mask, so the policy would see nothing"
        )
    return source


def is_mask(part: Part, source: MaskSource | None) -> bool:
    """Returns whether a leaf of the observation belongs to the mask, which the network does not see."""
    return source is not None and source.kind == "obs" and part.path[: len(source.path)] == source.path


def unexpected(info: Any) -> bool:
    """Returns whether `info` has a mask."""
    return info is not None and NAME in info and info[NAME] is not None


def refuse() -> NoReturn:
    """Raises FieldError for a mask in `info` that is not used."""
    raise FieldError(
        'info has "action_mask", and this run chooses actions without it: env.action_mask=info uses it, '
        "env.action_mask=none ignores it"
    )
