"""Tests float64 observations beyond float32's range: the observation is blamed, not the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.rollout.finite_checks import NonFiniteError
from tests.ppo.stand_in import TinyPolicy, make_ppo, run
from tests.ppo.test_masked_rows import BACKENDS, LAST, Spoilt, on_device, trains


class Wide(Spoilt):
    """Gives `value` as one of two float64 numbers at step `at` of environment 2."""

    def __init__(self, index: int, value: float, at: int) -> None:
        super().__init__(None, terminated=True, truncated=False)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.value, self.at = value if index == 2 else 0.0, at

    def _wide(self, obs: Any) -> Any:
        return np.array([1.0, self.value if self.step_of == self.at else 0.0])

    def reset(self, **keys: Any) -> Any:
        obs, info = super().reset(**keys)
        return self._wide(obs), info

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return self._wide(obs), *rest


def wide(value: float, at: int = 2) -> PythonEnvFactory:
    return PythonEnvFactory(lambda index: Wide(index, value, at), name="wide")


@pytest.mark.parametrize("keys", [*BACKENDS, "device"])
@pytest.mark.parametrize("value", [1e300, -4e38])
def test_an_observation_too_large_for_float32_is_named(keys: Any, value: float) -> None:
    factory = wide(value)
    policy: Any = TinyPolicy(factory.spec)
    ppo = on_device(factory, policy) if keys == "device" else make_ppo(factory, 4, **keys)
    with pytest.raises(NonFiniteError) as told:
        run(ppo, 1)
    assert f"observation is {value} in environment 2 (agent 0 of it, entry [1]), row " in str(told.value)
    assert "too large for float32 (3.4e38), in which the policy computes: scale it" in str(told.value)
    assert "diverged" not in str(told.value)


def test_the_largest_numbers_of_float32_and_rows_that_are_not_trained_on_pass() -> None:
    trains(make_ppo(wide(1e300, at=LAST), 4))
    factory = wide(1e300, at=LAST)
    trains(on_device(factory, TinyPolicy(factory.spec)))  # type: ignore[arg-type]
