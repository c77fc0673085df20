"""Steps an environment past Gymnasium's own wrappers that have nothing left to do.

    step = direct_step(env)                    # the same as env.step(action), in less time

gymnasium.make puts TimeLimit, OrderEnforcing and PassiveEnvChecker around an environment. The second only raises before
the first reset, the third checks the first step only; each costs a call or two, which a cheap environment feels. Only
these very classes are passed by, and only while nobody has replaced their `step`.

Place in the flow: python_slot.py calls the function in place of env.step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

Step = Callable[[Any], Any]


def direct_step(env: Any) -> Step:
    """Returns a function that does what `env.step` does, once `env` was reset; `env.step` itself if that is all."""
    limit = env if _is(env, TimeLimit, "_elapsed_steps", "_max_episode_steps") else None
    inner, checker = env if limit is None else limit.env, None
    while True:
        if checker is None and _is(inner, PassiveEnvChecker, "checked_step"):
            checker = inner
        elif not _is(inner, OrderEnforcing):
            break
        inner = inner.env
    if checker is None:
        whole: Step = env.step
        return whole
    direct = _Direct(env, limit, checker, inner.step)
    return direct.unlimited if limit is None else direct.limited


def _is(env: Any, kind: type, *attributes: str) -> bool:
    """Returns whether this is the very class, with its own `step` and these attributes of its own."""
    found = vars(env) if type(env) is kind else {}
    return bool(found) and "step" not in found and all(name in found for name in attributes)


class _Direct:
    """Steps `inner` in place of `env`, as soon as the first step was checked."""

    def __init__(self, env: Any, limit: Any, checker: Any, inner: Step) -> None:
        self.env, self.limit, self.checker, self.inner = env, limit, checker, inner

    def unlimited(self, action: Any) -> Any:
        return self.inner(action) if self.checker.checked_step else self.env.step(action)

    def limited(self, action: Any) -> Any:
        if not self.checker.checked_step:
            return self.env.step(action)
        limit = self.limit
        obs, reward, terminated, truncated, info = self.inner(action)
        limit._elapsed_steps += 1
        if limit._elapsed_steps >= limit._max_episode_steps:
            truncated = True
        return obs, reward, terminated, truncated, info
