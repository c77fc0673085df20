"""Translates words of other programs that train the same task: `num_train_envs=8` is `env.num_envs=8`.

    translate(["--config-name", "multi_env_wrist", "image.size=84"])
    # words ["env=lift_cube_wrist", "env.num_envs=4", "env.image.size=84"], horizon 512, and a note for each

Place in the flow: resolve/arguments.py translates before it reads the words; resolve.py makes a batch of the horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from metta_fast.config.keys import did_you_mean, keys
from metta_fast.contracts.errors import UserError

CONFIGS = {"multi_env_wrist": (("env=lift_cube_wrist", "env.num_envs=4"), 512)}
"""Name of a configuration → (our words, steps of each agent in a batch)."""
OPTIONS = ("--config-name", "-cn")
WRIST = "env.use_wrist_cam"
ENGINE = "env.backend"
STEPS = "train.num_steps"
VIEWER = "env.show_viewer=true"
RENAMED = {"num_train_envs": "env.num_envs"}


@dataclass
class Translated:
    """Holds the words in our terms."""

    words: list[str] = field(default_factory=list)
    horizon: tuple[str, int] | None = None
    """(as typed, steps that each agent gives in an epoch)."""
    notes: list[str] = field(default_factory=list)
    """What each translated word means, for the user."""

    def means(self, typed: str, words: Sequence[str], meaning: str = "") -> None:
        """Adds our words for a typed one, and a note."""
        self.words += words
        self.notes.append(f"{typed} means {meaning or ' '.join(words)}")


def _other_engine(value: str) -> str:
    """Returns why robots of ours are not simulated by this engine, and what works instead."""
    ours = "MuJoCo steps our robots with env.device=cpu, MuJoCo Warp with env.device=cuda; leave it out"
    if value.lower() != "genesis":
        return f"{ENGINE}={value}: {ours}"
    return (
        f"{ENGINE}={value}: our robots do not run in Genesis. {ours}. A Genesis scene of your own (package "
        "genesis-world) trains as a batch of tensors: env=my_module:make (docs/batched.md)"
    )


def translate(given: Sequence[str]) -> Translated:
    """Returns the words with those of other programs replaced; a configuration's come first, so that others win.

    Raises:
        UserError: an unknown configuration, or a value that such a word cannot have.
    """
    named, found = Translated(), Translated()
    queue = iter(given)
    for word in queue:
        name, equals, value = word.partition("=")
        if name in OPTIONS:
            value = value if equals else next(queue, "")
            if value not in CONFIGS:
                raise UserError(
                    f"{name} {value}: {did_you_mean(value, CONFIGS)}expected {', '.join(CONFIGS)}; a recipe is chosen "
                    "with env=NAME"
                )
            words, steps = CONFIGS[value]
            named = Translated(horizon=(f"{name} {value}", steps))
            named.means(f"{name} {value}", words, f"{' '.join(words)} and {steps} steps of each in a batch")
        elif name == STEPS and equals:
            if not value.isascii() or not value.isdigit() or int(value) < 1:
                raise UserError(f"{word}: expected a whole number of at least 1")
            found.horizon = word, int(value)
        elif name == WRIST and equals:
            if value.lower() not in ("true", "false"):
                raise UserError(f"{word}: expected true or false")
            found.means(word, ["env=lift_cube_wrist" if value.lower() == "true" else "env=lift_cube"])
        elif name == ENGINE and equals:
            raise UserError(_other_engine(value))
        elif equals and (name in RENAMED or (name.startswith("image.") and f"env.{name}" in keys())):
            found.means(word, [f"{RENAMED.get(name, f'env.{name}')}={value}"])
        else:
            found.words.append(word)
            if word == VIEWER:
                found.notes.append(f"{word} means MuJoCo's window on environment 0")
    return Translated(named.words + found.words, found.horizon or named.horizon, [*named.notes, *found.notes])
