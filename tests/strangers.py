"""Environments as a user brings them, for tests: `env=tests.strangers:cheap` and so on."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Cheap(gymnasium.Env):
    """Discrete: the agent is shown a bit and names it; episodes of 16 steps."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)
    sleep_s = 0.0

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def _obs(self) -> np.ndarray:
        self._bit = int(self._random.integers(2))
        return np.array([self._bit, 1 - self._bit], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        reward = float(action == self._bit)
        self._steps += 1
        return self._obs(), reward, self._steps >= 16, False, {}


class Team:
    """Box: three agents, each is shown a number in [-1, 1] and gives it back; a time limit of 8 steps; slow."""

    num_agents = 3
    max_steps = 8
    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-2, 2, (1,), np.float32)

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict]:
        self._random = np.random.default_rng(seed)
        self._steps = 0
        self._shown = self._random.uniform(-1, 1, (3, 1)).astype(np.float32)
        return self._shown, {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        time.sleep(0.002)
        reward = -np.abs(actions - self._shown)[:, 0]
        self._steps += 1
        self._shown = self._random.uniform(-1, 1, (3, 1)).astype(np.float32)
        return self._shown, reward, np.zeros(3, bool), np.full(3, self._steps == 8), {}

    def close(self) -> None:
        pass


def _sleeping(seconds: float) -> Callable[[int], Cheap]:
    def make_one(index: int) -> Cheap:
        env = Cheap()
        env.sleep_s = seconds
        return env

    return make_one


class Bad(Cheap):
    """Misbehaves at its third step: params.how names how."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.count = how, 0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        if self.count == 3:
            if self.how == "raises":
                raise ValueError("no such room")
            if self.how == "exits":
                os._exit(3)
            if self.how == "quits":
                sys.exit(3)
            if self.how == "hangs":
                time.sleep(60)
            if self.how == "interrupts":
                raise KeyboardInterrupt
            print("A" * 100_000)
        return super().step(action)

    def close(self) -> None:
        if self.how == "stays" and self.count:  # not the one that is made to be looked at
            time.sleep(60)


class Computing(Cheap):
    """Computes for 2 ms of processor time in each step."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        end = time.thread_time() + 2e-3
        while time.thread_time() < end:
            pass
        return super().step(action)


class Locking(Cheap):
    """Waits 5 ms in each step without releasing Python's lock, as some libraries do."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        ctypes.PyDLL(None).usleep(5000)
        return super().step(action)


class Loyal(Cheap):
    """Waits 5 ms in each step, and steps only in the thread that made it."""

    sleep_s = 5e-3

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if threading.get_ident() != self._thread:
            raise RuntimeError("made in another thread")
        return super().step(action)


def computing(config: Any) -> Callable[[int], Cheap]:
    return lambda index: Computing()


def locking(config: Any) -> Callable[[int], Cheap]:
    return lambda index: Locking()


def loyal(config: Any) -> Callable[[int], Cheap]:
    return lambda index: Loyal()


def cheap(config: Any) -> Callable[[int], Cheap]:
    return lambda index: Cheap()


def team(config: Any) -> Callable[[int], Team]:
    return lambda index: Team()


def medium(config: Any) -> Callable[[int], Cheap]:
    return _sleeping(50e-6)


def slow(config: Any) -> Callable[[int], Cheap]:
    return _sleeping(5e-3)


def bad(config: Any) -> Callable[[int], Bad]:
    how = config.params["how"]
    return lambda index: Bad(how)
