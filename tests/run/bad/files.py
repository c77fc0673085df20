"""Mistakes in files: configuration files of the user's, and what the machine does to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.run.bad.case import Case
from tests.run.bad.keys import TINY

LAUGHS = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
)
YAML: dict[str, tuple[bytes | str, tuple[str, ...]]] = {
    "latin": ("# Größe\ntrainer: {gamma: 0.9}\n".encode("latin-1"), ("latin.yaml", "UTF-8", "line 1")),
    "utf16": ("trainer: {gamma: 0.9}\n".encode("utf-16"), ("utf16.yaml",)),
    "binary": (bytes(range(256)), ("binary.yaml",)),
    "recursive": ("env: &a {params: {x: *a}}\n", ("recursive.yaml", "alias")),
    "selflist": ("env: {params: {x: &a [*a]}}\n", ("selflist.yaml", "alias")),
    "laughs": (f"# @package _global_\nenv:\n  params:\n    x: &x 1\n{LAUGHS}", ("laughs.yaml",)),
    "sixty": ("# @package _global_\nrun: {checkpoint_max_s: 1:30}\n", ("run.checkpoint_max_s", "1:30", "90")),
    "octal": (
        "# @package _global_\ntrainer: {total_timesteps: 0100}\n",
        ("trainer.total_timesteps", "0100", "64"),
    ),
    "bom": (b"\xef\xbb\xbf# @package _global_\nseed: 3\n", ("bom.yaml", "byte order mark")),
    "tab": ("a:\n\t- b\n", ("tab.yaml",)),
    "twice": ("# @package _global_\nseed: 1\nseed: 2\n", ("seed",)),
    "list": ("- a\n- b\n", ("list.yaml",)),
    "number": ("3\n", ("number.yaml",)),
    "text": ("hello\n", ("text.yaml",)),
    "open": ("a: {b: [1\n", ("open.yaml",)),
    "deep": ("# @package _global_\nenv: {params: " + "{a: " * 400 + "1" + "}" * 400 + "}\n", ("deep.yaml",)),
    "deeper": ("[" * 100_000, ("deeper.yaml",)),
    "unknown": ("# @package _global_\nnonesuch: 1\n", ("env/unknown", "nonesuch")),
    "wrong": ("# @package _global_\ntrainer: {gamma: high}\n", ("env/wrong", "trainer.gamma", "high")),
    "range": ("# @package _global_\ntrainer: {gamma: 2}\n", ("env/range", "trainer.gamma", "2")),
    "group": ("# @package _global_\ntrainer: 3\n", ("env/group", "trainer")),
    "nothing": ("# @package _global_\ntrainer: null\n", ("env/nothing", "trainer")),
    "noname": ("# @package _global_\nrun: {name: no}\n", ("env/noname", "run.name", "false")),
    "none": ("# @package _global_\nseed: ~\n", ("env/none", "seed", "null")),
    "missing": ("# @package _global_\nseed: ???\n", ("seed", "env/missing")),
    "reference": ("# @package _global_\nseed: ${nonesuch}\n", ("nonesuch",)),
    "circle": ("# @package _global_\nseed: ${seed}\n", ("seed",)),
    "python": ("# @package _global_\nseed: !!python/object/apply:os.getpid []\n", ("python.yaml",)),
    "tag": ("# @package _global_\nseed: !nonesuch 3\n", ("tag.yaml",)),
    "nul": (b"seed: 3\x00\n", ("nul.yaml",)),
    "defaults": ("# @package _global_\ndefaults: [nonesuch]\n", ("nonesuch",)),
    "selfdefault": ("# @package _global_\ndefaults: [selfdefault]\n", ("selfdefault",)),
    "defaultnumber": ("# @package _global_\ndefaults: 3\n", ()),
    "long": (f"# @package _global_\nseed: {'n' * 100_000}\n", ("seed",)),
    "huge": ("# @package _global_\nseed: " + "9" * 5000 + "\n", ("huge.yaml",)),
    "mapkey": ("# @package _global_\n? [a, b]\n: 3\n", ("mapkey.yaml",)),
    "numberkey": ("# @package _global_\n3: 3\n", ("3",)),
    "emptykey": ("# @package _global_\n'': 3\n", ()),
    "dotkey": ("# @package _global_\n'trainer.gamma': 3\n", ("trainer.gamma",)),
    "large": (b"# x\n" * 1_000_000, ("large.yaml",)),
}
"""Name of a file in env/ → its content, and what the message holds."""
GOOD: dict[str, bytes | str] = {
    "crlf": "# @package _global_\r\nenv: {name: counter, factory: counter}\r\n",
    "empty": "",
    "comment": "# nothing\n",
}
"""Files that are read."""
SIZES = ("env.factory=counter", "env.agents_per_env=1")


def cases() -> Iterator[Case]:
    """Yields the cases."""
    for name, (content, says) in YAML.items():
        words = (*TINY, "--config-dir", "{here}/c", f"env={name}", *SIZES)
        yield Case(words, says, before=_config(name, content))
    for name, content in GOOD.items():
        words = (*TINY, "--config-dir", "{here}/c", f"env={name}", *SIZES)
        yield Case(words, rc=(0,), before=_config(name, content))
    special: tuple[tuple[str, Callable[[Path], None]], ...] = (
        ("folder", lambda file: file.mkdir()),
        ("fifo", lambda file: __import__("os").mkfifo(file)),
        ("dangling", lambda file: file.symlink_to("/nonesuch")),
        ("circular", lambda file: file.symlink_to(file)),
        ("device", lambda file: file.symlink_to("/dev/zero")),
    )
    for name, make in special:
        words = (*TINY, "--config-dir", "{here}/c", f"env={name}")
        yield Case(words, (f"{name}.yaml",), before=_special(name, make))
    yield Case(
        (*TINY, "--config-dir", "{here}/c", "env=grid"), ("grid.yaml",), before=_config("grid", "x: 1\n")
    )


def _config(name: str, content: bytes | str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / "c" / "env").mkdir(parents=True)
        data = content if isinstance(content, bytes) else content.encode()
        (folder / "c" / "env" / f"{name}.yaml").write_bytes(data)

    prepare.__name__ = f"c/env/{name}.yaml"
    return prepare


def _special(name: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / "c" / "env").mkdir(parents=True)
        make(folder / "c" / "env" / f"{name}.yaml")

    prepare.__name__ = f"c/env/{name}.yaml"
    return prepare
