"""Evaluates a run's policy from a Python program: `metta-fast eval` as a function.

metta_fast.evaluate("runs/first", episodes=100, seed=100)       # {"return": …, "return_error": …, "length": …}
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from metta_fast.config.trust import given_in_call
from metta_fast.contracts.env import EVAL_SEED_BIT
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import no_silent_exit
from metta_fast.inference.evaluate import eval_seed, load_run
from metta_fast.inference.players import PolicyPlayer, play


def evaluate(
    run: str | PathLike[str],
    *,
    episodes: int = 256,
    seed: int = 0,
    deterministic: bool | None = None,
    best: bool = False,
    device: str | None = None,
    trust: bool = False,
    changes: Mapping[str, Any] | None = None,
    **code: Any,
) -> dict[str, float]:
    """Plays whole episodes with a run's policy, on seeds that no training uses.

    Args:
        run: a run's folder, a run's name in runs/, or one of a run's checkpoints.
        episodes: environments, which play one episode each.
        seed: of the first environment.
        deterministic: True: the most likely action; False: a sample; None: the most likely of continuous actions, a
            sample of discrete ones.
        best, device, trust, code: as for `load_policy`.
        changes: keys of the environment that differ from the run's, as {"env.params.randomize.mass": 1.2}.

    Returns:
        Means over agents: "return", its standard error "return_error", "length", and the environment's statistics.

    Raises:
        UserError: an argument out of range, or what `load_policy` raises.
    """
    if episodes < 1:
        raise UserError(f"episodes={episodes}: expected at least 1")
    if not 0 <= seed < EVAL_SEED_BIT:
        raise UserError(f"seed={seed}: expected 0 … {EVAL_SEED_BIT - 1}")
    given = given_in_call(trust, code)
    with no_silent_exit():
        config, policy, place, _, factory = load_run(
            str(run), best=best, device=device, given=given, changes=(changes or {}).items()
        )
        player = PolicyPlayer(policy, factory.spec, place, deterministic=deterministic, seed=seed)
        played = play(factory, player, episodes, seed=eval_seed(seed), max_steps=config.env.max_steps)
    return {name: value for name, value in played.means().items() if value == value} | {
        "return_error": played.error("return")
    }
