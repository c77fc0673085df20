"""Trains with each feature on a GPU: environments on the host, and a compiled policy.

python -m pytest -m gpu tests/features/test_on_gpu.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from metta_fast.config.keys import PolicyConfig
from metta_fast.features import kickstart, make_features
from metta_fast.policy import make_policy
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_rollout import weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def policy(factory: Any, core: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return make_policy(PolicyConfig(hidden_size=32, core=core), factory.spec)


@pytest.mark.parametrize("name", ["contrastive", "kickstart", "reward_centering"])
@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize(
    "keys", [{}, {"cpu_offload": True}, {"cuda_graphs": True}, {"compile": True}, {"precision": "bf16"}]
)
def test_it_trains(
    name: str, core: str, box: bool, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = tickers(5, box=box)
    teacher = policy(factory, "lstm", 1)
    monkeypatch.setattr(
        kickstart, "load_teacher", lambda _, built: teacher.to(built.device).eval().requires_grad_(False)
    )
    given: Any = {"teachers": str(tmp_path)} if name == "kickstart" else True
    found = []
    for features in ({name: given}, {}):
        ppo = make_ppo(
            factory,
            device="cuda",
            blocks=2,
            policy=policy(factory, core),
            hooks=make_features(features),
            **keys,
        )
        run(ppo, 4)
        found.append(weights(ppo))
        if keys.get("cuda_graphs"):
            captured = name == "reward_centering" or not features
            assert ppo.learner._run.captured == captured, ppo.notes
            assert captured or any("a feature adds to the loss" in note for note in ppo.notes)
    assert all(torch.isfinite(x).all() for x in found)
    assert not torch.equal(*found)
