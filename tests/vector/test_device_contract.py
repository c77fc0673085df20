"""The contract of vectors on the learner's device (tests/vector/device_suite.py), for every tenant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from metta_fast.contracts.device_vector import DeviceVector, check_device_factory
from metta_fast.contracts.errors import UserError
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.vector import make_vector
from metta_fast.vector.gpu import GpuVector
from tests.cuda.emulate import Emulator
from tests.cuda.engines import needs_card, needs_compiler
from tests.device_envs import TorchFactory
from tests.vector.device_suite import check

DEVICES = [
    pytest.param("cpu"),
    pytest.param("cuda", marks=[pytest.mark.gpu, needs_card]),
]
KINDS: list[dict[str, Any]] = [
    {"kind": "pendulum"},
    {"kind": "pendulum", "autoreset": "same_step", "several": True},
    {"kind": "pendulum", "autoreset": "same_step", "final_obs": False},
    {"kind": "cart-pole"},
    {"kind": "cart-pole", "autoreset": "same_step", "masks": True},
    {"kind": "cart-pole", "several": True, "masks": True, "heads": True},
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", KINDS, ids=lambda options: "-".join(map(str, options.values())))
def test_environments_in_plain_torch(options: dict[str, Any], device: str) -> None:
    factory = TorchFactory(max_steps=7, **options)

    def make(num_envs: int, first_env: int, total_envs: int) -> DeviceVector:
        where = torch.device(device, 0) if device == "cuda" else torch.device(device)
        return make_vector(factory, num_envs, first_env, total_envs, backend="gpu", device=where)

    check(make)


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=[pytest.mark.gpu, needs_card])],
)
def test_the_grids_engine(device: str) -> None:
    """Emulated on the CPU."""
    factory = GridFactory(num_agents=3, room_size=(6, 6), objects={"mine_red": 2, "wall": 1}, max_steps=7)
    load = {"load": Emulator} if device == "cpu" else {}

    def make(num_envs: int, first_env: int, total_envs: int) -> DeviceVector:
        return GpuVector(factory, num_envs, device=device, first_env=first_env, total_envs=total_envs, **load)

    check(make)


def test_what_cannot_step_on_the_device_is_refused() -> None:
    with pytest.raises(UserError, match=r"vector\.backend=gpu is not available for counter on cpu"):
        make_vector(CounterFactory(), 4, backend="gpu", device=torch.device("cpu"))
    with pytest.raises(UserError, match=r"pendulum.*only vector\.backend=gpu"):
        make_vector(TorchFactory("pendulum"), 4, backend="serial")


class Other(TorchFactory):
    """Gives what `make` makes; `spec` replaces parts of the spec."""

    def __init__(self, make: Callable[..., Any], **spec: Any) -> None:
        super().__init__("pendulum", max_steps=7)
        self.make_device_vector, self.spec = make, replace(self.spec, **spec)  # type: ignore[method-assign]


def two_more(num_envs: int, device: torch.device, first_env: int, total_envs: int) -> DeviceVector:
    return TorchFactory("pendulum").make_device_vector(num_envs + 2, device, first_env, total_envs)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            Other(lambda num_envs, device: None),
            r"make_device_vector\(num_envs, device\): expected Other\.make_dev",
        ),
        (Other(lambda *ids: None), r"gave NoneType without attach, async_reset, .*expected a DeviceVector"),
        (Other(two_more), r"make_device_vector\(4, …\) gave a vector whose num_envs is 6: expected 4"),
        (Other(two_more, device_rows=False), r"Other\.spec has device_rows=False; expected True"),
        (
            Other(two_more, action_mask=True),
            r"Other\.spec has action_mask=True with continuous actions alone",
        ),
    ],
)
def test_a_factory_that_breaks_the_contract_is_refused(factory: TorchFactory, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_vector(factory, 4, backend="gpu", device=torch.device("cpu"))


def test_a_factory_without_a_spec_is_refused() -> None:
    factory = TorchFactory("pendulum")
    factory.spec = None  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"TorchFactory\.spec is NoneType: expected a metta_fast\.EnvSpec"):
        check_device_factory(factory)
