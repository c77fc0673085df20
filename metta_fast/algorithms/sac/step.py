"""Steps one optimizer after a backward pass: clips, then Adam. On a GPU a tensor holds the rate, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.runtime.adam import Adam
from metta_fast.runtime.state_tensors import tensor
from metta_fast.storage.altered import WrongState, entry


class Step:
    """Adam over some parameters, with torch's default epsilon 1e-8 as in the authors' code."""

    def __init__(
        self, name: str, parameters: Sequence[nn.Parameter], device: torch.device, max_norm: float = 0.0
    ) -> None:
        """name: in checkpoints. max_norm: gradients are scaled down to at most this norm; 0: never."""
        self.name, self.parameters, self._max_norm = name, list(parameters), max_norm
        self._on_device = device.type == "cuda"
        self.rate: float | Tensor = torch.zeros((), device=device) if self._on_device else 0.0
        self.optimizer = Adam(self.parameters, lr=self.rate, fused=True, capturable=self._on_device)

    def set_rate(self, rate: float) -> None:
        if isinstance(self.rate, Tensor):
            self.rate.fill_(rate)
            return
        self.rate = rate
        self.optimizer.param_groups[0]["lr"] = rate

    def __call__(self, loss: Tensor) -> None:
        """Steps against the gradient of `loss` with respect to its own parameters; no other gets a gradient."""
        self.gradients(loss)
        self.take()

    def gradients(self, loss: Tensor) -> None:
        loss.backward(inputs=self.parameters)

    def take(self) -> None:
        if self._max_norm > 0:
            norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
            nn.utils.clip_grads_with_norm_(self.parameters, self._max_norm, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    # ---- state ----

    def state_dict(self) -> list[dict[str, Any]]:
        """Returns {step, exp_avg, exp_avg_sq} of each parameter, {} before its first step; not copied."""
        return [dict(self.optimizer.state.get(p, {})) for p in self.parameters]

    def load_state_dict(self, state: Any) -> None:
        """Loads `state_dict`'s result. Tensors stay in place, as CUDA graphs need. Raises WrongState."""
        if not isinstance(state, list) or len(state) != len(self.parameters):
            raise WrongState(self.name, f"is not of {len(self.parameters)} parameters")
        for number, (p, saved) in enumerate(zip(self.parameters, state)):
            shapes = {"step": (), "exp_avg": p.shape, "exp_avg_sq": p.shape}
            where = f"{self.name}[{number}]."
            for name, shape in shapes.items() if saved else ():
                tensor(entry(saved, name, where), f"{where}{name}", shape)
        for p, saved in zip(self.parameters, state):
            own = self.optimizer.state[p]
            for name in ("step", "exp_avg", "exp_avg_sq"):
                like = torch.zeros((), device=p.device) if name == "step" else torch.zeros_like(p)
                if name in own:
                    own[name].copy_(saved[name]) if saved else own[name].zero_()
                elif saved:
                    own[name] = like.copy_(saved[name])
            if not own:
                del self.optimizer.state[p]
