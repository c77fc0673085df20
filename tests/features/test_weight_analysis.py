"""Tests ranks, dead units and drift on known cases; a run is the same with and without them."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from metta_fast.config.keys import PolicyConfig
from metta_fast.features import make_features
from metta_fast.features.weight_analysis import dead_units, spectrum
from metta_fast.policy import make_policy
from tests.ppo.envs import tickers
from tests.ppo.stand_in import TinyPolicy, make_ppo, run
from tests.ppo.test_rollout import weights


@pytest.mark.parametrize(
    ("values", "rank"), [([1.0] * 5, 5.0), ([1.0, 0, 0, 0, 0], 1.0), ([1.0, 1, 0, 0, 0], 2.0)]
)
def test_the_effective_rank_counts_directions(values: list[float], rank: float) -> None:
    left, _ = torch.linalg.qr(torch.randn(7, 5))
    right, _ = torch.linalg.qr(torch.randn(5, 5))
    figures = spectrum(3 * left @ torch.diag(torch.tensor(values)) @ right)
    assert figures["effective_rank"] == pytest.approx(rank, rel=1e-4)
    assert figures["rank_share"] == pytest.approx(rank / 5, rel=1e-4)
    assert figures["spectral_norm"] == pytest.approx(3.0, rel=1e-5)
    assert figures["norm"] == pytest.approx(3 * math.sqrt(sum(values)), rel=1e-5)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.floats(1e-3, 1e3), st.integers(0, 99))
def test_the_effective_rank_is_within_its_bounds_and_has_no_scale(
    rows: int, columns: int, scale: float, seed: int
) -> None:
    """Against numpy, and 1 ≤ it ≤ full rank."""
    weight = np.random.default_rng(seed).normal(size=(rows, columns))
    singular = np.linalg.svd(weight, compute_uv=False)
    shares = singular / singular.sum()
    expected = float(np.exp(-(shares * np.log(np.maximum(shares, 1e-300))).sum()))
    found = spectrum(torch.from_numpy(scale * weight))["effective_rank"]
    assert found == pytest.approx(expected, rel=1e-6)
    assert 1 - 1e-9 <= found <= min(rows, columns) + 1e-9


def test_a_matrix_of_zeros_has_no_rank() -> None:
    assert spectrum(torch.zeros(3, 4)) == {"norm": 0.0, "spectral_norm": 0.0}


def ready(policy: nn.Module | None = None, **keys: Any) -> Any:
    """A PPO that has collected a rollout."""
    ppo = make_ppo(tickers(4), policy=policy, **keys)
    ppo.collect()
    ppo.rollout.vec.close()
    return ppo


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
def test_dead_units_are_found(activation: str) -> None:
    """Of the second layer's eight units, biases make two do the same whatever the row."""
    config = PolicyConfig(hidden_size=8, activation=activation)
    policy = make_policy(config, tickers(4).spec)
    ppo = ready(policy)
    with torch.no_grad():
        policy.encoder.second.bias[:2] = -1e9
    found = dead_units(ppo._context())
    assert set(found) == {"encoder.0", "encoder.1"}
    assert found["encoder.1"] >= 2 / 8
    with torch.no_grad():
        policy.encoder.second.bias.zero_()
        policy.encoder.second.weight.zero_()
        policy.encoder.second.bias[2:] = 0.5
    assert dead_units(ppo._context())["encoder.1"] == (2 / 8 if activation == "relu" else 0.0)


def test_masked_rows_do_not_count() -> None:
    policy = TinyPolicy(tickers(4).spec, hidden=4)
    ppo = ready(policy)
    b = ppo.buffers
    b.obs["obs"][:] = 1e9  # saturates every tanh
    b.obs["obs"][3] = 0.0
    with torch.no_grad():
        policy.encoder.bias.zero_()
    b.mask[:] = True
    assert dead_units(ppo._context()) == {"policy": 0.0}
    b.mask[3] = False
    assert dead_units(ppo._context()) == {"policy": 1.0}


class Modules(nn.Module):
    """Activations as modules; a policy of a user's, without a name of ours."""

    def __init__(self, inner: TinyPolicy) -> None:
        super().__init__()
        self.inner, self.head, self.state_shape = inner, inner.head, inner.state_shape
        self.net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 3), nn.Sigmoid())

    def initial_state(self, n: int, device: torch.device) -> Tensor:
        return self.inner.initial_state(n, device)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Any:
        return self.inner({"obs": self.net(obs["obs"])}, state, reset)


def test_activations_that_are_modules_are_found_by_name() -> None:
    found = dead_units(ready(Modules(TinyPolicy(tickers(4).spec)))._context())
    assert set(found) == {"net.1", "net.3", "inner"}


def hooks(folder: Path | None = None, interval: int = 2) -> Any:
    return make_features({"weight_analysis": {"interval_epochs": interval}}, folder=folder)


@pytest.mark.parametrize("lstm", [False, True])
def test_the_training_is_the_same_with_and_without(lstm: bool, tmp_path: Path) -> None:
    bare = weights(run(make_ppo(tickers(4), lstm=lstm), 4))
    assert torch.equal(bare, weights(run(make_ppo(tickers(4), lstm=lstm, hooks=hooks(tmp_path)), 4)))


def test_drift_counts_from_the_runs_start_through_a_resume(tmp_path: Path) -> None:
    ppo = make_ppo(tickers(4), hooks=hooks(tmp_path, 1))
    start = ppo.policy.encoder.weight.detach().clone()
    run(ppo, 2)
    state, then = ppo.state_dict(), ppo.policy.encoder.weight.detach().clone()
    assert "weights/encoder/moved" in ppo.metrics()
    again = make_ppo(tickers(4), hooks=hooks(tmp_path, 1))
    again.load_state_dict(state)
    run(again, 1)
    now, row = again.policy.encoder.weight.detach(), again.metrics()
    assert row["weights/encoder/drift"] == pytest.approx(float((now - start).norm() / start.norm()), rel=1e-4)
    assert "weights/encoder/moved" not in row
    assert not torch.equal(now, then)


def test_a_damaged_file_is_told_and_the_drift_counts_from_here(tmp_path: Path, caplog: Any) -> None:
    ppo = run(make_ppo(tickers(4), hooks=hooks(tmp_path, 1)), 1)
    (tmp_path / "weights_start.pt").write_bytes(b"PK\x03\x04broken")
    again = make_ppo(tickers(4), hooks=hooks(tmp_path, 1))
    again.load_state_dict(ppo.state_dict())
    with caplog.at_level(logging.WARNING, logger="metta_fast"):
        run(again, 1)
    assert "drift is measured from epoch 1" in caplog.text
    assert again.metrics()["weights/encoder/drift"] < 1
