"""PufferLib's own trainer (pufferlib-core 3.0.23) drives our vectors.

Its advantage kernel, in the wheel's compiled part, loads beside one CUDA build of torch alone: here ours computes the
same (metta_fast/bench/training/pufferlib.py). Its environments and configuration files are not in the wheel.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import metta_fast.compat.pufferlib as ours
from metta_fast.envs.puffer.guard import unchanged
from tests.compat.puffer_envs import mixed, tracks


@pytest.fixture
def pufferl(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its trainer's module, whose import changes signals, warnings and tracebacks of the whole process."""
    pytest.importorskip("pufferlib")
    with unchanged():
        module = pytest.importorskip("pufferlib.pufferl", exc_type=ImportError)
        from metta_fast.bench.training.pufferlib import advantage
    monkeypatch.setattr(module, "compute_puff_advantage", advantage)
    monkeypatch.setattr(module.PuffeRL, "print_dashboard", lambda *_, **__: None)
    return module


class Policy(nn.Module):
    """Reads emulated observations leaf by leaf, as PufferLib's policies do."""

    hidden_size = 16

    def __init__(self, vec: Any) -> None:
        super().__init__()
        emulated = vec.driver_env.emulated
        self.dtype = ours.pytorch.nativize_dtype(emulated) if emulated else None
        size = (
            ours.pytorch.flattened_tensor_size(self.dtype)
            if self.dtype
            else vec.single_observation_space.shape[0]
        )
        self.heads = [vec.single_action_space.n] if emulated is False else list(vec.single_action_space.nvec)
        self.body = ours.pytorch.layer_init(nn.Linear(size, 16))
        self.out = nn.Linear(16, int(sum(self.heads)) + 1)

    def forward(self, observations: Any, state: Any = None) -> Any:
        if self.dtype:
            found = ours.pytorch.nativize_tensor(observations, self.dtype)
            parts = [*found["pair"].values(), found["bytes"], found["number"]]
            observations = torch.cat([part.reshape(len(observations), -1).float() for part in parts], 1)
        out = self.out(torch.relu(self.body(observations)))
        logits = out[:, :-1].split([int(n) for n in self.heads], 1)
        return (logits[0] if len(logits) == 1 else logits), out[:, -1]

    forward_eval = forward


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (tracks(), {"backend": "Serial"}),
        (mixed(), {"backend": ours.vector.Multiprocessing, "num_workers": 2, "batch_size": 2}),
    ],
    ids=["native", "emulated"],
)
def test_its_trainer_trains_on_our_vectors(pufferl, make, options, tmp_path):
    vec = ours.vector.make(make, num_envs=4, teacher_actions=True, **options)
    policy = Policy(vec)
    before = [weight.clone() for weight in policy.parameters()]
    batch = vec.num_agents * 16
    settings = {
        "env": "ours", "seed": 0, "torch_deterministic": False, "device": "cpu", "cpu_offload": False, "use_rnn": False,
        "batch_size": batch, "bptt_horizon": 16, "minibatch_size": batch, "max_minibatch_size": batch,
        "update_epochs": 1, "total_timesteps": 4 * batch, "precision": "float32", "compile": False, "compile_mode": "",
        "compile_fullgraph": False, "optimizer": "adam", "learning_rate": 1e-2, "anneal_lr": True, "adam_beta1": 0.9,
        "adam_beta2": 0.999, "adam_eps": 1e-8, "gamma": 0.99, "gae_lambda": 0.95, "clip_coef": 0.2, "vf_coef": 0.5,
        "vf_clip_coef": 1.0, "ent_coef": 0.01, "max_grad_norm": 0.5, "vtrace_rho_clip": 1.0, "vtrace_c_clip": 1.0,
        "prio_alpha": 0.8, "prio_beta0": 0.2, "checkpoint_interval": 1 << 40, "data_dir": str(tmp_path),
    }  # fmt: skip
    trainer = pufferl.PuffeRL(settings, vec, policy)
    trainer.amp_context = (
        nullcontext()
    )  # it enters its autocast, which changes nothing here, and never leaves it
    try:
        stats: dict[str, Any] = {}
        for _ in range(3):
            stats |= trainer.evaluate()
            trainer.train()
    finally:
        trainer.close()
    assert trainer.global_step >= 3 * batch * 0.9  # it counts rows whose mask is True
    assert ("score" if vec.emulated is False else "episode_return") in stats
    assert any(not torch.equal(a, b) for a, b in zip(before, policy.parameters()))
    assert all(np.isfinite(weight.detach().numpy()).all() for weight in policy.parameters())
