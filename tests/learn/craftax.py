"""Trains Craftax-Classic from its unmodified package twice: by metta_fast, and by a plain PPO wholly in JAX.

    python -m tests.learn.craftax                              # both, 1024 environments, 20M steps each
    python -m tests.learn.craftax --side jax --resets every    # the baseline alone, a new world for each step
    python -m tests.learn.craftax --side ours trainer.precision=bf16
    python -m tests.learn.craftax --baselines FOLDER           # and Craftax_Baselines' own PPO, from a checkout of it

Prints steps a second of the second half of each training, without compilation, and the mean return of the last tenth.
Both train the same network (two layers of 512 for the actions, two for the value, tanh) by the same numbers: rollouts
of 64 steps, 4 passes over 8 minibatches, Adam. The baseline is this file's own: one jitted function a rollout and
update, nothing leaves the device; resets as in published PPOs for Craftax, `optimistic`: in each step a sixteenth as
many new worlds as environments, which environments that end in the same step may share. Needs jax and craftax.
Craftax_Baselines' ppo.py (github.com/MichaelTMatthews/Craftax_Baselines) has the same values as defaults. It is one
compiled function, so that it runs twice, a third as long and in full, and the speed is that of the difference; its
return is not printed. It needs distrax, optax, flax and orbax-checkpoint besides.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

NAME = "Craftax-Classic-Symbolic-v1"
ROWS, PASSES, PARTS, WIDTH = 64, 4, 8, 512
RATE, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM = 2e-4, 0.99, 0.8, 0.2, 0.01, 0.5, 1.0
SHARE = 16
"""Optimistic resets: new worlds in each step are the number of environments over this."""


def make(config: Any) -> Any:
    """For env=tests.learn.craftax:make."""
    from craftax.craftax_env import make_craftax_env_from_name

    return make_craftax_env_from_name(NAME, auto_reset=True)


def ours(envs: int, steps: int, words: list[str]) -> dict[str, float]:
    """Trains by the command that a user types; reads its metrics."""
    batch = envs * ROWS
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "metta_fast", "train", "env=tests.learn.craftax:make", f"env.num_envs={envs}",
            f"trainer.total_timesteps={steps}", f"trainer.batch_size={batch}",
            f"trainer.minibatch_size={batch // PARTS}",
            f"trainer.update_epochs={PASSES}", "trainer.bptt_horizon=1", f"trainer.learning_rate={RATE}",
            f"trainer.gamma={GAMMA}", f"trainer.gae_lambda={LAMBDA}", f"trainer.clip_coef={CLIP}",
            f"trainer.entropy_coef={ENTROPY}", f"trainer.vf_coef={VALUE}", f"trainer.max_grad_norm={NORM}",
            "trainer.schedule=linear", "trainer.recompute=epoch", "trainer.normalize_advantage=true",
            "trainer.normalize_reward=false", f"policy.hidden_size={WIDTH}", "policy.activation=tanh",
            "policy.shared=false", "policy.normalize_obs=false", "run.dashboard=none", "run.tensorboard=false",
            "run.checkpoint_interval=1000000", "run.monitor_interval=0", f"run.dir={folder}", "run.name=r", *words,
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=sys.stderr)
        lines = (Path(folder) / "r" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return summary([(row["train/steps"], row["train/seconds"], row.get("env/return")) for row in rows])


def summary(rows: list[tuple[float, float, float | None]]) -> dict[str, float]:
    """(steps, seconds, return) of each rollout → steps a second of the second half, and the last tenth's return."""
    middle, last = rows[len(rows) // 2], rows[-1]
    late = [value for _, _, value in rows[-max(1, len(rows) // 10) :] if value is not None and value == value]
    return {
        "steps_per_second": (last[0] - middle[0]) / (last[1] - middle[1]),
        "return": sum(late) / len(late) if late else float("nan"),
        "seconds": last[1],
    }


def baselines(folder: Path, envs: int, steps: int) -> dict[str, float]:
    """Runs Craftax_Baselines' PPO twice. Raises CalledProcessError if it fails."""
    seconds = []
    batch = envs * ROWS
    lengths = [max(steps // 3 // batch, 1) * batch, max(steps // batch, 2) * batch]
    for length in lengths:
        command = [
            sys.executable, str(folder / "ppo.py"), f"--env_name={NAME}", f"--num_envs={envs}",
            f"--total_timesteps={length}", "--no-use_wandb", "--no-debug", "--seed=0",
        ]  # fmt: skip
        told = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout
        line = next(line for line in told.splitlines() if line.startswith("Time to run experiment"))
        seconds.append(float(line.split()[-1]))
    speed = (lengths[1] - lengths[0]) / (seconds[1] - seconds[0])
    return {"steps_per_second": speed, "return": float("nan"), "seconds": seconds[1]}


class Row(NamedTuple):
    obs: Any
    action: Any
    logprob: Any
    value: Any
    reward: Any
    done: Any
    finished: Any
    """Return of the episode that ended, NaN elsewhere."""


def plain_jax(envs: int, steps: int, resets: str, seed: int = 0) -> dict[str, float]:
    """PPO in JAX."""
    import jax
    import jax.numpy as jnp

    env = make(None)
    params = env.default_params
    actions = env.action_space(params).n

    def dense(key: Any, inputs: int, outputs: int, scale: float) -> Any:
        return jax.nn.initializers.orthogonal(scale)(key, (inputs, outputs)), jnp.zeros(outputs)

    def network(key: Any, inputs: int) -> Any:
        a, b, c, d, e, f = jax.random.split(key, 6)
        hidden = 2**0.5
        return {
            "actor": [
                dense(a, inputs, WIDTH, hidden),
                dense(b, WIDTH, WIDTH, hidden),
                dense(c, WIDTH, actions, 0.01),
            ],
            "critic": [
                dense(d, inputs, WIDTH, hidden),
                dense(e, WIDTH, WIDTH, hidden),
                dense(f, WIDTH, 1, 1.0),
            ],
        }

    def run(layers: Any, x: Any) -> Any:
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return x @ layers[-1][0] + layers[-1][1]

    def both(weights: Any, obs: Any) -> tuple[Any, Any]:
        return jax.nn.log_softmax(run(weights["actor"], obs)), run(weights["critic"], obs)[..., 0]

    def step_envs(key: Any, state: Any, action: Any) -> Any:
        """Steps all environments and resets those that ended."""
        key, again, chosen = jax.random.split(key, 3)
        if resets == "every":
            return jax.vmap(env.step, (0, 0, 0, None))(jax.random.split(key, envs), state, action, params)
        found = jax.vmap(env.step_env, (0, 0, 0, None))(jax.random.split(key, envs), state, action, params)
        obs, state, reward, done, info = found
        worlds = max(1, envs // SHARE)
        fresh = jax.vmap(env.reset_env, (0, None))(jax.random.split(again, worlds), params)
        which = (jnp.cumsum(done) - 1 + jax.random.randint(chosen, (), 0, worlds)) % worlds

        def put(old: Any, new: Any) -> Any:
            return jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new[which], old)

        obs, state = jax.tree_util.tree_map(put, (obs, state), fresh)
        return obs, state, reward, done, info

    def rollout(weights: Any, carry: Any) -> tuple[Any, Row]:
        def one(carry: Any, _: Any) -> tuple[Any, Row]:
            key, state, obs, total = carry
            key, draw, move = jax.random.split(key, 3)
            logits, value = both(weights, obs)
            action = jax.random.categorical(draw, logits)
            logprob = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
            after, state, reward, done, _ = step_envs(move, state, action)
            total = total + reward
            row = Row(obs, action, logprob, value, reward, done, jnp.where(done, total, jnp.nan))
            return (key, state, after, jnp.where(done, 0.0, total)), row

        return jax.lax.scan(one, carry, None, ROWS)

    def advantages(rows: Row, last: Any) -> Any:
        def one(carry: Any, row: Any) -> tuple[Any, Any]:
            ahead, following = carry
            reward, done, value = row
            delta = reward + GAMMA * following * (1 - done) - value
            ahead = delta + GAMMA * LAMBDA * (1 - done) * ahead
            return (ahead, value), ahead

        rows_ = rows.reward, rows.done.astype(jnp.float32), rows.value
        return jax.lax.scan(one, (jnp.zeros_like(last), last), rows_, reverse=True)[1]

    def loss(weights: Any, batch: Any) -> Any:
        row, advantage, target = batch
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        logits, value = both(weights, row.obs)
        logprob = jnp.take_along_axis(logits, row.action[:, None], 1)[:, 0]
        ratio = jnp.exp(logprob - row.logprob)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
        near = row.value + jnp.clip(value - row.value, -CLIP, CLIP)
        squares = jnp.maximum((value - target) ** 2, (near - target) ** 2)
        entropy = -(jnp.exp(logits) * logits).sum(-1).mean()
        return policy + VALUE * 0.5 * squares.mean() - ENTROPY * entropy

    def adam(weights: Any, grad: Any, memory: Any, rate: Any) -> Any:
        first, second, count = memory
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree_util.tree_leaves(grad)))
        grad = jax.tree_util.tree_map(lambda g: g * jnp.minimum(1.0, NORM / (norm + 1e-6)), grad)
        count = count + 1
        first = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, grad)
        second = jax.tree_util.tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grad)
        scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        weights = jax.tree_util.tree_map(
            lambda w, m, v: w - scale * m / (jnp.sqrt(v) + 1e-8), weights, first, second
        )
        return weights, (first, second, count)

    size = envs * ROWS

    def learn(weights: Any, memory: Any, key: Any, rows: Row, last: Any, rate: Any) -> Any:
        advantage = advantages(rows, last)
        flat = jax.tree_util.tree_map(
            lambda x: x.reshape(size, *x.shape[2:]), (rows, advantage, advantage + rows.value)
        )

        def one_pass(carry: Any, key: Any) -> tuple[Any, None]:
            order = jax.random.permutation(key, size).reshape(PARTS, -1)

            def one(carry: Any, which: Any) -> tuple[Any, None]:
                weights, memory = carry
                grad = jax.grad(loss)(weights, jax.tree_util.tree_map(lambda x: x[which], flat))
                return adam(weights, grad, memory, rate), None

            return jax.lax.scan(one, carry, order)

        return jax.lax.scan(one_pass, (weights, memory), jax.random.split(key, PASSES))[0]

    @jax.jit
    def epoch(weights: Any, memory: Any, carry: Any, rate: Any) -> Any:
        carry, rows = rollout(weights, carry)
        key, shuffle = jax.random.split(carry[0])
        last = both(weights, carry[2])[1]
        weights, memory = learn(weights, memory, shuffle, rows, last, rate)
        return weights, memory, (key, *carry[1:]), jnp.nanmean(rows.finished)

    key, one, two = jax.random.split(jax.random.PRNGKey(seed), 3)
    obs, state = jax.jit(jax.vmap(env.reset, (0, None)))(jax.random.split(one, envs), params)
    weights = network(two, obs.shape[1])
    zeros = jax.tree_util.tree_map(jnp.zeros_like, weights)
    memory, carry = (zeros, zeros, jnp.zeros(())), (key, state, obs, jnp.zeros(envs))
    found, begin, epochs = [], time.perf_counter(), steps // size
    for i in range(epochs):
        weights, memory, carry, score = epoch(weights, memory, carry, jnp.float32(RATE * (1 - i / epochs)))
        score = float(score)
        found.append(((i + 1) * size, time.perf_counter() - begin, score))
    return summary(found)


def main() -> int:
    parser = argparse.ArgumentParser(prog="craftax")
    parser.add_argument("--side", choices=["both", "jax", "ours", "baselines"], default="both")
    parser.add_argument("--envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20_000_000)
    parser.add_argument("--resets", choices=["optimistic", "every"], default="optimistic")
    parser.add_argument("--baselines", type=Path, metavar="FOLDER", help="a checkout of Craftax_Baselines")
    parser.add_argument(
        "words", nargs="*", help="more words of metta_fast's command, such as trainer.precision=bf16"
    )
    given = parser.parse_args()
    if given.side == "baselines" and given.baselines is None:
        parser.error("--side baselines needs --baselines FOLDER, a checkout of Craftax_Baselines")
    if given.side == "both":  # each in a process of its own, so that neither holds the other's memory
        same = [f"--envs={given.envs}", f"--steps={given.steps}", f"--resets={given.resets}"]
        if given.baselines is not None:
            same.append(f"--baselines={given.baselines}")
        for side in ("jax", "ours", *(["baselines"] if given.baselines else [])):
            words = given.words if side == "ours" else []
            command = [sys.executable, "-m", "tests.learn.craftax", f"--side={side}", *same, *words]
            subprocess.run(command, check=True)
        return 0
    if given.side == "baselines":
        found = baselines(given.baselines.resolve(), given.envs, given.steps)
        name = "Craftax_Baselines' PPO"
    elif given.side == "jax":
        found, name = plain_jax(given.envs, given.steps, given.resets), f"PPO in JAX, {given.resets} resets"
    else:
        found, name = ours(given.envs, given.steps, given.words), "metta_fast"
    score = "" if found["return"] != found["return"] else f"return {found['return']:.2f}, "
    print(
        f"{name:<32} {given.envs} environments: {found['steps_per_second']:>12,.0f} steps/s, {score}"
        f"{found['seconds']:.0f} s",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
