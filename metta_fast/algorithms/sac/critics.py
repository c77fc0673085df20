"""The critics: E networks Q(s, a) of one shape, computed together as batched matrix products.

    obs ─► numbers side by side, or an encoder of their own ─► [obs | action] ─► layers ─► Q [E, B, 1]
    discrete actions:                                          [obs]          ─► layers ─► Q [E, B, choices]

Sources: twin critics against overestimation: Fujimoto et al. 2018 (arXiv 1802.09477), section 4; layer normalisation
before the activation: Ball et al. 2023 (arXiv 2302.02948), section 4.2. The E networks share the encoder of an image.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.algorithms.sac.critic.batch_renorm import BatchRenorm
from metta_fast.algorithms.sac.critic.values import values_of
from metta_fast.algorithms.sac.dense_operator import Dense
from metta_fast.algorithms.sac.keys import OffPolicyKeys
from metta_fast.config.encoders import by_encoder, own_encoder
from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import OURS, only, reads
from metta_fast.contracts.env import EnvSpec
from metta_fast.policy.encoders import make_encoder
from metta_fast.policy.grid.layout import layout_of
from metta_fast.policy.plan import ACTIVATIONS


class Ensemble(nn.Module):
    """E linear layers side by side: [E, B, inputs] → [E, B, outputs], initialised as nn.Linear is."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleNorm(nn.Module):
    """Layer normalisation with a scale and shift for each of E networks."""

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, width))
        self.bias = nn.Parameter(torch.zeros(members, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class Critics(nn.Module):
    """E networks Q(s, a), or Q(s, ·) of discrete actions. See the module's docstring.

    Attributes:
        leaves: the observation's leaves that it reads.
        members: E.
    """

    def __init__(self, config: PolicyConfig, spec: EnvSpec, keys: OffPolicyKeys) -> None:
        """spec: as the networks see it (stacked frames)."""
        super().__init__()
        self.leaves = (
            reads(replace(config, shared=False), spec)[1] if config.name in OURS else tuple(spec.obs)
        )
        seen = only(spec, self.leaves)
        self.encoder: nn.Module | None = None
        inputs = sum(prod(leaf.shape) for leaf in seen.obs.values())
        if not _plain_numbers(config, seen):
            self.encoder, inputs = make_encoder(config, seen), config.hidden_size
        action = spec.action
        outputs = sum(action.nvec) if action.kind == "discrete" else values_of(keys).outputs
        inputs += 0 if action.kind == "discrete" else action.width
        widths = [inputs, *[int(keys.critic_width)] * keys.critic_layers]
        self.layers = nn.ModuleList(
            Ensemble(keys.critics, before, after) for before, after in pairwise(widths)
        )
        norm = BatchRenorm if keys.batch_norm else EnsembleNorm
        normed = widths[1:] if keys.layer_norm or keys.batch_norm else ()
        self.norms = nn.ModuleList(norm(keys.critics, width) for width in normed)
        self.last = Ensemble(keys.critics, widths[-1], outputs)
        self.operator: torch.dtype | None = None
        """The dtype of the products where the layers are one operator (dense_operator.py); None: they are not."""
        self.activation = config.activation
        self.members = keys.critics

    def hidden_layers(self) -> list[Ensemble]:
        return [layer for layer in self.layers if isinstance(layer, Ensemble)]

    def features(self, obs: dict[str, Tensor]) -> Tensor:
        """Returns [B, inputs] of observations {leaf: [1, B, *shape]}, normalised already."""
        if self.encoder is not None:
            encoded: Tensor = self.encoder({name: obs[name] for name in self.leaves})
            return encoded[0]
        leaves = [obs[name][0].flatten(1).float() for name in self.leaves]
        return torch.cat(leaves, -1) if len(leaves) > 1 else leaves[0]

    def forward(self, features: Tensor, action: Tensor | None = None, *, frozen: bool = False) -> Tensor:
        """Returns [E, B, 1, quantiles or choices] float32 for features [B, F] and actions [B, W] in the policy's unit.

        Args:
            frozen: the layers' weights get no gradient, as in the actor's loss.
        """
        x = features if action is None else torch.cat([features, action.to(features.dtype)], -1)
        if self.operator is not None:
            layers = [p.detach() if frozen else p for p in self.layers.parameters()]
            ends = [p.detach() if frozen else p for p in self.last.parameters()]
            fused: Tensor = Dense.apply(x, self.operator, *layers, *ends)
            return fused
        x = x.expand(self.members, *x.shape)
        act = ACTIVATIONS[self.activation]
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if len(self.norms):
                x = self.norms[number](x)
            x = act(x)
        with torch.autocast(x.device.type, enabled=False):
            q: Tensor = self.last(x.float())
        return q


def _plain_numbers(config: PolicyConfig, spec: EnvSpec) -> bool:
    """Returns whether all leaves are read as numbers side by side: the first layer then reads the action as well."""
    return (
        own_encoder(config) == "mlp"
        and list(by_encoder(config, spec)) == [None]
        and all(layout_of(spec, leaf) is None for leaf in spec.obs)
    )
