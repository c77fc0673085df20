"""Steps the optimizer: statistics ─► sums, gradients ─► clipped ─► weights, at the present learning rate.

Nothing here waits for the device: the sums of losses stay there. So does `stop`, which skips every step once target_kl
is exceeded or a gradient is not finite. (On the CPU, target_kl ends the update at once instead.)

Place in the flow: learner.py calls it after each minibatch, with the gradients that gradients.py left in the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metta_fast.algorithms.hooks import GradientHook
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.schedule import adapted, learning_rate
from metta_fast.config.keys import TrainerConfig
from metta_fast.distributed.flat import Flat
from metta_fast.distributed.group import current
from metta_fast.runtime.optimizers.make import kept, make_optimizer
from metta_fast.runtime.state_tensors import tensor
from metta_fast.storage.altered import WrongState, entry, number

if TYPE_CHECKING:
    from metta_fast.algorithms.ppo.triton.optimizer_step import FusedStep

SUMS = (*STATS, "gradient_norm", "minibatches", "optimizer_steps")
"""Names of the entries of `Step.sums`: sums over the minibatches (gradient_norm: over the optimizer steps)."""
PORTABLE = {"capturable": False, "fused": True}
"""The optimizer's settings in a checkpoint, the same for every device."""


class Step:
    """Owns the optimizer. Each call adds a minibatch and, if a step is due, changes the weights."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        config: TrainerConfig,
        device: torch.device,
        *,
        outer: Sequence[Tensor] = (),
        kernels: bool = False,
    ) -> None:
        """outer: the matrices of embedding tables and output layers. kernels: clip and step with optimizer_step.py."""
        self.parameters, self.config = list(parameters), config
        self._on_device = device.type == "cuda"
        self.adapts = config.schedule == "adaptive"
        """True: the learning rate depends on the KL, not on the agent steps."""
        group = current()
        begin = learning_rate(config, 0, group.world) if self.adapts else config.learning_rate
        self.rate: float | Tensor = torch.tensor(begin, device=device) if self._on_device else begin
        """A tensor on a GPU: a captured step would keep a Python number's value."""
        self.optimizer = make_optimizer(self.parameters, config, self.rate, device, outer)
        self.stop = torch.zeros((), device=device)
        """1 once the update may take no more steps: the optimizer then changes neither weights nor moments."""
        if self._on_device and config.precision != "fp16":
            self.optimizer.found_inf = self.stop  # type: ignore[attr-defined]
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "fp16")
        self.sums = torch.zeros(len(SUMS), device=device)
        """[len(SUMS)] float32."""
        self.flat: Flat | None = None
        """The gradients and two times STATS (of the last minibatch, of those since the last step), summed over the
        run's processes; None: this process is the only one."""
        self._accumulates = config.gradient_accumulation > 1 or group.active
        if group.active:
            self.flat = Flat(self.parameters, extra=2 * len(STATS), group=group)
            self._since = torch.zeros(len(STATS), device=device)
        elif self._accumulates:  # in our own memory: a CUDA graph's memory is overwritten by its next replay
            for p in self.parameters:
                p.grad = torch.zeros_like(p)
        self.watching: list[GradientHook] = []
        """Hooks of the current update."""
        self.fused = self._make_fused() if kernels else None
        """Two kernels that replace `_count` and `_take`, or None."""

    def _make_fused(self) -> FusedStep:
        from metta_fast.algorithms.ppo.triton.optimizer_step import FusedStep

        config = self.config
        return FusedStep(
            self.parameters, self.optimizer, self.sums, self.stop, config.max_grad_norm, config.target_kl
        )

    def __call__(self, stats: Tensor, *, due: bool) -> bool:
        """Adds a minibatch's statistics [len(STATS)], and steps with the summed gradients if a step is due.

        With several processes, statistics and gradients are this process's part of the sums over all of them.

        Returns:
            False: target_kl ends the update before the step, on the CPU.
        """
        if self.flat is not None:
            if not self.put(stats, due=due):
                return True
            self.flat.sum_()
            return self.take_summed()
        return self._step(stats, due=due)

    def put(self, stats: Tensor, *, due: bool) -> bool:
        """Puts a minibatch's statistics beside the gradients. Returns `due`: whether to sum and `take_summed`."""
        assert self.flat is not None
        if due:
            self.flat.extra[: len(STATS)].copy_(stats)
            self.flat.extra[len(STATS) :].copy_(self._since)
            self._since.zero_()
        else:
            self._since += stats
            self._count(1, len(STATS) + 1)
        return due

    def take_summed(self) -> bool:
        """Steps with the gradients and statistics of `flat`. Returns False as a call does."""
        assert self.flat is not None
        if self.config.gradient_accumulation > 1:
            self._count(self.flat.extra[len(STATS) :], slice(0, len(STATS)))
        return self._step(self.flat.extra[: len(STATS)], due=True)

    def _step(self, stats: Tensor, *, due: bool) -> bool:
        """Adds the statistics, and steps if a step is due. Returns False as a call does."""
        if self.fused is not None:
            if due:
                self.before()
                self.fused.step(stats)
                self.after()
                self.clear()
            else:
                self.fused.count(stats)
            return True
        self._count(stats, slice(0, len(STATS)))
        self._count(1, len(STATS) + 1)
        if not due:
            return True
        if self.config.target_kl is not None:
            kl = stats[STATS.index("kl")]
            if self._on_device:
                self.stop.copy_(torch.maximum(self.stop, (kl > self.config.target_kl).float()))
            elif float(kl) > self.config.target_kl:
                self.clear()
                return False
        self._take()
        return True

    def rehearse(self, stats: Tensor) -> None:
        """Runs the host's part of `fused` (runtime/compile_ahead.py)."""
        assert self.fused is not None
        if self._accumulates:
            self.fused.count(stats)
        self.fused.step(stats)
        self.clear()

    def clear(self) -> None:
        """Clears the gradients after a step."""
        if self.flat is not None:
            self.flat.zero_()
        else:
            self.optimizer.zero_grad(set_to_none=not self._accumulates)

    def before(self) -> None:
        """Calls the hooks after gradients are summed and before they are clipped."""
        for hook in self.watching:
            hook.before_step()

    def after(self, taken: Tensor | None = None) -> None:
        """Calls the hooks after a step. taken: [] bool: whether the weights changed; None: yes, unless stopped."""
        for hook in self.watching:
            hook.after_step(self.stop == 0 if taken is None else taken)

    def _count(self, value: Tensor | int, at: int | slice) -> None:
        """Adds to the sums, unless the update is stopped."""
        self.sums[at] += torch.where(self.stop > 0, 0.0, value) if self._on_device else value

    def _take(self) -> None:
        """Scales the summed gradients to max_grad_norm and steps."""
        self.scaler.unscale_(self.optimizer)
        self.before()
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if self.config.max_grad_norm > 0:
            nn.utils.clip_grads_with_norm_(self.parameters, self.config.max_grad_norm, norm)
        if self.scaler.is_enabled():  # fp16: the scaler handles an overflow by skipping the step
            counted = norm.nan_to_num(0.0, 0.0, 0.0)
        else:
            counted = norm
        self._count(counted, len(STATS))
        self._count(1, len(STATS) + 2)
        if self._on_device and not self.scaler.is_enabled():
            self.stop.copy_(torch.maximum(self.stop, (~torch.isfinite(norm)).float()))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.after()
        self.clear()

    # ---- learning rate ----

    def set_rate(self, rate: float | Tensor) -> None:
        if isinstance(self.rate, Tensor):
            self.rate.copy_(rate) if isinstance(rate, Tensor) else self.rate.fill_(rate)
            return
        self.rate = float(rate)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate

    def adapt(self, before: Tensor) -> None:
        """Adapts the learning rate by the mean KL of the minibatches since the sums were `before`."""
        done = self.sums - before
        kl = done[STATS.index("kl")] / done[SUMS.index("minibatches")].clamp(min=1)
        rate = self.rate if isinstance(self.rate, Tensor) else torch.tensor(self.rate, dtype=torch.float64)
        self.set_rate(adapted(rate, kl, self.config.desired_kl))

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of optimizer, loss scaler and adaptive rate, without copying it."""
        optimizer = self.optimizer.state_dict()
        groups = [
            group | {"lr": self.config.learning_rate, **PORTABLE} for group in optimizer["param_groups"]
        ]
        rate = {"rate": self.rate} if self.adapts else {}
        return rate | {"optimizer": optimizer | {"param_groups": groups}, "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._check(state)
        here = {"lr": self.rate, "capturable": self._on_device, "fused": True}
        groups = [group | here for group in self.optimizer.state_dict()["param_groups"]]
        before = dict(self.optimizer.state)
        self.optimizer.load_state_dict(state["optimizer"] | {"param_groups": groups})
        for group in self.optimizer.param_groups:  # load_state_dict copies it, but we need our own tensor
            group["lr"] = self.rate
        if self.adapts and "rate" in state:
            self.set_rate(float(state["rate"]))
        self._stay(before)
        if state["scaler"] and self.scaler.is_enabled():
            self.scaler.load_state_dict(state["scaler"])

    def _check(self, state: dict[str, Any]) -> None:
        """Checks the state of optimizer, loss scaler and adaptive rate. Raises WrongState."""
        saved = entry(state, "optimizer")
        groups, moments = entry(saved, "param_groups", "optimizer."), entry(saved, "state", "optimizer.")
        if not isinstance(groups, list) or not isinstance(moments, dict):
            raise WrongState(
                "optimizer", "is not an optimizer's: expected a list param_groups and a dict state"
            )
        own = self.optimizer.param_groups
        parameters = [p for group in own for p in group["params"]]
        names = [kept(group) for group in own for _ in group["params"]]
        listed = [
            entry(group, "params", f"optimizer.param_groups[{number_}].")
            for number_, group in enumerate(groups)
        ]
        if listed != [group["params"] for group in self.optimizer.state_dict()["param_groups"]]:
            raise WrongState("optimizer.param_groups", f"is not of {len(parameters)} parameters")
        for index, of_one in moments.items():
            where = f"optimizer.state[{index!r}]."
            if type(index) is not int or not 0 <= index < len(parameters):
                raise WrongState(where.rstrip("."), f"belongs to none of {len(parameters)} parameters")
            shape = parameters[index].shape
            tensor(entry(of_one, "step", where), f"{where}step", ())
            for name in names[index]:
                tensor(entry(of_one, name, where), f"{where}{name}", shape)
        if "rate" in state:
            rate = state["rate"]
            number(float(rate) if isinstance(rate, Tensor) and rate.numel() == 1 else rate, "rate")
        scaler = entry(state, "scaler")
        if not isinstance(scaler, dict):
            raise WrongState("scaler", f"is a {type(scaler).__name__}, expected keys and values")
        for name, value in scaler.items():
            number(value, f"scaler.{name}")

    def _stay(self, before: dict[Tensor, dict[str, Tensor]]) -> None:
        """Copies the loaded state into the optimizer's former tensors (zeros for missing state), because CUDA graphs
        captured earlier use those."""
        for p, held in before.items():
            if not held:
                continue
            loaded = self.optimizer.state.get(p, {})
            for name, to in held.items():
                to.copy_(loaded[name]) if name in loaded else to.zero_()
            self.optimizer.state[p] = held
