"""Checks that host memory stays constant: over minutes of training, and over episodes of every backend.

    python -m tests.run.memory --minutes 10                        # training, all that a run writes switched on
    python -m tests.run.memory --minutes 10 env=counter vector.backend=workers     # with other keys
    python -m tests.run.memory --episodes 10000                    # native and Python environments, each backend

What counts is the resident memory of the process and its children, pages that they share left out of the children.
The median of each quarter of the readings is printed. The first is burn-in; ends with 1 where the last is more than
LIMIT above the second.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from metta_fast.contracts.env import EnvFactory
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.metrics.loggers import read_rows
from metta_fast.vector import make_vector
from tests.vector.toy_envs import walk_factory

MIB = 1 << 20
LIMIT = 4 * MIB
"""Growth from the second quarter to the last that is still called flat: an allocator's unevenness."""
ENOUGH = 40
"""Readings from which growth is judged: a burn-in of ten."""
READINGS = 200
"""Of memory, over the episodes of a backend."""
ENVS = 32
BACKENDS = {
    "serial": {"backend": "serial"},
    "threads": {"backend": "threads", "num_threads": 2},
    "workers": {"backend": "workers", "num_workers": 2},
}
FACTORIES = {
    "grid (native)": lambda: GridFactory(
        num_agents=2, room_size=[8, 8], objects={"mine_red": 2}, max_steps=30
    ),
    "counter (Python, batched)": lambda: CounterFactory(agents_per_env=2, max_steps=30),
    "walk (Gymnasium)": lambda: walk_factory(),
}
TRAINING = (
    "env=grid",
    "hardware=cpu",
    "env.num_envs=16",
    "env.max_steps=100",
    "trainer.batch_size=1024",
    "trainer.minibatch_size=512",
    "trainer.update_epochs=1",
    "trainer.bptt_horizon=16",
    "trainer.torch_threads=1",
    "trainer.total_timesteps=1_000_000_000_000",
    "policy.hidden_size=32",
    "policy.core=lstm",
    "vector.backend=threads",
    "vector.num_threads=1",
    "run.dashboard=plain",
    "run.min_interval_s=5",
    "run.checkpoint_interval=1",
    "run.evaluate_interval=200",
    "run.evaluate_episodes=4",
    "run.replay_interval=200",
    "run.monitor_interval=1",
    "run.gradient_stats_interval=10",
)
"""Small, so that many epochs, checkpoints, evaluations and replays fit into the time."""


def resident(process: psutil.Process) -> int:
    """Bytes resident: the process's own, and what its children do not share."""
    total = process.memory_info().rss
    for child in process.children(recursive=True):
        try:
            total += child.memory_full_info().uss
        except psutil.NoSuchProcess:
            continue
    return int(total)


def quarters(readings: list[int]) -> list[float]:
    """The median of each quarter of the readings."""
    n = len(readings) // 4
    return [statistics.median(readings[i * n : (i + 1) * n]) for i in range(4)]


def growth(readings: list[int]) -> float:
    """Bytes from the second quarter of the readings to the last; the first is burn-in."""
    _, second, _, last = quarters(readings)
    return last - second


def step_episodes(factory: EnvFactory, num_envs: int, keys: dict[str, object], episodes: int) -> list[int]:
    """Resident bytes while a vector with random actions ends so many episodes."""
    actions = np.random.default_rng(0)
    agents = factory.spec.agents_per_env
    process, readings, ended = psutil.Process(), [], 0
    with make_vector(factory, num_envs, num_blocks=2, **keys) as vec:  # type: ignore[arg-type]
        vec.async_reset(1)
        while ended < episodes:
            block = vec.recv()
            ended += int((block.rows.terminal | block.rows.truncation)[::agents].sum())
            shape = block.rows.action.shape
            vec.send(block, actions.integers(0, factory.spec.action.nvec, shape, dtype=np.int32))
            if ended * READINGS >= len(readings) * episodes:
                readings.append(resident(process))
    return readings


def train(minutes: float, keys: list[str]) -> tuple[list[int], str]:
    """Resident bytes of a run, once a second for so long; and how far it came."""
    with tempfile.TemporaryDirectory() as folder:
        words = [*TRAINING, *keys, f"run.dir={folder}", "run.name=r"]
        log = Path(folder) / "out.txt"
        with open(log, "w") as out:
            run = subprocess.Popen(
                [sys.executable, "-m", "metta_fast", "train", *words], stdout=out, stderr=out
            )
        process, readings = psutil.Process(run.pid), []
        metrics = Path(folder) / "r" / "metrics.jsonl"
        while run.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)  # the minutes begin with the first row
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end and run.poll() is None:
            readings.append(resident(process))
            time.sleep(min(1.0, max(end - time.monotonic(), 0)))
        ended = run.poll()
        run.send_signal(signal.SIGTERM)
        code = run.wait(60)
        if ended is not None or code != 143:
            raise SystemExit(
                f"the training ended with {code}, not by our SIGTERM:\n{log.read_text()[-3000:]}"
            )
        rows = list(read_rows(metrics))
        counts = (
            f"{len(rows):,} epochs, {rows[-1]['train/steps']:,} steps, "
            f"{sum('eval/return' in row for row in rows)} evaluations, "
            f"{(Path(folder) / 'r' / 'train.log').read_text().count(' checkpoint ')} checkpoints, "
            f"{len(list((Path(folder) / 'r').glob('replays/*')))} replays"
        )
    return readings, counts


def tell(name: str, readings: list[int]) -> bool:
    """A line about the readings; whether they are flat. Fewer than ENOUGH are shown and not judged."""
    if len(readings) < ENOUGH:
        ends = f"{readings[0] / MIB:.2f} → {readings[-1] / MIB:.2f} MiB" if readings else "no reading"
        print(f"{name}: {ends} ({len(readings)} readings are too few to judge: {ENOUGH} or more)", flush=True)
        return True
    flat = growth(readings) < LIMIT
    medians = " → ".join(f"{median / MIB:.2f}" for median in quarters(readings))
    print(f"{name}: {medians} MiB{'' if flat else ', NOT FLAT'} ({len(readings)} readings)", flush=True)
    return flat


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0.0, help="train so long")
    parser.add_argument("--episodes", type=int, default=0, help="of each kind of environment and backend")
    parser.add_argument("keys", nargs="*", metavar="key=value", help="for the training")
    args = parser.parse_args(argv)
    flat = True
    if args.minutes:
        readings, counts = train(args.minutes, args.keys)
        flat &= tell(f"{args.minutes:g} minutes of training ({counts})", readings)
    if args.episodes:
        for name, make in FACTORIES.items():
            for backend, keys in BACKENDS.items():
                readings = step_episodes(make(), ENVS, keys, args.episodes)
                flat &= tell(f"{args.episodes:,} episodes of {name}, {backend}", readings)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
