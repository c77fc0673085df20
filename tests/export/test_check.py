"""Tests that the check of an exported file notices each kind of difference, without an exporter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.export.check import Different, compare, played
from metta_fast.export.step import Step, input_names, output_names, plain_copy
from metta_fast.policy import make_policy
from tests.export.runs import Mixed
from tests.ppo.envs import Line, Seen


class Boxed(Line):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Box(-2, 2, (2,), np.float32)  # type: ignore[assignment]

    def step(self, action: Any) -> Any:
        return super().step(action)


ENVS: dict[str, Callable[[int], Any]] = {
    "start": lambda index: Line(start=5),
    "several-heads": lambda index: Mixed(),
    "box": lambda index: Boxed(),
}
CASES = [(env, core) for env in ENVS for core in ("none", "lstm")]


def made(env: str, core: str) -> tuple[Any, Any, Any]:
    """A policy with weights that are not small, its spec, and observations."""
    factory = PythonEnvFactory(ENVS[env])
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=16, core=core), factory.spec)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return policy.eval(), factory.spec, played(factory, 3, factory.spec)


@pytest.mark.parametrize(("env", "core"), CASES)
def test_a_right_file_passes_and_each_wrong_output_is_named(env: str, core: str) -> None:
    policy, spec, seen = made(env, core)
    right = Step(plain_copy(policy), spec)
    names = output_names(policy)
    assert names == ["action", "params", "value", *(["new_state"] if core == "lstm" else [])]
    report = compare(right, policy, spec, seen)
    assert report.rows > 30
    assert report.largest < 1e-4

    def changed(place: int, change: Callable[[Tensor], Tensor]) -> Any:
        def run(*inputs: Tensor) -> list[Tensor]:
            outputs = list(right(*inputs))
            outputs[place] = change(outputs[place].clone())
            return outputs

        return run

    def one(value: float) -> Callable[[Tensor], Tensor]:
        def change(x: Tensor) -> Tensor:
            x.reshape(-1)[-1] += value
            return x

        return change

    for place, name in enumerate(names):
        wrong = [one(7), lambda x: x[:1].repeat(2, *[1] * (x.dim() - 1)), lambda x: x.double()]
        if name != "action" or env == "box":
            wrong += [one(float("nan")), one(float("inf")), lambda x: -x - 1]
        for change in wrong:
            with pytest.raises(Different, match=f"{name} differs"):
                compare(changed(place, change), policy, spec, seen)


@pytest.mark.parametrize("env", ["start", "several-heads"])
def test_a_legal_action_that_is_not_the_best_is_named(env: str) -> None:
    policy, spec, seen = made(env, "none")
    right = Step(plain_copy(policy), spec)

    def worse(*inputs: Tensor) -> list[Tensor]:
        action, params, value = right(*inputs)
        first = params.split(policy.head.nvec, -1)[0]
        action[:, 0] = spec.action.start[0] + first.argmin(-1).int()
        return [action, params, value]

    with pytest.raises(Different, match="action differs"):
        compare(worse, policy, spec, seen)


def test_a_file_that_cannot_be_run_is_named() -> None:
    policy, spec, seen = made("start", "none")

    def raises(*inputs: Tensor) -> list[Tensor]:
        raise RuntimeError("no such operator")

    with pytest.raises(Different, match=r"cannot be run on 3 agents \(RuntimeError: no such operator"):
        compare(raises, policy, spec, seen)


@pytest.mark.parametrize("env", ENVS)
def test_exported_actions_are_the_environments_own(env: str) -> None:
    policy, spec, seen = made(env, "none")
    step, space = Step(policy, spec), PythonEnvFactory(ENVS[env]).action_space
    for obs, _ in seen:
        for action in step(*obs.values())[0].detach().numpy():
            own = (
                int(action[0]) if isinstance(space, gymnasium.spaces.Discrete) else action.astype(space.dtype)
            )
            assert space.contains(own)


def test_a_value_that_needs_the_critics_leaves_is_no_output() -> None:
    factory = PythonEnvFactory(lambda index: Seen(index))
    policy = make_policy(PolicyConfig(hidden_size=8, shared=False), factory.spec)
    assert output_names(policy) == ["action", "params"]
    assert input_names(factory.spec, memory=False) == ["obs/critic", "obs"]
    outputs = Step(policy, factory.spec)(torch.zeros(2, 3))
    assert [tuple(x.shape) for x in outputs] == [(2, 2), (2, 5)]
