"""Mistakes in environments in C: their folders, rules, descriptions and parameters."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.run.bad.case import Case
from tests.run.bad.keys import TINY

TRAIN = ("train", "env.path={here}/walk", *(word for word in TINY[1:] if word != "env=counter"))
"""A training of the environment that each case writes."""
CHANGES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "syntax": ("walk.h", "s->step++;", "s->step++", ("walk.h does not compile", "walk.h:")),
    "undeclared": ("walk.h", "s->step++;", "s->steps++;", ("walk.h does not compile", "steps")),
    "include": ("walk.h", '#include "philox.h"', '#include "nonesuch.h"', ("walk.h does not compile", "nonesuch.h")),
    "missing": ("walk.h", "walk_observe", "walk_observes", ("walk.h does not compile", "walk_observe")),
    "double": ("walk.h", "float step_reward;", "double step_reward;", ("step_reward", "another type, expected float")),
    "obs": ("walk.h", "return 2 *", "return 3 *", ("walk_obs_size gives 12 bytes",)),
    "state": ("walk.h", "+ 63) / 64 * 64", "+ 1)", ("walk_state_size", "a multiple of 64")),
    "python": ("walk.py", "env = ", "env == ", ("walk.py cannot be imported", "NameError")),
    "exits": ("walk.py", "env = ", "raise SystemExit(3)\nenv = ", ("walk.py cannot be imported", "SystemExit")),
    "none": ("walk.py", "env = ", "other = ", ("walk.py defines no env",)),
    "name": ("walk.py", '"walk",', '"run",', ("CEnv('run', …)", "the folder's name")),
    "recipe": ("walk.yaml", "env:", "env: [", ("walk.yaml",)),
    "recipekey": ("walk.yaml", "max_steps", "max_step", ("walk.yaml", "env.max_step", "did you mean")),
    "recipevalue": ("walk.yaml", "{size: 10}", "{size: many}", ("env.params.size", "many")),
}  # fmt: skip
"""Case → file, its text, what replaces it, and what the message holds."""
WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("env.params.size=1", ("env.params.size=1", "from 2 to 1000")),
    ("env.params.size=2.5", ("env.params.size=2.5", "a whole number")),
    ("env.params.size=99999999999", ("env.params.size", "from 2 to 1000")),
    ("env.params.siz=3", ("env.params.siz", "did you mean 'size'")),
    ("env.params.step_reward=nan", ("env.params.step_reward", "a number")),
    ("env.params.step_reward=[1]", ("env.params.step_reward", "a number")),
    ("env.params.max_steps=3", ("env.params.max_steps", "env.max_steps=3")),
    ("env.agents_per_env=2", ("env.agents_per_env=2", "give 1")),
    ("env.max_steps=0", ("env.max_steps=0",)),
    ("env.observation=tokens", ("env.observation=tokens",)),
    ("env.factory=counter", ("env.path", "env.factory=counter")),
    ("env.device=cuda", ("env.device=cuda", "GPU")),
    ("env.drop=[x]", ("env.drop",)),
    ("env.id=CartPole-v1", ("env.id",)),
)
"""A word after env.path=./walk, and what the message holds."""
PATHS = (
    ("{here}/walk/walk.h", ("walk.h", "is a file", "env.path=")),
    ("{here}/nonesuch", ("nonesuch", "no such folder", "new-env nonesuch")),
    ("{here}", ("named as the folder",)),
    ("{here}/walk/..", ("named as the folder",)),
    ("''", ("env.path",)),
    ("3", ("env.path",)),
    ("/dev/null", ("/dev/null",)),
    ("x" * 300, ("too long",)),
    ("x" * 5000, ("too long",)),
    ("{here}/empty_header", ("empty_header.h", "does not exist")),
)
"""A value of env.path."""


def cases() -> Iterator[Case]:
    """Yields the cases."""
    for name, (file, before, after, says) in CHANGES.items():
        yield Case(TRAIN, says, before=_changed(name, file, before, after))
    for word, says in WORDS:
        yield Case((*TRAIN, word), says, before=walk)
    for path, says in PATHS:
        yield Case(("train", f"env.path={path}", *TRAIN[2:]), says, before=walk)
        yield Case(("build", path), rc=(2,), before=walk)
    yield Case(
        ("build", "{here}/walk"), ("walk.h",), before=_changed("syntax", "walk.h", "s->step++;", "s->step++")
    )
    yield Case((*TRAIN, "env=c"), rc=(0,), before=walk)
    yield Case(("train", "env=c", *TRAIN[2:]), ("env.path",))
    yield Case(("train", "resume={here}/runs/r", "trainer.total_timesteps=128"),
               ("rules of walk have changed", "init_from="), before=_trained_then_changed)  # fmt: skip
    yield Case(
        ("train", "resume={here}/runs/r", "env.path={here}/other/walk"), ("env.path",), before=_trained
    )
    yield Case(
        ("eval", "{here}/runs/r", "env.path={here}/other/walk", "--episodes", "1"),
        ("env.path",),
        before=_trained,
    )


def walk(folder: Path) -> None:
    """Writes the environment walk, another of that name, and one without a header."""
    from metta_fast.scaffold.new_env import new_env

    new_env("walk", folder)
    new_env("walk", folder / "other")
    new_env("empty_header", folder)
    (folder / "empty_header/empty_header.h").unlink()


def _changed(name: str, file: str, before: str, after: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        walk(folder)
        _replace(folder / "walk" / file, before, after)

    prepare.__name__ = name
    return prepare


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def _trained(folder: Path) -> None:
    """A run of walk, by this user."""
    from metta_fast.cli import main

    walk(folder)
    words = [word.replace("{here}", str(folder)) for word in TRAIN]
    assert main([*words, f"run.dir={folder / 'runs'}", "run.name=r"]) == 0


def _trained_then_changed(folder: Path) -> None:
    """Its rules changed since; a comment does not count."""
    from metta_fast.cli import main

    _trained(folder)
    header = folder / "walk/walk.h"
    _replace(header, "s->step++;", "s->step++; // counts")
    assert main(["train", f"resume={folder / 'runs/r'}", "trainer.total_timesteps=96"]) == 0
    _replace(header, "s->reward += 1.0f;", "s->reward += 2.0f;")
    shutil.rmtree(folder / "other")
