"""Environments in JAX as rows: against a plain loop over one environment after another, bit for bit on the CPU.

PYTHONPATH=… python -m pytest tests/batched/test_jax.py        # jax, and gymnax for one test, are optional
"""

from __future__ import annotations

import os
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiling takes the time here
jax = pytest.importorskip("jax")

from metta_fast.contracts.errors import UserError  # noqa: E402
from metta_fast.envs.batched.factory import BatchedEnvFactory  # noqa: E402
from tests.batched.envs import vector_of  # noqa: E402
from tests.batched.jax_envs import Guess, NewTally, Params, Tally, Wrapped  # noqa: E402
from tests.rollout.test_device_envs import made  # noqa: E402
from tests.vector.device_suite import HORIZON, attached, check, play, tape_for  # noqa: E402


def keys_of(seed: int, env: int, numbers: Any) -> Any:
    """[n, 2] the keys of an environment's steps, by jax_source.py's docstring."""
    key = jax.random.fold_in(jax.random.PRNGKey(seed & 0xFFFFFFFF), seed >> 32)
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, env), numbers)


@cache
def jitted(env: Any) -> tuple[Any, Any]:
    return jax.jit(env.reset_env), jax.jit(env.step_env)


def plain_loop(env: Any, params: Any, seed: int, index: int, tape: Any) -> list[dict[str, Any]]:
    """One environment along its actions: Tally's ends are told apart by hand."""
    reset, step = jitted(env)
    keys = jax.vmap(jax.random.split)(keys_of(seed, index, np.arange(1, 1 + len(tape))))
    _, state = reset(keys_of(seed, index, np.arange(1))[0], params)
    rows = []
    for (one, two), action in zip(np.asarray(keys), tape):
        obs, state, reward, *_ = step(one, state, np.int32(action), params)
        fell, late = bool(state.total > state.most), bool(state.time >= params.max_steps_in_episode)
        row = {"reward": reward, "terminal": fell, "truncation": late and not fell, "final": obs}
        if fell or late:
            obs, state = reset(two, params)
        rows.append({**row, "obs": obs, "reset": fell or late})
    return rows


class Wordless(Tally):
    """jax.jit gives no words."""

    def step_env(self, *arguments: Any) -> Any:
        *found, info = super().step_env(*arguments)
        return (*found, {"score": info["score"]})


@pytest.mark.parametrize(("kind", "params"), [(Tally, None), (NewTally, Params(4))])
def test_rows_are_those_of_a_plain_loop(kind: type, params: Any) -> None:
    envs, seed = 17, 2**40 + 7  # chunks of one
    vec = vector_of(kind() if params is None else (kind(), params), envs)
    assert vec.spec.max_steps == (params or Tally.default_params).max_steps_in_episode
    b, tape = attached(vec), tape_for(vec.spec, envs, 4 * HORIZON)
    vec.async_reset(seed)
    rows, ends = play(vec, b, tape), 0
    wordless = Wordless()
    for n in range(envs):
        plain = plain_loop(wordless, params or Tally.default_params, seed, n, tape[:, n, 0].tolist())
        for want, found in zip(plain, rows):
            for name, leaf in want["obs"].items():
                assert np.array_equal(found[name][n].numpy().reshape(np.shape(leaf)), np.asarray(leaf)), name
            for name in ("terminal", "reset"):
                assert found[name][n].item() == want[name], name
            assert found["reward"][n].item() == float(want["reward"])
            assert (found["truncation"] & ~found["terminal"])[n].item() == want["truncation"]
            if want["reset"]:
                at = int(found["done"][:n].sum())
                for name, leaf in want["final"].items():
                    shown = found[f"final {name}"][at].numpy()
                    assert np.array_equal(shown.reshape(np.shape(leaf)), np.asarray(leaf)), name
                ends += 1
    assert ends > 25
    assert 0 < vec.info_stats()["score"] < 14
    vec.close()


def test_the_contract() -> None:
    """States included: an environment in JAX can be saved and goes on exactly."""
    factory = BatchedEnvFactory(Tally())
    check(partial(vector_of, factory))


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
    monkeypatch.setattr("metta_fast.envs.batched.factory.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"Tally has gymnax's interface, which needs jax, .* install jax"):
        BatchedEnvFactory(Tally())


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
        keys = np.asarray(jax.vmap(jax.random.split)(keys_of(9, n, np.arange(1, 1 + len(tape)))))
        _, state = reset(keys_of(9, n, np.arange(1))[0], params)
        for found, action, (one, two) in zip(rows, tape[:, n], keys):
            given = np.int32(action[0]) if vec.spec.action.kind == "discrete" else action.numpy()
            obs, state, reward, ended, _ = step(one, state, given, params)
            late = bool(env.is_truncated(state, params))
            assert found["terminal"][n].item() == bool(ended)
            assert found["truncation"][n].item() == late
            assert found["reward"][n].item() == pytest.approx(float(reward), rel=1e-5)
            if bool(ended) or late:
                obs, state = reset(two, params)
            np.testing.assert_allclose(found["obs"][n].numpy(), np.asarray(obs), atol=1e-5)


def test_craftax_itself() -> None:
    """Its unmodified package; compiling it takes most of a minute. Daylight is a cosine, rounded by its place in a
    loop."""
    pytest.importorskip("craftax")
    from tests.learn.craftax import make

    env = make(None)
    params = env.default_params.replace(max_timesteps=6)
    vec = vector_of((env, params), 2)
    assert (vec.spec.max_steps, vec.spec.has_final_obs) == (6, True)
    b, tape = attached(vec), tape_for(vec.spec, 2, 3 * HORIZON)
    vec.async_reset(9)
    rows = play(vec, b, tape)
    assert [row["truncation"].all().item() for row in rows] == [i % 6 == 5 for i in range(len(rows))]
    assert not any(row["terminal"].any() for row in rows)
    reset, step = jitted(env)
    for n in range(2):
        keys = np.asarray(jax.vmap(jax.random.split)(keys_of(9, n, np.arange(1, 1 + len(tape)))))
        _, state = reset(keys_of(9, n, np.arange(1))[0], params)
        for found, action, (one, two) in zip(rows, tape[:, n, 0], keys):
            obs, state, reward, done, _ = step(one, state, np.int32(action), params)
            assert found["reward"][n].item() == pytest.approx(float(reward))
            if bool(done):
                np.testing.assert_allclose(found["final obs"][n].numpy(), np.asarray(obs), atol=1e-6)
                obs, state = reset(two, params)
            np.testing.assert_allclose(found["obs"][n].numpy(), np.asarray(obs), atol=1e-6)
