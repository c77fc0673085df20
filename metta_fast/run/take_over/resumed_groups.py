"""Gives `hardware=…` and `features=…` their effect where they are typed at a resume.

    hardware=l4 resume=auto         its values replace those of the run's profile, but for keys that were typed
                                    or on which the saved state depends
    features=profiler resume=auto   the features are these: others of the run are turned off (features=null: all)

The same command that began a run changes nothing when it is repeated. Place in the flow: resume.py merges with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metta_fast.config.keys import Config, get, keys, path_parts, put, shown
from metta_fast.resolve.compose import COMMAND_LINE, Composed

PROFILE = "hardware/"


def last_typed(words: Sequence[str], group: str) -> str | None:
    """Returns what was typed for a group, or None."""
    found = [word.partition("=")[2] for word in words if word.startswith(f"{group}=")]
    return found[-1] if found else None


def profile_of(meta: Mapping[str, Any]) -> str | None:
    """Returns the profile of a checkpoint's run; None: unknown."""
    groups = meta.get("groups")
    if isinstance(groups, Mapping) and isinstance(groups.get("hardware"), str):
        return str(groups["hardware"])
    named = [str(o).removeprefix(PROFILE) for o in meta["origins"].values() if str(o).startswith(PROFILE)]
    return named[0] if named else None


def put_profile(
    saved: Config,
    origins: dict[str, str],
    composed: Composed,
    meta: Mapping[str, Any],
    is_fixed: Callable[[str], bool],
    words: Sequence[str],
) -> tuple[dict[str, str], list[str]]:
    """Puts the values of a typed profile into a run's configuration.

    Args:
        is_fixed: whether a key cannot change within a run.

    Returns:
        The groups of the resumed run, and messages for the user.
    """
    before, typed = profile_of(meta), last_typed(words, "hardware")
    groups = dict(composed.groups)
    if typed in (None, "auto") or typed == before:
        return (groups | {"hardware": before} if before else groups), []
    kept = []
    new = {path for path, file in composed.from_profile.items() if composed.origins.get(path) == file}
    old = {path for path, origin in meta["origins"].items() if str(origin) == f"{PROFILE}{before}"}
    for path in sorted(new | old):
        if path not in keys() or origins.get(path) == COMMAND_LINE:
            continue  # typed now
        value = get(composed.config, path) if path in new else keys()[path].default
        if value == get(saved, path):
            continue
        if is_fixed(path) or meta["origins"].get(path) == COMMAND_LINE:
            kept.append(f"{path}={shown(get(saved, path))}")
            continue
        put(saved, path, value)
        origins[path] = composed.origins[path] if path in new else "default"
    note = f"hardware={typed}: its values replace those of " + (
        f"hardware={before}" if before else "the run's profile"
    )
    if kept:
        note += f", but for {', '.join(kept)}, which were typed or belong to the saved state"
    return groups, [note]


def drop_features(saved: Config, composed: Composed, words: Sequence[str]) -> list[str]:
    """Turns off the run's features that a typed `features=…` does not list. Returns messages for the user."""
    typed = last_typed(words, "features")
    if typed is None or typed.startswith("{"):  # {name: {key: value}} adds
        return []
    listed = {
        path_parts(path)[1]
        for path, origin in composed.origins.items()
        if path.startswith("features.") and (origin == COMMAND_LINE or origin.startswith("features/"))
    }
    gone = [name for name in saved.features if name not in listed]
    for name in gone:
        del saved.features[name]
    return [f"features={typed}: {name} is turned off" for name in gone]
