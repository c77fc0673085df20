"""Makes a vector of environments from a name, or from what makes one environment.

    vec = metta_fast.make_vec("CartPole-v1", num_envs=512, backend="workers")      # contracts/vector.py
    envs = metta_fast.make_vec(MyEnv, num_envs=8, api="gymnasium")                 # a gymnasium.vector.VectorEnv

Place in the flow: for programs without a trainer. resolve/compose.py reads the name, envs makes the factory, vector
steps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from metta_fast.config.extension import takes
from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.adapters.python_factory import wrapped
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.machine.hardware import allowed_cores
from metta_fast.resolve.compose import compose
from metta_fast.vector import make_vector
from metta_fast.vector.choose import choose
from metta_fast.vector.first_look import look

APIS = ("metta_fast", "gymnasium")
MEASURED = 16
"""Native environments whose step is timed."""


def make_vec(
    env: str | EnvFactory | Callable[..., Any],
    num_envs: int = 64,
    *,
    backend: str = "auto",
    api: str = "metta_fast",
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    num_workers: int | None = None,
    num_threads: int | None = None,
    num_blocks: int = 1,
    worker_timeout_s: float = 60.0,
) -> Any:
    """Makes `num_envs` environments that step together, without a trainer.

    Args:
        env: what `env=…` takes on the command line (a recipe, an id of Gymnasium, "my_module:make"), an EnvFactory, an
            environment's class, or a function that makes one, with the environment's index as its argument or without.
        backend: "serial", "threads", "workers" (processes), or "auto": serial if all steps together take less than
            0.1 ms, threads for native environments and for Python environments whose step waits (for a clock, a
            socket, another process), else workers. To find that out, environments are made and stepped for a moment,
            those in Python in another process; a typed number leaves that out.
        api: "metta_fast" gives the vector contract (metta_fast.VectorEnv): blocks that are sent and received one by
            one. "gymnasium" gives a gymnasium.vector.VectorEnv, for environments of one agent. Its autoreset mode is
            NEXT_STEP, as `metadata["autoreset_mode"]` says; its infos are empty.
        kwargs: arguments of the environment's constructor.
        wrappers: called with each environment, the innermost first.
        num_workers, num_threads: None: as many as cores are allowed, at most num_envs; where steps wait, more.
        num_blocks: contiguous ranges of environments that are sent and received separately; 1 with api="gymnasium".
        worker_timeout_s: seconds without a reply after which a worker is reported as hung.

    Raises:
        UserError: an unknown name, or arguments that do not go together.
    """
    if api not in APIS:
        raise UserError(f"api={api!r}: {did_you_mean(str(api), APIS)}expected one of {', '.join(APIS)}")
    if api == "gymnasium" and num_blocks != 1:
        raise UserError(
            f"num_blocks={num_blocks}: api='gymnasium' steps all environments together; leave it out"
        )
    factory = _factory(env, dict(kwargs or {}), tuple(wrappers))
    count = num_envs if isinstance(num_envs, int) else 1
    open_ = backend == "auto" and num_workers is None and num_threads is None
    waits, seconds = _step_of(factory) if open_ else ("no", math.inf)
    choice = choose(factory.spec, count, allowed_cores(), waits, backend, seconds)
    vec = make_vector(
        factory,
        num_envs,
        backend=choice.backend,
        num_blocks=num_blocks,
        num_workers=num_workers or max(1, choice.num_workers),
        num_threads=num_threads or max(1, choice.num_threads),
        worker_timeout_s=worker_timeout_s,
    )
    if api == "metta_fast":
        return vec
    from metta_fast.compat.gymnasium_vector import GymnasiumVector

    try:
        return GymnasiumVector(vec, factory)
    except BaseException:
        vec.close()
        raise


def _step_of(factory: EnvFactory) -> tuple[str, float]:
    """Returns how one environment's step waits (vector/choose.py), and its seconds; infinite: not known."""
    if isinstance(factory, PythonEnvFactory):
        seen = look(factory)
        return seen.waits, seen.seconds or math.inf
    if not factory.spec.native:
        return "no", math.inf
    one, many = (_step_seconds(factory, count) for count in (1, MEASURED))
    return "no", max(0.0, many - one) / (MEASURED - 1)  # without what the call itself takes


def _step_seconds(factory: EnvFactory, num_envs: int) -> float:
    """Returns the seconds of a step of so many native environments: the median of a few, with actions of zeros."""
    with closing(make_vector(factory, num_envs)) as vec:
        vec.async_reset(0)
        vec.hold_all()
        actions, each = np.zeros_like(vec.rows.action), []
        for _ in range(9):
            begin = perf_counter()
            for block in vec.hold_all():
                vec.send(block, actions[block.start : block.stop])
            vec.hold_all()
            each.append(perf_counter() - begin)
    return median(each)


def _factory(env: Any, kwargs: dict[str, Any], wrappers: tuple[Callable[[Any], Any], ...]) -> EnvFactory:
    """Returns the factory of what the caller gave."""
    for wrap in wrappers:
        if not callable(wrap):
            raise UserError(
                f"wrappers: {wrap!r} is {type(wrap).__name__}, expected a class or function of one argument"
            )
    if isinstance(env, str):
        config = compose([f"env={env}", "hardware=cpu"]).config.env
        config.action_mask = "none"  # a vector's caller chooses the actions, and reads a mask where it is
        if kwargs:
            config.kwargs = kwargs
        factory = make_factory(config)
        return _rewrapped(factory, wrappers, env) if wrappers else factory
    if isinstance(env, EnvFactory) and not isinstance(env, type):
        if kwargs:
            raise UserError("kwargs are for a name or a maker of environments; this EnvFactory has its own")
        return _rewrapped(env, wrappers, env.spec.name) if wrappers else env
    if callable(env):
        name = getattr(env, "__name__", type(env).__name__).strip("<>")
        made = Made(env, kwargs, wrappers, _takes_index(env, kwargs))
        return PythonEnvFactory(made, name=name, action_mask="none")
    raise UserError(
        f"make_vec: env is {type(env).__name__}, expected a name such as 'CartPole-v1', an EnvFactory, or a function "
        "or class that makes an environment"
    )


def _rewrapped(factory: EnvFactory, wrappers: tuple[Callable[[Any], Any], ...], name: str) -> EnvFactory:
    """Returns the factory with wrappers around its environments, which have to be Python's."""
    if not isinstance(factory, PythonEnvFactory):
        raise UserError(
            f"wrappers are for environments in Python; {name} steps many at once and cannot be wrapped"
        )
    return factory.around(Made(factory.make_env, {}, wrappers, index=True))


def _takes_index(maker: Callable[..., Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a maker is called with the environment's index. A class, or a function that can be called without
    an argument, is not."""
    if isinstance(maker, type) or (takes(maker, **kwargs) and not takes(maker, 0, **kwargs)):
        return False
    if takes(maker, 0, **kwargs):
        return not takes(maker, **kwargs)
    raise UserError(
        f"make_vec: {getattr(maker, '__name__', maker)} cannot be called with {dict(kwargs) or 'no argument'}, nor "
        "with an index before it"
    )


class Made:
    """Makes environment i: the maker's, wrapped."""

    def __init__(
        self,
        maker: Callable[..., Any],
        kwargs: Mapping[str, Any],
        wrappers: tuple[Callable[[Any], Any], ...],
        index: bool,
    ) -> None:
        self.maker, self.kwargs, self.wrappers, self.index = maker, kwargs, wrappers, index

    def __call__(self, index: int) -> Any:
        env = self.maker(index, **self.kwargs) if self.index else self.maker(**self.kwargs)
        for wrap in self.wrappers:
            env = wrapped(env, f"wrappers: {getattr(wrap, '__name__', wrap)}", wrap)
        return env
