"""Runs the command line: `metta-fast train|warm|eval|replay|export|monitor|new-env|new-robot|build|doctor|bench`.

The same as `python -m metta_fast`; `run_optimized.py` is `train`.

    metta-fast train hardware=auto env=grid_solo trainer.total_timesteps=5_000_000
    metta-fast train resume=auto
    metta-fast warm env=ant env.device=cuda
    metta-fast eval runs/<name>
    metta-fast replay runs/<name>
    metta-fast export runs/<name> --out policy.onnx
    metta-fast monitor
    metta-fast doctor
    metta-fast bench --find-batch

A user's mistake gives one message on stderr and exit code 2, without a traceback. Heavy imports wait until the
command is known.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from metta_fast.contracts.errors import UserError, shown_text, system_refusal
from metta_fast.contracts.printable import printable
from metta_fast.distributed.place import found
from metta_fast.machine.idle_threads import let_idle_threads_sleep
from metta_fast.machine.output import run_command
from metta_fast.machine.run_imports import see_current_folder
from metta_fast.version import __version__

USAGE = """usage: metta-fast COMMAND …

  train [key=value …]   train, or continue a run (resume=auto); `metta-fast train --help` explains every key
  warm [key=value …]    compile what a training with these values needs, and stop; `metta-fast warm --help`
  eval RUN …            evaluate a run's policy on unseen seeds; `metta-fast eval --help`
  replay RUN …          show an episode as a page, in the terminal or as a video; `metta-fast replay --help`
  export RUN …          export a run's policy as TorchScript, torch.export or ONNX; `metta-fast export --help`
  monitor [RUN]         show the machine and a run's newest metrics, live; `metta-fast monitor --help`
  new-env NAME          write the files of your own environment in C; `metta-fast new-env --help`
  new-robot NAME        write the files of your own robot; `metta-fast new-robot --help`
  build [NAME|FOLDER]   compile the native extensions of a checkout, one of them, or an environment in C
  doctor                list this machine's hardware, the matching profile and missing packages; `doctor --help`
  bench …               measure speed (benchmark_performance.py); `metta-fast bench --help`

  --version, --help
  --completion SHELL    print the completion script for bash, zsh or fish: source <(metta-fast --completion bash)"""


def train(words: Sequence[str], default_hardware: str = "auto") -> int:
    """Composes and resolves the configuration and trains; or prints --help, --explain or --cfg job.

    Returns:
        The exit code.
    """
    from metta_fast.resolve.explain import cfg_text, explain_text, help_text

    began = time.monotonic()
    given = list(words)
    words, show, trust = _split(words)
    if show is None and (place := found()).active:
        from metta_fast.run.processes.ranks import train_rank

        return train_rank(words, place, default_hardware=default_hardware, trust=trust, began=began)
    if show == "--help":
        typed = [word.partition("=")[2] for word in words if word.startswith("algorithm=")]
        print(help_text([name for name in typed if name]), end="")
        return 0
    with ExitStack() as closing:
        with _uncollected():
            from metta_fast.config.trust import Given
            from metta_fast.resolve.compose import compose
            from metta_fast.resolve.resolve import resolve
            from metta_fast.run.early_start import begin
            from metta_fast.run.resume import prepare

            composed = compose(words, default_hardware=default_hardware)
            composed.given = Given(trust=trust)
            start = prepare(composed, words, lock=show is None)
            closing.callback(start.release)
            resolved = resolve(start.composed)
            if show is not None:
                text = explain_text(resolved) if show == "--explain" else cfg_text(resolved)
                print(printable(text), end="")
                return 0
            if (count := resolved.config.distributed.processes) > 1:
                from metta_fast.distributed.launch import launch

                start.release()
                return launch(
                    count,
                    [*given, f"hardware={default_hardware}"]
                    if not any(w.startswith("hardware=") for w in given)
                    else given,
                )
            begin(resolved)
            # torch is imported here, after mistakes in the configuration were reported
            from metta_fast.run.trainer import Trainer
        return Trainer(
            resolved,
            folder=start.folder,
            start=start.checkpoint,
            init=start.init,
            remote=start.remote,
            began=began,
        ).run()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disables the garbage collector, whose passes over torch's objects slow the import of torch.

    On exit these permanent objects are frozen, so that later collections skip them.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()


def _split(words: Sequence[str], *, strict: bool = True) -> tuple[list[str], str | None, bool]:
    """Separates --help, --explain or --cfg job, and --trust, from the other arguments.

    Args:
        strict: raise UserError for --cfg without job.
    """
    rest, show = [word for word in words if word != "--trust"], None
    for flag in ("--cfg", "--explain", "-h", "--help"):
        while flag in rest:
            place = rest.index(flag)
            if strict and flag == "--cfg" and rest[place + 1 : place + 2] != ["job"]:
                raise UserError("--cfg needs the argument job: --cfg job")
            del rest[place : place + (2 if flag == "--cfg" else 1)]
            show = "--help" if flag == "-h" else flag
    return rest, show, "--trust" in words


def warm(words: Sequence[str]) -> int:
    from metta_fast.run.warm import run_warm_command

    return run_warm_command(list(words))


def evaluate(words: Sequence[str]) -> int:
    from metta_fast.inference.evaluate import run_eval_command
    from metta_fast.resolve.arguments import parse

    return run_eval_command(list(words), lambda changes: parse(changes).values)


def replay(words: Sequence[str]) -> int:
    from metta_fast.episodes.command import run_replay_command

    return run_replay_command(list(words))


def export(words: Sequence[str]) -> int:
    from metta_fast.export.command import run_export_command

    return run_export_command(list(words))


def monitor(words: Sequence[str]) -> int:
    from metta_fast.watch.command import run_monitor_command

    return run_monitor_command(list(words))


def new_env(words: Sequence[str]) -> int:
    from metta_fast.scaffold.new_env import run_new_env_command

    return run_new_env_command(list(words))


def new_robot(words: Sequence[str]) -> int:
    from metta_fast.scaffold.new_robot import run_new_robot_command

    return run_new_robot_command(list(words))


def build(words: Sequence[str]) -> int:
    from metta_fast.envs.c_env.folder import build_folder
    from metta_fast.scaffold.build import run_build_command

    return run_build_command(list(words), build_folder)


def doctor(words: Sequence[str]) -> int:
    from metta_fast.resolve.doctor import main as examine

    return examine(words)


def bench(words: Sequence[str]) -> int:
    from metta_fast.bench.main import main as measure

    return measure(list(words))


def _show_crashes() -> None:
    """Has a crash of this process, in an environment's C code for example, print where Python was."""
    with suppress(AttributeError, OSError, RuntimeError, ValueError):  # stderr is closed, or no file
        if not faulthandler.is_enabled():
            faulthandler.enable()


def _interruptible(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Runs a command that a signal ends by an exception: temporary files are removed, processes that it started are
    ended, and the terminal is as before. Training handles signals itself."""
    from metta_fast.run.signals import Interrupt, Interrupted

    with Interrupt() as interrupt:
        try:
            with interrupt.allowed():
                code = command(words)
        except Interrupted:
            code = 130
    ended_by = interrupt.signum
    return code if ended_by is None or ended_by == signal.SIGINT else 128 + ended_by


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "warm": warm,
    "eval": evaluate,
    "replay": replay,
    "export": export,
    "monitor": monitor,
    "new-env": new_env,
    "new-robot": new_robot,
    "build": build,
    "doctor": doctor,
    "bench": bench,
}


PARSERS = {
    "train": None,
    "warm": "metta_fast.run.warm",
    "eval": "metta_fast.inference.evaluate",
    "replay": "metta_fast.episodes.command",
    "export": "metta_fast.export.command",
    "monitor": "metta_fast.watch.command",
    "new-env": "metta_fast.scaffold.new_env",
    "new-robot": "metta_fast.scaffold.new_robot",
    "build": "metta_fast.scaffold.build",
    "doctor": "metta_fast.resolve.doctor",
    "bench": "metta_fast.bench.arguments",
}
"""Command → the module whose function `parser` makes the parser of its options; None: it takes keys."""


def completion(words: Sequence[str]) -> str:
    """Returns the completion script of the shell that `words` names."""
    from importlib import import_module

    from metta_fast.completion import SHELLS, script

    if len(words) != 1:
        raise UserError(f"--completion takes the name of a shell: {', '.join(SHELLS)}")
    parsers = {name: import_module(module).parser() if module else None for name, module in PARSERS.items()}
    helps = dict(re.findall(r"^  ([a-z-]+) .*?  +(\S[^;\n]*)", USAGE, re.MULTILINE))
    return script(words[0], parsers, helps)


def _check_folder() -> None:
    """Raises UserError if the current folder was deleted: relative paths lead nowhere."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(
            f"the current folder cannot be used ({error.strerror}): it was deleted; cd to a folder that exists"
        ) from error


def main(words: Sequence[str] | None = None, *, default_hardware: str = "auto") -> int:
    """Runs a command and returns its exit code: 0, 1 failure, 2 a user's mistake, 130 Ctrl-C, 143 SIGTERM, or its own.

    Args:
        default_hardware: the profile that `train` uses if no `hardware=` is given.
    """
    let_idle_threads_sleep()
    _show_crashes()
    see_current_folder()
    given = list(sys.argv[1:] if words is None else words)
    trains = given[:1] == ["train"] and _split(given[1:], strict=False)[1] is None
    return run_command(partial(_run, given, default_hardware), trains=trains)


def _run(words: list[str], default_hardware: str) -> int:
    """Runs the command that the words name and returns its exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if words else 2
    if words[0] == "--version":
        print(__version__)
        return 0
    try:
        _check_folder()
        if words[0] == "--completion":
            print(completion(words[1:]), end="")
            return 0
        if words[0] not in COMMANDS:
            train_it = f"; did you mean 'train {words[0]}'?" if "=" in words[0] else ";"
            raise UserError(f"unknown command '{words[0]}'{train_it} known: {', '.join(COMMANDS)}")
        if words[0] == "train":
            return train(words[1:], default_hardware)
        return _interruptible(COMMANDS[words[0]], words[1:])
    except KeyboardInterrupt:
        return 130
    except (OSError, ImportError) as error:
        text = system_refusal(error)
        if text is None or getattr(sys.stdout, "failed", None):  # run_command reports the latter
            raise
        print(f"error: {shown_text(text)}", file=sys.stderr)
        return 2
    except RuntimeError as error:
        from metta_fast.contracts.env import EnvError
        from metta_fast.contracts.errors import NonFiniteError, Unreachable
        from metta_fast.contracts.vector import VectorError

        lost = getattr(sys.stdout, "failed", None)  # run_command reports it: an environment's print failed
        if lost or not isinstance(error, (EnvError, VectorError, NonFiniteError, Unreachable)):
            raise
        print(f"error: {printable(error)}", file=sys.stderr)  # of an environment, or remote storage
        return 1
