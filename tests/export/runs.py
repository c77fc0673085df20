"""Makes runs without training: a configuration, and a checkpoint of random weights."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from metta_fast.config.keys import PolicyConfig, config_to_dict
from metta_fast.config.trust import mark
from metta_fast.contracts.env import EnvSpec
from metta_fast.envs import make_factory
from metta_fast.policy import Policy, PolicyOutput, make_policy
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.storage import checkpoint

HERE = "tests.export.runs"


def fake_run(folder: Path, *words: str, card: bool = False) -> Path:
    """A run's folder with one checkpoint, as if it had trained with these words; `card`: all on a GPU."""
    config = resolve(compose(["hardware=cpu", "policy.hidden_size=16", *words])).config
    if card:
        config.env.device, config.trainer.device, config.vector.backend = "cuda", "cuda", "gpu"
        config.trainer.cuda_graphs, config.trainer.precision = True, "bf16"
    torch.manual_seed(1)
    policy = make_policy(config.policy, make_factory(config.env).spec)
    with torch.no_grad():
        for weight in policy.parameters():  # heads start near zero: all actions would be about as good
            weight.add_(0.1 * torch.randn_like(weight))
    values = config_to_dict(config)
    meta = {"config": values, "code": mark(values), "origins": {}, "seconds": 0.0}
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("{}")
    checkpoint.save(folder / "checkpoints", 1000, {"algorithm": {"policy": policy.state_dict()}}, meta)
    return folder


class Mixed(gymnasium.Env):
    """A Dict of bytes, whole numbers and doubles; actions that do not start at 0."""

    action_space = gymnasium.spaces.MultiDiscrete([2, 5], start=[3, -1])
    observation_space = gymnasium.spaces.Dict(
        reset=gymnasium.spaces.Box(-1, 1, (2,), np.float64),
        place=gymnasium.spaces.Box(0, 6, (1,), np.int64),
        tile=gymnasium.spaces.Box(0, 255, (2, 2), np.uint8),
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.count += 1
        return self.observation_space.sample(), 1.0, self.count > 5, False, {}


def mixed(config):
    return lambda index: Mixed()


class Table(Policy):
    """Looks numbers up in a table that is as small as the environment needs."""

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        super().__init__(spec)
        self.table = nn.Embedding(7, self.head.num_params + 1)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        out = self.table(obs["place"][..., 0]) + obs["tile"].flatten(-2).float().sum(-1, keepdim=True) / 1000
        return PolicyOutput(out[..., :-1], out[..., -1], state)


class Branches(Table):
    """No exporter that keeps all cases can follow this."""

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        out = super().forward(obs, state, reset)
        return out._replace(params=-out.params) if bool(obs["tile"].flatten()[0] > 100) else out


class Narrow(Table):
    """Fails outside its table."""

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        if obs["tile"].shape[1] == 8 and bool((obs["tile"] > 200).any()):
            raise ValueError("too bright")
        return super().forward(obs, state, reset)
