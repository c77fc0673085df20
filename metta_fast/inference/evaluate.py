"""Evaluates a policy on episodes whose seeds it never trained on, beside the scripted and the random player.

    metta-fast eval runs/<name>                              # the newest checkpoint, 256 episodes
    metta-fast eval runs/<name> --best --deterministic --json
    metta-fast eval runs/<name>/checkpoints/step_000000123456 --episodes 64
    metta-fast eval runs/ant env.params.randomize.mass=1.2    # in a changed environment (changed_env.py)

Evaluation seeds have the top bit set; training seeds never do. Every environment plays one whole episode, so
long episodes count as much as short ones. All players play the same seeds.

Place in the flow: trainer.py calls `evaluate` between epochs; cli.py calls `run_eval_command`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from metta_fast.config.keys import Config, RunConfig, config_to_dict
from metta_fast.config.option_parser import OptionParser
from metta_fast.config.trust import (
    A_CALL,
    Given,
    add_code_arguments,
    check_code,
    check_typed,
    code_named,
    given_code,
)
from metta_fast.contracts.env import EVAL_SEED_BIT, EnvFactory, EnvSpec
from metta_fast.contracts.env_answers import scripted_player, unseen
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.player import Player
from metta_fast.contracts.printable import printable
from metta_fast.contracts.slab import slab_size
from metta_fast.envs import make_factory
from metta_fast.inference.changed_env import Changes, apply_changes, is_change
from metta_fast.inference.eval_table import table
from metta_fast.inference.players import Episodes, PolicyPlayer, RandomPlayer, play, sampled_or_likely
from metta_fast.inference.saved_state import policy_state, saved_config
from metta_fast.machine import hardware
from metta_fast.storage import checkpoint
from metta_fast.storage.checkpoint import Checkpoint
from metta_fast.storage.remote.cache import cached, is_remote
from metta_fast.storage.run_folder import RunDir, find_folders, runs

if TYPE_CHECKING:
    import torch

    from metta_fast.policy import Policy

MOST_EPISODES = 1_000_000
SCORE = "hearts"
"""The grid's score: hearts per agent and episode. Other environments are compared by their return."""


def evaluate(
    factory: EnvFactory,
    policy: Policy,
    *,
    device: torch.device,
    num_envs: int,
    seed: int,
    deterministic: bool | None,
    max_steps: int = 1000,
    check: Callable[[], None] | None = None,
) -> dict[str, float]:
    """Plays one episode in each of `num_envs` environments of the run's factory, on unseen seeds.

    The policy's weights and normalisers do not change. The training's random generators are not used.

    Args:
        deterministic: as for PolicyPlayer.
        check: called after each step; it may raise to end the evaluation.

    Returns:
        {"eval/return", "eval/length", "eval/<stat>" …}: means over agents.
    """
    player = PolicyPlayer(policy, factory.spec, device, deterministic=deterministic, seed=seed)
    training = policy.training
    policy.eval()
    try:
        episodes = play(factory, player, num_envs, seed=eval_seed(seed), max_steps=max_steps, check=check)
    finally:
        policy.train(training)
    return {f"eval/{name}": value for name, value in episodes.means().items() if not math.isnan(value)}


def eval_seed(seed: int) -> int:
    """Returns the environments' seed of an evaluation: one that no training uses."""
    return EVAL_SEED_BIT | seed


@dataclass(frozen=True)
class Standing:
    """Holds a player's results: means over agents, and the standard error of its score."""

    name: str
    means: dict[str, float]
    score: float
    error: float

    @classmethod
    def of(cls, name: str, episodes: Episodes) -> Standing:
        key = SCORE if SCORE in episodes.stats else "return"
        means = episodes.means()
        return cls(name, means, means[key], episodes.error(key))


def run_eval_command(words: Sequence[str], read: Callable[[list[str]], Changes]) -> int:
    """Runs `metta-fast eval`. Returns 0, or raises UserError.

    Args:
        read: reads words KEY=VALUE as `metta-fast train` does.
    """
    given = parser().parse_intermixed_args(words)
    changes = list(read([word for word in given.names if is_change(word)]))
    given.names = [word for word in given.names if not is_change(word)]
    if not 1 <= given.episodes <= MOST_EPISODES:
        raise UserError(f"--episodes {given.episodes}: expected 1 … {MOST_EPISODES}")
    if not 0 <= given.seed < EVAL_SEED_BIT:
        raise UserError(f"--seed {given.seed}: expected 0 … {EVAL_SEED_BIT - 1}")
    config, policy, device, found, factory = load_run(
        given.run, best=given.best, given=given_code(given), changes=changes
    )
    _use_all_cores()
    spec = factory.spec
    _check_memory(spec, given.episodes)
    trained = PolicyPlayer(policy, spec, device, deterministic=given.deterministic, seed=given.seed)
    given.deterministic = trained.deterministic
    players: dict[str, Player] = {"policy": trained}
    try:
        scripted = scripted_player(factory)
    except UserError as error:
        print(f"note: {printable(error)}", file=sys.stderr)
    else:
        if scripted is not None:
            players["scripted"] = scripted
    players["random"] = RandomPlayer(spec, given.seed)
    standings = []
    for name, player in players.items():
        how = f" of {sampled_or_likely(given.deterministic)}" if name == "policy" else ""
        print(f"{name}: {given.episodes} episodes{how} …", file=sys.stderr, flush=True)
        episodes = play(
            factory, player, given.episodes, seed=eval_seed(given.seed), max_steps=config.env.max_steps
        )
        if episodes.unfinished:
            print(f"note: {episodes.unfinished} agents' episodes did not end and were cut", file=sys.stderr)
        standings.append(Standing.of(name, episodes))
    result = _result(str(found.path), config, given, standings) | {"unseen": unseen(factory)}
    result["changes"] = dict(changes)
    print(json.dumps(result, indent=1) if given.json else printable(table(result)))
    return 0


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast eval",
        description="Play episodes whose seeds training never uses with a run's policy, and compare it with other "
        "players.",
    )
    found.add_argument("run", metavar="RUN", help="a run's folder, name or URL, or one of its checkpoints")
    found.epilog = (
        "KEY=VALUE changes the environment: env.params.…, env.kwargs.…, env.max_steps, env.limit_is_terminal."
    )
    found.add_argument(
        "--episodes", type=int, default=256, help="environments, one episode each (default: 256)"
    )
    how = found.add_mutually_exclusive_group()
    how.add_argument(
        "--deterministic",
        action="store_true",
        default=None,
        help="choose the most likely action (the default for continuous actions)",
    )
    how.add_argument(
        "--stochastic",
        dest="deterministic",
        action="store_false",
        default=None,
        help="sample actions (the default for discrete actions)",
    )
    found.add_argument(
        "--seed", type=int, default=0, help="seed of the environments (grids: of the maps) (default: 0)"
    )
    found.add_argument(
        "--best", action="store_true", help="use the checkpoint with the best score instead of the newest"
    )
    found.add_argument("--json", action="store_true", help="print JSON")
    add_code_arguments(found)
    return found


def _check_memory(spec: EnvSpec, episodes: int) -> None:
    """Raises UserError if so many environments do not fit into memory; that of Python environments is unknown."""
    one = spec.state_bytes + slab_size(spec, spec.agents_per_env)
    free = hardware.memory_free() or hardware.memory_limit()
    if one * episodes > free:
        raise UserError(
            f"--episodes {episodes}: about {one * episodes / hardware.GIB:.1f} GiB are needed, and "
            f"{free / hardware.GIB:.1f} are free; give at most --episodes {int(free // one)}"
        )


def _use_all_cores() -> None:
    import torch

    torch.set_num_threads(hardware.allowed_cores())


class LoadedRun(NamedTuple):
    """Holds a checkpoint's policy, configuration and environment factory."""

    config: Config
    policy: Policy
    device: torch.device
    """The policy's device."""
    checkpoint: Checkpoint
    factory: EnvFactory
    """Makes the run's environments."""


def load_run(
    name: str,
    *,
    best: bool,
    device: str | None = None,
    given: Given = A_CALL,
    changes: Changes = (),
) -> LoadedRun:
    """Loads a checkpoint's configuration and policy, and makes the factory of its environments.

    Args:
        name: a run's folder, a run's name in runs/, one of a run's checkpoints, or a run's address in remote storage.
        best: load the checkpoint with the best score instead of the newest.
        device: None: the training's device, or the CPU if this machine lacks it.
        given: what the user says about the code that the run names.
        changes: (key, value) that differ from the run's environment (changed_env.py).

    Raises:
        UserError: no such run or checkpoint, a damaged checkpoint, code that may not be imported, weights of another
            policy, or no such device.
    """
    found = find_checkpoint(name, best=best)
    config = saved_config(found)
    names = code_named(config_to_dict(config))
    check_typed(names, found.run, given)
    check_code(names, found.meta, found.run, given)
    apply_changes(config, changes)
    from metta_fast.policy import make_policy
    from metta_fast.policy.weights import load_weights

    place = _place(config, device)
    factory = make_factory(config.env)
    policy = make_policy(config.policy, factory.spec)
    cure = f"the code of policy.name={config.policy.name} or the environment has changed since the training"
    load_weights(policy, policy_state(found), f"{found.path / 'algorithm.pt'}", cure)
    return LoadedRun(config, policy.to(place).eval(), place, found, factory)


def _place(config: Config, device: str | None) -> torch.device:
    import torch

    from metta_fast.runtime.torch_setup import with_index

    if device is None:
        device = "cuda" if config.trainer.device == "cuda" and torch.cuda.is_available() else "cpu"
    try:
        return with_index(device)
    except (RuntimeError, AssertionError) as error:  # no such name; torch without CUDA asserts
        raise UserError(
            f"device={device}: {str(error).splitlines()[0].rstrip('.')}; give cpu, or cuda or cuda:N where there is a "
            "GPU"
        ) from error


def find_checkpoint(name: str, *, best: bool) -> Checkpoint:
    """Finds the checkpoint of `name`: a run's folder, a run's name in runs/, or a checkpoint.

    Raises:
        UserError: no such run or checkpoint, or a damaged checkpoint.
    """
    if is_remote(name):
        return _read(cached(name, "run", best=best, warn=_warn))
    path = next(find_folders(name, RunConfig().dir), None)
    if path is None:
        known = ", ".join(run.name for run in runs(RunConfig().dir)[:5]) or "none"
        raise UserError(
            f"no run or checkpoint {name}; give a folder. Newest runs in {RunConfig().dir}: {known}"
        )
    if checkpoint.STEP_NAME.fullmatch(path.resolve().name):
        if best:
            raise UserError(f"--best needs a run's folder, but {path} is a checkpoint; give the run's folder")
        path = path.resolve()
        if path.parent.name == "checkpoints":
            RunDir(path.parent.parent).check_links()
        return _read(path)
    run = RunDir(path)
    run.check_links()
    folder = run.checkpoints
    if best:
        highest = checkpoint.best([step for _, step in checkpoint.steps(folder)])
        if highest is None:
            raise UserError(f"{folder} holds no checkpoint with a score yet; leave out --best")
        return _read(highest)
    newest = checkpoint.latest(folder, _warn, ["algorithm"])
    if newest is None:
        raise UserError(f"{folder} holds no whole checkpoint; train the run further first")
    return newest


def _read(path: Path) -> Checkpoint:
    try:
        return checkpoint.read(path)
    except checkpoint.DamagedCheckpoint as error:
        raise UserError(f"damaged checkpoint: {error}; give another one, or the run's folder") from error


def _warn(text: str) -> None:
    print(f"warning: {printable(text)}", file=sys.stderr)


def _result(
    source: str, config: Config, given: argparse.Namespace, standings: Sequence[Standing]
) -> dict[str, Any]:
    """Returns what --json prints."""
    policy = standings[0]
    measure = SCORE if SCORE in policy.means else "return"
    others = [one for one in standings[1:] if math.isfinite(one.score) and one.score > 0]
    ratios = {one.name: policy.score / one.score for one in others}
    return {
        "checkpoint": source,
        "env": config.env.name,
        "episodes": given.episodes,
        "seed": given.seed,
        "deterministic": given.deterministic,
        "score": measure,
        "players": {one.name: {**_finite(one.means), "score_error": _number(one.error)} for one in standings},
        "policy_to": ratios,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}
