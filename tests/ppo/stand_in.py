"""Provides a minimal policy that fulfils metta_fast/policy's contract, and helpers for the tests of PPO."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvFactory, EnvSpec
from metta_fast.vector import make_vector


class Output(NamedTuple):
    params: Tensor
    value: Tensor
    state: Tensor


class DiscreteHead:
    """One softmax for each head."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        self.nvec, self.num_params = nvec, sum(nvec)

    def _logs(self, params: Tensor) -> list[Tensor]:
        return [part.float().log_softmax(-1) for part in params.split(self.nvec, -1)]

    def to_env(self, action: Tensor) -> Tensor:
        return action

    def sample(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        chosen, total = [], torch.zeros(params.shape[:-1], device=params.device)
        for i, logs in enumerate(self._logs(params)):
            below = logs.exp().cumsum(-1) < noise[..., i : i + 1]
            index = below.sum(-1, keepdim=True).clamp(max=logs.shape[-1] - 1)
            total = total + logs.gather(-1, index)[..., 0]
            chosen.append(index)
        return torch.cat(chosen, -1).int(), total

    def logprob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        logprob = entropy = torch.zeros(params.shape[:-1], device=params.device)
        for i, logs in enumerate(self._logs(params)):
            logprob = logprob + logs.gather(-1, action[..., i : i + 1].long())[..., 0]
            entropy = entropy - (logs.exp() * logs).sum(-1)
        return logprob, entropy


class GaussianHead(nn.Module):
    """Independent normals with a learnt standard deviation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.num_params = size
        self.log_std = nn.Parameter(torch.zeros(size))

    def to_env(self, action: Tensor) -> Tensor:
        return action

    def sample(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        action = params.float() + noise * self.log_std.exp()
        return action, self.logprob_entropy(params, action)[0]

    def logprob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        normal = torch.distributions.Normal(params.float(), self.log_std.exp(), validate_args=False)
        return normal.log_prob(action).sum(-1), normal.entropy().sum(-1)


class TinyPolicy(nn.Module):
    """Flattened observation → one hidden layer → (LSTM) → parameters and value."""

    def __init__(self, spec: EnvSpec, *, hidden: int = 32, lstm: bool = False) -> None:
        super().__init__()
        size = sum(int(torch.tensor(leaf.shape).prod()) for leaf in spec.obs.values())
        discrete = spec.action.kind == "discrete"
        self.head: Any = DiscreteHead(spec.action.nvec) if discrete else GaussianHead(spec.action.width)
        self.encoder = nn.Linear(size, hidden)
        self.core = nn.LSTM(hidden, hidden) if lstm else None
        self.output = nn.Linear(hidden, self.head.num_params)
        self.critic = nn.Linear(hidden, 1)
        self.state_shape = (2, hidden) if lstm else (0, 0)

    def initial_state(self, n: int, device: torch.device) -> Tensor:
        return torch.zeros(self.state_shape[0], n, self.state_shape[1], device=device)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Output:
        x = torch.cat([leaf.flatten(2).float() for leaf in obs.values()], -1)
        x = self.encoder(x).tanh()
        if self.core is not None:
            rows = []
            for t in range(len(x)):
                state = torch.where(reset[t].unsqueeze(1), 0.0, state)
                y, (h, c) = self.core(x[t : t + 1], (state[:1].contiguous(), state[1:].contiguous()))
                state = torch.cat([h, c])
                rows.append(y)
            x = torch.cat(rows)
        return Output(self.output(x), self.critic(x)[..., 0].float(), state)


class TellsReset(TinyPolicy):
    """Without memory, and yet it reads `reset`: it is its value."""

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Output:
        out = super().forward(obs, state, reset)
        return out._replace(value=reset.float() + 0 * out.value)


def check_reset_is_read(ppo: PPO) -> None:
    """Each row's value is the row's own reset; `ppo` has TellsReset."""
    for _ in range(4):
        ppo.collect()
        assert ppo.buffers.reset.any()
        assert torch.equal(ppo.buffers.value.bool(), ppo.buffers.reset)
        ppo.update()
    ppo.rollout.vec.close()


def make_config(**trainer: Any) -> Config:
    """A resolved configuration for a small run on the CPU; keyword arguments set keys of `trainer`."""
    config = Config()
    config.trainer.device = "cpu"
    config.trainer.precision = "fp32"
    config.trainer.compile, config.trainer.compile_mode = False, "default"
    config.trainer.torch_threads = 1
    config.trainer.total_timesteps = 100_000
    config.trainer.normalize_reward = False  # most tests look at the rewards
    for name, value in trainer.items():
        assert hasattr(config.trainer, name), name
        setattr(config.trainer, name, value)
    return config


def make_ppo(
    factory: EnvFactory,
    num_envs: int | None = None,
    *,
    horizon: int = 16,
    bptt: int = 8,
    minibatches: int = 2,
    blocks: int = 1,
    backend: str = "serial",
    workers: int = 1,
    threads: int = 1,
    lstm: bool = False,
    seed: int = 0,
    hooks: Hooks | None = None,
    policy: nn.Module | None = None,
    zero_copy: bool = True,
    device: str = "cpu",
    **trainer: Any,
) -> PPO:
    """A PPO over num_envs of the factory's environments (None: `factory.envs`, as `envs.counted` sets it)."""
    spec = factory.spec
    num_envs = num_envs or factory.envs  # type: ignore[attr-defined]
    batch = num_envs * spec.agents_per_env * horizon
    config = make_config(batch_size=batch, minibatch_size=batch // minibatches, bptt_horizon=bptt, **trainer)
    config.seed, config.vector.zero_copy, config.trainer.device = seed, zero_copy, device
    vec = make_vector(
        factory,
        num_envs,
        backend=backend,
        num_blocks=blocks,
        num_workers=workers,
        num_threads=threads,
        worker_timeout_s=30.0,
    )
    torch.manual_seed(seed)
    where = torch.device(device)
    policy = (policy or TinyPolicy(spec, lstm=lstm)).to(where)
    return PPO(config, spec, vec, policy, device=where, hooks=hooks)


def run(ppo: PPO, epochs: int) -> PPO:
    """Train for some epochs and close the environments."""
    try:
        for _ in range(epochs):
            ppo.collect()
            ppo.update()
    finally:
        ppo.rollout.vec.close()
    return ppo
