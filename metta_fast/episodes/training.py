"""Writes pages of episodes during training: `replays/step_<number>.html` every `run.replay_interval` epochs.

The weights are copied into a second policy on the CPU, which plays one episode in evaluation mode on an unseen map
(the same as `metta-fast replay`, with the evaluations' seed). The training's weights, environments and random
generators are not touched, so training is bit-identical with and without these pages.

Place in the flow: run/trainer.py calls `write_replay` between epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from metta_fast.config.keys import Config
from metta_fast.contracts.env import EVAL_SEED_BIT, EnvFactory
from metta_fast.episodes.html import write_page
from metta_fast.episodes.record import about, record
from metta_fast.inference.players import PolicyPlayer, sampled_or_likely
from metta_fast.storage.run_folder import RunDir

if TYPE_CHECKING:
    from metta_fast.policy import Policy

_NAME = re.compile(r"step_\d{12,}\.html")


def write_replay(
    config: Config,
    factory: EnvFactory,
    policy: Policy,
    folder: RunDir,
    step: int,
    check: Callable[[], None] | None = None,
) -> Path:
    """Records an episode and writes its page; only the newest `run.keep_replays` of these pages are kept.

    Args:
        factory: the run's factory.
        policy: the policy in training, on any device.
        step: agent steps trained so far.
        check: called after each step; it may raise to end the episode, and no page is written.

    Raises:
        OSError: the page cannot be written.
        EnvError, UserError: the environment failed.
    """
    import torch

    from metta_fast.policy import make_policy

    with torch.random.fork_rng(devices=[]):  # initial weights are drawn and then replaced
        copy = make_policy(config.policy, factory.spec)
    copy.load_state_dict({name: value.detach().cpu() for name, value in policy.state_dict().items()})
    likely, given = config.run.evaluate_deterministic, config.run.evaluate_seed
    seed = config.seed if given is None else given
    player = PolicyPlayer(copy.eval(), factory.spec, torch.device("cpu"), deterministic=likely, seed=seed)
    name = f"step_{step:012d}"
    recording = record(
        factory,
        player,
        seed=EVAL_SEED_BIT | seed,
        max_steps=config.env.max_steps,
        about=about(
            config,
            folder.checkpoints / name,
            player=sampled_or_likely(player.deterministic),
            seed=seed,
            episode=0,
        ),
        check=check,
    )
    folder.replays.mkdir(exist_ok=True)
    path = folder.replays / f"{name}.html"
    write_page(recording, path)
    _prune(folder.replays, config.run.keep_replays)
    return path


def _prune(folder: Path, keep: int) -> None:
    """Deletes all but the `keep` newest pages; pages of `metta-fast replay` have other names and are kept."""
    pages = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    for path in sorted(pages, key=lambda path: (path.stat().st_mtime_ns, path.name))[:-keep]:
        path.unlink()
