"""SAC's updates on a GPU: captured in CUDA graphs, they are those of launches one by one."""

from __future__ import annotations

import pytest
import torch

from metta_fast.metrics.loggers import read_rows
from tests.tiny import trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
WORDS = (
    "env=inverted_pendulum", "env.num_envs=8", "algorithm=sac", "policy.hidden_size=32", "trainer.minibatch_size=64",
    "algorithm.learning_starts=200", "trainer.device=cuda", "trainer.precision=fp32", "trainer.tf32=false",
    "trainer.compile=false", "trainer.total_timesteps=1200",
)  # fmt: skip


def curve(folder, *words: str) -> list[dict[str, float]]:
    run = trained(folder, *WORDS, *words)
    return [row for row in read_rows(run / "metrics.jsonl") if "loss/value" in row]


@pytest.mark.parametrize("words", [(), ("algorithm.actor_delay=2",), ("algorithm=td3",)])
def test_graphs_change_nothing(words, tmp_path) -> None:
    plain = curve(tmp_path / "plain", "trainer.cuda_graphs=false", *words)
    captured = curve(tmp_path / "graphs", "trainer.cuda_graphs=true", *words)
    assert len(plain) == len(captured) > 5
    for name in ("loss/value", "loss/policy", "train/updates"):
        assert captured[0][name] == pytest.approx(plain[0][name], rel=1e-4)
        assert captured[4][name] == pytest.approx(plain[4][name], rel=2e-2, abs=1e-3)


def test_compiled_and_bf16_updates_are_near_the_plain_ones(tmp_path) -> None:
    plain = curve(tmp_path / "plain", "trainer.cuda_graphs=false")
    fast = curve(tmp_path / "fast", "trainer.precision=bf16", "trainer.compile=true")
    assert fast[2]["loss/value"] == pytest.approx(plain[2]["loss/value"], rel=0.2, abs=0.05)
