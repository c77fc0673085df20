"""Updates in C are torch's, up to rounding: weights, targets, moments, temperature and sums."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.algorithms.sac.c.sac_update import CUpdate
from metta_fast.algorithms.sac.kind import SACKind, TD3Kind
from metta_fast.algorithms.sac.learner import Learner
from metta_fast.contracts.env import ActionSpec
from tests.run.same import same
from tests.sac.test_losses import BOX, made, run

WIDE_BOX = ActionSpec("box", low=(-1.0,) * 19, high=(1.0,) * 19)
FREE = ActionSpec("box", low=(-float("inf"),) * 3, high=(float("inf"),) * 3)
NEAR = 1e-4
"""Between weights after updates that move them by some hundredths."""


def both(
    kind: Any,
    action: ActionSpec = BOX,
    *,
    threads: int = 2,
    wide: bool = True,
    policy: Any = None,
    **own: Any,
):
    """Two learners that are equal, the second one in C."""
    plain = made(kind, action, **own, **({"policy": policy} if policy else {}))[0]
    in_c = made(kind, action, **own, **({"policy": policy} if policy else {}))[0]
    in_c.instead = CUpdate(in_c, threads=threads, wide=wide)
    return plain, in_c


def compare(plain: Learner, in_c: Learner, count: int = 12) -> None:
    run(plain, count)
    run(in_c, count)
    torch.testing.assert_close(in_c.sums, plain.sums, rtol=1e-4, atol=1e-4)
    ours, theirs = in_c.state_dict(), plain.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        if name.endswith("optimizer"):
            for a, b in zip(ours[name], theirs[name]):
                assert a.keys() == b.keys()
                for key in a:
                    torch.testing.assert_close(a[key], b[key], rtol=1e-3, atol=NEAR)
        elif name != "updates":
            for key, value in ours[name].items():
                torch.testing.assert_close(
                    value, theirs[name][key], rtol=1e-3, atol=NEAR, msg=f"{name} {key}"
                )
    assert in_c.updates == plain.updates


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize(
    ("kind", "action", "own"),
    [
        (SACKind(), BOX, {}),
        (SACKind(), BOX, {"n_step": 3, "critics": 3, "critic_layers": 1}),
        (SACKind(), WIDE_BOX, {"target_entropy": None, "actor_delay": 2, "critic_width": 70}),
        (SACKind(), FREE, {"policy": {"squash": False}}),
        (SACKind(), BOX, {"policy": {"state_std": False, "activation": "tanh", "hidden_size": 50}}),
        (SACKind(), BOX, {"policy": {"activation": "elu", "normalize_obs": True}, "critic_layers": 3}),
        (TD3Kind(), BOX, {"actor_delay": 2}),
        (TD3Kind(), FREE, {"policy": {"squash": False}, "critics": 1}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_it_is_torchs_update(kind, action, own, wide) -> None:
    plain, in_c = both(kind, action, wide=wide, **own)
    if plain.policy.normalizer is not None:
        for learner in (plain, in_c):
            learner.policy.normalizer.shift.fill_(0.3)
            learner.policy.normalizer.scale.fill_(1.7)
    compare(plain, in_c)


@pytest.mark.parametrize("wide", [True, False])
def test_the_number_of_threads_changes_no_bit(wide) -> None:
    one, three = both(SACKind(), threads=3, wide=wide)
    one.instead = CUpdate(one, threads=1, wide=wide)
    run(one, 8)
    run(three, 8)
    same(one.state_dict(), three.state_dict())


def test_it_goes_on_after_torchs_updates_and_a_load() -> None:
    plain, in_c = both(SACKind())
    in_c.instead, kept = None, in_c.instead
    run(in_c, 4, epoch=5)
    run(plain, 4, epoch=5)
    in_c.instead = kept
    compare(plain, in_c, 4)
    state = copy.deepcopy(plain.state_dict())
    for learner in (plain, in_c):
        run(learner, 3, epoch=9)
        learner.load_state_dict(state)
    compare(plain, in_c, 6)


def test_masked_rows_and_a_reward_factor() -> None:
    plain, in_c = both(SACKind())
    for learner in (plain, in_c):
        learner._factor = torch.tensor(0.25)
        learner.replay.mask[::3] = False
    compare(plain, in_c)
    for learner in (plain, in_c):
        learner.replay.mask.fill_(False)
    run(in_c, 2)
    assert all(torch.isfinite(p).all() for p in in_c.critics.parameters())


def test_a_number_that_is_not_finite_is_found() -> None:
    _, in_c = both(SACKind())
    in_c.replay.reward.fill_(torch.nan)
    run(in_c, 2)
    assert not torch.isfinite(in_c.sums[0])


def test_a_hook_that_looks_at_gradients_gets_them() -> None:
    plain, in_c = both(SACKind())
    seen: list[float] = []

    class Looks:
        def due(self, epoch: int) -> bool:
            return True

        def begin(self, context: Any) -> None: ...

        def before_step(self) -> None:
            seen.append(
                sum(float(p.grad.square().sum()) for p in in_c.policy.parameters() if p.grad is not None)
            )

        def after_step(self, taken: torch.Tensor) -> None: ...

    in_c.watching = [Looks()]
    compare(plain, in_c, 4)
    assert len(seen) == 4
    assert min(seen) > 0


def test_too_many_updates_are_refused() -> None:
    _, in_c = both(SACKind())
    rates = dict.fromkeys(("rate", "beta1", "beta2", "epsilon"), 0.5)
    with pytest.raises(ValueError, match="99 updates, expected at most 4"):
        in_c.instead._own.run(99, 0, 0, 0, 0, 0, 0, 0, 0, rates, np.zeros(3), np.zeros(7))
