"""Provides a batch whose every byte is known, for the vector tests; imports neither torch nor gymnasium."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf

JOB = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
SLEEP_S = 0.05


class ToyFactory:
    """Every field of the rows is a function of (seed, env, agent, step, actions so far). Head 1: naps.

    native: steps are given as a native job (a C callback into Python), otherwise by `step` alone.
    """

    def __init__(self, agents=1, native=False):
        self.spec = EnvSpec(
            name="toy",
            agents_per_env=agents,
            obs={"a": Leaf((2, 3), "uint8"), "b": Leaf((1,), "float32")},
            action=ActionSpec("discrete", nvec=(5, 40)),
            stats=("one", "two"),
            native=native,
            cheap_state=True,
            stagger=True,
        )

    def make_batch(self, first_env, num_envs, total_envs):
        return ToyBatch(self.spec, first_env, num_envs, total_envs)


class ToyBatch:
    def __init__(self, spec, first_env, num_envs, total_envs):
        self.spec, self.first, self.n, self.total = spec, first_env, num_envs, total_envs
        self.clock = np.zeros(num_envs, np.int64)
        self.sum = np.zeros((num_envs, spec.agents_per_env), np.int64)
        self.seed = 0
        self.job = JOB(lambda _, lo, hi: self.step_range(lo, hi) or 0)

    def bind(self, rows):
        self.rows = rows

    def reset(self, seed, *, stagger=False):
        self.seed = seed
        self.sum[:] = 0
        self.clock[:] = np.arange(self.first, self.first + self.n) * 7 // self.total if stagger else 0
        for i in range(self.n):
            self.write(i)

    def step(self):
        self.step_range(0, self.n)

    def step_range(self, lo, hi):
        a = self.spec.agents_per_env
        for i in range(lo, hi):
            action = self.rows.action[i * a : (i + 1) * a]
            nap = int(action[:, 1].max())
            if nap:
                time.sleep(nap * SLEEP_S)
            self.sum[i] = self.sum[i] * 5 + action[:, 0]
            self.clock[i] += 1
            self.write(i)

    def write(self, i):
        a = self.spec.agents_per_env
        for k in range(a):
            row = i * a + k
            mix = hash((self.seed, self.first + i, k, int(self.clock[i]), int(self.sum[i, k]))) & 0xFFFFFF
            self.rows.obs["a"][row] = mix % 251 + np.arange(6).reshape(2, 3) % 5
            self.rows.obs["b"][row] = mix / 7
            self.rows.reward[row] = mix % 97
            for shift, field in enumerate(
                (self.rows.terminal, self.rows.truncation, self.rows.mask, self.rows.reset)
            ):
                field[row] = mix >> shift & 1
            self.rows.stats[row] = mix % 89, mix % 83

    def native_job(self):
        return (ctypes.cast(self.job, ctypes.c_void_p).value, 0, self.n) if self.spec.native else None

    def state_dict(self):
        return {"seed": self.seed, "clock": self.clock.copy(), "nested": {"sum": list(self.sum.copy())}}

    def load_state_dict(self, state):
        self.seed = state["seed"]
        self.clock[:] = state["clock"]
        self.sum[:] = np.array(state["nested"]["sum"])

    def close(self):
        pass
