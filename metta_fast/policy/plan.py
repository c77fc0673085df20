"""What a policy is made of: the fast paths compute a policy from its plan, in place of its `forward`.

    policy.plan() -> Plan            # the policy says what its forward computes
    plan_of(policy) -> Plan | str    # checked: the plan, or a sentence that says why there is none

    obs ─► first layer (a sum: sparse layers + one dense) ─► activation ─► second ─► activation ─► core ─► heads
      └──► the same once more, if the value has a network of its own ─► value

A policy of your own is as fast as ours if it gives a plan:

    class MyNet(Policy):
        def __init__(self, config, spec):
            super().__init__(spec)
            self.first, self.second = nn.Linear(spec.obs["obs"].shape[0], 64), nn.Linear(64, 64)
            self.heads = nn.Linear(64, self.head.num_params + 1)

        def forward(self, obs, state, reset):
            hidden = self.second(self.first(obs["obs"].float()).relu()).relu()
            with torch.autocast(hidden.device.type, enabled=False):
                out = self.heads(hidden.float())
            return PolicyOutput(out[..., :-1], out[..., -1], state)

        def plan(self):
            trunk = Trunk(leaves=("obs",), flat=("obs",), first=self.first, second=self.second)
            return Plan(trunk, self.heads, self.head)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.mixed_head import MixedHead, box_of
from metta_fast.policy.normalize import Normalizer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "tanh": torch.tanh, "elu": F.elu}
"""policy.activation: the function after each layer of an encoder."""


def first_layer(
    sparse: Mapping[str, SparseLayer],
    flat: Sequence[str],
    first: nn.Linear | None,
    obs: Mapping[str, Tensor],
    rows: Tensor | None = None,
) -> Tensor:
    """See `Trunk.first_layer`."""
    if rows is None:
        sums = [part(obs[leaf]) for leaf, part in sparse.items()]
    else:
        sums = [part.at_rows(obs[leaf], rows) for leaf, part in sparse.items()]
    if first is not None:
        others = [obs[leaf].reshape(*obs[leaf].shape[:2], -1) for leaf in flat]
        if rows is not None:
            others = [leaf.flatten(0, 1).index_select(0, rows) for leaf in others]
        others = [leaf.float() for leaf in others]
        sums.append(first(torch.cat(others, -1) if len(others) > 1 else others[0]))
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)


@dataclass(frozen=True)
class Trunk:
    """Two layers of one width and a core: from the observation to what the heads read.

    The first layer is a sum: a sparse layer for each grid leaf, and one dense layer over the other leaves, as float32
    side by side in the order of `flat`. The layers follow autocast.
    """

    leaves: tuple[str, ...]
    """All leaves that it reads."""
    second: nn.Linear
    sparse: Mapping[str, SparseLayer] = field(default_factory=dict)
    """Leaf → its part of the first layer."""
    flat: tuple[str, ...] = ()
    """Leaves of the dense part."""
    first: nn.Linear | None = None
    """The dense part of the first layer; None: there are sparse ones only."""
    activation: str = "relu"
    """A name of ACTIVATIONS, after both layers."""
    core: nn.Module | None = None
    """The recurrent part, called as core(x [T, B, width], state, reset) -> (y, state); None: feed-forward."""

    @property
    def width(self) -> int:
        """Units of each layer."""
        return self.second.out_features

    def first_layer(self, obs: Mapping[str, Tensor], rows: Tensor | None = None) -> Tensor:
        """Returns [T, B, width], before its activation; with rows [R], numbers t · B + b, of these only: [R, width]."""
        return first_layer(self.sparse, self.flat, self.first, obs, rows)

    def dense(self, x: Tensor) -> Tensor:
        """Returns the second layer's output, from the first layer's before its activation; `core` comes after it."""
        act = ACTIVATIONS[self.activation]
        return act(self.second(act(x)))

    def modules(self) -> list[nn.Module]:
        """All parts, in the order of the computation."""
        parts = [*self.sparse.values(), self.first, self.second, self.core]
        return [part for part in parts if part is not None]


@dataclass(frozen=True)
class Plan:
    """What a policy's forward computes, in all its parts."""

    actor: Trunk
    heads: nn.Linear
    """The action's parameters, then the value if `critic` is None; float32 also under autocast."""
    head: ActionHead | BoxHead | MixedHead
    critic: Trunk | None = None
    """The value's own trunk; None: it shares the actor's."""
    value: nn.Linear | None = None
    """The value from the critic's trunk, [width → 1]; float32 also under autocast."""
    log_std: nn.Parameter | None = None
    """[continuous entries]: the end of the action's parameters where the observation does not change them."""
    normalizer: Normalizer | None = None
    """Applied to the observation first."""

    def trunks(self) -> list[Trunk]:
        """The actor's, and the critic's if it has its own."""
        return [self.actor] if self.critic is None else [self.actor, self.critic]

    def beyond_plain(self, core: type[nn.Module] | None = None) -> str | None:
        """Returns what it has beyond one feed-forward network of relu layers for discrete actions, or None.

        Args:
            core: a kind of core that it may have as well.
        """
        if not isinstance(self.head, ActionHead):
            return "continuous actions" if isinstance(self.head, BoxHead) else "mixed actions"
        if self.critic is not None:
            return "policy.shared=false"
        if self.actor.core is not None and type(self.actor.core) is not core:
            return f"a recurrent policy ({type(self.actor.core).__name__})"
        if self.normalizer is not None:
            return "policy.normalize_obs"
        if self.actor.activation != "relu":
            return f"policy.activation={self.actor.activation}"
        return None

    def modules(self) -> list[nn.Module]:
        """All layers and cores."""
        last = [self.heads] if self.value is None else [self.heads, self.value]
        return [part for trunk in self.trunks() for part in trunk.modules()] + last

    def parameters(self) -> list[nn.Parameter]:
        """All weights: those of a policy with this plan are exactly these."""
        own = [] if self.log_std is None else [self.log_std]
        return [p for module in self.modules() for p in module.parameters()] + own

    def forward(
        self, obs: Mapping[str, Tensor], state: Tensor, reset: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns (params, value, state) as the policy's forward does: the plan in torch's own words."""
        if self.normalizer is not None:
            obs = self.normalizer(dict(obs))
        states = list(state.chunk(len(self.trunks()))) if state.numel() else []
        outputs = []
        for i, trunk in enumerate(self.trunks()):
            x = trunk.dense(trunk.first_layer(obs))
            if trunk.core is not None:
                x, states[i] = trunk.core(x, states[i].contiguous(), reset)
            outputs.append(x)
        with torch.autocast(outputs[0].device.type, enabled=False):
            params = self.heads(outputs[0].float())
            if self.value is None:
                params, value = params[..., :-1], params[..., -1]
            else:
                value = self.value(outputs[1].float())[..., 0]
        if self.log_std is not None:
            params = torch.cat([params, self.log_std.expand(*params.shape[:-1], -1)], -1)
        return params, value, torch.cat(states) if states else state


def plan_of(policy: nn.Module) -> Plan | str:
    """Returns the policy's plan, or a sentence that says why none can stand for its forward.

    Fast paths ask nothing else about a policy. A subclass that inherits both `plan` and `forward` has a plan. A policy
    has none where its forward may differ from it: overridden, patched, hooked, or with weights added or shared.
    """
    against = _changed(policy)
    if against is not None:
        return against
    plan = policy.plan()  # type: ignore[operator]
    if plan is None:
        return f"a policy of class {type(policy).__name__}, whose plan() gives nothing"
    if isinstance(plan, str):
        return plan
    return _unlike(policy, plan) or _hooked(policy, plan.normalizer) or plan


def described_by(module: nn.Module, method: str, *computed: str) -> bool:
    """Whether `method` describes the methods `computed`: no subclass of the class that defines it overrides them."""
    depth = _depth(type(module), method)
    below = [_depth(type(module), name) for name in computed]
    return depth is not None and not any(other is not None and other < depth for other in below)


FORWARDS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "initial_state")
"""Methods of a policy that compute."""


def _depth(kind: type, name: str) -> int | None:
    """The place in the order of inheritance of the class that defines `name`."""
    return next((depth for depth, base in enumerate(kind.__mro__) if name in vars(base)), None)


def _changed(policy: nn.Module) -> str | None:
    """Returns which method is not the one that plan() describes, or None."""
    if not described_by(policy, "plan", *FORWARDS):
        return f"class {type(policy).__name__} overrides forward() or initial_state() without a plan() of its own"
    for module in policy.modules():
        kind = type(module)
        if _depth(kind, "trunk") is not None and not described_by(
            module, "trunk", "first_layer", *FORWARDS[:-1]
        ):
            return f"the encoder class {kind.__name__} overrides forward() without a trunk() of its own"
    for part in (*policy.modules(), getattr(policy, "head", None)):
        for attribute in vars(part) if part is not None else ():
            if callable(getattr(type(part), attribute, None)):
                return f"{type(part).__name__}.{attribute} is replaced on the instance"
    return None


def _unlike(policy: nn.Module, plan: Plan) -> str | None:
    """Returns what the policy has and its plan has not, or the reverse, or a part that no fast path knows."""
    for module in plan.modules():
        if isinstance(module, (nn.Linear, SparseLayer)) and type(module) not in (nn.Linear, SparseLayer):
            return f"a layer of class {type(module).__name__}"
        if isinstance(module, (nn.Linear, SparseLayer)) and set(module._parameters) != {"weight", "bias"}:
            return "a layer whose parameters are not weight and bias"
    if type(plan.head) not in (ActionHead, BoxHead) or plan.head is not getattr(policy, "head", None):
        return f"an action head of class {type(plan.head).__name__}"
    if plan.normalizer is not getattr(policy, "normalizer", None):
        return "a plan() that leaves out policy.normalize_obs"
    if getattr(policy, "state_shape", None) != _state_shape(plan):
        return "a policy whose state is not that of its cores"
    return _misfit(plan) or _other_weights(policy, plan)


def _state_shape(plan: Plan) -> tuple[int, int]:
    cores: list[Any] = [trunk.core for trunk in plan.trunks() if trunk.core is not None]
    return (sum(core.state_shape[0] for core in cores), cores[0].state_shape[1]) if cores else (0, 0)


def _misfit(plan: Plan) -> str | None:
    """Returns which sizes of the plan do not fit together, or None."""
    width = plan.actor.width
    for trunk in plan.trunks():
        if (trunk.first is None) != (not trunk.flat) or not (trunk.sparse or trunk.flat):
            return "a trunk without a first layer, or with one that reads nothing"
        if set(trunk.leaves) != {*trunk.sparse, *trunk.flat} or trunk.activation not in ACTIVATIONS:
            return "a trunk whose leaves or activation are not those of its layers"
        if (trunk.core is None) != (plan.actor.core is None):
            return "a core for one of actor and critic alone"
        widths = {trunk.second.in_features, trunk.second.out_features, width}
        widths |= {layer.weight.shape[1] for layer in trunk.sparse.values()}
        widths |= {trunk.first.out_features} if trunk.first is not None else set()
        if len(widths) > 1:
            return f"layers of unlike widths ({', '.join(map(str, sorted(widths)))})"
        if any(layer.bias is None for layer in (trunk.first, trunk.second) if layer is not None):
            return "layers without a bias"
    if plan.log_std is not None and box_of(plan.head) is None:
        return "policy.log_std without continuous actions"
    params = plan.head.num_params if plan.log_std is None else plan.head.num_params - plan.log_std.numel()
    shared = plan.critic is None
    fits = plan.heads.in_features == width and plan.heads.out_features == params + shared
    if shared != (plan.value is None) or plan.heads.bias is None or not fits:
        return "heads that do not give the action's parameters and the value"
    value = plan.value
    if value is not None and (value.in_features, value.out_features, value.bias is None) != (width, 1, False):
        return "a value layer that does not give the value"
    return None


def _other_weights(policy: nn.Module, plan: Plan) -> str | None:
    """Returns which weights are not both the plan's and the policy's, each once, or None."""
    named = {id(p): name for name, p in policy.named_parameters()}
    planned = plan.parameters()
    ids = [id(p) for p in planned]
    if len(set(ids)) < len(ids):
        return "weights that several layers share"
    left_out = [name for key, name in named.items() if key not in set(ids)]
    if left_out:
        return f"weights that its plan() leaves out ({left_out[0]})"
    if any(key not in named for key in ids):
        return "a plan() with weights that are not parameters of the policy"
    places = [p.data_ptr() for p in planned if p.numel() and p.device.type != "meta"]
    return "weights that several layers share" if len(set(places)) < len(places) else None


def _hooked(policy: nn.Module, normalizer: Normalizer | None) -> str | None:
    """Returns that something hooks into the policy's passes, or None; its normalizer's own hook is in the plan."""
    own = [normalizer.before_forward] if normalizer is not None else []
    if normalizer is not None and list(policy._forward_pre_hooks.values()) != own:
        return "hooks on the policy"
    every = nn.modules.module
    anywhere = every._global_forward_hooks, every._global_forward_pre_hooks
    if any(anywhere) or len(list(_hooks(policy))) > len(own):
        return "hooks on the policy"
    return None


def _hooks(policy: nn.Module) -> Iterator[object]:
    """All hooks on forward and backward passes of the policy, the modules in it, and its weights."""
    for part in policy.modules():
        for hooks in (
            part._forward_pre_hooks,
            part._forward_hooks,
            part._backward_pre_hooks,
            part._backward_hooks,
        ):
            yield from hooks.values()
    for weight in policy.parameters():
        yield from (weight._backward_hooks or {}).values()
        yield from (getattr(weight, "_post_accumulate_grad_hooks", None) or {}).values()
