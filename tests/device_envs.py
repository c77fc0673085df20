"""Small environments in plain torch, batched on any device: the second tenant of contracts/device_vector.py.

    factory = TorchFactory("pendulum", autoreset="same_step")
    vec = factory.make_device_vector(64, torch.device("cpu"), first_env=0, total_envs=64)

    pendulum   box action, episodes end by their time limit alone
    cart-pole  discrete, or heads=True two unequal heads; episodes end by a fall or their time limit

Dynamics are those of Gymnasium's Pendulum-v1 and CartPole-v1. A training names one by
env.factory=tests.device_envs:pendulum or tests.device_envs:cart_pole; env.params holds the options.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from metta_fast.contracts.device_vector import DeviceRows, DeviceVector, check_buffers
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf

MIX = (-0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)
"""Odd 64-bit constants of splitmix64, as signed numbers."""
STATE = ("state", "steps", "episode", "ended", "fresh")
"""What a snapshot holds of each environment."""


def shifted(x: Tensor, bits: int) -> Tensor:
    """x >> bits of int64 as if it were unsigned."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def uniform(seed: Tensor, ids: Tensor, episode: Tensor, draws: int) -> Tensor:
    """[N, draws] float32 in [0, 1), keyed by (seed [1], ids [N], episode [N]): splitmix64."""
    x = (seed + ids * MIX[0]) * MIX[1] + episode * MIX[2]
    x = x.unsqueeze(1) + torch.arange(1, draws + 1, device=ids.device) * MIX[0]
    x = (x ^ shifted(x, 30)) * MIX[1]
    x = (x ^ shifted(x, 27)) * MIX[2]
    return shifted(x ^ shifted(x, 31), 40).float() / (1 << 24)


class TorchVector(DeviceVector):
    """Steps N environments of one agent each; see the contract for who writes what.

    Attributes:
        illegal: [] int64, how many illegal actions were stepped.
        resets: how often async_reset was called.
    """

    size: int
    """Numbers of a state."""

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        device: torch.device,
        first_env: int,
        total_envs: int,
        capturable: bool,
    ) -> None:
        self.spec, self.device, self.capturable = spec, device, capturable
        self.num_envs = self.num_agents = num_envs
        self.first_env, self.total_envs = first_env, total_envs
        self.ids = torch.arange(first_env, first_env + num_envs, device=device)
        self.seed = torch.zeros(1, dtype=torch.int64, device=device)
        self.state = torch.zeros(num_envs, self.size, device=device)
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.episode = torch.zeros_like(self.steps)
        self.ended, self.fresh = (torch.zeros(num_envs, dtype=torch.bool, device=device) for _ in range(2))
        self.illegal = torch.zeros((), dtype=torch.int64, device=device)
        self.resets = 0
        self._ready = False
        self._same_step = spec.autoreset == "same_step"

    # ---- what an environment is ----

    def spawn(self) -> Tensor:
        """[N, size] the first states of the present episodes."""
        raise NotImplementedError

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """action [N, W] → next states [N, size], reward [N], terminated [N]."""
        raise NotImplementedError

    def look(self) -> Tensor:
        """[N, numbers] the observation of the present states."""
        raise NotImplementedError

    def legal(self) -> Tensor:
        """[N, P] bool: the legal choices of the present states."""
        raise NotImplementedError

    # ---- the contract ----

    @property
    def ready(self) -> bool:
        return self._ready

    def attach(self, buffers: DeviceRows) -> None:
        check_buffers(buffers, self.num_agents, self.device)
        self.buffers = buffers
        self._ready = False

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        self.seed.fill_(seed - (1 << 64) if seed >> 63 else seed)
        self.episode.zero_()
        self.steps.copy_(self.ids * self.spec.max_steps // self.total_envs if stagger else 0 * self.steps)
        self.ended.fill_(False)
        self.fresh.fill_(True)
        self.state.copy_(self.spawn())
        self.resets += 1
        self._ready = True
        self._show(self.buffers.horizon)

    def step_row(self, t: int) -> None:
        b, action = self.buffers, self.buffers.given_actions(t)
        live = ~self.ended
        if self.spec.action_mask:
            self.illegal += (self._chosen(action) & ~self.legal()).any(-1).mul(live).sum()
        state, reward, fell = self.advance(action)
        steps = self.steps + 1
        b.reward[t].copy_(torch.where(live, reward, 0.0))
        b.terminal[t].copy_(fell & live)
        b.truncation[t].copy_((steps >= self.spec.max_steps) & live)
        done = b.terminal[t] | b.truncation[t]
        b.stats[t, :, 0].copy_(torch.where(done, steps, 0))
        self.state.copy_(torch.where(live.unsqueeze(1), state, self.state))
        self.steps.copy_(torch.where(live, steps, self.steps))
        if self._same_step:
            if b.final_obs is not None:
                self._write(b.final_obs, self.look())
            self._restart(done)
        else:
            self._restart(self.ended)
            self.ended.copy_(done)
        self._show(t + 1)

    def _restart(self, which: Tensor) -> None:
        """New episodes for `which` [N]."""
        self.episode += which
        self.steps.masked_fill_(which, 0)
        self.fresh.copy_(which)
        self.state.copy_(torch.where(which.unsqueeze(1), self.spawn(), self.state))

    def _chosen(self, action: Tensor) -> Tensor:
        """[N, P] bool: the choices made."""
        heads = [
            action[:, i, None] == torch.arange(n, device=self.device)
            for i, n in enumerate(self.spec.action.nvec)
        ]
        return torch.cat(heads, -1)

    def _write(self, leaves: dict[str, Tensor], seen: Tensor) -> None:
        """seen [N, numbers] into one leaf, or cut into several in order."""
        at = 0
        for name, leaf in self.spec.obs.items():
            leaves[name].copy_(seen[:, at : at + leaf.shape[0]])
            at += leaf.shape[0]

    def _show(self, t: int) -> None:
        b = self.buffers
        self._write({name: leaf[t] for name, leaf in b.obs.items()}, self.look())
        b.mask[t].copy_(~self.ended)
        b.reset[t].copy_(self.fresh)
        if b.action_mask is not None:
            b.action_mask[t].copy_(self.legal() & ~self.ended.unsqueeze(1))  # a masked row has none

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        copies, seed = {name: getattr(self, name).clone() for name in STATE}, self.seed.clone()

        def state() -> dict[str, Any]:
            return {name: copy.cpu().numpy() for name, copy in copies.items()} | {"seed": int(seed)}

        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["state"].shape != tuple(self.state.shape):
            raise ValueError(f"state is {state['state'].shape}, expected {tuple(self.state.shape)}")
        for name in STATE:
            getattr(self, name).copy_(torch.from_numpy(state[name]))
        self.seed.fill_(state["seed"])
        self._ready = True
        self._show(self.buffers.horizon)

    def close(self) -> None:
        pass


class Pendulum(TorchVector):
    """State [angle, speed]; see Gymnasium's Pendulum-v1."""

    size = 2
    leaves = (("angle", 2), ("speed", 1))

    def spawn(self) -> Tensor:
        angle, speed = (uniform(self.seed, self.ids, self.episode, 2) * 2 - 1).unbind(1)
        return torch.stack([angle * math.pi, speed], 1)

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, speed = self.state.unbind(1)
        torque = action[:, 0].clamp(-2, 2)
        turn = (angle + math.pi) % (2 * math.pi) - math.pi
        reward = -(turn.square() + 0.1 * speed.square() + 0.001 * torque.square())
        speed = (speed + (15 * angle.sin() + 3 * torque) * 0.05).clamp(-8, 8)
        return torch.stack([angle + speed * 0.05, speed], 1), reward, torch.zeros_like(self.ended)

    def look(self) -> Tensor:
        angle, speed = self.state.unbind(1)
        return torch.stack([angle.cos(), angle.sin(), speed], 1)


class CartPole(TorchVector):
    """State [x, speed, angle, turn]; see Gymnasium's CartPole-v1. With heads: direction (2) × strength (3).

    Masks: beyond |x| = 0.1 it may not push outwards; a pole that falls faster than 1 rad/s wants the full strength.
    """

    size = 4
    leaves = (("cart", 2), ("pole", 2))

    def spawn(self) -> Tensor:
        return uniform(self.seed, self.ids, self.episode, 4) * 0.1 - 0.05

    def advance(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, speed, angle, turn = self.state.unbind(1)
        force = 20.0 * action[:, 0] - 10.0
        if action.shape[1] == 2:
            force = force * (1 + action[:, 1]) / 3
        sin, cos = angle.sin(), angle.cos()
        push = (force + 0.05 * turn.square() * sin) / 1.1
        bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
        slide = push - 0.05 * bend * cos / 1.1
        state = torch.stack(
            [x + 0.02 * speed, speed + 0.02 * slide, angle + 0.02 * turn, turn + 0.02 * bend], 1
        )
        fell = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 12 * 2 * math.pi / 360)
        return state, torch.ones_like(x), fell

    def look(self) -> Tensor:
        return self.state

    def legal(self) -> Tensor:
        x, _, _, turn = self.state.unbind(1)
        heads = [x > -0.1, x < 0.1]
        if len(self.spec.action.nvec) == 2:
            gentle = turn.abs() < 1
            heads += [gentle, gentle, torch.ones_like(gentle)]
        return torch.stack(heads, 1)


KINDS: dict[str, type[TorchVector]] = {"pendulum": Pendulum, "cart-pole": CartPole}


class TorchFactory:
    """Makes one of KINDS on the learner's device; contracts/device_vector.py: DeviceFactory."""

    def __init__(
        self,
        kind: str,
        *,
        max_steps: int = 50,
        autoreset: str = "next_step",
        final_obs: bool = True,
        several: bool = False,
        masks: bool = False,
        heads: bool = False,
        capturable: bool = True,
    ) -> None:
        """several: observation leaves. heads, masks: of cart-pole."""
        self.kind, self.capturable = KINDS[kind], capturable
        leaves = self.kind.leaves if several else (("obs", sum(n for _, n in self.kind.leaves)),)
        box = ActionSpec("box", low=(-2.0,), high=(2.0,))
        self.spec = EnvSpec(
            kind,
            agents_per_env=1,
            obs={name: Leaf((n,), "float32") for name, n in sorted(leaves)},
            action=box if kind == "pendulum" else ActionSpec("discrete", (2, 3) if heads else (2,)),
            stats=("steps",),
            max_steps=max_steps,
            has_final_obs=final_obs,
            cheap_state=True,
            stagger=True,
            autoreset=autoreset,
            action_mask=masks,
            device_rows=True,
        )

    def make_device_vector(
        self, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> TorchVector:
        return self.kind(self.spec, num_envs, device, first_env, total_envs, self.capturable)


def pendulum(config: Any) -> TorchFactory:
    """For env.factory=tests.device_envs:pendulum."""
    return TorchFactory("pendulum", max_steps=config.max_steps, **config.params)


def cart_pole(config: Any) -> TorchFactory:
    """For env.factory=tests.device_envs:cart_pole."""
    return TorchFactory("cart-pole", max_steps=config.max_steps, **config.params)
