"""`metta-fast replay`: plays an episode with a run's policy and shows it as page, in the terminal, video or picture.

metta-fast replay runs/<name>                                # writes a page into the run's folder
metta-fast replay runs/<name> --terminal --seed 3 --episode 7
metta-fast replay runs/<name> --player scripted --video scripted.gif
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metta_fast.config.keys import Config
from metta_fast.config.option_parser import OptionParser
from metta_fast.config.trust import add_code_arguments, given_code
from metta_fast.contracts.env import EVAL_SEED_BIT, EnvFactory
from metta_fast.contracts.env_answers import scripted_player
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.player import Player
from metta_fast.contracts.printable import one_line, printable
from metta_fast.contracts.recording import Recording
from metta_fast.episodes.html import write_page
from metta_fast.episodes.mettascope import check_mettascope, write_mettascope
from metta_fast.episodes.record import about, record
from metta_fast.episodes.terminal import FASTEST, show_in_terminal
from metta_fast.episodes.video import check_picture, check_video, has_encoder, write_picture, write_video
from metta_fast.episodes.views import world_frames
from metta_fast.inference.evaluate import load_run
from metta_fast.inference.players import PolicyPlayer, RandomPlayer, sampled_or_likely
from metta_fast.machine.installation import install_extra
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.run_identity import home
from metta_fast.storage.user_files import check_output, user_path

if TYPE_CHECKING:
    import torch

    from metta_fast.policy import Policy

FPS = 10.0
"""Steps per second in the terminal, and in videos of worlds without a time unit."""
MOST_EPISODES = 1_000_000
NO_PICTURES = (
    "has no pictures: the page plots observation, action, reward and value. For pictures, let the maker give "
    'environments with render_mode="rgb_array": gymnasium.make("…", render_mode="rgb_array")'
)


def run_replay_command(words: Sequence[str]) -> int:
    """Runs `metta-fast replay` and returns 0.

    Raises:
        UserError: an option is wrong, the run cannot be loaded, or a file cannot be written.
    """
    given = parser().parse_intermixed_args(words)
    _check(given)
    config, policy, device, found, factory = load_run(
        given.run, best=given.best, device="cpu", given=given_code(given)
    )
    source = found.path
    files = _files(given, source)
    player, how = _player(given, config, factory, policy, device)
    print(printable(source))
    print(
        f"{one_line(config.env.name)}: episode {given.episode} of seed {given.seed}, unseen in training; {how}",
        flush=True,
    )
    recording = record(
        factory,
        player,
        seed=EVAL_SEED_BIT | given.seed,
        episode=given.episode,
        max_steps=config.env.max_steps,
        about=about(config, source, player=how, seed=given.seed, episode=given.episode),
    )
    if recording.world.kind == "none":
        print(f"note: {one_line(config.env.name)} {NO_PICTURES}", file=sys.stderr)
    print(printable(summary(recording)))
    for name, path, write in files:
        try:
            write(recording, path)
        except OSError as error:
            raise UserError(f"--{name} {path} cannot be written: {error.strerror or error}") from error
        print(f"{name}: {printable(path)}")
        if name == "html" and recording.world.kind == "frames" and not has_encoder():
            size = path.stat().st_size / 1e6
            print(
                f"note: {printable(path.name)} holds {size:.1f} MB of single pictures; PyAV would make it a film of a "
                f"tenth of the size: {install_extra('video')}",
                file=sys.stderr,
            )
    if given.terminal:
        _show(recording, given)
    return 0


def summary(recording: Recording) -> str:
    """Formats `1000 steps, 4 agents; means per agent: return 3.14, hearts 3, …`."""
    figures = {"return": recording.returns()[-1], **recording.stats}
    means = [f"{name} {np.mean(x):.3g}" for name, x in figures.items() if not np.isnan(x).any()]
    agents = f"{recording.agents} agent{'s' * (recording.agents > 1)}"
    return f"{recording.steps} steps, {agents}; means per agent: {', '.join(means)}"


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command's options."""
    found = OptionParser(
        prog="metta-fast replay",
        description="Record one episode on an unseen map and show it. Without --html, --terminal, --video, "
        "--picture, --json and --mettascope, a page is written into the run's folder: replays/<checkpoint>-….html.",
    )
    add = found.add_argument
    add("run", metavar="RUN", help="a run's folder or name, or one of its checkpoints")
    add("--html", metavar="FILE", type=user_path, help="write the page to this file")
    add("--terminal", action="store_true", help="play it in the terminal; in a pipe, print every step")
    add("--video", metavar="FILE", type=user_path, help="write a video: .gif or .mp4")
    add("--picture", metavar="FILE", type=user_path, help="write a still picture: .png or .jpg")
    add("--json", metavar="FILE", type=user_path, help="write the recording as data (see docs/replay.md)")
    add(
        "--mettascope",
        metavar="FILE",
        type=user_path,
        help="write a replay for MettaGrid's viewer: .json.z (env=mettagrid and the grid)",
    )
    add("--seed", type=int, default=0, help="seed of the map and of sampled actions (default: 0)")
    add(
        "--episode",
        type=int,
        default=0,
        help="number of the map among the seed's, counted as in eval (default: 0)",
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
    add(
        "--player",
        choices=("policy", "scripted", "random"),
        default="policy",
        help="player: the run's policy (the default), the environment's scripted player, or random actions",
    )
    add("--best", action="store_true", help="use the checkpoint with the best score, not the newest")
    add("--fps", type=float, help="steps per second in terminal and video (default: 10; robots in real time)")
    add(
        "--step",
        type=int,
        help="terminal: first step shown (in a pipe, the only one); picture: its step (default: the middle)",
    )
    add("--agent", type=int, help="terminal: the agent to highlight")
    add_code_arguments(found)
    return found


def _check(given: argparse.Namespace) -> None:
    """Checks the options before anything is loaded. Raises UserError."""
    for name, low, high in (
        ("seed", 0, EVAL_SEED_BIT - 1),
        ("episode", 0, MOST_EPISODES - 1),
        ("fps", 0.1, FASTEST),
        ("step", 0, None),
        ("agent", 0, None),
    ):
        value = getattr(given, name)
        if value is None:
            continue
        if not low <= value or (high is not None and value > high):
            limits = f"{low} or more" if high is None else f"{low} … {high}"
            raise UserError(f"--{name} {value}: expected {limits}")
        if name == "step" and not (given.terminal or given.picture):
            raise UserError("--step needs a terminal or a picture: add --terminal or --picture FILE")
        if name == "agent" and not given.terminal:
            raise UserError("--agent needs the terminal: add --terminal")
    for name in ("html", "video", "picture", "json", "mettascope"):
        if (path := getattr(given, name)) is not None:
            check_output(path, f"--{name} {path}")
    if given.video is not None:
        check_video(given.video)
    if given.picture is not None:
        check_picture(given.picture)
    if given.mettascope is not None:
        check_mettascope(given.mettascope)


Write = Callable[[Recording, Path], None]


def _files(given: argparse.Namespace, source: Path) -> list[tuple[str, Path, Write]]:
    """Lists (option, file, function that writes it) of all files asked for; by default a page in the run's folder."""
    found: list[tuple[str, Path, Write]] = []
    if given.html is not None:
        found.append(("html", given.html, write_page))
    if given.video is not None:
        found.append(("video", given.video, partial(_write_video, fps=given.fps)))
    if given.picture is not None:
        found.append(("picture", given.picture, partial(_write_picture, step=given.step)))
    if given.json is not None:
        found.append(("json", given.json, _write_json))
    if given.mettascope is not None:
        found.append(("mettascope", given.mettascope, write_mettascope))
    if found or given.terminal:
        return found
    run = home(source)
    if run is None:
        raise UserError(f"{source} is not in a run's folder: name the page's file with --html FILE")
    folder = run.replays
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {folder}: {error.strerror}; give --html FILE") from error
    who = "" if given.player == "policy" else f"-{given.player}"
    how = {None: "", True: "-deterministic", False: "-stochastic"}[given.deterministic]
    path = folder / f"{source.name}-seed{given.seed}-episode{given.episode}{who}{how}.html"
    check_output(path, f"the page {path}")
    return [("html", path, write_page)]


def _write_json(recording: Recording, path: Path) -> None:
    with whole(path) as beside:
        recording.save(beside)


def _write_video(recording: Recording, path: Path, fps: float | None) -> None:
    frames, every = world_frames(recording)
    write_video(path, frames, (fps or _pace(recording)) / every)


def _write_picture(recording: Recording, path: Path, step: int | None) -> None:
    frames, every = world_frames(recording)
    wanted = recording.steps // 2 if step is None else _step(recording, step)
    for number, frame in enumerate(frames):
        if number == wanted // every:
            write_picture(path, frame)
            return


def _pace(recording: Recording) -> float:
    """Returns the steps per second: real time if the world has a time unit, else FPS."""
    step_s = recording.world.facts.get("step_s")
    return 1 / step_s if step_s else FPS


def _step(recording: Recording, step: int) -> int:
    if step > recording.steps:
        raise UserError(f"--step {step}: the episode has {recording.steps} steps")
    return step


def _player(
    given: argparse.Namespace, config: Config, factory: EnvFactory, policy: Policy, device: torch.device
) -> tuple[Player, str]:
    """Makes the player, and describes it."""
    if given.player == "random":
        return RandomPlayer(factory.spec, given.seed), "random player"
    if given.player == "scripted":
        scripted = scripted_player(factory)
        if scripted is None:
            raise UserError(
                f"--player scripted: the environment {config.env.name} has no scripted player; give --player policy "
                "or random"
            )
        return scripted, "scripted player"
    player = PolicyPlayer(policy, factory.spec, device, deterministic=given.deterministic, seed=given.seed)
    return player, sampled_or_likely(player.deterministic)


def _show(recording: Recording, given: argparse.Namespace) -> None:
    if given.step is not None:
        _step(recording, given.step)
    if given.agent is not None and given.agent >= recording.agents:
        raise UserError(f"--agent {given.agent}: agents are 0 … {recording.agents - 1}")
    show_in_terminal(recording, fps=given.fps or FPS, step=given.step, agent=given.agent)
