"""Trains from a Python program: the command line's `train` as a function.

result = metta_fast.train(env="counter", trainer__total_timesteps=200_000, run__name="first")
result.metrics["env/return"], result.folder
result.policy.act(obs)

Keys are those of the configuration with two underscores for each dot, or dicts of a group's keys:
`trainer__gamma=0.9` and `trainer={"gamma": 0.9}` are trainer.gamma=0.9. Place in the flow: beside cli.py.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import no_silent_exit
from metta_fast.machine.idle_threads import let_idle_threads_sleep
from metta_fast.machine.output import tolerant_output
from metta_fast.run.callbacks import Callback, Callbacks

if TYPE_CHECKING:
    from metta_fast.inference.loaded_policy import LoadedPolicy


@dataclass
class TrainResult:
    """The result of `train`."""

    folder: Path
    """The run's folder."""
    checkpoint: Path | None
    """The newest checkpoint; None if nothing was learned."""
    steps: int
    """Agent steps of the run, including those before a resume."""
    metrics: dict[str, float]
    """The newest figure of each kind, by their fixed names."""
    stopped: str | None
    """Why a callback stopped it; None if it trained to the end."""

    @cached_property
    def policy(self) -> LoadedPolicy:
        """The trained policy, as `metta_fast.load_policy(folder)` returns it."""
        from metta_fast.inference.loaded_policy import load_policy

        return load_policy(self.checkpoint or self.folder, trust=True)  # its code was just used


def train(
    env: str | Callable[..., Any] | Mapping[str, Any] | None = None,
    *,
    hardware: str = "auto",
    policy: str | type | Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    **overrides: Any,
) -> TrainResult:
    """Trains as `metta-fast train` does, and returns when it is done. It can be called repeatedly.

    In the main thread, Ctrl-C saves and raises KeyboardInterrupt, SIGTERM saves and raises SystemExit; elsewhere no
    signal handlers are installed.

    Args:
        env: a recipe's name, or your own as "package.module:function" or the function itself.
        hardware: a profile.
        policy: a name, or your own as "package.module.Class" or the class itself.
        callbacks: see metta_fast.Callback.
        trust: with resume= or init_from=, import whatever code the other run names, also if somebody else began it.
        overrides: any key of the configuration, trainer__learning_rate=1e-3 or trainer={"learning_rate": 1e-3}.

    Raises:
        UserError: an invalid argument; nothing has started, or the last state is saved.
        CallbackError: a callback raised; the last state is saved.
        NonFiniteError, VectorError, EnvError: the training failed; the last good state is saved.
    """
    began = time.monotonic()
    let_idle_threads_sleep()
    calls = Callbacks(callbacks)
    given: dict[str, Any] = {"hardware": hardware}
    if env is not None:
        given["env"] = _dotted(env, "env", ":") if callable(env) else env
    if policy is not None:
        given["policy"] = _dotted(policy, "policy", ".") if callable(policy) else policy
    words = words_of(given | overrides)
    from metta_fast.config.trust import Given
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve
    from metta_fast.run.resume import prepare

    with no_silent_exit(), tolerant_output(), ExitStack() as closing:
        composed = compose(words)
        composed.given = Given(trust=trust, in_python=True)
        start = prepare(composed, words)
        closing.callback(start.release)
        resolved = resolve(start.composed)
        from metta_fast.run.trainer import Trainer

        closing.enter_context(_torch_as_it_was())
        trainer = Trainer(
            resolved,
            folder=start.folder,
            start=start.checkpoint,
            init=start.init,
            remote=start.remote,
            callbacks=calls,
            began=began,
        )
        code = trainer.run()
    if trainer.failure is not None:
        raise trainer.failure
    if trainer.interrupted:
        raise KeyboardInterrupt if code == 130 else SystemExit(code)
    from metta_fast.storage import checkpoint

    steps = checkpoint.steps(trainer.folder.checkpoints)
    newest = steps[-1][1] if steps else None
    return TrainResult(trainer.folder.path, newest, trainer.steps, dict(trainer.metrics), trainer.stopped)


def words_of(given: Mapping[str, Any]) -> list[str]:
    """Returns keyword arguments as the words of a command line.

    Raises:
        UserError: a value that cannot be written on a command line.
    """
    words = []
    for name, value in given.items():
        path = name.replace("__", ".")
        if isinstance(value, Mapping) and value:
            words += words_of({f"{path}.{key}": item for key, item in value.items()})
        else:
            words.append(f"{path}={_written(path, value)}")
    return words


def _written(path: str, value: Any) -> str:
    """Returns a value in the grammar of the command line."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # numpy's and torch's numbers
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, PathLike)):
        # A backslash is one but before a quote, where it escapes.
        text = re.sub(r"(\\*)'", r"\1\1\\'", str(fspath(value)))
        return "'" + re.sub(r"(\\+)$", r"\1\1", text) + "'"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_written(path, item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_written(path, item)}" for key, item in value.items()) + "}"
    raise UserError(
        f"{path}={value!r}: a {type(value).__name__} cannot be stored in the run's configuration; give a string, "
        "a number, a list or a dict"
    )


def _dotted(made: Callable[..., Any], key: str, mark: str) -> str:
    """Returns the name by which a user's function or class can be imported."""
    module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
    if not module or not name.isidentifier() or getattr(sys.modules.get(module), name, None) is not made:
        raise UserError(
            f"{key}={made!r}: give a function or class that is defined at the top level of a module, so that the "
            "run's configuration can name it; lambdas and local functions cannot be used"
        )
    return f"{module}{mark}{name}"


@contextmanager
def _torch_as_it_was() -> Iterator[None]:
    """Restores torch's global settings afterwards and frees the GPU's memory."""
    import torch

    filling: Any = torch.utils.deterministic
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    precision, fill, random = (
        torch.get_float32_matmul_precision(),
        filling.fill_uninitialized_memory,
        torch.get_rng_state(),
    )
    cudnn = torch.backends.cudnn
    searching, tf32 = cudnn.benchmark, cudnn.allow_tf32
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != strict:
            torch.use_deterministic_algorithms(strict)
        if torch.get_float32_matmul_precision() != precision:
            torch.set_float32_matmul_precision(precision)
        filling.fill_uninitialized_memory = fill
        torch.set_rng_state(random)
        cudnn.benchmark, cudnn.allow_tf32 = searching, tf32
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            gc.collect()
            torch.cuda.empty_cache()
