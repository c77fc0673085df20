"""The places where features hook into an algorithm; the features are in metta_fast/features.

    on_build(built)                      once, when the algorithm is built; before anything runs
    on_collect(context)                  before a rollout is collected
    on_rollout(context)                  after a rollout, before advantages are computed
    on_update(context)                   before an update's advantages and first minibatch
    sample(context) -> Sample            which segments the next minibatch holds; at most one feature gives it
    on_forward(policy) -> context        manager around the policy's forward pass in each minibatch
    extra_loss(minibatch, output)        a scalar added to the loss of each minibatch
    on_gradients                         GradientHook: around each optimizer step of the updates that it wants
    on_epoch(context) -> metrics         after an update; figures to log beside the algorithm's own
    on_close()                           at the run's end, however it comes
    states                               what a checkpoint holds of a feature

An algorithm says which of them it calls (AlgorithmKind.hooks). With no hook the learner does exactly what it would
do without this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvSpec
from metta_fast.runtime.timer import Timer
from metta_fast.storage.altered import WrongState

FEATURES_STATE = "features"
"""Key of the features' states in an algorithm's state."""


@dataclass
class Built:
    """The parts of an algorithm that a feature may keep."""

    policy: nn.Module
    buffers: Buffers
    spec: EnvSpec
    config: Config
    """Resolved: no value is `auto`."""
    device: torch.device
    """Of the policy."""


@dataclass
class Context:
    """The state that a hook may read, during the call only."""

    buffers: Buffers
    seed: int
    epoch: int
    progress: float
    """Share of total_timesteps that is done, 0 … 1."""
    update: int = 0
    """Number of the minibatch within this epoch, over all passes."""
    segments: int = 0
    """Segments that a minibatch holds."""
    policy: nn.Module = field(default_factory=nn.Module)
    timer: Timer = field(default_factory=Timer)
    """Of the phases; `phases()` tells of the epoch before, until the next rollout begins."""

    def generator(self, stream: int) -> torch.Generator:
        """Returns a generator on the buffers' device, keyed by (seed, stream, epoch, update). stream: the feature's."""
        from metta_fast.runtime.keyed_random import SAMPLE, mix, reseed

        key = mix(self.seed, SAMPLE, stream, self.epoch, self.update)
        return reseed(torch.Generator(self.buffers.device), key)


class Sample(NamedTuple):
    """A choice of segments."""

    segments: Tensor
    """[context.segments] int64 on the buffers' device. Segment s of agent n is s · num_agents + n."""
    weight: Tensor | None = None
    """[context.segments] float32: multiplies the segment's normalised advantages. None: 1."""


class GradientHook(Protocol):
    """Observes gradients and steps. It must not change them, nor wait for the device.

    An update that it wants runs without a CUDA graph; the others are as if it were not there.
    """

    def due(self, epoch: int) -> bool:
        """Returns whether it observes this epoch's update."""

    def begin(self, context: Context) -> None:
        """Called before the first step."""

    def before_step(self) -> None:
        """Called when parameters have their gradients, summed and not clipped."""

    def after_step(self, taken: Tensor) -> None:
        """Called after a step. taken: [] bool on the device, False if the step was skipped."""


class Stateful(Protocol):
    """The part of a feature's state that a resume needs."""

    def state_dict(self) -> dict[str, Any]:
        """Returns copies: nested dicts and lists of tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a copy, in the tensors that are there.

        Raises:
            WrongState: an entry is missing, or does not fit the run.
        """


@dataclass
class Hooks:
    """The hooks of all features, each list in the order in which the features were enabled."""

    folder: Path | None = None
    """The run's folder, where a feature may keep files; None: there is no run (a check of the configuration)."""
    on_build: list[Callable[[Built], None]] = field(default_factory=list)
    """One raises UserError if the feature does not work with this policy or environment."""
    on_collect: list[Callable[[Context], None]] = field(default_factory=list)
    on_rollout: list[Callable[[Context], None]] = field(default_factory=list)
    on_update: list[Callable[[Context], None]] = field(default_factory=list)
    """It may change the rollout in the buffers. The context is that of the whole update: a hook may keep it until the
    next one, as `update` counts on."""
    sample: Callable[[Context], Sample] | None = None
    on_forward: list[Callable[[nn.Module], AbstractContextManager[Any]]] = field(default_factory=list)
    """The forward pass then runs without torch.compile, launch by launch."""
    extra_loss: list[Callable[[Any, Any], Tensor]] = field(default_factory=list)
    """Called with the learner's Minibatch (ppo/minibatch.py) and the policy's PolicyOutput for it."""
    on_gradients: list[GradientHook] = field(default_factory=list)
    on_epoch: list[Callable[[Context], dict[str, float]]] = field(default_factory=list)
    """One with a method `due(epoch)` is called in the epochs for which that is true. With environments on the GPU the
    next rollout is not launched ahead in an epoch in which one is called: the buffers are still the epoch's."""
    on_close: list[Callable[[], None]] = field(default_factory=list)
    states: dict[str, Stateful] = field(default_factory=dict)
    """By the features' names. A checkpoint without one (the feature was off) leaves it as it is."""
    exact_times: bool = False
    """The timer waits for the device at the end of each phase."""

    def due(self, epoch: int) -> list[Callable[[Context], dict[str, float]]]:
        """Returns the `on_epoch` hooks that are called in this epoch."""
        return [hook for hook in self.on_epoch if not hasattr(hook, "due") or hook.due(epoch)]

    def state_dict(self) -> dict[str, Any]:
        """Returns an algorithm's entry for the features; nothing without any."""
        found = {name: state.state_dict() for name, state in self.states.items()}
        return {FEATURES_STATE: found} if found else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from an algorithm's state. Raises WrongState."""
        found = state.get(FEATURES_STATE, {})
        if not isinstance(found, dict):
            raise WrongState(FEATURES_STATE, f"is a {type(found).__name__}, expected features by their names")
        for name, own in self.states.items():
            if name in found:
                own.load_state_dict(found[name])

    def used(self) -> set[str]:
        """Returns the names of the fields that a feature has set."""
        names = {item.name for item in fields(self)} - {"folder"}
        return {name for name in names if getattr(self, name)}
