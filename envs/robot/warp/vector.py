"""Writes rows from robots on MuJoCo Warp straight into Buffers (metta_fast/contracts/device_vector.py).

    vec = WarpVector(RobotFactory("ant"), 4096, torch.device("cuda", 0), first_env=0, total_envs=4096)

Resets are next-step. An episode's start depends on (seed, global env id, episode) alone; the steps in it agree with
MuJoCo on the CPU in distribution, and on a GPU two runs differ in the last bits, because sums are made in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from metta_fast.contracts.device_vector import DeviceRows
from metta_fast.contracts.env import EnvError
from metta_fast.envs.batched.base_vector import BatchedVector
from metta_fast.envs.robot.warp.draw.rows import Seen
from metta_fast.envs.robot.warp.engine import OVERFLOW, UNSTABLE, Engine, Launches
from metta_fast.envs.robot.warp.how import how_of
from metta_fast.envs.robot.warp.physics import Physics, what_was_lost
from metta_fast.envs.robot.warp.robot import Robot
from metta_fast.envs.robot.warp.simulation import STATE

MOST_FORWARDS = 640
"""Evaluations of the physics in a rollout up to which its graph is captured with the policy's. Each is about a hundred
kernels, which take Warp 2 ms to launch once; a row's own graphs cost 65 µs more than one for all rows."""


class WarpVector(BatchedVector):
    """Steps num_envs robots on one device. Short rollouts are `capturable`: physics, its solver's loop and rules become
    nodes of their graph.

    Raises:
        UserError: MuJoCo Warp does not support the model.
        CompileError: the task's header does not compile for this GPU.
    """

    def __init__(
        self,
        factory: Robot,
        num_envs: int,
        device: torch.device,
        first_env: int,
        total_envs: int,
        seen: Seen | None = None,
    ) -> None:
        """seen: pictures in the rows; None: none."""
        super().__init__(seen.spec if seen else factory.spec, num_envs, device, first_env, total_envs)
        self.factory = factory
        drawn = seen.drawn if seen else None
        self.physics = Physics(how_of(factory, drawn, looks=seen is not None), num_envs, device)
        self._pictures = seen.rows(self.physics) if seen else None
        self._waits = seen is not None and drawn is None
        self.engine = Engine(factory, self.physics, first_env, total_envs)
        self._seed = 0
        self._steps: list[Launches] = []
        self._looks: list[Callable[[], None]] = []

    def attach(self, buffers: DeviceRows) -> None:
        super().attach(buffers)
        few = buffers.horizon * self.physics.simulation.forwards <= MOST_FORWARDS
        self.capturable = few and not self._waits
        self._steps = [self.engine.at(buffers, t) for t in range(buffers.horizon)]
        self._staggered = self.engine.staggered(buffers)
        self._looks = (
            [self._pictures.at(buffers, t) for t in range(buffers.horizon)] if self._pictures else []
        )

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        self.engine.set_seed(seed)
        self._seed = seed
        launches = self._staggered if stagger else self._steps[-1]
        launches.first()
        self.physics.forward()
        launches.begin()
        self._look(-1)
        self._ready = True

    def step_row(self, t: int) -> None:
        launches = self._steps[t]
        launches.act()
        self.physics.step()
        launches.step()
        self.physics.forward()
        launches.begin()
        self._look(t)

    def _look(self, t: int) -> None:
        """Draws what cameras see into the row after t."""
        if self._looks:
            self._looks[t]()

    def notes(self) -> list[str]:
        """Returns what happened since the last call, each once. Waits for the device; called once an epoch.

        Raises:
            EnvError: a simulation became unstable, and on_unstable=stop.
        """
        found = self.engine.robots[:, [OVERFLOW, UNSTABLE]].cpu().numpy()
        if not found.any():
            return super().notes()
        self.engine.robots[:, [OVERFLOW, UNSTABLE]] = 0
        broken = np.flatnonzero(found[:, 1])
        if broken.size and self.factory.on_unstable == "stop":
            raise EnvError(
                f"{self._where(broken)}: the simulation became unstable. It stops here because of "
                "env.params.on_unstable=stop; `reset` would end the episode and go on",
                self.first_env + int(broken[0]),
            )
        self._lost = int(np.bitwise_or.reduce(found[:, 0]))
        self._worlds, self._broken = np.flatnonzero(found[:, 0]), broken
        return super().notes()

    _lost, _worlds, _broken = 0, np.zeros(0, np.int64), np.zeros(0, np.int64)

    def _found_notes(self) -> dict[str, str]:
        notes = {
            f"preset{i}": f"{self.spec.name}: {text}" for i, text in enumerate(self.physics.simulation.notes)
        }
        if self.physics.compiled.note:
            notes["compiled"] = (
                f"kernels were compiled one after another, which is slow: {self.physics.compiled.note}"
            )
        if self._lost:
            room = f"njmax={self.physics.how.njmax}, nconmax={self.physics.how.nconmax} for each environment"
            for words in what_was_lost(self._lost):
                notes[words] = (
                    f"{self._where(self._worlds)}: more {words} than there is room for ({room}). The simulation goes "
                    "on, less exact; steps in which it happens are counted in env/warnings. Give a greater number"
                )
        if self._broken.size:
            notes["unstable"] = (
                f"{self._where(self._broken)}: the simulation became unstable. The episode ends there; later ones are "
                "counted in env/unstable. env.params.on_unstable=stop ends the run instead"
            )
        return notes

    def _where(self, worlds: Any) -> str:
        others = f" and {len(worlds) - 1} others" if len(worlds) > 1 else ""
        return f"environment {self.first_env + int(worlds[0])}{others} ({self.spec.name})"

    # ---- states ----

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        b, t = self.buffers, self.buffers.horizon
        parts = {f"physics/{name}": self.physics.arrays[name].clone() for name in STATE}
        parts |= {name: tensor.clone() for name, tensor in self.engine.state().items()}
        parts |= {name: leaf[t].clone() for name, leaf in b.obs.items()}
        parts |= {"mask": b.mask[t].clone(), "reset": b.reset[t].clone()}
        seed = self._seed

        def state() -> dict[str, Any]:
            return {"seed": seed, **{name: tensor.cpu().numpy() for name, tensor in parts.items()}}

        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        b, t = self.buffers, self.buffers.horizon
        places = {f"physics/{name}": self.physics.arrays[name] for name in STATE}
        places |= self.engine.state()
        places |= {name: leaf[t] for name, leaf in b.obs.items()} | {"mask": b.mask[t], "reset": b.reset[t]}
        for name, place in places.items():
            if name not in state or state[name].shape != tuple(place.shape):
                found = state[name].shape if name in state else "missing"
                raise ValueError(
                    f"state: {name} is {found}, expected {tuple(place.shape)}: it was saved with another robot, on "
                    "another device or with another number of environments"
                )
        for name, place in places.items():
            place.copy_(torch.from_numpy(state[name]))
        self.engine.set_seed(int(state["seed"]))
        self._seed = int(state["seed"])
        self.engine.redraw()
        self._ready = True

    def close(self) -> None:
        """Ends what draws, and leaves the memory to Python. May be called twice."""
        if self._pictures:
            self._pictures.close()
