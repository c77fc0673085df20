"""Writes rows from environments whose tensors are on the learner's device: nothing goes through the host.

    Buffers' action[t] ─► Source.step ─► Buffers' reward[t], terminal[t], truncation[t], row t+1, final_obs

Place in the flow: factory.py makes one over a source of torch_source.py or in_jax/source.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from metta_fast.contracts.env import EnvSpec
from metta_fast.envs.batched.base_vector import BatchedVector
from metta_fast.envs.batched.torch_source import Source, Step, leaf_of
from metta_fast.envs.spaces import FieldError, Part


class TensorVector(BatchedVector):
    """Drives a Source. parts: the leaves that it gives, without a mask; mask: the leaf that is the action mask."""

    def __init__(
        self,
        spec: EnvSpec,
        source: Source,
        parts: tuple[Part, ...],
        num_envs: int,
        device: torch.device,
        first_env: int,
        total_envs: int,
        mask: Part | None = None,
    ) -> None:
        super().__init__(spec, num_envs, device, first_env, total_envs)
        self.source, self.parts, self.mask, self.sums = source, parts, mask, source.sums
        self.ended = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._next_step = spec.autoreset == "next_step"
        self._kept = hasattr(source, "state")
        """Whether the environments' state can be saved."""
        self._held: Any = None
        """What the environments gave last. JAX would write into this memory again while our copies still read it; the
        next step waits for them."""

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        obs = self._guard(self._restart, seed, stagger)
        self.ended.fill_(False)
        self._ready, self._held = True, obs
        b = self.buffers
        b.mask[b.horizon].fill_(True)
        b.reset[b.horizon].fill_(True)
        self._show(b.horizon, obs)

    def _restart(self, seed: int, stagger: bool) -> Any:
        return self.source.reset(seed, stagger=stagger)

    def step_row(self, t: int) -> None:
        b = self.buffers
        found: Step = self._guard(self.source.step, b.given_actions(t))
        reward, terminal, truncation = (
            self._numbers("rewards", found.reward),
            self._numbers("terminations", found.terminal),
            self._numbers("truncations", found.truncation),
        )
        if self._next_step:
            live = ~self.ended
            b.reward[t].copy_(torch.where(live, reward, 0.0))
            b.terminal[t].copy_(terminal & live)
            b.truncation[t].copy_(truncation & live)
            b.reset[t + 1].copy_(self.ended)
            torch.logical_or(b.terminal[t], b.truncation[t], out=self.ended)
            b.mask[t + 1].copy_(~self.ended)
        else:
            b.reward[t].copy_(reward)
            b.terminal[t].copy_(terminal)
            b.truncation[t].copy_(truncation)
            if found.begins is None or found.waiting is None:
                torch.logical_or(b.terminal[t], b.truncation[t], out=b.reset[t + 1])
                b.mask[t + 1].fill_(True)
            else:
                b.reset[t + 1].copy_(found.begins)
                torch.logical_not(found.waiting, out=b.mask[t + 1])
            if b.final_obs is not None:
                self._write_final(found, b.final_obs, b.terminal[t], b.truncation[t])
        self._show(t + 1, found.obs)
        self._held = found

    def _numbers(self, name: str, value: Any) -> Tensor:
        if not isinstance(value, Tensor) or value.shape != (self.num_envs,):
            given = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            self._guard(_refuse, f"{name} are {given}, expected a tensor [{self.num_envs}]")
        return value  # type: ignore[no-any-return]

    def _show(self, t: int, obs: Any) -> None:
        b = self.buffers
        self._write(self.parts, obs, {name: leaf[t] for name, leaf in b.obs.items()})
        if b.action_mask is not None and self.mask is not None:
            legal = self._guard(leaf_of, self.mask, obs, self.num_envs, self.device)
            b.action_mask[t].copy_(legal.view(self.num_envs, -1).bool() | ~b.mask[t].unsqueeze(1))

    def _write(self, parts: tuple[Part, ...], obs: Any, to: Mapping[str, Tensor]) -> None:
        for part in parts:
            to[part.name].copy_(self._guard(leaf_of, part, obs, self.num_envs, self.device))

    def _write_final(
        self, found: Step, to: Mapping[str, Tensor], terminal: Tensor, truncation: Tensor
    ) -> None:
        if found.final is not None:
            self._write(self.parts, found.final, to)
        elif bool((terminal | truncation).any()):
            self._guard(
                _refuse,
                "an episode ended and info has no 'final_obs' or 'final_observation'; give it, or say "
                "metadata['has_final_obs'] = False",
            )

    def _found_notes(self) -> dict[str, str]:
        return self.source.notes

    # ---- states: of sources that have one ----

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        if not self._kept:
            return super().snapshot()
        b, t = self.buffers, self.buffers.horizon
        rows = {name: leaf[t].clone() for name, leaf in b.obs.items()}
        others = {"reset": b.reset[t].clone(), "mask": b.mask[t].clone()}
        if b.action_mask is not None:
            others["action_mask"] = b.action_mask[t].clone()
        wait = self.source.state()  # type: ignore[attr-defined]

        def state() -> dict[str, Any]:
            saved = {name: leaf.cpu().numpy() for name, leaf in rows.items()}
            kept = {name: array.cpu().numpy() for name, array in others.items()}
            return {"obs": saved, **kept, "source": wait()}

        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not self._kept:
            super().load_state_dict(state)
        if len(state["reset"]) != self.num_envs:
            raise ValueError(f"a state of {len(state['reset'])} environments, expected {self.num_envs}")
        self.source.load_state(state["source"])  # type: ignore[attr-defined]
        b = self.buffers
        for name, leaf in b.obs.items():
            leaf[b.horizon].copy_(torch.from_numpy(state["obs"][name]))
        b.reset[b.horizon].copy_(torch.from_numpy(state["reset"]))
        if b.action_mask is not None:
            b.action_mask[b.horizon].copy_(torch.from_numpy(state["action_mask"]))
        b.mask[b.horizon].copy_(torch.from_numpy(state["mask"]))
        self.ended.fill_(False)
        self._ready = True

    def _close(self) -> None:
        self._held = None
        self.source.close()


def _refuse(text: str) -> None:
    raise FieldError(text)
