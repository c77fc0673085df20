"""The policy of this package: encoder ─► core ─► heads."""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.config import PolicyConfig
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.cores import CORES
from metta_fast.policy.encoders import make_encoder
from metta_fast.policy.initial import SMALL, orthogonal_linear
from metta_fast.spec import EnvSpec


class Network(Policy):
    """`config.name` chooses the encoder, `config.core` the memory.

    The heads run in float32 also under autocast: values and logits in bf16 would be too coarse to learn from.
    """

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        size = config.hidden_size
        core = CORES[config.core](size) if config.core != "none" else None
        super().__init__(spec, core.state_shape if core else (0, 0))
        self.encoder = make_encoder(config.name, spec, size)
        self.core = core
        self.leaf = next(iter(spec.obs))
        self.heads = orthogonal_linear(size, self.head.num_params + 1, SMALL)
        """The action's parameters, then the value."""

    def forward(self, obs: dict[str, Tensor] | Tensor, state: Tensor, reset: Tensor) -> PolicyOutput:
        """As `Policy.forward`; a tensor stands for the observation's only leaf."""
        x = self.encoder({self.leaf: obs} if isinstance(obs, Tensor) else obs)
        if self.core is not None:
            x, state = self.core(x, state, reset)
        with torch.autocast(x.device.type, enabled=False):
            out = self.heads(x.float())
        return PolicyOutput(out[..., :-1], out[..., -1], state)
