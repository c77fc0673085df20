"""Defines the built-in network: encoder ─► core ─► heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import only, reads
from metta_fast.contracts.env import EnvSpec
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.box_head import bounded_log_std
from metta_fast.policy.cores import CORES, LSTMCore, MinGRUCore
from metta_fast.policy.encoders import make_encoder
from metta_fast.policy.initial import SMALL, orthogonal_linear
from metta_fast.policy.mixed_head import box_of
from metta_fast.policy.plan import Plan, Trunk


class Network(Policy):
    """`config.name` chooses the encoder, `config.core` the core.

    The heads run in float32 also under autocast: values and logits in bf16 would be too coarse to learn from.
    With `config.shared=false` the value has an encoder and a core of its own, which may read other leaves of the
    observation than the actions' (reads.py); the state is then both cores', the actions' first.
    """

    def __init__(self, config: PolicyConfig, spec: EnvSpec) -> None:
        size = config.hidden_size
        core = _core(config)
        layers, width = core.state_shape if core is not None else (0, 0)
        cores = layers if config.shared else 2 * layers
        super().__init__(spec, (cores, width), squash=config.squash)
        self.actor_leaves, self.critic_leaves = reads(config, spec)
        self.encoder = make_encoder(config, only(spec, self.actor_leaves))
        self.core = core
        params = self.head.num_params
        self.log_std: nn.Parameter | None = None
        """[continuous entries]: what params end with where the standard deviation is not the network's."""
        box = box_of(self.head)
        if box is not None and not config.state_std:
            self.log_std = nn.Parameter(torch.full((box.width,), float(config.initial_log_std)))
            params -= box.width
        self.heads = orthogonal_linear(size, params + (1 if config.shared else 0), SMALL)
        """The action's parameters, then the value, if it is not the critic's."""
        if box is not None and config.state_std:
            nn.init.constant_(self.heads.bias[params - box.width : params], config.initial_log_std)
        self.critic: nn.ModuleDict | None = None
        if not config.shared:
            parts: dict[str, nn.Module] = {
                "encoder": make_encoder(config, only(spec, self.critic_leaves)),
                "value": orthogonal_linear(size, 1, SMALL),
            }
            own = _core(config)
            self.critic = nn.ModuleDict(parts if own is None else parts | {"core": own})

    def forward(self, obs: dict[str, Tensor] | Tensor, state: Tensor, reset: Tensor) -> PolicyOutput:
        """See `Policy.forward`; `obs` may also be a tensor, the actor's only leaf."""
        leaves = {self.actor_leaves[0]: obs} if isinstance(obs, Tensor) else obs
        x, critic = self.encoder(leaves), self.critic
        blind = critic is not None and not all(name in leaves for name in self.critic_leaves)
        y = critic["encoder"](leaves) if critic is not None and not blind else None
        if self.core is not None:
            if critic is None:
                x, state = self.core(x, state, reset)
            else:
                first, second = state.chunk(2)
                x, first = self.core(x, first.contiguous(), reset)
                if y is not None:
                    y, second = critic["core"](y, second.contiguous(), reset)
                state = torch.cat([first, second])
        with torch.autocast(x.device.type, enabled=False):
            params = self.heads(x.float())
            if critic is None:
                params, value = params[..., :-1], params[..., -1]
            elif y is None:
                value = torch.full_like(params[..., 0], torch.nan)
            else:
                value = critic["value"](y.float())[..., 0]
        if self.log_std is not None:
            params = torch.cat([params, bounded_log_std(self.log_std).expand(*params.shape[:-1], -1)], -1)
        return PolicyOutput(params, value, state)

    def plan(self) -> Plan | str:
        """See `Policy.plan`."""
        trunks = []
        for encoder, core in self._trunks():
            trunk: Callable[[nn.Module | None], Trunk] | None = getattr(encoder, "trunk", None)
            if trunk is None:
                return f"the encoder {type(encoder).__name__}"
            trunks.append(trunk(core))
        return Plan(
            actor=trunks[0],
            heads=self.heads,
            head=self.head,
            critic=None if self.critic is None else trunks[1],
            value=None if self.critic is None else self.critic["value"],  # type: ignore[arg-type]
            log_std=self.log_std,
            normalizer=self.normalizer,
        )

    def _trunks(self) -> list[tuple[nn.Module, nn.Module | None]]:
        """(encoder, core) of the actor, then of the critic if it has its own."""
        own = {} if self.critic is None else dict(self.critic.items())
        return [(self.encoder, self.core), *([(own["encoder"], own.get("core"))] if own else [])]

    def reads_reset(self) -> bool:
        """See `Policy.reads_reset`."""
        return self.core is not None


def _core(config: PolicyConfig) -> LSTMCore | MinGRUCore | None:
    """Returns the core that the configuration asks for, or None."""
    return CORES[config.core](config.hidden_size) if config.core != "none" else None
