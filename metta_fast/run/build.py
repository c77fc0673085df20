"""Builds the parts of a training from a resolved configuration: vector, policy, features, algorithm.

    Resolved.factory ─► make_vector ─► make_policy ─► kind_of(config).build ◄─ make_features

Place in the flow: trainer.py builds a run with it; tests hand the trainer another builder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import Algorithm
from metta_fast.contracts.env import EnvFactory, EnvSpec
from metta_fast.contracts.env_answers import Window
from metta_fast.contracts.env_answers import viewer as viewer_of
from metta_fast.contracts.vector import VectorEnv
from metta_fast.distributed.group import current
from metta_fast.distributed.share import share
from metta_fast.policy.base import Policy
from metta_fast.runtime import kernel_caches


@dataclass
class Parts:
    """The parts of a training. `close()` ends the environments' processes and threads, and the features."""

    spec: EnvSpec
    vec: VectorEnv
    policy: Policy
    algorithm: Algorithm
    device: torch.device
    viewer: Window | None = None
    on_close: Sequence[Callable[[], None]] = ()
    make_vec: Callable[[], VectorEnv] | None = None
    """Makes `vec` again; None: it cannot be made again."""
    factory: EnvFactory | None = None
    """Made `vec`'s environments."""

    def restart(self, algorithm_state: Any, env_state: Any) -> None:
        """Replaces a vector that broke and returns to the state in which the states were taken.

        Args:
            env_state: of the vector; None: the environments start new episodes.

        Raises:
            WorkerError: the environments cannot be made.
        """
        assert self.make_vec is not None
        self.vec.close()
        self.vec = self.make_vec()
        if env_state is not None:
            self.vec.load_state_dict(env_state)
        self.algorithm.use(self.vec)
        self.algorithm.load_state_dict(algorithm_state)

    def close(self) -> None:
        """Raises WorkerError if an environment cannot be closed, after everything was ended."""
        with ExitStack() as stack:
            for hook in reversed(self.on_close):
                stack.callback(hook)
            if self.viewer is not None:
                stack.callback(self.viewer.close)
            stack.callback(self.vec.close)


def build_parts(config: Config, factory: EnvFactory | None = None) -> Parts:
    """Makes everything that `config` (resolved: no `auto`) names.

    Args:
        factory: of the run (`Resolved.factory`); None: made here.

    Raises:
        UserError: a feature, the environments or the policy cannot be made as asked; nothing runs then.
    """
    from metta_fast.algorithms.registry import kind_of
    from metta_fast.envs import make_factory
    from metta_fast.features import make_features
    from metta_fast.policy import make_policy
    from metta_fast.vector import make_vector

    kernel_caches.settle()
    group, total = current(), config.env.num_envs
    config = share(config, group.world)
    vector, trainer = config.vector, config.trainer
    device = torch.device(trainer.device)
    torch.set_num_threads(trainer.torch_threads)
    folder = Path(config.run.dir) / str(config.run.name) if config.run.name and group.first else None
    hooks = make_features(config.features, folder=folder)
    if config.run.gradient_stats_interval:
        from metta_fast.features import gradient_stats

        gradient_stats.add(
            hooks,
            interval_epochs=config.run.gradient_stats_interval,
            min_s=config.run.min_interval_s,
            max_grad_norm=trainer.max_grad_norm,
        )
    factory = factory or make_factory(config.env)
    make_vec = partial(
        make_vector,
        factory,
        config.env.num_envs,
        first_env=group.rank * config.env.num_envs,
        total_envs=total,
        backend=vector.backend,
        num_blocks=vector.async_factor,
        num_workers=vector.num_workers,
        num_threads=vector.num_threads,
        worker_timeout_s=vector.worker_timeout_s,
        device=torch.device(config.env.device),
    )
    vec = make_vec()
    viewer = None
    try:
        if config.env.show_viewer:
            viewer = _open_viewer(factory, vec)
        torch.manual_seed(config.seed)
        policy = make_policy(config.policy, factory.spec).to(device)
        for tensor in (*policy.parameters(), *policy.buffers()):
            group.copy_(tensor.data)
        algorithm = kind_of(config).build(config, factory.spec, vec, policy, device, hooks)
    except BaseException:
        vec.close()
        if viewer is not None:
            viewer.close()
        raise
    return Parts(factory.spec, vec, policy, algorithm, device, viewer, hooks.on_close, make_vec, factory)


def _open_viewer(factory: EnvFactory, vec: VectorEnv) -> Window:
    """Opens the environment's own viewer; resolve has checked that there is one."""
    found = viewer_of(factory)
    assert found is not None
    return found.open(vec)
