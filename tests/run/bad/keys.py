"""Each key of the schema with values that it cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from metta_fast.config.keys import Key, keys
from tests.run.bad.case import Case

TINY = (
    "train", "hardware=cpu", "env=counter", "env.num_envs=2", "trainer.batch_size=32", "trainer.bptt_horizon=8",
    "trainer.minibatch_size=32", "trainer.total_timesteps=64", "trainer.torch_threads=1", "run.dashboard=none",
    "run.tensorboard=false", "vector.backend=serial",
)  # fmt: skip
"""A training that is over at once, should the mistake go unnoticed."""

WRONG = {
    "int": ("abc", "1.5", "[1,2]", "{a:1}", "true", "nan", "inf", "''", "1e400", "0x10"),
    "float": ("abc", "[1,2]", "{a:1}", "true", "nan", "inf", "''", "1,5"),
    "bool": ("maybe", "1", "''", "[true]"),
    "str": ("[a,b]", "{a:1}", "true"),
    "names": ("obs", "[1,2]", "{a:1}", "true"),
    "dict": ("abc", "[1]", "3"),
    "named": ("[a]", "3", "null", "{lr:1}"),
}
"""Kind → values of another kind."""
HUGE = 10**30


def cases() -> Iterator[Case]:
    """Yields a case for every key and wrong value."""
    for entry in keys().values():
        for value in values(entry):
            yield Case((*TINY, f"{entry.path}={value}"), _says(entry, value))


def values(entry: Key) -> Iterator[str]:
    """Yields the values, as typed."""
    if entry.choices:
        yield "nonesuch"
    yield from WRONG[entry.kind]
    if not entry.null and entry.kind not in ("dict", "named"):
        yield "null"
    if not entry.auto and "auto" not in (entry.choices or ()) and entry.kind in ("int", "float", "bool"):
        yield "auto"
    if entry.kind in ("int", "float"):
        if entry.low is not None:
            yield f"{entry.low - 1:g}"
            yield f"-{HUGE}"
        yield str(HUGE) if entry.kind == "int" else "1e300"


def _says(entry: Key, value: str) -> tuple[str, ...]:
    path = entry.path.partition(".")[0] if entry.kind == "named" else entry.path
    shown = {"1e400": "inf", "1e300": "1e+300", "{lr:1}": "lr", "[1]": "1"}.get(value, value.strip("'"))
    return (path, shown)
