"""Turns the rules of one environment into functions over all of them, for source.py to call.

    begin(keys, episode) ─► obs, run
    step(run, following, keys, actions) ─► run, Shown
    mark(run) ─► pending, how many          refill(run, following, pending, keys, at) ─► run, following

**Resets.** Step n of an environment and its episode e have keys of their own (source.py), so the next episode can be
built before it is needed, and is the same whenever that is. Where a reset is a short function, all environments run it
in every step, and those that ended take what it gives: no loop, no condition. Where it is a long one (a new world),
`following` keeps the next episode of each environment, which is taken when one ends. `refill` builds it again, for
`chunk` environments at a time: at steps whose number is a multiple of EVERY, for those that had none LAG steps before.
An environment that ends again before that waits: its rows are masked and show zeros. How long depends on its own
episodes alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from metta_fast.envs.batched.in_jax.pack import Pack
from metta_fast.envs.batched.in_jax.rules import Rules
from metta_fast.envs.batched.in_jax.unroll import operations, unrolled

LONG = 300
"""Operations of a reset that is not run in every step."""
EVERY, LAG = 8, 2
"""Steps: between two refills; from counting the environments that need one to the refill, so that the host reads the
number without waiting for the device."""


class Run(NamedTuple):
    """Is where N environments are. Every step takes over its memory."""

    state: Any
    """Pack's arrays."""
    episode: Any
    """[N] uint32: number of the present episode."""
    ready: Any
    """[N] bool: the next episode is in `following`."""
    waiting: Any
    """[N] bool: the episode is over, and the next one is not ready."""
    number: Any
    """[] uint32: number of the last step."""
    totals: Any
    """[K+1] float32: sums of `Rules.numbers` over episodes that ended, then the number of those."""


class Shown(NamedTuple):
    """Is what a step gave."""

    obs: dict[str, Any]
    final: dict[str, Any] | None
    """The last observations, before resets."""
    reward: Any
    """[N] float32."""
    flags: Any
    """[4, N] uint8, which every version of dlpack knows: terminal, truncation, begins (the row is an episode's first),
    waiting (the row is masked)."""


class Programs:
    """Has the functions, compiled for N environments on a kind of device.

    Attributes:
        pooled: whether `following` is kept.
    """

    def __init__(self, rules: Rules, chunk: int, *, write_out: bool) -> None:
        """chunk: environments that `refill` resets. write_out: unroll.unrolled."""
        self.rules, self.chunk = rules, chunk
        self.pack = Pack(_stacked(rules.state))
        key = jax.random.PRNGKey(0)
        self.pooled = rules.split and operations(rules.reset, key) > LONG
        change = unrolled if write_out else lambda function: function
        self.begin = jax.jit(change(self._begin))
        self.step = jax.jit(change(self._step), donate_argnums=0)
        self.refill = jax.jit(change(self._refill), donate_argnums=(0, 1))
        self.mark = jax.jit(lambda run: (~run.ready, (~run.ready).sum()))

    def _begin(self, keys: Any, episode: Any) -> tuple[dict[str, Any], Any]:
        """Returns the first observations and the states (Pack's arrays) of an episode of each environment [N]."""
        obs, state = jax.vmap(self.rules.reset)(_episode_keys(keys, episode))
        return obs, self.pack.join(state)

    def _step(self, run: Run, following: Any, keys: Any, actions: Any) -> tuple[Run, Shown]:
        rules = self.rules
        old, number = self.pack.split(run.state), run.number + 1

        def one(key: Any, state: Any, row: Any) -> tuple[Any, ...]:
            return rules.step(key, state, rules.action(row))

        obs, state, reward, terminal, final, truncation, info = jax.vmap(one)(
            _step_keys(keys, number), old, actions
        )
        if self.pooled:
            live = ~run.waiting
            terminal, truncation, reward = terminal & live, truncation & live, jnp.where(live, reward, 0.0)
        done = terminal | truncation
        episode, ready, waiting, begins = run.episode, run.ready, run.waiting, done
        if rules.split:
            over = done | waiting if self.pooled else done
            if self.pooled:
                begins, waiting = over & ready, over & ~ready
                ready = ready & ~begins
                first = following[0], self.pack.split(following[1])
            else:
                first = jax.vmap(rules.reset)(_episode_keys(keys, episode + 1))
            episode = episode + begins
            obs, state = _where(over, first, (obs, state))
            if self.pooled:  # what is in `following` then is not part of a saved state
                obs = _where(waiting, jax.tree_util.tree_map(jnp.zeros_like, obs), obs)
        found = [*(jnp.asarray(info[name], jnp.float32) for name in rules.numbers), jnp.ones_like(reward)]
        totals = run.totals + jnp.where(done, jnp.stack(found), 0.0).sum(1)
        flags = jnp.stack([terminal, truncation, begins, waiting]).astype(jnp.uint8)
        run = Run(self.pack.join(state), episode, ready, waiting, number, totals)
        return run, Shown(obs, final, reward, flags)

    def _refill(self, run: Run, following: Any, pending: Any, keys: Any, at: Any) -> tuple[Run, Any]:
        """Builds the next episode of the environments at … at+chunk among those `pending` [N] bool."""
        size = len(pending)
        order = jnp.nonzero(pending, size=size + self.chunk, fill_value=size)[0]
        which = jax.lax.dynamic_slice(order, (at,), (self.chunk,))
        near = jnp.minimum(which, size - 1)
        fresh = self._begin(keys[near], run.episode[near] + 1)
        following = jax.tree_util.tree_map(
            lambda old, new: old.at[which].set(new.astype(old.dtype), mode="drop"), following, fresh
        )
        return run._replace(ready=run.ready.at[which].set(True, mode="drop")), following


@cache
def compiled(rules: Rules, chunk: int, write_out: bool) -> Programs:
    """Returns the functions, compiled once for all vectors of these rules."""
    return Programs(rules, chunk, write_out=write_out)


def _stacked(tree: Any) -> Any:
    """Returns the shapes of one environment as those of several."""
    return jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), tree)


def _where(which: Any, new: Any, now: Any) -> Any:
    """Returns a tree of arrays [N, …]: `new` for environments `which` [N], `now` for the others."""

    def choose(new: Any, now: Any) -> Any:
        return jnp.where(which.reshape(-1, *[1] * (now.ndim - 1)), new.astype(now.dtype), now)

    return jax.tree_util.tree_map(choose, new, now)


def _halves(keys: Any, number: Any) -> Any:
    """Returns [N, 2, …] the key of each environment's steps of this number, and that of its episode."""
    return jax.vmap(jax.random.split)(jax.vmap(jax.random.fold_in)(keys, number))


def _step_keys(keys: Any, number: Any) -> Any:
    return _halves(keys, jnp.broadcast_to(number, len(keys)))[:, 0]


def _episode_keys(keys: Any, episode: Any) -> Any:
    return _halves(keys, episode)[:, 1]
