"""Holds what algorithms have in common that collect rollouts (PPO, SAC): the rollout, its statistics, and their state.

    class Mine(Collecting):
        def collect(self):
            self._restart_episodes()
            self.rollout.collect(self.epoch, rows)

A subclass sets the attributes below and `_rollout_keys` in its constructor, then `self.rollout = self._make_rollout()`.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import POLICY_STATE, Metrics
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import VectorEnv
from metta_fast.distributed.group import Group, PeerFault
from metta_fast.policy.base import Policy
from metta_fast.policy.weights import OTHER_NETWORK, load_weights
from metta_fast.rollout.base import Collector
from metta_fast.rollout.c_rollout import C_ROLLOUT, CpuRollout
from metta_fast.rollout.episode_stats import EpisodeStats
from metta_fast.rollout.fast_paths import FUSED_ACT, SUMMARY_KERNELS
from metta_fast.rollout.graph_rollout import GraphRollout
from metta_fast.rollout.reward_scale import RewardScale
from metta_fast.rollout.rollout import Rollout
from metta_fast.rollout.summary import Summary
from metta_fast.runtime.fast_paths import FastPaths
from metta_fast.runtime.timer import Timer
from metta_fast.runtime.torch_setup import AUTOCAST
from metta_fast.storage.altered import entry


class Collecting:
    """Collects rollouts from a vector into buffers."""

    config: Config
    spec: EnvSpec
    vec: VectorEnv | DeviceVector
    policy: Policy
    device: torch.device
    hooks: Hooks
    paths: FastPaths
    graphs: bool
    """Rollout and update replay as CUDA graphs."""
    timer: Timer
    group: Group
    """The processes of the run."""
    buffers: Buffers
    episodes: EpisodeStats
    reward_scale: RewardScale | None
    summary: Summary
    rollout: Collector
    steps: int
    notes: list[str]
    _rollout_keys: dict[str, Any]
    """Arguments of every kind of rollout."""
    _keep_rollout: bool
    """Whether a state holds the unfinished episodes: the run is deterministic, or environments' states are cheap."""
    _metrics: Metrics

    _rollout_steps: int

    def _begin_statistics(self, *, masks: bool) -> None:
        """Makes what looks at rollouts, once the buffers and paths are there, and sets the figures to nothing.

        Args:
            masks: whether the summary looks at action masks: True where the rollout does not see them on the host.
        """
        trainer, agents, device = self.config.trainer, self.vec.num_agents, self.buffers.device
        self.episodes = EpisodeStats(self.spec, agents, device)
        self.reward_scale = RewardScale(agents, trainer.gamma, device) if trainer.normalize_reward else None
        kernels = self.paths.uses(SUMMARY_KERNELS)
        self.summary = Summary(
            self.spec, self.buffers, self.episodes, self.reward_scale, kernels=kernels, masks=masks
        )
        self._keep_rollout = trainer.deterministic or self.spec.cheap_state
        self._rollout_steps = 0
        self._metrics = {}

    # ---- the rollout ----

    def _make_rollout(self) -> Collector:
        """Makes the rollout of environments that the host steps, as the run's fast paths choose."""
        vec = cast("VectorEnv", self.vec)
        keys = {"zero_copy": self.config.vector.zero_copy, **self._rollout_keys}
        if self.graphs:
            fused, say = self._fused_dtype(), self.notes.append
            return GraphRollout(vec, self.policy, self.buffers, fused=fused, say=say, **keys)
        kind = CpuRollout if self.paths.uses(C_ROLLOUT) else Rollout
        return kind(vec, self.policy, self.buffers, **keys)

    def _fused_dtype(self) -> torch.dtype | None:
        """Returns the dtype of the layers in the rollout's kernel, or None without a kernel."""
        return AUTOCAST[self.config.trainer.precision] if self.paths.uses(FUSED_ACT) else None

    def use(self, vec: VectorEnv) -> None:
        """Collects from another vector from now on."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # copies from the old vector's rows have ended
        self.vec = vec
        del self.rollout
        gc.collect()  # the old rollout's CUDA graphs hold memory and are in a reference cycle
        self.rollout = self._make_rollout()

    def _restart_episodes(self) -> None:
        """Begins the statistics again where the rollout begins new episodes."""
        if not self.rollout.held:
            self.episodes.restart(staggered=self.spec.stagger)
            if self.reward_scale:
                self.reward_scale.restart()

    def _remaining(self) -> int:
        """Returns the agent steps up to trainer.total_timesteps."""
        return self.config.trainer.total_timesteps - self.steps

    def _context(self) -> Context:
        """Returns what hooks are given."""
        raise NotImplementedError

    # ---- figures over all processes ----

    def _of_all(self, figures: Tensor) -> list[float]:
        """Returns a summary's figures over all processes (see `_judged`). Waits for the device."""
        return self._judged(torch.cat(self._with_others(figures)).tolist())

    def _with_others(self, figures: Tensor) -> list[Tensor]:
        """Returns [this process's figures], and with several processes the sums over all of them as well."""
        return [figures, self.group.sum_(figures.clone())] if self.group.active else [figures]

    def _judged(self, figures: list[float]) -> list[float]:
        """Returns the figures over all processes from those of `_with_others`. A fault of this process stays in them,
        so that it is named.

        Raises:
            PeerFault: only another process has a fault, and names it.
        """
        if not self.group.active:
            return figures
        width = len(figures) // 2
        own, total = figures[:width], figures[width:]
        first = width - len(self.summary.faults)
        if any(own[first:]):
            return own
        if any(total[first:]):
            raise PeerFault("another process of this run has numbers that are not finite, and names them")
        return total

    def _before_rollout(self) -> None:
        if self.hooks.on_collect:
            context = self._context()
            for hook in self.hooks.on_collect:
                hook(context)

    def _after_rollout(self) -> None:
        context = self._context()
        for hook in self.hooks.on_rollout:
            hook(context)

    def metrics(self) -> Metrics:
        """Returns the last epoch's metrics; env/* only if an episode ended in it."""
        phases = self.timer.phases()
        return self._metrics | {f"perf/time/{phase}": seconds for phase, seconds in phases.items()}

    # ---- state ----

    def env_state(self) -> Any:
        """Returns a function that returns the environments' state as of the last boundary."""
        return self.vec.snapshot()

    def _collected_state(self) -> dict[str, Any]:
        """Returns copies of the reward scale and, where they are kept, of what belongs to the held row: the core's
        state and the unfinished episodes' statistics."""
        state: dict[str, Any] = {}
        if self.reward_scale:
            state["reward_scale"] = self.reward_scale.state_dict()
        if self._keep_rollout and self.rollout.held:
            state["rollout"] = {"core": self.rollout.state_dict(), "episodes": self.episodes.state_dict()}
        return state

    def _load_collected(self, state: Mapping[str, Any]) -> None:
        """Continues from `_collected_state`; without a held row, new episodes start.

        Raises:
            WrongState: an entry is missing, or does not fit the run.
        """
        self.episodes.recent.load(state.get("recent_returns", ()))  # not in a checkpoint of before
        if self.reward_scale and "reward_scale" in state:
            self.reward_scale.load_state_dict(state["reward_scale"])
        rollout = state.get("rollout")
        if rollout is None:
            self.rollout.forget()
        elif self.rollout.load_state_dict(entry(rollout, "core", "rollout.")):
            self.episodes.load_state_dict(entry(rollout, "episodes", "rollout."))

    def start_from(self, state: dict[str, Any], source: str) -> None:
        """Loads another run's policy and normalizers. Everything else starts fresh."""
        load_weights(self.policy, entry(state, POLICY_STATE), source, OTHER_NETWORK)
        if self.reward_scale and "reward_scale" in state:
            self.reward_scale.load_state_dict(state["reward_scale"])
            self.reward_scale.restart()
