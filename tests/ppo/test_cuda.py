"""Tests the loop with the policy on a GPU: rows as on the CPU, buffers on either side, graphs, half precision.

python -m pytest -m gpu tests/ppo/test_cuda.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.ppo import PPO
from metta_fast.envs.counter import CounterFactory
from tests.ppo.envs import tickers
from tests.ppo.stand_in import Output, TellsReset, TinyPolicy, check_reset_is_read, make_ppo, run
from tests.ppo.test_learner import learnt_logprobs
from tests.ppo.test_rollout import expected_rows, weights

os.environ.setdefault(
    "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
)  # read at the first product, for the deterministic run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PLACES = [{}, {"cpu_offload": True}, {"zero_copy": False}, {"cuda_graphs": True}]


def cuda_ppo(**keys: Any) -> PPO:
    return make_ppo(
        tickers(5),
        device="cuda",
        blocks=2,
        **({"horizon": 12, "bptt": 4, "minibatches": 1, "lstm": True} | keys),
    )


@pytest.mark.parametrize("place", PLACES)
def test_rows_and_ratio(place: dict[str, Any]) -> None:
    ppo = cuda_ppo(**place)
    assert ppo.buffers.device.type == ("cpu" if "cpu_offload" in place else "cuda")
    want = [expected_rows(i, 12 * 3 + 1) for i in range(5)]
    steps = 0
    for epoch in range(3):
        ppo.collect()
        b = ppo.buffers
        for t in range(13):
            for i in range(5):
                episode, step, mask, reset, ends = want[i][epoch * 12 + t]
                assert b.obs["obs"][t, i].tolist() == [i, episode, step]
                assert [bool(b.mask[t, i]), bool(b.reset[t, i])] == [mask, reset]
                if t < 12:
                    hit = int(b.action[t, i, 0]) == step % 3
                    assert float(b.reward[t, i]) == (step + 10.0 * hit if mask else 0.0)
                    assert bool(b.terminal[t, i] | b.truncation[t, i]) == ends
                    steps += mask
        learnt = torch.where(b.mask[:12], learnt_logprobs(ppo), 0)
        torch.testing.assert_close(learnt, torch.where(b.mask[:12], b.logprob, 0), rtol=2e-3, atol=2e-3)
        ppo.update()
        assert ppo.steps == steps
    ppo.rollout.vec.close()


@pytest.mark.parametrize("place", PLACES)
def test_a_policy_without_memory_reads_the_rows_own_reset(place: dict[str, Any]) -> None:
    check_reset_is_read(cuda_ppo(lstm=False, policy=TellsReset(tickers(5).spec), **place))


def test_where_the_buffers_lie_changes_nothing_but_rounding() -> None:
    """Noise is drawn on the GPU in all cases; with one minibatch the order of segments does not matter."""
    results = [weights(run(cuda_ppo(tf32=False, **place), 1)) for place in PLACES]
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "trainer",
    [
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"compile": True},
        {"compile": True, "compile_mode": "reduce-overhead"},
        {"compile": True, "compile_mode": "reduce-overhead", "gradient_accumulation": 3},
        {"compile": True, "compile_mode": "reduce-overhead", "lstm": True, "advantage": "vtrace"},
        {"compile": True, "compile_mode": "reduce-overhead", "precision": "bf16", "recompute": "minibatch"},
        {"cuda_graphs": True, "precision": "bf16", "recompute": "pass", "update_epochs": 2},
        {"cuda_graphs": True, "compile": True, "gradient_accumulation": 3},
        {"cuda_graphs": True, "compile": True, "lstm": True, "advantage": "vtrace", "zero_copy": False},
    ],
)
def test_settings(trainer: dict[str, Any]) -> None:
    ppo = cuda_ppo(**({"lstm": False, "minibatches": 3} | trainer))
    before = weights(ppo)
    run(ppo, 5)
    assert torch.isfinite(weights(ppo)).all()
    assert not torch.equal(before, weights(ppo))


@pytest.mark.parametrize("graphs", [False, True])
def test_deterministic_runs_are_bit_identical(graphs: bool) -> None:
    a, b = (
        weights(run(cuda_ppo(minibatches=3, deterministic=True, cuda_graphs=graphs), 3)) for _ in range(2)
    )
    assert torch.equal(a, b)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("keys", [{}, {"lstm": True}, {"box": True}, {"lstm": True, "zero_copy": False}])
def test_graphs_change_nothing(keys: dict[str, Any], blocks: int) -> None:
    keys = {"horizon": 12, "bptt": 4, "minibatches": 3, "blocks": blocks, "device": "cuda"} | keys
    box = keys.pop("box", False)
    graphed, plain = (make_ppo(tickers(6, box=box), cuda_graphs=graphs, **keys) for graphs in (True, False))
    for _ in range(4):
        for ppo in (graphed, plain):
            ppo.collect()
        for name in ("mask", "reset", "terminal", "truncation"):
            assert torch.equal(getattr(graphed.buffers, name), getattr(plain.buffers, name)), name
        for name in ("action", "reward", "logprob", "value", "state"):
            torch.testing.assert_close(
                getattr(graphed.buffers, name), getattr(plain.buffers, name), rtol=1e-3, atol=1e-4, msg=name
            )
        for ppo in (graphed, plain):
            ppo.update()
    torch.testing.assert_close(weights(graphed), weights(plain), rtol=1e-3, atol=1e-5)
    for ppo in (graphed, plain):
        ppo.vec.close()
    assert graphed.notes == []
    assert graphed.learner._run.captured
    assert all(step.row.captured and step.last.captured for step in graphed.rollout._steps)


@pytest.mark.parametrize(
    "keys", [{}, {"gradient_accumulation": 3}, {"recompute": "minibatch"}, {"compile": True}]
)
def test_an_update_too_large_for_one_graph_has_one_for_its_minibatches(
    keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metta_fast.algorithms.ppo.fast_paths.WHOLE_UPDATE", 5)
    ours = cuda_ppo(minibatches=3, update_epochs=2, cuda_graphs=True, **keys)
    plain = cuda_ppo(minibatches=3, update_epochs=2, **keys)
    for ppo in (ours, plain):
        run(ppo, 3)
    assert ours.notes == []
    assert ours.learner._single[True].captured
    assert ours.learner._single[False].captured == ("gradient_accumulation" in keys)
    torch.testing.assert_close(
        weights(ours), weights(plain), rtol=1e-3, atol=1e-2 if "compile" in keys else 1e-5
    )


class Reading(TinyPolicy):
    """Asks the device for a number in its forward pass, as users' policies may."""

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Output:
        out = super().forward(obs, state, reset)
        assert float(out.value.sum()) < 1e9
        return out


def test_a_policy_that_cannot_be_captured_goes_on_launch_by_launch() -> None:
    factory = tickers(4)
    ppo = make_ppo(factory, device="cuda", policy=Reading(factory.spec), cuda_graphs=True)
    run(ppo, 4)
    assert torch.isfinite(weights(ppo)).all()
    assert len(ppo.notes) == 3  # a row, the last row, the update
    assert all("runs without a CUDA graph, which is slower" in note for note in ppo.notes)


@pytest.mark.parametrize(
    "trainer",
    [{}, {"compile": True, "compile_mode": "reduce-overhead"}, {"compile": True, "cuda_graphs": True}],
)
def test_it_learns(trainer: dict[str, Any]) -> None:
    ppo = make_ppo(
        CounterFactory(max_steps=64, goal=2), 64, horizon=32, bptt=16, minibatches=4, blocks=2, device="cuda",
        gamma=0.9, learning_rate=5e-3, update_epochs=4, total_timesteps=80_000, **trainer)  # fmt: skip
    run(ppo, 38)
    assert ppo.metrics()["env/return"] > 55
