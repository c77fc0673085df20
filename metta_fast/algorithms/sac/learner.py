"""Updates critics, actor and temperature with transitions of the replay buffer.

    sample a chunk of updates ─► each: gather ─► critics ─► (every actor_delay: actor ─► temperature) ─► target networks

Places and noise of a chunk are drawn before it, keyed by (seed, epoch, chunk). On a GPU a whole chunk is one CUDA
graph. Nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from metta_fast.algorithms.decay import left
from metta_fast.algorithms.hooks import Context, GradientHook
from metta_fast.algorithms.sac import losses
from metta_fast.algorithms.sac.critic.both import Both
from metta_fast.algorithms.sac.critics import Critics
from metta_fast.algorithms.sac.keys import SACKeys, TD3Keys
from metta_fast.algorithms.sac.objectives import ActorLoss, Objective
from metta_fast.algorithms.sac.reader import Seen, read
from metta_fast.algorithms.sac.step import Step
from metta_fast.algorithms.sac.targets import Follow, target_of
from metta_fast.buffers.random_shift import RandomShift
from metta_fast.buffers.replay import Replay, Transitions
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.algorithm import POLICY_STATE
from metta_fast.policy.base import Policy
from metta_fast.policy.weights import load_weights
from metta_fast.runtime.copied import copied
from metta_fast.runtime.cuda_graph import Graph, Say
from metta_fast.runtime.keyed_random import SAMPLE, SHIFT, Keyed
from metta_fast.storage.altered import entry

SUMS = ("value", "q", "updates", "policy", "entropy", "temperature", "actor_updates")
"""Names of the entries of `Learner.sums`: sums over the updates of an epoch, the last four over those of the actor."""
CHUNK = 16
"""Updates whose places and noise are drawn at once, at most: those of a CUDA graph."""
OTHER_RUN = (
    "they were altered, or the policy's code has changed: use an earlier checkpoint, or undo the change"
)
"""The cure for resume."""


class Instead(Protocol):
    """Another way to do updates with the learner's own weights, targets, optimizers and sums."""

    def begin(self) -> None:
        """Called before updates, once anything else may have changed the weights."""

    def run(self, count: int, index: Tensor, left: Tensor, noise: Tensor, factor: Tensor | None) -> None:
        """Does the first `count` updates of a chunk: index, left [chunk, B], noise [chunk, draws, B, W]; rewards are
        multiplied by factor []."""


class Learner:
    """Owns the critics, the optimizers and the number of updates."""

    def __init__(
        self,
        policy: Policy,
        critics: Critics,
        objective: Objective,
        replay: Replay,
        config: TrainerConfig,
        keys: SACKeys | TD3Keys,
        *,
        seed: int,
        device: torch.device,
        autocast: Callable[[], AbstractContextManager],
        chunk: int,
        compile_mode: str | None = None,
        graphs: bool = False,
        shift: RandomShift | None = None,
        reward_factor: Tensor | None = None,
        say: Say = print,
    ) -> None:
        """Makes target networks and optimizers.

        Args:
            chunk: updates whose places and noise are drawn at once; rounded to whole updates of the actor.
            compile_mode: torch.compile's mode for the losses; None: eager.
            graphs: replay whole chunks as CUDA graphs.
            shift: moves images (trainer.random_shift); None: off.
            reward_factor: [] that rewards are multiplied by (trainer.normalize_reward); None: 1.
            say: called with notes on parts that are not captured.
        """
        self.policy, self.critics, self.objective, self.replay = policy, critics, objective, replay
        self.config, self.keys, self.device = config, keys, device
        own = objective.targets()
        self.target = critics if keys.batch_norm else target_of(critics)
        """The critics' target networks; with batch renormalisation the critics themselves."""
        self._follow = [] if keys.batch_norm else [Follow(self.target, critics, float(keys.tau))]
        self._follow_actor = [Follow(target, module, float(keys.tau)) for target, module in own]
        norm = config.max_grad_norm
        self.critic_step = Step("critic_optimizer", list(critics.parameters()), device, norm)
        actor = [p for p in policy.parameters() if p.requires_grad]
        self.actor_step = Step("actor_optimizer", actor, device, norm)
        self.temperature = objective.temperature
        self.temperature_step: Step | None = None
        if self.temperature is not None and self.temperature.target is not None:
            self.temperature_step = Step("temperature_optimizer", [self.temperature.log_alpha], device)
        self.updates = 0
        """Updates of the critics so far."""
        self.sums = torch.zeros(len(SUMS), device=device)
        self._one = torch.ones((), device=device)
        self.watching: list[GradientHook] = []
        self._keyed, self._autocast = Keyed(seed, device), autocast
        delay, batch = keys.actor_delay, config.minibatch_size
        self.chunk = max(chunk // delay, 1) * delay
        """Updates that are drawn, and captured, together: `run` is fastest with a multiple of them."""
        self._index = torch.zeros(self.chunk, batch, dtype=torch.int64, device=device)
        self._left = torch.ones_like(self._index)
        width = replay.spec.action.width
        self._noise = torch.zeros(self.chunk, objective.draws, batch, width, device=device)
        self._shift, self._factor = shift, reward_factor
        self._offsets = torch.zeros(self.chunk, 2, batch, 2, dtype=torch.int64, device=device)
        self._critic_loss: Callable[..., tuple[Tensor, Tensor]] = self._plain_critic_loss
        self._actor_loss: Callable[..., ActorLoss] = objective.actor_loss
        if compile_mode is not None:
            self._critic_loss = torch.compile(self._critic_loss, mode=compile_mode, dynamic=False)
            self._actor_loss = torch.compile(self._actor_loss, mode=compile_mode, dynamic=False)
        self._graph = Graph("update", self._whole, enabled=graphs, say=say)
        self.instead: Instead | None = None
        """Does updates where no hook looks at gradients (c/sac_update.py); None: torch does them."""

    def run(self, count: int, context: Context, steps: int) -> None:
        """Does `count` updates.

        Args:
            context: the epoch, for the hooks and random numbers.
            steps: agent steps so far, for the schedule.
        """
        self.sums.zero_()
        for step in (self.critic_step, self.actor_step, self.temperature_step):
            if step is not None:
                step.set_rate(self.rate(steps))
        for hook in self.watching:
            hook.begin(context)
        done, number = 0, 0
        instead = self.instead if count and not self.watching else None
        if instead is not None:
            instead.begin()
        while done < count:
            size = min(self.chunk, count - done)
            self._draw(size, context.epoch, number)
            if instead is not None:
                instead.run(size, self._index, self._left, self._noise, self._factor)
                self.updates += size
            elif size == self.chunk and self.updates % self.keys.actor_delay == 0 and not self.watching:
                self._graph()
                self.updates += size
            else:
                for i in range(size):
                    self._update(i, (self.updates + 1) % self.keys.actor_delay == 0)
                    self.updates += 1
            done, number = done + size, number + 1

    def rate(self, steps: int) -> float:
        """Returns the learning rate after `steps` agent steps."""
        done = min(1.0, steps / self.config.total_timesteps)
        return self.config.learning_rate * left(self.config.schedule, done)

    def _draw(self, size: int, epoch: int, number: int) -> None:
        """Draws the places, noise and moves of images of a chunk's updates."""
        generator = self._keyed(SAMPLE, epoch, number)
        index, rows = self.replay.sample((size, self._index.shape[1]), generator)
        self._index[:size].copy_(index)
        self._left[:size].copy_(rows)
        if self.objective.draws:
            self._noise[:size].normal_(generator=generator)
        if self._shift is not None:
            most, generator = self.config.random_shift, self._keyed(SHIFT, epoch, number)
            torch.randint(
                -most, most + 1, self._offsets[:size].shape, generator=generator, out=self._offsets[:size]
            )

    def _whole(self) -> None:
        for i in range(self.chunk):
            self._update(i, (i + 1) % self.keys.actor_delay == 0)

    def _update(self, i: int, due: bool) -> None:
        """Does update i of the chunk. due: of the actor and the temperature too."""
        batch = self.replay.gather(self._index[i], self._left[i])
        noise = self._noise[i]
        if self._shift is not None:
            batch = self._moved(batch, self._offsets[i])
        with self._autocast():
            seen = read(self.policy, batch.obs, batch.state, batch.reset)
            with torch.no_grad():
                ahead = read(self.policy, batch.next_obs, batch.next_state, batch.next_reset)
            if self.keys.batch_norm:
                loss, q = self._both_loss(seen, ahead, batch, noise)
            else:
                with torch.no_grad():
                    value = self.objective.next_value(self.target, ahead, batch.next_action_mask, noise)
                    target = self._target(batch, value)
                loss, q = self._critic_loss(seen.critic, batch.action, target, batch.weight)
        self.critic_step(loss)
        figures = [loss.detach(), q, self._one]
        if due:
            with self._autocast():
                actor = self._actor_loss(self.critics, seen, batch.action_mask, noise, batch.weight)
            self._step_actor(actor.loss)
            figures += [actor.loss.detach(), actor.entropy, self._adapt(actor), self._one]
            for follow in self._follow_actor:
                follow()
        self.sums[: len(figures)].add_(torch.stack(figures))
        for follow in self._follow:
            follow()

    def _plain_critic_loss(
        self, obs: dict[str, Tensor], action: Tensor, target: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the critics' loss [] and their mean value []."""
        z = self.objective.q(self.critics, self.critics.features(obs), action)
        values = self.objective.values
        return values.loss(z, target, weight), losses.mean(values.mean(z.detach()), weight)

    def _target(self, batch: Transitions, value: Tensor) -> Tensor:
        """Returns R + discount · V(s') for V [B] or [B, K]."""
        reward = batch.reward if self._factor is None else batch.reward * self._factor.float()
        if value.dim() == 1:
            return reward + batch.discount * value
        return reward.unsqueeze(-1) + batch.discount.unsqueeze(-1) * value

    def _both_loss(self, seen: Seen, ahead: Seen, batch: Transitions, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the same as `_plain_critic_loss` with both states in one batch (critic/both.py)."""
        both = Both(self.critics, self.objective, seen, batch.action, batch.weight)
        with torch.no_grad():
            target = self._target(
                batch, self.objective.next_value(both, ahead, batch.next_action_mask, noise)
            )
        values = self.objective.values
        return values.loss(both.now, target, batch.weight), losses.mean(
            values.mean(both.now.detach()), batch.weight
        )

    def _step_actor(self, loss: Tensor) -> None:
        self.actor_step.gradients(loss)
        for hook in self.watching:
            hook.before_step()
        self.actor_step.take()
        for hook in self.watching:
            hook.after_step(torch.ones((), dtype=torch.bool, device=self.device))

    def _adapt(self, actor: ActorLoss) -> Tensor:
        """Adapts the temperature to the policy's entropy. Returns the temperature before, or 0 without one."""
        if self.temperature is None:
            return torch.zeros_like(self._one)
        before = self.temperature.alpha
        if self.temperature_step is not None:
            self.temperature_step(self.temperature.loss(actor.entropy, actor.share))
        return before

    def _moved(self, batch: Transitions, offset: Tensor) -> Transitions:
        """Returns the batch with moved images (DrQ: Yarats et al. 2021, arXiv 2004.13649, K = M = 1)."""
        assert self._shift is not None
        batch.obs, batch.state = self._shift(batch.obs, batch.state, offset[0])
        batch.next_obs, batch.next_state = self._shift(batch.next_obs, batch.next_state, offset[1])
        return batch

    # ---- state ----

    def _modules(self) -> dict[str, torch.nn.Module]:
        found: dict[str, torch.nn.Module] = {"critics": self.critics}
        if self.target is not self.critics:
            found["target"] = self.target
        if self.temperature is not None:
            found["temperature"] = self.temperature
        for number, (target, _) in enumerate(self.objective.targets()):
            found[f"target_actor{number or ''}"] = target
        return found

    def _steps(self) -> list[Step]:
        return [s for s in (self.critic_step, self.actor_step, self.temperature_step) if s is not None]

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of weights and optimizers."""
        state: dict[str, Any] = {POLICY_STATE: self.policy.state_dict()}
        state |= {name: module.state_dict() for name, module in self._modules().items()}
        state |= {step.name: step.state_dict() for step in self._steps()}
        return {**copied(state), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_weights(self.policy, entry(state, POLICY_STATE), POLICY_STATE, OTHER_RUN)
        for name, module in self._modules().items():
            load_weights(module, entry(state, name), name, OTHER_RUN)
        for step in self._steps():
            step.load_state_dict(entry(state, step.name))
        self.updates = int(entry(state, "updates"))

    def start_again(self) -> None:
        """Makes the target of an actor that was replaced by another's a copy of it."""
        for target, module in self.objective.targets():
            target.load_state_dict(module.state_dict())
