"""Environments in JAX as rows: against a plain loop over one environment after another, bit for bit on the CPU.

PYTHONPATH=… python -m pytest tests/batched/test_jax.py        # jax, and gymnax for one test, are optional
"""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiling takes the time here
jax = pytest.importorskip("jax")

from metta_fast.contracts.errors import UserError  # noqa: E402
from metta_fast.envs.batched.factory import BatchedEnvFactory  # noqa: E402
from metta_fast.envs.batched.in_jax import programs, source  # noqa: E402
from metta_fast.envs.batched.in_jax.programs import EVERY, LAG  # noqa: E402
from tests.batched.envs import vector_of  # noqa: E402
from tests.batched.jax_envs import Guess, NewTally, Params, Tally, Wrapped  # noqa: E402
from tests.rollout.test_device_envs import made  # noqa: E402
from tests.vector.device_suite import (  # noqa: E402
    HORIZON,
    attached,
    check,
    check_attach,
    check_ids,
    check_seeds,
    check_states,
    play,
    tape_for,
)

MIN_SECONDS, MIN_BYTES = (
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def keys_of(seed: int, env: int, numbers: Any) -> Any:
    """[n, 2, 2] the keys of an environment's steps and of its episodes, by in_jax/source.py's docstring."""
    key = jax.random.fold_in(jax.random.PRNGKey(seed & 0xFFFFFFFF), seed >> 32)
    found = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, env), numbers)
    return jax.vmap(jax.random.split)(found)


@cache
def jitted(env: Any) -> tuple[Any, Any]:
    return jax.jit(env.reset_env), jax.jit(env.step_env)


def plain_loop(
    env: Any, params: Any, seed: int, index: int, tape: Any, *, pooled: bool = False
) -> list[dict[str, Any]]:
    """One environment along its actions: Tally's ends are told apart by hand.

    pooled: an episode that ends before the next one is built waits for that.
    """
    reset, step = jitted(env)
    keys = np.asarray(keys_of(seed, index, np.arange(len(tape) + 2)))
    steps, episodes = keys[1:, 0], iter(keys[:, 1])
    _, state = reset(next(episodes), params)
    rows: list[dict[str, Any]] = []
    ready, waiting, pending = True, False, False
    for number, (key, action) in enumerate(zip(steps, tape), start=1):
        obs, state, reward, *_ = step(key, state, np.int32(action), params)
        fell = bool(state.total > state.most) and not waiting
        late = bool(state.time >= params.max_steps_in_episode) and not waiting
        row = {"reward": 0.0 if waiting else reward, "terminal": fell, "truncation": late and not fell}
        row |= {"final": obs, "done": fell or late}
        over = fell or late or waiting
        begins = over and ready
        waiting = over and not begins
        if begins:
            obs, state = reset(next(episodes), params)
            ready = not pooled
        rows.append({**row, "obs": None if waiting else obs, "reset": begins})
        if number % EVERY == EVERY - LAG:
            pending = not ready
        elif number % EVERY == 0 and pending:
            ready, pending = True, False
    return rows


class Wordless(Tally):
    """jax.jit gives no words."""

    def step_env(self, *arguments: Any) -> Any:
        *found, info = super().step_env(*arguments)
        return (*found, {"score": info["score"]})


@pytest.fixture(params=[False, True], ids=["reset in every step", "built ahead"])
def pooled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether resets count as long."""
    if request.param:
        monkeypatch.setattr(programs, "LONG", 0)
    return bool(request.param)


@pytest.mark.parametrize(("kind", "params"), [(Tally, None), (NewTally, Params(4))])
def test_rows_are_those_of_a_plain_loop(kind: type, params: Any, pooled: bool) -> None:
    envs, seed = 17, 2**40 + 7  # chunks of one
    vec = vector_of(kind() if params is None else (kind(), params), envs)
    limit = (params or Tally.default_params).max_steps_in_episode
    assert vec.spec.max_steps == limit
    b, tape = attached(vec), tape_for(vec.spec, envs, 12 * HORIZON)
    vec.async_reset(seed)
    rows, ends, waits = play(vec, b, tape), 0, 0
    wordless = Wordless()
    for n in range(envs):
        plain = plain_loop(
            wordless, params or Tally.default_params, seed, n, tape[:, n, 0].tolist(), pooled=pooled
        )
        for want, found in zip(plain, rows):
            assert found["mask"][n].item() == (want["obs"] is not None)
            for name, leaf in (want["obs"] or {}).items():
                assert np.array_equal(found[name][n].numpy().reshape(np.shape(leaf)), np.asarray(leaf)), name
            for name in ("terminal", "reset"):
                assert found[name][n].item() == want[name], name
            assert found["reward"][n].item() == float(want["reward"])
            assert (found["truncation"] & ~found["terminal"])[n].item() == want["truncation"]
            waits += want["obs"] is None
            if want["done"]:
                at = int(found["done"][:n].sum())
                for name, leaf in want["final"].items():
                    shown = found[f"final {name}"][at].numpy()
                    assert np.array_equal(shown.reshape(np.shape(leaf)), np.asarray(leaf)), name
                ends += 1
    assert ends > 25
    assert (waits > 0) == pooled
    assert 0 < vec.info_stats()["score"] < 16
    vec.close()


def test_the_contract() -> None:
    """States included: an environment in JAX can be saved and goes on exactly."""
    check(partial(vector_of, BatchedEnvFactory(Tally())))


def test_the_contract_with_episodes_built_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is saved between counting those to build and building them, too."""
    monkeypatch.setattr(programs, "LONG", 0)
    make = partial(vector_of, BatchedEnvFactory(Tally()))
    for part in (check_attach, check_seeds, check_ids, check_states):
        part(make, *(() if part is check_attach else (4 * HORIZON,)), 6)
    for length in range(2 * HORIZON, 8 * HORIZON, 2 * HORIZON):
        check_states(make, length, 6)


def test_a_wrapper_is_stepped_as_it_is() -> None:
    factory = BatchedEnvFactory(Wrapped(Tally()))
    assert not factory.spec.has_final_obs
    assert factory.spec.obs["obs"].shape == (3,)
    vec = vector_of(factory, 4)
    b: Any = attached(vec)  # type: ignore[arg-type]
    vec.async_reset(1)
    rows = play(vec, b, tape_for(vec.spec, 4, 10))  # type: ignore[arg-type]
    assert all((row["reward"] >= 1).all() for row in rows)
    assert any(row["done"].any() for row in rows)
    assert "does not tell a time limit" in vec.notes()[0]


def test_cut_episodes_bootstrap_from_their_last_observation() -> None:
    ppo = made(BatchedEnvFactory(Guess()), 4, horizon=16, bptt=16)  # type: ignore[arg-type]
    ppo.collect()
    b = ppo.buffers
    assert b.bootstrap is not None
    assert torch.equal(b.bootstrap != 0, b.truncation & ~b.terminal)
    assert b.truncation.sum() == 8
    assert torch.equal(b.reset[1:], b.truncation)


def test_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"env\.drop=\[nonesuch\]: .* it has late, noise, seen"):
        BatchedEnvFactory(Tally(), drop=["nonesuch"])
    with pytest.raises(UserError, match="has_final_obs=True, but its info has no final_observation"):
        BatchedEnvFactory(Wrapped(Tally()), has_final_obs=True)
    monkeypatch.setattr("metta_fast.envs.batched.making.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"Tally has gymnax's interface, which needs jax, .* install jax"):
        BatchedEnvFactory(Tally())


def test_compiled_functions_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after JAX has compiled something; where the user has chosen a folder, it is that."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path))
    saved = {
        name: getattr(jax.config, name) for name in ("jax_compilation_cache_dir", MIN_SECONDS, MIN_BYTES)
    }
    jax.jit(lambda x: x * 3 + 1)(2)
    try:
        jax.config.update(MIN_SECONDS, 0.0)
        jax.config.update(MIN_BYTES, -1)
        source.keep_compiled()
        jax.jit(lambda x: x * 5 - 7)(2)
        assert any((tmp_path / "jax").iterdir())
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "other"))
        source.keep_compiled()
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "other")
    finally:
        for name, value in saved.items():
            jax.config.update(name, value)
        source.compilation_cache.reset_cache()


@pytest.mark.parametrize("name", ["CartPole-v1", "Catch-bsuite", "Pendulum-v1"])
def test_gymnax_itself(name: str) -> None:
    gymnax = pytest.importorskip("gymnax")
    env, params = gymnax.make(name)
    vec = vector_of((env, params), 5)
    assert vec.spec.has_final_obs
    b, tape = attached(vec), tape_for(vec.spec, 5, 3 * HORIZON)
    vec.async_reset(9)
    rows = play(vec, b, tape)
    reset, step = jitted(env)
    for n in range(5):
        keys = np.asarray(keys_of(9, n, np.arange(len(tape) + 2)))
        episodes = iter(keys[:, 1])
        _, state = reset(next(episodes), params)
        for found, action, key in zip(rows, tape[:, n], keys[1:, 0]):
            given = np.int32(action[0]) if vec.spec.action.kind == "discrete" else action.numpy()
            obs, state, reward, ended, _ = step(key, state, given, params)
            late = bool(env.is_truncated(state, params))
            assert found["terminal"][n].item() == bool(ended)
            assert found["truncation"][n].item() == late
            assert found["reward"][n].item() == pytest.approx(float(reward), rel=1e-5)
            if bool(ended) or late:
                obs, state = reset(next(episodes), params)
            np.testing.assert_allclose(found["obs"][n].numpy(), np.asarray(obs), atol=1e-5)


def test_craftax_itself() -> None:
    """Its unmodified package; compiling it takes most of a minute. Daylight is a cosine, rounded by its place in a
    loop."""
    pytest.importorskip("craftax")
    from tests.learn.craftax import make

    env = make(None)
    params = env.default_params.replace(max_timesteps=20)
    vec = vector_of((env, params), 2)
    assert (vec.spec.max_steps, vec.spec.has_final_obs) == (20, True)
    b, tape = attached(vec), tape_for(vec.spec, 2, 5 * HORIZON)
    vec.async_reset(9)
    rows = play(vec, b, tape)
    assert [row["truncation"].all().item() for row in rows] == [i % 20 == 19 for i in range(len(rows))]
    assert not any(row["terminal"].any() for row in rows)
    reset, step = jitted(env)
    for n in range(2):
        keys = np.asarray(keys_of(9, n, np.arange(len(tape) + 2)))
        episodes = iter(keys[:, 1])
        _, state = reset(next(episodes), params)
        for found, action, key in zip(rows, tape[:, n, 0], keys[1:, 0]):
            obs, state, reward, done, _ = step(key, state, np.int32(action), params)
            assert found["reward"][n].item() == pytest.approx(float(reward))
            if bool(done):
                np.testing.assert_allclose(found["final obs"][n].numpy(), np.asarray(obs), atol=1e-6)
                obs, state = reset(next(episodes), params)
            np.testing.assert_allclose(found["obs"][n].numpy(), np.asarray(obs), atol=1e-6)
