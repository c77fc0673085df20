# ruff: noqa: E501  (tables)
"""Mistakes in the arguments of the other commands."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.run.bad.case import COMMANDS, Case
from tests.run.bad.training import LONG, LONGER

NO_RUN = (
    "nonesuch", "", "/", ".", "..", "{run}/config.yaml", "{bad}/empty", "{bad}/norun", "/dev/null", "/proc/self", LONG, LONGER,
    "~nobody_mf/x", "{run}/checkpoints", "{run}/checkpoints/step_999999999999", "\udcff", "a\nb", "{bad}/binary", "-", "--", "-x",
)  # fmt: skip
"""What is no run."""

EVAL = (
    "", "{run} --episodes 0", "{run} --episodes -1", "{run} --episodes abc", "{run} --episodes 1e3", "{run} --episodes 1000000000",
    "{run} --episodes 999999999999999999999", "{run} --episodes", "{run} --seed -1", "{run} --seed abc", "{run} --seed 9223372036854775808",
    "{run} --seed 1.5", "{run} --nonesuch", "{run} {run}", "{run} --json=x", "{run} --deterministic=1", "{step} --best",
    "{run} --episodes=", "{run} --seed=''", "--best", "--json", "{run} env.num_envs=3", "{run} env.nonesuch=1", "{run} trainer.gamma=1",
    "{run} env.max_steps=0", "{run} env.max_steps=[1", "{run} env.params=3", "{run} env.params.nonesuch=3", "{run} env.max_steps.x=1",
)  # fmt: skip

REPLAY = (
    "", "{run} --html", "{run} --html {run}", "{run} --html /nonesuch/x.html", "{run} --html=", f"{{run}} --html {LONG}.html",
    f"{{run}} --html {LONGER}.html", "{run} --html {here}/full", "{run} --html /proc/x.html", "{run} --html {run}/config.yaml/x",
    "{run} --video x.avi", "{run} --video x", "{run} --video x.gif", "{run} --video /nonesuch/x.gif", f"{{run}} --video {LONG}.gif",
    "{run} --picture x.txt", "{run} --picture x", "{run} --picture x.png", "{run} --picture /nonesuch/x.png", "{run} --json {run}",
    "{run} --json /nonesuch/x", "{run} --json=", "{run} --mettascope x.json", "{run} --mettascope /nonesuch/x.json.z", "{run} --mettascope=", "{run} --mettascope x.json.z", f"{{run}} --json {LONG}", f"{{run}} --json {LONGER}", "{run} --json {here}/full",
    "{run} --fps 0", "{run} --fps -1", "{run} --fps nan", "{run} --fps inf", "{run} --fps abc", "{run} --fps 1e9", "{run} --step 3",
    "{run} --terminal --step -1", "{run} --terminal --step 1000000000", "{run} --terminal --step abc", "{run} --terminal --agent 99",
    "{run} --terminal --agent -1", "{run} --agent 0", "{run} --player nonesuch", "{run} --player scripted",
    "{run} --deterministic --stochastic", "{run} --seed -1", "{run} --seed abc", "{run} --episode -1", "{run} --episode 1000000",
    "{run} --episode abc", "{run} --nonesuch", "{run} {run}", "{step} --best", "{grid} --picture x.png --step 1000000",
    "{grid} --picture {bad}/empty/x/y.png", "{grid} --video {here}/full", "{grid} --terminal --agent 9999999999999999999999",
)  # fmt: skip

EXPORT = (
    "", "{run}", "{run} --out", "{run} --out=", "{run} --out {run}", "{run} --out x", "{run} --out x.txt", "{run} --out /nonesuch/x.pt",
    f"{{run}} --out {LONG}.pt", f"{{run}} --out {LONGER}.pt", "{run} --out {here}/full", "{run} --out {here}/full --format=torchscript",
    "{run} --out /proc/x.pt", "{run} --out x.pt --format nonesuch", "{run} --out x.pt --format", "{run} --out x.pt --nonesuch",
    "{run} {run} --out x.pt", "{step} --best --out x.pt", "{run} --out {run}/config.yaml --format=torchscript",
    "{run} --out {run}/config.yaml/x.pt", "nonesuch --out x.pt", "{bad}/norun --out x.pt", "{run} --out x.pt --format ''",
    "{run} --out . --format=torchscript", "{run} --out {here}/full --format torchscript --overwrite",
)  # fmt: skip

MONITOR = (
    "nonesuch", "--interval 0", "--interval -1", "--interval nan", "--interval inf", "--interval abc", "--interval 1e9", "--interval",
    "--interval=", "--nonesuch", "{run} {run}", "{run} --once=1", "--once nonesuch", "{bad}/norun2 --once",
)  # fmt: skip

NEW_ENV = (
    "", "1a", "A", "class", "double", "a-b", "../x", "a/b", "é", LONG, LONGER, "a b", "_x", "a.b", "x --nonesuch", "x --dir",
    "x --dir {bad}/binary", "x --dir /dev/null", f"x --dir {LONGER}", "x --dir=/proc/nonesuch", "x x",
)  # fmt: skip

ROBOT = (
    "", "1a", "A", "class", "a-b", "../x", "a/b", "é", LONG, LONGER, "ant", "hopper", "a b", "_x", "robot", "a.b", "--model", "x --nonesuch",
    "mf_bad --model nonesuch.xml", "mf_bad --model {run}", "mf_bad --model {bad}/binary", "mf_bad --model {bad}/latin.yaml",
    "mf_bad --model /dev/null", "mf_bad --model {bad}/empty.xml", "mf_bad --model {bad}/nojoint.xml", "mf_bad --model=",
    f"mf_bad --model {LONGER}", "mf_bad mf_bad", "mf_bad --model {bad}/fifo",
)  # fmt: skip

BENCH = (
    "nonesuch", "--nonesuch", "--seconds 0", "--seconds -1", "--seconds abc", "--seconds nan", "--seconds inf", "--seconds",
    "--repeats 0", "--repeats -1", "--repeats 1.5", "--repeats abc", "--ablate --train", "--simulator --vector", "--env", "--env nonesuch",
    "--camera nonesuch", "--camera ant", "--camera lift_cube_wrist --sizes 3", "--camera lift_cube_wrist --envs 0", "--sizes 64", "--camera",
    "--env ''", "--sb3 nonesuch=",  "--threads 1", "--envs 4", "--env ant --threads abc", "--env ant --threads 0",
    "--env ant --threads ''", "--env ant --envs abc", "--env ant --envs -1", "--env ant --envs 1,,2", "--env ant --threads 1,2,x",
    "--json /nonesuch/x", "--json {run}", f"--json {LONG}", f"--json {LONGER}", "--json", "--json=", "--json {here}/full --nonesuch",
    "--plot x", "--plot x.txt", "--plot /nonesuch/x.png", "--plot {run}", "--plot=", f"--plot {LONG}.png", f"--plot {LONGER}.png",
    "--from x.json", "--from nonesuch.json --plot x.png", "--from {run} --plot x.png", "--from {bad}/binary --plot x.png",
    "--from {bad}/empty.json --plot x.png", "--from {bad}/list.json --plot x.png", "--from {bad}/machine.json --plot x.png",
    "--from {bad}/deep.json --plot x.png", "--from {bad}/fifo --plot x.png", "--from= --plot x.png", f"--from {LONGER} --plot x.png",
    "--a nonesuch=1 --seconds 1 --repeats 1", "--a trainer.gamma=2 --seconds 1 --repeats 1", "--b hardware=nonesuch --seconds 1 --repeats 1",
    "--seconds 1 --a='", "--a", "--seconds 1 --b=\"", "--find-batch nonesuch=1", "--find-batch trainer.gamma=2",
    "--find-batch --json x.json", "--find-batch --quick", "--find-batch nonesuch", "--train nonesuch=1", "--train trainer.gamma=2",
    "--return nan", "--return abc", "--return 1 --vector", "--limit 0", "--limit abc", "--limit -3", "--gpu", "--gpu-scale", "--gpu --quick",
    "--gpu-scale --train", "--vector env=grid", "--vector --vector-env nonesuch", "--vector --vector-rival nonesuch", "--vector --envs 0", "--vector --envs 1,x",
    "--vector-env sleep", "--vector-rival sb3 --train", "--simulator --quick --nonesuch", "--return inf",
    "--robot", "--robot ant --gpu", "--robot ant --threads 2", "--robot ant --envs x", "--robot ant env.num_envs=3",
)  # fmt: skip

WARM = (
    "nonesuch", "--nonesuch", "env.num_env=3", "trainer.gamma=high", "env=nonesuch", "hardware=nonesuch", "resume=/nonesuch", "--explain",
    "--cfg", "--config-dir", "--config-dir /nonesuch", "--config-dir=", "env.device=cuda hardware=cpu", "env=", "=", "env=ant env.params.preset=fats",
    "env.num_envs=0", "env=ant env.device=cuda", f"init_from={LONG}", "env=counter trainer.batch_size=1000000000000",
)  # fmt: skip

OTHER = (
    ("",), ("nonesuch",), ("trian",), ("--nonesuch",), ("env=grid",), ("Train",), ("train,eval",), (LONG,), (LONGER,), ("\udcff",),
    ("--versoin",), ("help", "nonesuch"), ("--version", "nonesuch"), ("watch",), ("runs",), ("sweep",), ("doctor", "nonesuch"),
    ("doctor", "--nonesuch"), ("doctor", "--explain"), ("-",), ("--",), ("a\nb",), ("build", "nonesuch_mf"),
)  # fmt: skip


def full(folder: Path) -> None:
    """A device that is always full, made in the case's folder: a command that replaces it spares the machine's own."""
    try:
        os.mknod(folder / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    except PermissionError:  # only root makes devices
        os.mkfifo(folder / "full")


def cases() -> Iterator[Case]:
    """Yields the cases."""
    for words in OTHER:
        yield Case(words, rc=(0, 2))
    for command in ("eval", "replay", "export", "monitor"):
        out = ("--out", "x.pt") if command == "export" else ("--once",) if command == "monitor" else ()
        for word in NO_RUN:
            newest = command == "monitor" and word in ("--", ".")
            yield Case((command, word, *out), rc=(0, 2) if newest else (2,))
    for command, table in (
        ("eval", EVAL), ("replay", REPLAY), ("export", EXPORT), ("monitor", MONITOR), ("new-env", NEW_ENV), ("new-robot", ROBOT), ("bench", BENCH), ("warm", WARM),
    ):  # fmt: skip
        for text in table:
            words = (command, *text.split(" ")) if text else (command,)
            yield Case(words, _says(text), before=_before(text))
    for text in BENCH[::4]:
        yield Case(("benchmark_performance.py", *text.split(" ")), before=_before(text))
    for command in COMMANDS:
        yield Case((command, "--help", "nonesuch"), rc=(0, 2), lines=200)
        yield Case((command, "--hepl"))


def _before(text: str) -> Callable[[Path], None] | None:
    return full if "{here}/full" in text else None


def _says(text: str) -> tuple[str, ...]:
    """What the message holds: the last word, if it is a name or a number."""
    word = text.rpartition(" ")[2]
    option = word.startswith("-") and not word[1:].isdigit()
    if text in (
        "{run} --step 3",
        "{run} --agent 0",
        "{run} --fps 1e9",
        "--interval 1e9",
        "--return 1 --vector",
        "--gpu --quick",
    ):
        return ()
    plain = word.isalnum() or word[1:].isdigit()
    return (word,) if plain and not option and len(word) < 40 and word != "x" else ()
