"""An off-policy algorithm to test the registry with: soft Q-learning with a small replay buffer.

    metta-fast train env=counter algorithm=tests.toy_algorithm:Toy algorithm.temperature=0.2

The policy's logits are Q / temperature, so that the policy that acts, evaluates and is exported is softmax(Q). The
value's head is not trained. CPU only, discrete actions, one head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import metta_fast
from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.registry import own_values
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import POLICY_STATE, Choice, MemoryPart, SizeChange
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import VectorEnv, VectorError, WorkerError


@dataclass
class ToyKeys:
    rows: int = metta_fast.key(8, "rows that each agent gives in an epoch", low=1)
    updates: int = metta_fast.key(8, "gradient steps in an epoch", low=1)
    replay_size: int = metta_fast.key(4096, "transitions that the replay buffer keeps", low=1)
    temperature: float = metta_fast.key(0.2, "of the softmax over Q", low=1e-3)


class Toy(metta_fast.AlgorithmKind):
    keys = ToyKeys
    reads = frozenset({"learning_rate", "gamma", "minibatch_size"})
    fixed = frozenset({"algorithm.replay_size"})
    sizes = ("env.num_envs", "algorithm.replay_size")

    def fit_sizes(self, config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
        own = own_values(self, config)
        least = config.env.num_envs * config.env.agents_per_env * own.rows
        if own.replay_size >= least:
            return []
        if typed("algorithm.replay_size"):
            raise metta_fast.UserError(
                f"algorithm.replay_size={own.replay_size}: an epoch gives {least} transitions; give "
                f"algorithm.replay_size={least}"
            )
        config.algorithm["replay_size"] = least
        return [SizeChange("algorithm.replay_size", least, "an epoch's transitions")]

    def derived(self, config: Config) -> list[tuple[str, str]]:
        own = own_values(self, config)
        agents = config.env.num_envs * config.env.agents_per_env
        return [(f"epochs kept = {own.replay_size / (own.rows * agents):g}", "in the replay buffer")]

    def halve(self, config: Config) -> bool:
        config.algorithm["replay_size"] //= 2
        return config.algorithm["replay_size"] > 0

    def memory(self, config: Config, spec: EnvSpec) -> list[MemoryPart]:
        row = 2 * 4 * sum(torch.Size(leaf.shape).numel() for leaf in spec.obs.values()) + 8 + 4 + 1
        return [MemoryPart("replay buffer", row * own_values(self, config).replay_size, False)]

    def build(
        self, config: Config, spec: EnvSpec, vec: VectorEnv, policy: Any, device: torch.device, hooks: Hooks
    ) -> ToyAlgorithm:
        return ToyAlgorithm(config, own_values(self, config), vec, policy)


class ToyAlgorithm:
    """Implements metta_fast.contracts.algorithm.Algorithm."""

    def __init__(self, config: Config, own: ToyKeys, vec: VectorEnv, policy: Any) -> None:
        self.config, self.own, self.vec, self.policy = config, own, vec, policy
        self.steps = self.epoch = 0
        self.notes: list[str] = []
        self.fast_paths: list[Choice] = []
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=config.trainer.learning_rate)
        n, width = vec.rows.obs["obs"].shape
        self.replay = {
            "obs": torch.zeros(own.replay_size, width),
            "next": torch.zeros(own.replay_size, width),
            "action": torch.zeros(own.replay_size, 1, dtype=torch.int64),
            "reward": torch.zeros(own.replay_size),
            "terminal": torch.zeros(own.replay_size, dtype=torch.bool),
        }
        self.added = 0
        self.gain = torch.zeros(n)
        """[n] rewards of each agent's episode so far."""
        self.held = False
        self._metrics: dict[str, float] = {}

    def _rows(self) -> dict[str, Tensor]:
        """Copies of the present rows of all agents; every block is held."""
        rows = self.vec.rows
        named = {name: getattr(rows, name) for name in ("reward", "terminal", "truncation", "mask", "reset")}
        return {name: torch.tensor(x) for name, x in (named | {"obs": rows.obs["obs"]}).items()}

    def _q(self, obs: Tensor) -> Tensor:
        """[n, choices] of observations [n, width]."""
        reset = torch.zeros(1, len(obs), dtype=torch.bool)
        state = self.policy.initial_state(len(obs), obs.device)
        return self.policy({"obs": obs[None]}, state, reset).params[0] * self.own.temperature

    def _generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.epoch)

    @torch.no_grad()
    def collect(self) -> None:
        if not self.held:
            self.vec.async_reset(self.config.seed + self.epoch)
            self.vec.hold_all()
            self.gain.zero_()
        self.held = False
        generator, counted, returns = self._generator(), 0, []
        for _ in range(self.own.rows):
            now = self._rows()
            chance = (self._q(now["obs"]) / self.own.temperature).softmax(-1)
            action = torch.multinomial(chance, 1, generator=generator)
            for block in self.vec.blocks:
                self.vec.send(block, action[block.start : block.stop].int().numpy())
            self.vec.hold_all()
            then, valid = self._rows(), now["mask"]
            counted += int(valid.sum())
            self._add(now, action, then, valid)
            self.gain += then["reward"]
            ended = then["terminal"] | then["truncation"]
            returns += self.gain[ended].tolist()
            self.gain[ended] = 0.0
        self.held = True
        self._counted = counted
        self._metrics = {"env/return": sum(returns) / len(returns)} if returns else {}

    def _add(self, now: dict[str, Tensor], action: Tensor, then: dict[str, Tensor], valid: Tensor) -> None:
        count = int(valid.sum())
        place = (self.added + torch.arange(count)) % self.own.replay_size
        new = {"obs": now["obs"], "next": then["obs"], "action": action}
        for name, values in (new | {name: then[name] for name in ("reward", "terminal")}).items():
            self.replay[name][place] = values[valid]
        self.added += count

    def update(self) -> None:
        generator, total = self._generator(), 0.0
        rows = min(self.config.trainer.minibatch_size, self.added)
        for _ in range(self.own.updates):
            pick = torch.randint(min(self.added, self.own.replay_size), (rows,), generator=generator)
            batch = {name: values[pick] for name, values in self.replay.items()}
            with torch.no_grad():
                best = self._q(batch["next"]).amax(-1)
                target = batch["reward"] + self.config.trainer.gamma * best * ~batch["terminal"]
            loss = (self._q(batch["obs"]).gather(-1, batch["action"])[:, 0] - target).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += float(loss.detach())
        self.steps += self._counted
        self.epoch += 1
        self._metrics |= {"loss/value": total / self.own.updates}
        self._metrics |= {"train/steps": self.steps, "train/epoch": self.epoch}

    def metrics(self) -> dict[str, float]:
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        copy = {name: values.clone() for name, values in self.replay.items()}
        weights = {name: values.clone() for name, values in self.policy.state_dict().items()}
        state = {POLICY_STATE: weights, "optimizer": _copied(self.optimizer.state_dict()), "replay": copy}
        counts = {"added": self.added, "steps": self.steps, "epoch": self.epoch, "held": self.held}
        return state | counts | {"gain": self.gain.clone()}

    def env_state(self) -> Any:
        return self.vec.snapshot()

    def use(self, vec: VectorEnv) -> None:
        self.vec = vec

    def start_from(self, state: dict[str, Any], source: str) -> None:
        self.policy.load_state_dict(state[POLICY_STATE])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state[POLICY_STATE])
        self.optimizer.load_state_dict(_copied(state["optimizer"]))
        for name, values in state["replay"].items():
            self.replay[name].copy_(values)
        self.added, self.steps, self.epoch = state["added"], state["steps"], state["epoch"]
        self.gain.copy_(state["gain"])
        try:
            self.vec.hold_all()
            self.held = state["held"]
        except WorkerError:
            raise
        except VectorError:  # the environments' state was not loaded
            self.held = False


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _copied(entry) for name, entry in value.items()}
    return [_copied(entry) for entry in value] if isinstance(value, list) else value
