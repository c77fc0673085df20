"""Implements SAC and TD3 for the trainer: collect, update, metrics, state. The two differ in their objective.

    collect:  rollout of collect_steps rows ─► rows into the replay buffer ─► summary (guard, episode statistics)
    update:   as many updates as algorithm.updates_per_step gives for the new steps ─► guard

The rollout is PPO's: blocks of CPU environments, or environments on the learner's device. An epoch is counted when its
updates are done. Everything random is keyed by (seed, epoch), so a resumed run needs no RNG state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch

from metta_fast.algorithms.budget import LIVE, keep_steps, rows_needed
from metta_fast.algorithms.collecting import Collecting
from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.algorithms.sac.c.sac_update import C_UPDATE, CUpdate
from metta_fast.algorithms.sac.critics import Critics
from metta_fast.algorithms.sac.fast_paths import CRITIC_OPERATOR, PATHS
from metta_fast.algorithms.sac.keys import SACKeys, TD3Keys
from metta_fast.algorithms.sac.learner import CHUNK, SUMS, Learner
from metta_fast.algorithms.sac.objectives import Objective
from metta_fast.buffers.random_shift import RandomShift
from metta_fast.buffers.replay import Replay
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.frame_stack import stacked
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import Choice, KeptState
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.contracts.vector import VectorEnv
from metta_fast.policy.base import Policy
from metta_fast.policy.frame_stack import FrameStack
from metta_fast.rollout.base import Collector
from metta_fast.rollout.device_rollout import DeviceRollout
from metta_fast.runtime.fast_paths import Situation, choose
from metta_fast.runtime.replay_files import ReplayFiles
from metta_fast.runtime.timer import Timer
from metta_fast.runtime.torch_setup import AUTOCAST, autocast, configure_torch
from metta_fast.storage.altered import count, entry, number


class SAC(Collecting):
    """Implements metta_fast.contracts.algorithm.Algorithm and KeepsStates.

    Args:
        config: resolved (no `auto` left).
        keys: the algorithm's own, resolved.
        vec: in any state; the first `collect` resets it, unless a loaded state continues it.
        policy: the actor, on `device` already.
        objective: makes what is learnt, of the policy on its device.
        hooks: hooks of the enabled features; None: no features.
    """

    def __init__(
        self,
        config: Config,
        keys: SACKeys | TD3Keys,
        spec: EnvSpec,
        vec: VectorEnv,
        policy: Policy,
        objective: Callable[[Policy], Objective],
        *,
        device: torch.device,
        hooks: Hooks | None = None,
    ) -> None:
        trainer = config.trainer
        self.config, self.keys, self.spec, self.policy, self.device = config, keys, spec, policy, device
        self.hooks = hooks or Hooks()
        self.steps = self.epoch = 0
        self.vec: VectorEnv | DeviceVector = vec
        self.notes: list[str] = []
        self.paths = choose(PATHS, Situation(policy, config, spec, device, vec=vec))
        self.fast_paths: list[Choice] = self.paths.choices
        self.graphs = trainer.cuda_graphs is True
        self.timer = Timer()
        configure_torch(trainer, device)
        agents, frames = vec.num_agents, policy.frames if isinstance(policy, FrameStack) else None
        horizon = int(keys.collect_steps)
        self.buffers = Buffers.allocate(
            spec,
            num_agents=agents,
            horizon=horizon,
            bptt_horizon=horizon,
            state_shape=policy.state_shape,
            frames=frames,
            device=device,
        )
        self.replay = Replay(
            spec,
            num_agents=agents,
            rows=-(-keys.replay_size // agents),
            slack=horizon,
            gamma=trainer.gamma,
            n_step=keys.n_step,
            device=device,
            frames=frames,
        )
        self.files = ReplayFiles(self.replay)
        self._begin_statistics(masks=config.vector.backend == "gpu")
        compiled = trainer.compile_mode if trainer.compile else None
        self._common: dict[str, Any] = {
            "device": device,
            "seed": config.seed,
            "autocast": partial(autocast, trainer, device),
        }
        self._rollout_keys: dict[str, Any] = {
            **self._common,
            "timer": self.timer,
            "compile_mode": compiled,
            "noise_color": trainer.noise_color,
        }
        self.rollout: Collector = self._make_rollout()
        seen = stacked(spec, config.policy.frame_stack)
        critics = Critics(config.policy, seen, keys).to(device)
        if self.paths.uses(CRITIC_OPERATOR):
            critics.operator = AUTOCAST.get(trainer.precision, torch.float32)
        expected = float(keys.updates_per_step) * horizon * agents
        self.learner = Learner(
            policy,
            critics,
            objective(policy),
            self.replay,
            trainer,
            keys,
            chunk=max(1, min(CHUNK, math.floor(expected))),
            compile_mode=compiled,
            graphs=self.graphs,
            shift=RandomShift(spec, frames) if trainer.random_shift else None,
            reward_factor=self.reward_scale.factor if self.reward_scale else None,
            say=self.notes.append,
            **self._common,
        )
        if self.paths.uses(C_UPDATE):
            self.learner.instead = CUpdate(self.learner)
        self._owed = 0.0
        """Updates that the steps so far have earned beyond those done."""
        self._position: dict[str, int] = self.files.position()
        """Of the replay buffer at the last boundary."""
        self._empty_again = False
        """Whether a checkpoint without the replay buffer was loaded."""

    def _make_rollout(self) -> Collector:
        """Makes the rollout for where environments step, with the run's fast paths."""
        if self.config.vector.backend != "gpu":
            return super()._make_rollout()
        return DeviceRollout(
            cast("DeviceVector", self.vec),
            self.policy,
            self.buffers,
            then=lambda: None,
            fused=self._fused_dtype(),
            graphs=self.graphs,
            say=self.notes.append,
            **self._rollout_keys,
        )

    # ---- an epoch ----

    def collect(self) -> None:
        """Fills the buffers with one rollout and adds it to the replay buffer.

        Raises:
            NonFiniteError: an observation, reward or action is NaN or infinite. No weight was changed.
            VectorError, EnvError: raised by the vector.
        """
        self._before_rollout()
        self.timer.clear()
        if not self.rollout.held:
            self.replay.cut()
        self._restart_episodes()
        if self._empty_again:
            self._empty_again = False
            self.notes.append(
                "the checkpoint has no replay buffer for these environments: it is filled anew, with the present "
                "policy's actions, before the next update"
            )
        if self.config.trainer.debug:
            self._mark()
        rows = self._rows_needed()
        self.rollout.collect(self.epoch, rows)
        if self.config.trainer.debug and (name := self.buffers.unwritten()) is not None:
            raise RuntimeError(f"trainer.debug: a row of {name} was not written in epoch {self.epoch}")
        if 0 < self._remaining() < self._agent_rows():
            keep_steps(self.buffers, self._remaining())
        self.replay.add(self.buffers, rows or self.buffers.horizon)
        self.summary.run()  # scales the rewards of the buffers, not those of the replay buffer
        self._rollout_steps, means = self.summary.read(self.summary.figures.tolist(), self.epoch)
        self._metrics = dict(means)
        normalizer = self.policy.normalizer
        if normalizer is not None:
            normalizer.take(self.buffers)
        self._after_rollout()
        self.timer.lap("copy")

    def _agent_rows(self) -> int:
        return self.buffers.horizon * self.buffers.num_agents

    def _mark(self) -> None:
        """Marks all rows of the buffers, so that one that is not written is found (trainer.debug)."""
        self.buffers.fill_magic()
        self.buffers.advantage.zero_()
        self.buffers.returns.zero_()

    def _rows_needed(self) -> int | None:
        """Returns the rows of each agent that this epoch needs of its rollout; None: all."""
        if self.graphs or self.config.vector.backend == "gpu" or self.config.trainer.debug:
            return None  # such a rollout has all its rows
        live = self.steps / (self.epoch * self._agent_rows()) if self.steps else LIVE
        return rows_needed(self._remaining(), self.buffers.num_agents, self.buffers.horizon, min(live, 1.0))

    def update(self) -> None:
        """Learns from the replay buffer and counts the epoch.

        Raises:
            NonFiniteError: a loss is NaN or infinite. The weights are then unusable: the copies from `state_dict` at
                the last boundary are the last good state.
        """
        self.timer.start()
        context, epoch = self._context(), self.epoch
        self.steps += self._rollout_steps
        due = self._updates_due()
        self.learner.watching = [hook for hook in self.hooks.on_gradients if hook.due(epoch)]
        self.learner.run(due, context, self.steps)
        self._learnt(self.learner.sums.tolist(), epoch)
        self.epoch += 1
        self._position = self.files.position()
        for hook in self.hooks.due(epoch):
            self._metrics |= hook(context)
        self.timer.lap("update")

    def _updates_due(self) -> int:
        """Returns how many updates this epoch does, in whole chunks; the rest is owed to the next. None are done before
        algorithm.learning_starts transitions are there."""
        starts = min(int(self.keys.learning_starts), self.replay.rows * self.replay.num_agents)
        if self.replay.size < max(starts, 1):
            return 0
        self._owed += self._rollout_steps * float(self.keys.updates_per_step)
        due = math.floor(self._owed / self.learner.chunk) * self.learner.chunk
        self._owed -= due
        return due

    def _learnt(self, sums: list[float], epoch: int) -> None:
        """Checks the updates by their sums, and makes the epoch's metrics."""
        wrong = [name for name, value in zip(SUMS, sums) if not math.isfinite(value)]
        if wrong:
            raise NonFiniteError(
                f"loss not finite in the updates of epoch {epoch} ({', '.join(wrong)}); observations and rewards were "
                "finite: scale rewards down, or try a lower trainer.learning_rate or a trainer.max_grad_norm"
            )
        total = dict(zip(SUMS, sums))
        if total["updates"]:
            self._metrics |= {"loss/value": total["value"] / total["updates"]}
            self._metrics |= {"train/q": total["q"] / total["updates"]}
        if total["actor_updates"]:
            self._metrics["loss/policy"] = total["policy"] / total["actor_updates"]
            if self.learner.temperature is not None:
                self._metrics["loss/entropy"] = total["entropy"] / total["actor_updates"]
                self._metrics["train/temperature"] = total["temperature"] / total["actor_updates"]
        self._metrics |= {"train/learning_rate": self.learner.rate(self.steps)}
        self._metrics |= {"train/updates": self.learner.updates, "train/replay": self.replay.size}
        self._metrics |= {"train/epoch": epoch + 1, "train/steps": self.steps}

    def _context(self) -> Context:
        done = min(1.0, self.steps / self.config.trainer.total_timesteps)
        return Context(self.buffers, self.config.seed, self.epoch, done, policy=self.policy, timer=self.timer)

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of everything but the environments' state and the replay buffer's rows (`kept_states`)."""
        state = self.learner.state_dict()
        state |= {"steps": self.steps, "epoch": self.epoch, "owed": self._owed}
        state |= {"recent_returns": self.episodes.recent.state(), "replay": dict(self._position)}
        return {**state, **self._collected_state()}

    def kept_states(self) -> dict[str, KeptState | Callable[[], Any]]:
        """Returns the replay buffer's rows, file by file."""
        return self.files.states() if self.keys.save_replay else {}

    def load_kept(self, states: Mapping[str, KeptState]) -> None:
        """Loads the replay buffer's rows; without any, it is filled anew."""
        self._empty_again = not self.files.load(self._position, states) and self._position["added"] > 0
        self._position = self.files.position()

    def start_from(self, state: dict[str, Any], source: str) -> None:
        """Loads another run's policy and normalizers. Critics, optimizers, buffer and counters start fresh."""
        super().start_from(state, source)
        self.learner.start_again()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state`. Load the vector's state first; without one, new episodes start.

        Raises:
            WrongState, UserError: an entry is missing, or does not fit the run.
        """
        steps, epoch = count(entry(state, "steps"), "steps"), count(entry(state, "epoch"), "epoch")
        saved = entry(state, "replay")
        position = {
            name: count(entry(saved, name, "replay."), f"replay.{name}")
            for name in ("added", "first", "open", "segment")
        }
        owed = number(entry(state, "owed"), "owed")
        self.learner.load_state_dict(state)
        self.steps, self.epoch, self._owed = steps, epoch, owed
        self._position = position
        if not self.replay.rewind(position):
            self.replay.forget(position["added"])
        self._load_collected(state)
