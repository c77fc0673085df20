"""Trains one task by Stable-Baselines3 with its own defaults, and prints score and seconds as JSON.

python -m tests.learn.peer tests.learn.tasks:cartpole 50000 0 plain
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

from tests.learn.defaults import EPISODES, FIRST_SEED


def main(name: str, steps: str, seed: str, kind: str) -> int:
    start = time.monotonic()
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    module, _, function = name.partition(":")
    make = getattr(import_module(module), function)(None)
    keys: dict[str, Any] = {"device": "cpu", "seed": int(seed)}
    if kind == "recurrent":
        from sb3_contrib import RecurrentPPO

        model = RecurrentPPO("MlpLstmPolicy", Monitor(make(0)), **keys)
    else:
        model = PPO("MlpPolicy", Monitor(make(0)), **keys)
    model.learn(int(steps))
    seconds = time.monotonic() - start
    env = Monitor(make(0))
    env.reset(seed=FIRST_SEED)
    score, _ = evaluate_policy(model, env, n_eval_episodes=EPISODES, deterministic=True)
    print(json.dumps({"score": float(score), "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
