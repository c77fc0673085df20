"""Compares the presets of robots on the GPU with each other, under random actions and under trained policies.

    python -m tests.robot.gpu.presets --robots ant hopper                            # random actions
    python -m tests.robot.gpu.presets --runs learnt/runs/ant-fast-recipe-0           # that run's policy, sampled
    python -m tests.robot.gpu.presets --robots ant --device cuda --robots-at-once 4096

A preset is a change of the model (envs/robot/warp/presets.py), so that MuJoCo itself can step it on the CPU: without
--device cuda that is what happens, in doubles. With it, MuJoCo Warp steps. Each row: episodes that end in 1000 steps,
reward of a step, metres along x in a second, each with its standard error over robots; the 5%, 50% and 95% quantile of
rewards; and the most constraints (nefc) and contacts (ncon) that one robot had at once, beside what room.py gives.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.warp.presets import PRESETS, apply
from metta_fast.envs.robot.warp.room import room_for
from tests.robot.gpu.evaluation import OURS

ROBOTS = ("ant", "half_cheetah", "hopper", "walker2d", "humanoid")
PLAIN = {name: {"include_cfrc_ext_in_observation": False} for name in ("ant", "humanoid")}
"""Options as in the recipes."""
LOOKED_AT = 8
"""On the CPU, every so many-th robot's physics is stepped once more, substep by substep, for nefc and ncon."""


class Case(NamedTuple):
    """A robot with its options, and who acts."""

    robot: str
    options: dict[str, Any]
    actor: str
    act: Callable[[Array], Array]
    """Observations [n, obs] → actions [n, nu]."""


class Stepper(Protocol):
    """Steps all robots at once; each that ended begins again with the next call."""

    obs: Array
    reward: Array
    ended: Array
    begins: Array
    """Whether the last step only began an episode."""

    def step(self, action: Array) -> None: ...

    def x(self) -> Array:
        """Returns the first number of qpos, of each robot."""
        ...

    def most(self) -> tuple[int, int]:
        """Returns the most constraints and contacts of one robot so far."""
        ...


def changed_model(path: str, preset: str, folder: Path) -> tuple[str, int]:
    """Writes the model as the preset changes it. Returns the file and the substeps in place of one."""
    import mujoco

    spec = mujoco.MjSpec.from_file(path)
    change = apply(SimpleNamespace(opt=spec.option), preset)
    spec.compile()
    file = folder / f"{Path(path).stem}_{preset}.xml"
    file.write_text(spec.to_xml())
    return str(file), change.substeps


class OnCpu:
    """Steps the changed model with MuJoCo."""

    def __init__(self, case: Case, preset: str, count: int, seed: int, folder: Path) -> None:
        import mujoco

        own = RobotFactory(case.robot, **case.options)
        file, substeps = changed_model(own.model.path, preset, folder)
        self.factory = RobotFactory(
            case.robot, **case.options | {"xml_file": file, "frame_skip": own.frame_skip * substeps}
        )
        assert abs(self.factory.step_s - own.step_s) < 1e-9
        self.batch = self.factory.make_batch(0, count, count)
        self.rows = new_rows(self.factory.spec, count)
        self.batch.bind(self.rows)
        self.batch.reset(seed)
        self._mujoco, self._model = mujoco, mujoco.MjModel.from_xml_path(file)
        self._data = mujoco.MjData(self._model)
        self._most = np.zeros(2, int)
        self._count = count

    def step(self, action: Array) -> None:
        for i in range(0, self._count, LOOKED_AT):
            self._look(i, action[i])
        self.rows.action[:] = action
        self.batch.step()

    def _look(self, i: int, action: Array) -> None:
        state, model, data = self.batch.physics(i), self._model, self._data
        self._mujoco.mj_setState(model, data, state, self._mujoco.mjtState.mjSTATE_INTEGRATION)
        data.ctrl[:] = action
        for _ in range(self.factory.frame_skip):
            self._mujoco.mj_step(model, data)
            self._most = np.maximum(self._most, (data.nefc, data.ncon))

    @property
    def obs(self) -> Array:
        return self.rows.obs["obs"]

    @property
    def reward(self) -> Array:
        return self.rows.reward

    @property
    def ended(self) -> Array:
        return self.rows.terminal | self.rows.truncation

    @property
    def begins(self) -> Array:
        return self.rows.reset

    def x(self) -> Array:
        return np.array([self.batch.get_state(i)[0][0] for i in range(self._count)])

    def most(self) -> tuple[int, int]:
        return int(self._most[0]), int(self._most[1])


class OnWarp:
    """Steps the model with MuJoCo Warp."""

    def __init__(self, case: Case, preset: str, count: int, seed: int, device: str) -> None:
        import torch

        from metta_fast.buffers.rollout import Buffers

        self.factory = RobotFactory(case.robot, **case.options | {"preset": preset})
        place = torch.device(device, 0) if device == "cuda" else torch.device(device)
        self.vec: Any = self.factory.make_device_vector(count, place, 0, count)
        self._b = Buffers.allocate(
            self.vec.spec, num_agents=count, horizon=1, bptt_horizon=1, state_shape=(0, 0), device=place
        )
        self._b.env_action = torch.zeros_like(self._b.action[0])
        self.vec.attach(self._b)
        self.vec.async_reset(seed)
        self._torch, self._most, self._count = torch, np.zeros(2, int), count
        self._read()

    def step(self, action: Array) -> None:
        b = self._b
        for rows in (*b.obs.values(), b.mask, b.reset):
            rows[0].copy_(rows[1])
        given = self._torch.from_numpy(np.ascontiguousarray(action, np.float32))
        b.action[0].copy_(given)
        b.given_actions(0).copy_(given)
        self.vec.step_row(0)
        self._read()
        data = self.vec.physics.simulation.data
        contacts = data.contact.worldid.numpy()[: int(data.nacon.numpy()[0])]
        each = np.bincount(contacts, minlength=1).max() if len(contacts) else 0
        self._most = np.maximum(self._most, (int(data.nefc.numpy().max()), int(each)))

    def _read(self) -> None:
        b = self._b
        self.obs, self.reward = b.obs["obs"][1].cpu().numpy(), b.reward[0].cpu().numpy()
        self.ended = (b.terminal[0] | b.truncation[0]).cpu().numpy()
        self.begins = b.reset[1].cpu().numpy()

    def x(self) -> Array:
        qpos: Array = self.vec.physics.arrays["qpos"][:, 0].cpu().numpy()
        return qpos

    def most(self) -> tuple[int, int]:
        return int(self._most[0]), int(self._most[1])


def measure(case: Case, made: Stepper, steps: int, step_s: float) -> dict[str, Any]:
    """Returns the figures of a case."""
    before, rewards, ends, speeds, used = made.x(), [], [], [], []
    for _ in range(steps):
        made.step(case.act(made.obs))
        now, begins = made.x(), made.begins.copy()
        used.append(~begins)
        rewards.append(made.reward.copy())
        ends.append(made.ended.copy())
        speeds.append(np.where(begins, 0, (now - before) / step_s))
        before = now
    mask = np.stack(used)

    def figure(values: list[Array], scale: float = 1.0) -> list[float]:
        """Mean over robots of each one's mean, and its standard error."""
        each = scale * (np.stack(values) * mask).sum(0) / mask.sum(0)
        return [float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5)]

    all_rewards = np.stack(rewards)[mask]
    nefc, ncon = made.most()
    return {
        "steps": int(mask.sum()),
        "ends": figure(ends, 1000),
        "reward": figure(rewards),
        "speed": figure(speeds),
        "quantiles": [float(q) for q in np.quantile(all_rewards, (0.05, 0.5, 0.95))],
        "nefc": nefc,
        "ncon": ncon,
    }


def random_case(robot: str, seed: int) -> Case:
    options = PLAIN.get(robot, {})
    action, rng = RobotFactory(robot, **options).spec.action, np.random.default_rng(seed)
    low, high = np.array(action.low), np.array(action.high)
    return Case(robot, options, "random", lambda obs: rng.uniform(low, high, (len(obs), len(low))))


def policy_case(run: Path, seed: int) -> Case:
    """Returns the case of a run's policy, with sampled actions as in training."""
    import torch

    import metta_fast
    from metta_fast.inference.evaluate import load_run

    torch.set_num_threads(1)
    config = load_run(str(run), best=False, device="cpu")[0]
    options = {name: value for name, value in config.env.params.items() if name not in OURS}
    policy = metta_fast.load_policy(run, seed=seed, device="cpu")
    return Case(config.env.params["task"], options, run.name, lambda obs: policy.act(obs.astype(np.float32)))


def row(case: Case, preset: str, found: dict[str, Any], room: tuple[int, int]) -> str:
    def shown(figure: list[float]) -> str:
        return f"{figure[0]:.3g} ± {figure[1]:.2g}"

    quantiles = ", ".join(f"{q:.2f}" for q in found["quantiles"])
    cells = [case.robot, case.actor, preset, found["steps"], shown(found["ends"]), shown(found["reward"])]
    cells += [
        quantiles,
        shown(found["speed"]),
        f"{found['nefc']} of {room[0]}",
        f"{found['ncon']} of {room[1]}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the presets of robots on the GPU.")
    parser.add_argument("--robots", nargs="*", default=[], help="under random actions")
    parser.add_argument("--runs", nargs="*", type=Path, default=[], help="folders of runs: their policies")
    parser.add_argument("--presets", nargs="+", default=list(PRESETS), choices=PRESETS)
    parser.add_argument("--robots-at-once", type=int, default=64)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--device", choices=["mujoco", "cpu", "cuda"], default="mujoco", help="cpu, cuda: Warp's"
    )
    parser.add_argument("--out", type=Path, help="a file for the figures, a line of JSON for each row")
    given = parser.parse_args()
    makers: list[Callable[[int], Case]] = [
        lambda seed, robot=robot: random_case(robot, seed) for robot in given.robots
    ]  # type: ignore[misc]
    makers += [lambda seed, run=run: policy_case(run, seed) for run in given.runs]  # type: ignore[misc]
    print(
        "| robot | actions | preset | steps | ends in 1000 steps | reward | 5%, 50%, 95% | m/s along x | nefc | ncon |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for make in makers:
            for preset in given.presets:
                case = make(given.seed)
                own = RobotFactory(case.robot, **case.options)
                count, seed = given.robots_at_once, given.seed
                made: Stepper = (
                    OnCpu(case, preset, count, seed, Path(folder))
                    if given.device == "mujoco"
                    else OnWarp(case, preset, count, seed, given.device)
                )
                found = measure(case, made, given.steps, own.step_s)
                print(row(case, preset, found, room_of(own, preset)), flush=True)
                if given.out:
                    line = {"robot": case.robot, "actions": case.actor, "preset": preset, **found}
                    with open(given.out, "a") as file:
                        file.write(json.dumps(line | {"device": given.device}) + "\n")


def room_of(factory: RobotFactory, preset: str) -> tuple[int, int]:
    """Returns the constraints and contacts that a robot has room for on the GPU by default."""
    import mujoco

    mjm = mujoco.MjModel.from_xml_path(factory.model.path)
    apply(mjm, preset)
    return room_for(mjm)


if __name__ == "__main__":
    main()
