"""What the updates in C have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig

ACTIVATIONS = {"relu": 0, "tanh": 1, "elu": 2}
"""Their numbers in policy/cpu_dense.h."""


class NativeUpdate:
    """Changes the policy's weights and the optimizer's state. All arrays are read where they lie."""

    def __init__(
        self, policy: Any, buffers: Buffers, config: TrainerConfig, optimizer: Any, clip: Tensor
    ) -> None:
        """As `native_update`."""
        self._policy, self._buffers, self._config, self._optimizer = policy, buffers, config, optimizer
        self._clip = clip
        self._parameters: list[Tensor] = []
        """In the order in which C has them: for the kind to fill."""
        self._within = (torch.arange(buffers.bptt_horizon) * buffers.num_agents).unsqueeze(0)

    def run(self, order: Tensor, rollout_value: Tensor, sums: Tensor) -> bool:
        """One pass over the segments in the order given; `sums` (learner.SUMS) are added to.

        Returns:
            False: target_kl was passed, and the rest of the pass left out.
        """
        steps = self._steps()
        networks = self._networks(self._addresses(), rollout_value)
        rows, each, found = self._rows(order), self._config.minibatch_size, np.zeros(len(sums))
        whole: bool = networks.run(rows.data_ptr(), len(rows), each, steps, self._settings(), found)
        sums += torch.from_numpy(found).to(sums.dtype)
        self._count_steps(steps + found[-1])
        return whole

    def _networks(self, tensors: list[tuple[int, int, int]], rollout_value: Tensor) -> Any:
        """C's side, told where weights, moments and the rollout's arrays lie: it has `run`."""
        raise NotImplementedError(f"{type(self).__name__} has no _networks(tensors, rollout_value)")

    def _rows(self, order: Tensor) -> Tensor:
        """Numbers of the segments' rows, int64 [segments · bptt_horizon]."""
        b = self._buffers
        n = b.num_agents
        first = order // n * (b.bptt_horizon * n) + order % n
        return (first.unsqueeze(1) + self._within).flatten().contiguous()

    def _settings(self) -> dict[str, Any]:
        """mf_settings (cpu_ppo.h) as they are now."""
        c, group = self._config, self._optimizer.param_groups[0]
        return {
            "clip": float(self._clip),
            "vf_coef": c.vf_coef,
            "vf_clip": -1.0 if c.vf_clip_coef is None else c.vf_clip_coef,
            "entropy_coef": c.entropy_coef,
            "max_norm": c.max_grad_norm,
            "target_kl": -1.0 if c.target_kl is None else c.target_kl,
            "rate": float(group["lr"]),
            "beta1": group["betas"][0],
            "beta2": group["betas"][1],
            "epsilon": group["eps"],
            "normalize_advantage": int(c.normalize_advantage),
        }

    def _steps(self) -> float:
        """The steps taken so far; Adam's state of each parameter is made where it is missing."""
        state = self._optimizer.state
        for p in self._parameters:
            if not state[p]:
                state[p]["step"] = torch.zeros((), dtype=torch.float32)
                state[p]["exp_avg"], state[p]["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return float(state[self._parameters[0]]["step"])

    def _addresses(self) -> list[tuple[int, int, int]]:
        """(weight, first moment, second moment) of each parameter, after `_steps`."""
        state = self._optimizer.state
        return [
            (p.data_ptr(), state[p]["exp_avg"].data_ptr(), state[p]["exp_avg_sq"].data_ptr())
            for p in self._parameters
        ]

    def _count_steps(self, steps: float) -> None:
        """So many steps were taken in all."""
        for parameter in self._parameters:
            self._optimizer.state[parameter]["step"].fill_(steps)
