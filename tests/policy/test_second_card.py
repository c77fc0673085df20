"""Tests that our kernels run on the card of their tensors, also where another one is the current card.

With two cards:

    python -m pytest tests/policy/test_second_card.py
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.cli import main
from metta_fast.inference.loaded_policy import LoadedPolicy
from metta_fast.metrics.loggers import read_rows
from metta_fast.runtime import torch_operator
from metta_fast.runtime.nvrtc import launch
from metta_fast.vector import make_vector
from tests.export.runs import fake_run
from tests.vector.suite import assert_same, play, small_grid, tape_for


def two_cards(test: Any) -> Any:
    """Marks a test that needs two cards, of which the first is the current one."""
    missing = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
    return pytest.mark.gpu(missing(pytest.mark.usefixtures("first_card")(test)))


# ── without a card: which one is current at a launch ──


class OnCard1(torch.Tensor):
    """A tensor that says it is on the second card."""

    device = torch.device("cuda", 1)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Stands in for torch's current card: the last entry."""
    cards: list[Any] = [torch.device("cuda", 0)]

    class Device:
        def __init__(self, device: Any) -> None:
            self.device = device

        def __enter__(self) -> None:
            cards.append(self.device)

        def __exit__(self, *_: object) -> None:
            cards.pop()

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=cards[-1].index))
    return cards


def test_an_operators_kernel_for_cuda_has_its_tensors_card(
    current: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels: dict[str, Any] = {}
    monkeypatch.setattr(
        torch.library, "impl", lambda name, device, kernel: kernels.setdefault(device, kernel)
    )

    def first(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + current[-1].index

    def second(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + current[-1].index + n

    torch_operator.operator("second_card_test", "cuda")(first)
    other = torch_operator.operator("second_card_test_of_two", "cpu")(first)
    x = torch.zeros(1).as_subclass(OnCard1)
    assert kernels.pop("cuda")(x, 3) == 1
    assert kernels["cpu"] is first
    assert other.register_kernel("cuda")(second) is second
    assert kernels["cuda"](x, n=3) == 4
    assert current == [torch.device("cuda", 0)]


def test_a_launch_has_its_kernels_card_and_stream(
    current: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = []

    def launch_kernel(*given: Any) -> tuple[int]:
        launched.append((current[-1], given[8]))
        return (0,)

    def function(*_: Any) -> tuple[int, str]:
        launched.append((current[-1], 1))
        return 0, "function"

    driver = SimpleNamespace(
        cuLaunchKernel=launch_kernel, cuModuleGetFunction=function, cuFuncLoad=lambda f: function()[:1]
    )
    monkeypatch.setattr(launch, "_driver", lambda: driver)
    module = object.__new__(launch.Module)
    module.device, module._handle = torch.device("cuda", 1), None
    module.kernel("mf_step").prepare((1, 1), (32, 1))()
    assert launched == [(torch.device("cuda", 1), 1)] * 3
    assert current == [torch.device("cuda", 0)]


# ── with two cards ──


@pytest.fixture
def first_card() -> Iterator[None]:
    torch.cuda.set_device(0)
    yield
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device(0)


def observations(policy: LoadedPolicy, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 3, (64, *leaf.shape)).astype(leaf.dtype)
        for name, leaf in policy.spec.obs.items()
    }


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("obs", ["compact", "dense"])
@two_cards
def test_a_policy_loaded_on_the_second_card_acts_as_on_the_first(tmp_path: Path, core: str, obs: str) -> None:
    run = fake_run(tmp_path / "r", "env=grid", f"env.observation={obs}", f"policy.core={core}", card=True)
    both = [metta_fast.load_policy(run, deterministic=True, device=f"cuda:{card}") for card in (1, 0)]
    assert [policy.device for policy in both] == [torch.device("cuda", 1), torch.device("cuda", 0)]
    for seed in range(4):
        given = observations(both[0], seed)
        other, here = (policy.act(given) for policy in both)
        np.testing.assert_array_equal(other, here)
    assert {p.device.index for p in both[0].policy.parameters()} == {1}


@two_cards
def test_a_loaded_policy_stays_on_its_card_when_the_current_one_changes(tmp_path: Path) -> None:
    run = fake_run(tmp_path / "r", "env=grid", card=True)
    policy = metta_fast.load_policy(run, deterministic=True, device="cuda")
    assert policy.device == torch.device("cuda", 0)
    given = observations(policy, 1)
    before = policy.act(given)
    policy.restart()
    with torch.cuda.device(1):
        np.testing.assert_array_equal(policy.act(given), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("core", ["none", "mingru"])
@pytest.mark.parametrize("obs", ["compact", "dense"])
@two_cards
def test_outputs_and_gradients_on_the_second_card_are_those_of_the_first(
    tmp_path: Path, obs: str, core: str, dtype: torch.dtype
) -> None:
    run = fake_run(tmp_path / "r", "env=grid", f"env.observation={obs}", f"policy.core={core}", card=True)
    loaded = metta_fast.load_policy(run, device="cpu")
    given = observations(loaded, 5)
    results = []
    for card in (1, 0):
        place = torch.device("cuda", card)
        policy = copy.deepcopy(loaded.policy).to(place).train()
        leaves = {
            name: torch.from_numpy(leaf).reshape(8, 8, *leaf.shape[1:]).to(place)
            for name, leaf in given.items()
        }
        begins = torch.zeros(8, 8, dtype=torch.bool, device=place)
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            output = policy(leaves, policy.initial_state(8, place), begins)
        (output.params.float().square().sum() + output.value.float().square().sum()).backward()
        results.append(
            [output.params, output.value, *(p.grad for p in policy.parameters() if p.grad is not None)]
        )
    assert len(results[0]) == len(results[1]) > 6
    for other, here in zip(*results):
        assert (other.device.index, here.device.index) == (1, 0)
        assert bool(here.abs().sum() > 0)
        torch.testing.assert_close(other.cpu(), here.cpu(), rtol=1e-4, atol=1e-5)


@two_cards
def test_environments_on_the_second_card_are_those_of_the_cpu() -> None:
    from tests.cuda.engines import OnHost

    factory = small_grid()
    tape = tape_for(factory.spec, 23, 11)
    with make_vector(factory, 11, backend="serial") as vec:
        vec.async_reset(3)
        on_cpu = play(vec, tape)
    vec = make_vector(factory, 11, backend="gpu", device=torch.device("cuda", 1))
    assert vec.rows.reward.device.index == 1
    host = OnHost(vec)
    vec.async_reset(3)
    assert_same(play(host, tape), on_cpu)
    vec.close()


@two_cards
def test_a_training_uses_the_current_card(tmp_path: Path) -> None:
    """trainer.device=cuda and env.device=cuda, with graphs, all on the second card."""
    words = [
        "train", "hardware=auto", "env=grid", "env.num_envs=256", "trainer.total_timesteps=65536",
        "trainer.device=cuda", "env.device=cuda", "trainer.compile=false", "run.dashboard=none",
        "run.tensorboard=false", f"run.dir={tmp_path}",
    ]  # fmt: skip
    for card, other in ((0, 1), (1, 0)):
        for each in (0, 1):
            torch.cuda.reset_peak_memory_stats(each)
        before = [torch.cuda.max_memory_allocated(each) for each in (0, 1)]
        with torch.cuda.device(card):
            assert main([*words, f"run.name=card{card}"]) == 0
        after = [torch.cuda.max_memory_allocated(each) for each in (0, 1)]
        assert after[card] > before[card]
        assert after[other] == before[other]
        rows = list(read_rows(tmp_path / f"card{card}" / "metrics.jsonl"))
        assert rows
        assert all(np.isfinite(row["loss/value"]) for row in rows)
