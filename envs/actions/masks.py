"""Finds the action mask of a Python environment and writes it into its rows.

    env.action_mask=auto         a leaf `action_mask` of a Dict observation, a method action_masks(), or
                                 info["action_mask"]: the first of them that is there. Only a reset shows what is in
                                 info, so a process of its own looks (vector/first_look.py)
    env.action_mask=obs:LEAF     a leaf of the observation; the network does not see it
    env.action_mask=method       action_masks()
    env.action_mask=info         info["action_mask"] of every reset and step
    env.action_mask=none         no mask; a leaf of this name is an observation like any other, info is ignored
    env.action_mask=absent       no mask, and one in info is an error: what auto becomes where none was found

A mask has one entry for each choice, True or 1 where it is legal; its forms: mask_values.py. Whether a row has a legal
choice is checked where an action is chosen by it. The row after an episode's end needs no mask.

Place in the flow: python_env.py detects the source, python_slot.py writes masks with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

from metta_fast.config.action_mask_keys import NAME, WITHOUT
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions.mask_values import MaskReader
from metta_fast.envs.episode_length import layers
from metta_fast.envs.spaces import FieldError, Part

METHOD = "action_masks"
CHOICES = "auto, none, absent, info, method or obs:LEAF"
OFF = "env.action_mask=none turns masks off"


@dataclass(frozen=True)
class MaskSource:
    """Says where the mask is: in an observation (`path`), in info, or in a method."""

    kind: str
    """"obs", "info" or "method"."""
    reader: MaskReader
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
            FieldError: a value of another form.
        """
        to[...] = self.reader.read(value, agents, self.place())


def method_of(env: Any) -> Callable[[], Any] | None:
    """Returns `action_masks` of the environment or of one that it wraps; None if there is none."""
    found = (getattr(layer, METHOD, None) for layer in layers(env))
    return next((method for method in found if callable(method)), None)


def find_source(
    given: str,
    env: Any,
    reader: MaskReader,
    parts: Sequence[Part],
    drop: Sequence[str] = (),
    *,
    checked: bool = True,
) -> MaskSource | None:
    """Returns where the environment's mask is, or None: it has none, or with "auto" perhaps one in `info`.

    Args:
        given: env.action_mask.
        drop: leaves that env.drop leaves out. Of a mask: there is none, with "auto".
        checked: a leaf's space is compared with the actions; False: agents have masks of different sizes.

    Raises:
        UserError: an unknown value, a source that is not there, or actions that have no mask.
    """
    kind, _, leaf = given.partition(":")
    if given not in ("auto", "info", "method", *WITHOUT) and not (kind == "obs" and leaf):
        raise UserError(f"env.action_mask={given!r}: expected {CHOICES}")
    if given in WITHOUT or (given == "auto" and (not reader.size or NAME in drop)):
        return None
    if not reader.size:
        raise UserError(
            f"env.action_mask={given}: masks are for discrete actions, and these are continuous; leave it out"
        )
    if kind == "obs":
        paths = {
            "/".join(map(str, path)): path
            for part in parts
            for path in (part.path[:i] for i in range(1, len(part.path) + 1))
        }
        if leaf in drop:
            raise UserError(
                f"env.action_mask=obs:{leaf}: env.drop leaves this leaf out; take it out of env.drop (the network does "
                "not see a mask)"
            )
        if leaf not in paths:
            raise UserError(
                f"env.action_mask=obs:{leaf}: no such leaf; the observation has "
                f"{', '.join(sorted(paths)) or 'obs alone'}"
            )
        source = MaskSource("obs", reader, paths[leaf])
        return _checked_leaf(source, given, parts) if checked else source
    if given == "info":
        return MaskSource("info", reader)
    if given == "method":
        if method_of(env) is None:
            raise UserError("env.action_mask=method: the environment has no method action_masks()")
        return MaskSource("method", reader)
    if any(part.path[:1] == (NAME,) for part in parts):
        source = MaskSource("obs", reader, (NAME,))
        return _checked_leaf(source, given, parts) if checked else source
    return None if method_of(env) is None else MaskSource("method", reader)


def _checked_leaf(source: MaskSource, given: str, parts: Sequence[Part]) -> MaskSource:
    """Raises UserError for a leaf whose space is no mask of these actions."""
    inside = [part for part in parts if is_mask(part, source)]
    size, wanted = sum(prod(part.shape) for part in inside), source.reader.size
    if any(part.dtype.kind not in "biu" or part.nvec for part in inside) or size != wanted:
        shapes = ", ".join(f"{part.leaf.dtype} {list(part.shape)}" for part in inside)
        raise UserError(
            f"env.action_mask={given}: observation {'/'.join(map(str, source.path))!r} is {shapes}, expected bool or "
            f"int8 [{wanted}], one entry for each choice; env.action_mask=none makes it an observation like "
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
