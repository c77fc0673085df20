"""Makes the environments that come with metta_fast, and your own in C.

Place in the flow: metta_fast.envs.make_factory looks env.factory up in `OURS`. To add an environment: a function here
that makes its factory, a line in `OURS`, one in `OWN_STEP_COST`, and configs/env/NAME.yaml.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.envs.registry.key_checks import check_observation

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig

GAMES = ("breakout", "cartpole", "snake")
"""Folders of envs/games: environments in C that come with metta_fast."""
ROBOT_KEYS = (
    *("task", "frame_skip", "on_unstable", "privileged", "xml_file", "preset", "njmax", "nconmax"),
    "randomize",
)
"""Keys of env.params that every robot has."""


def _grid(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.grid.config import grid_config
    from metta_fast.envs.grid.env import GridFactory
    from metta_fast.envs.grid.names import OBSERVATIONS

    check_observation(config, tuple(OBSERVATIONS))
    keys_of_env = {
        "num_agents": config.agents_per_env,
        "observation": config.observation,
        "max_steps": config.max_steps,
        "limit_is_terminal": config.limit_is_terminal,
    }
    params = _params(config, *keys_of_env)
    known = [key for key in inspect.signature(grid_config).parameters if key not in keys_of_env]
    _check_params("grid", params, known)
    try:
        return GridFactory(**keys_of_env, **params)
    except UserError as error:
        raise UserError(
            f"{error} (the grid's keys are env.params.…; num_agents is env.agents_per_env)"
        ) from error


def _counter(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.counter import CounterFactory

    params = _params(config, "agents_per_env", "max_steps", "limit_is_terminal")
    _check_params("counter", params, ("goal", "dtype"))
    return CounterFactory(
        agents_per_env=config.agents_per_env,
        max_steps=config.max_steps,
        limit_is_terminal=config.limit_is_terminal,
        **params,
    )


def _robot(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.robot.env import RobotFactory, find_task

    if config.agents_per_env != 1:
        raise UserError(f"env.agents_per_env={config.agents_per_env}: a robot is one agent, give 1")
    params = _params(config, "num_envs", "max_steps", "limit_is_terminal")
    task = find_task(params.get("task", "ant"))
    _check_params("robot", params, (*ROBOT_KEYS, *task.options))
    robot = RobotFactory(max_steps=config.max_steps, limit_is_terminal=config.limit_is_terminal, **params)
    if not config.image.cameras:
        if unseen := robot.randomize.of_pictures():
            raise UserError(
                f"{unseen[0]} changes pictures alone, and there are none: give env.image.cameras=[NAME] (this robot's "
                f"model has {', '.join(robot.model.cameras) or 'no camera'}), or leave it out"
            )
        return robot
    from metta_fast.envs.robot.camera.factory import CameraFactory

    image = {name: value for name, value in vars(config.image).items() if name != "cameras"}
    return CameraFactory(robot, tuple(config.image.cameras), renderer=config.renderer, **image)


def _c(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.c_env.folder import folder_factory

    if not config.path:
        raise UserError(
            "env.factory=c makes an environment of your own in C: give its folder, env.path=./my_env"
        )
    return folder_factory(config.path, **_c_keys(config))


def _game(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.c_env.folder import folder_factory

    return folder_factory(Path(__file__).parents[1] / "games" / config.factory, **_c_keys(config))


def _c_keys(config: EnvConfig) -> dict[str, Any]:
    """Returns the keys of an environment in C, with its own parameters."""
    keys = {
        "agents_per_env": config.agents_per_env,
        "max_steps": config.max_steps,
        "limit_is_terminal": config.limit_is_terminal,
    }
    if config.observation != "default":
        raise UserError(
            f"env.observation={config.observation}: environments in C have one observation; leave it out"
        )
    return keys | _params(config, *keys)


def _check_params(name: str, params: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in params:
        if key not in known:
            raise UserError(
                f"env.params.{key}: {name} has no such key; {did_you_mean(key, known)}"
                f"It has {', '.join(known)}"
            )


def _params(config: EnvConfig, *taken: str) -> dict[str, Any]:
    """Returns env.params. Refuses names that are keys of env."""
    for key in taken:
        if key in config.params:
            cure = "agents_per_env" if key == "num_agents" else key
            raise UserError(f"env.params.{key} is set; give env.{cure}={config.params[key]} instead")
    return dict(config.params)


OURS: dict[str, Callable[[EnvConfig], EnvFactory]] = {"grid": _grid, "counter": _counter, "robot": _robot}
OURS |= dict.fromkeys(GAMES, _game) | {"c": _c}
OWN_STEP_COST = {"grid": "cheap", "counter": "cheap", "robot": "medium"} | dict.fromkeys(GAMES, "cheap")
"""The class of step time (env.step_cost) of each of our environments."""


def is_ours(config: EnvConfig) -> bool:
    """Returns whether the environment comes with metta_fast, so that configs/ has values tuned for it. Those of any
    other are derived (metta_fast/resolve/derived/defaults.py)."""
    return config.factory in OWN_STEP_COST
