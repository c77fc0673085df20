"""Implements PPO for the trainer: collect, update, metrics, state.

    collect:  rollout ─► summary (guard, episode statistics, reward scale) ─► features' on_rollout
    update:   advantage ─► learner ─► guard ─► features' on_epoch

device_ppo.py does the same with environments on the learner's device.

The last epoch ends at trainer.total_timesteps (budget.py). An epoch is counted when its update is done. Everything
random is keyed by (seed, epoch), so a resumed run needs no RNG state.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from metta_fast.algorithms.budget import LIVE, keep_steps, rows_needed
from metta_fast.algorithms.collecting import Collecting
from metta_fast.algorithms.hooks import Built, Context, Hooks
from metta_fast.algorithms.ppo.advantage.figures import Figures
from metta_fast.algorithms.ppo.advantage.figures import metrics as update_metrics
from metta_fast.algorithms.ppo.fast_paths import COMPILED_AHEAD, PATHS, situation_of
from metta_fast.algorithms.ppo.learner import Learner
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.schedule import clip_coef, progress
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.buffers.random_shift import RandomShift
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import Choice, Metrics
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import VectorEnv
from metta_fast.distributed.group import current
from metta_fast.machine import hardware
from metta_fast.policy.base import Policy
from metta_fast.policy.frame_stack import FrameStack
from metta_fast.rollout.base import Collector
from metta_fast.rollout.finite_checks import check_loss_scale, check_update
from metta_fast.runtime.fast_paths import choose
from metta_fast.runtime.timer import ExactTimer, Timer
from metta_fast.runtime.torch_setup import autocast, configure_torch
from metta_fast.storage.altered import count, entry

if TYPE_CHECKING:
    from metta_fast.runtime.compile_ahead import Ahead


class PPO(Collecting):
    """Implements metta_fast.contracts.algorithm.Algorithm.

    Args:
        config: resolved (no `auto` left); batch_size is num_agents · horizon.
        vec: in any state; the first `collect` resets it, unless a loaded state continues it.
        policy: on `device` already.
        hooks: hooks of the enabled features; None: no features.
    """

    checks_masks = False
    """Whether the summary looks at action masks: True where the rollout does not see them on the host."""

    def __init__(
        self,
        config: Config,
        spec: EnvSpec,
        vec: VectorEnv,
        policy: Policy,
        *,
        device: torch.device,
        hooks: Hooks | None = None,
        steps: int = 0,
    ) -> None:
        trainer = config.trainer
        self.config, self.spec, self.policy, self.device = config, spec, policy, device
        self.hooks, self.group = hooks or Hooks(), current()
        self.steps = steps
        self.epoch = 0
        self._batch = trainer.batch_size * self.group.world
        """Agent steps of an epoch, over all processes."""
        self.vec: VectorEnv | DeviceVector = vec
        self.notes: list[str] = []
        self.paths = choose(PATHS, situation_of(policy, config, spec, device, self.hooks, vec))
        self.fast_paths: list[Choice] = self.paths.choices
        self.graphs = trainer.cuda_graphs is True
        self.timer = self._make_timer()
        configure_torch(trainer, device)
        self.buffers = self._make_buffers()
        self._begin_statistics(masks=self.checks_masks)
        self._common: dict[str, Any] = {
            "device": device,
            "seed": config.seed,
            "autocast": partial(autocast, trainer, device),
            "timer": self.timer,
            "compile_mode": trainer.compile_mode if trainer.compile else None,
        }
        """Arguments that rollout and learner share."""
        self._rollout_keys = {**self._common, "noise_color": trainer.noise_color}
        self.rollout: Collector = self._make_rollout()
        self.learner = self._make_learner()
        self._update_figures = Figures(policy, self.buffers, self.reward_scale, device)
        self._episode_means: Metrics = {}
        self._measured = False
        """Whether the observation normalizer has moments, or there is none."""
        self._measures_again = False
        """Whether its moments are those of the rollout before the first epoch."""
        for build in self.hooks.on_build:
            build(Built(policy, self.buffers, spec, config, device))
        if self.hooks.on_forward and trainer.compile:
            self.notes.append("the update runs without torch.compile: a feature reads the policy's layers")
        self._compiling = self._compile_ahead() if self.paths.uses(COMPILED_AHEAD) else None

    def _make_timer(self) -> Timer:
        return ExactTimer() if self.hooks.exact_times and self.device.type == "cuda" else Timer()

    def _make_buffers(self) -> Buffers:
        """Allocates the buffers, in host memory with trainer.cpu_offload."""
        trainer, agents = self.config.trainer, self.vec.num_agents
        offload = trainer.cpu_offload and self.device.type == "cuda"
        return Buffers.allocate(
            self.spec,
            num_agents=agents,
            horizon=trainer.batch_size // agents,
            bptt_horizon=trainer.bptt_horizon,
            state_shape=self.policy.state_shape,
            frames=self.policy.frames if isinstance(self.policy, FrameStack) else None,
            device=torch.device("cpu") if offload else self.device,
            debug=trainer.debug,
            pinned=offload,
        )

    def _make_learner(self) -> Learner:
        return Learner(
            self.policy,
            self.buffers,
            self.config.trainer,
            hooks=self.hooks,
            has_final_obs=self.spec.has_final_obs,
            graphs=self.graphs,
            paths=self.paths,
            shift=RandomShift(self.spec, self.buffers.frames) if self.config.trainer.random_shift else None,
            say=self.notes.append,
            **self._common,
        )

    def _compile_ahead(self) -> Ahead:
        """Compiles all kernels of an epoch in parallel, not one by one at their first launch. Changes no weights,
        environments or statistics."""
        from metta_fast.runtime.compile_ahead import Ahead

        with Ahead(self.device, hardware.allowed_cores()) as ahead:
            self.learner.rehearse()
            self.rollout.rehearse()
            self.summary.run()
        return ahead

    def collect(self) -> None:
        """Fills the buffers with one rollout.

        Raises:
            NonFiniteError: an observation, reward, action or value is NaN or infinite. No weight was changed.
            VectorError, EnvError: raised by the vector.
        """
        self._before_rollout()
        self._roll()
        self._keep_steps()
        self.summary.run()
        self._read_summary(self._of_all(self.summary.figures), self.epoch)
        self._after_rollout()
        self.timer.lap("copy")

    def _roll(self) -> None:
        """Runs the epoch's rollout."""
        if self._compiling is not None:
            self._compiling.wait()
            self._compiling = None
            torch.cuda.empty_cache()  # frees the rehearsal's memory
        self.timer.clear()
        if self.config.trainer.debug:
            self.buffers.fill_magic()
        if self.config.trainer.advantage == "vtrace":
            self.buffers.ratio.fill_(1)
        self._restart_episodes()
        if not self._measured:
            self._measure()
        self.rollout.collect(self.epoch, self._rows_needed())

    def _measure(self) -> None:
        """Gives an observation normalizer without moments those of a rollout that is not learnt from, so that the first
        epoch is normalised too. Then the environments are reset, as if nothing had been."""
        normalizer = getattr(self.policy, "normalizer", None)
        if normalizer is not None and not float(normalizer.count):
            scale = self.reward_scale.state_dict() if self.reward_scale else None
            agents = self.vec.num_agents * self.group.world
            self.rollout.collect(self.epoch, min(self.buffers.horizon, max(64, 2048 // agents)))
            normalizer.take(self.buffers)
            self._measures_again = True
            self.rollout.forget()
            self.episodes.restart(staggered=self.spec.stagger)
            if self.reward_scale and scale is not None:
                self.reward_scale.load_state_dict(scale)
        self._measured = True

    def _rows_needed(self) -> int | None:
        """Returns the rows of each agent that this epoch needs of its rollout; None: all."""
        trainer, agents = self.config.trainer, self.vec.num_agents * self.group.world
        if trainer.debug:  # it checks that every row was written
            return None
        live = self.steps / (self.epoch * self._batch) if self.steps else LIVE
        return rows_needed(self._remaining(), agents, self._batch // agents, live)

    def _keep_steps(self) -> None:
        """Masks steps of the rollout that are beyond the budget."""
        if 0 < self._remaining() < self._batch:
            keep_steps(self.buffers, self._remaining(), self.group)

    def _read_summary(self, figures: list[float], epoch: int) -> None:
        self._rollout_steps, self._episode_means = self.summary.read(figures, epoch)

    def update(self) -> None:
        """Learns from the rollout and counts the epoch.

        Raises:
            NonFiniteError: a loss or gradient is NaN or infinite. The weights are then unusable: the
                copies from `state_dict` at the last boundary are the last good state.
        """
        self.timer.start()
        context = self._context()
        self._learn(context)
        self._check_debug()
        self._learnt(self._figures_now().tolist(), self.epoch)
        self.epoch += 1
        self._finish(context)
        self.timer.lap("update")

    def _learn(self, context: Context) -> None:
        """Learns from the rollout, then updates the observation normalizer with it."""
        for hook in self.hooks.on_update:
            hook(context)
        self.learner.update(context, self.steps)
        normalizer = getattr(self.policy, "normalizer", None)
        if normalizer is not None:
            if self._measures_again:
                normalizer.restart()
                self._measures_again = False
            normalizer.take(self.buffers)

    def _check_debug(self) -> None:
        if self.config.trainer.debug:
            unwritten = self.buffers.unwritten()
            if unwritten is not None:
                raise RuntimeError(
                    f"trainer.debug: a row of {unwritten} was not written in epoch {self.epoch}"
                )

    def _figures_now(self) -> torch.Tensor:
        """Returns the update's SUMS and FIGURES, on the device."""
        figures = self._update_figures.on_device(self.learner.value_sums)
        return torch.cat([self.learner.sums.double(), figures])

    def _learnt(self, figures: list[float], epoch: int) -> None:
        """Checks the update by its SUMS and FIGURES, and counts its steps."""
        sums = figures[: len(SUMS)]
        check_update(sums, SUMS, self.buffers, self.spec, epoch)
        check_loss_scale(self.learner.step.scaler, epoch)
        rate, clip = (
            self.learner.rate(self.steps),
            clip_coef(self.config.trainer, self.steps, self.group.world),
        )
        remaining = self._remaining()
        self.steps += min(self._rollout_steps, remaining) if remaining > 0 else self._rollout_steps
        total = dict(zip(SUMS, sums))
        self._metrics = {f"loss/{name}": total[name] / total["minibatches"] for name in STATS}
        self._metrics |= self._episode_means
        self._metrics |= update_metrics(figures[len(SUMS) :], total, self._rollout_steps)
        self._metrics |= {"train/learning_rate": rate, "train/clip_coef": clip}
        self._metrics |= {"train/epoch": epoch + 1, "train/steps": self.steps}

    def _finish(self, context: Context) -> None:
        for hook in self.hooks.due(context.epoch):
            self._metrics |= hook(context)

    def _context(self) -> Context:
        return Context(
            self.buffers,
            self.config.seed,
            self.epoch,
            progress(self.config.trainer, self.steps, self.group.world),
            policy=self.policy,
            timer=self.timer,
        )

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of everything but the vector's own state, cheap enough for every boundary.

        The held row's state is included if the run is deterministic or the environments' state is cheap.
        """
        return {**self._tensors(), **self._counters()}

    def _counters(self) -> dict[str, Any]:
        """Returns the state that is kept on the host, as of the last boundary."""
        recent = self.episodes.recent.state()
        return {"steps": self.steps, "epoch": self.epoch, "recent_returns": recent}

    def _tensors(self) -> dict[str, Any]:
        return {**self.learner.state_dict(), **self._collected_state(), **self.hooks.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from `state`. Load the vector's state first; without one, new episodes start.

        Raises:
            WrongState, UserError: an entry is missing, or does not fit the run.
        """
        steps, epoch = count(entry(state, "steps"), "steps"), count(entry(state, "epoch"), "epoch")
        self.learner.load_state_dict(state)
        self.hooks.load_state_dict(state)
        self._measured = self._measures_again = False
        self.steps, self.epoch = steps, epoch
        self._load_collected(state)
