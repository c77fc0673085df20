"""Tests the plug-in interface, with prioritized replay as an example."""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

import metta_fast.features as features
from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.config import extension
from metta_fast.config.extension import FEATURES
from metta_fast.contracts.errors import UserError
from metta_fast.features import make_features
from metta_fast.features.prioritized_replay import UNIT, draw, inclusion, probabilities
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_rollout import weights

ROOT = Path(__file__).parents[2]


def test_the_loop_imports_no_feature() -> None:
    for file in [*(ROOT / "metta_fast/algorithms").rglob("*.py"), ROOT / "metta_fast/run/trainer.py"]:
        assert not re.search(r"^\s*(from|import) metta_fast\.features", file.read_text(), re.M), file


def test_all_off_is_the_bare_learner() -> None:
    bare = weights(run(make_ppo(tickers(4)), 2))
    for off in (
        {},
        {"prioritized_replay": None},
        {"prioritized_replay": False},
        {"prioritized_replay": {"prio_alpha": 0.0}},
        {"contrastive": {"coef": 0}, "reward_centering": False, "kickstart": None},
        {"profiler": {"interval_epochs": 0}, "weight_analysis": {"interval_epochs": 0}},
    ):
        hooks = make_features(off)
        assert hooks == Hooks()
        assert torch.equal(bare, weights(run(make_ppo(tickers(4), hooks=hooks), 2)))


def test_an_unnamed_feature_is_not_imported() -> None:
    ours = [f"metta_fast.features.{name}" for name in (*features.OURS, "gradient_stats", "every")]
    held = {name: sys.modules.pop(name) for name in ours if name in sys.modules}
    try:
        make_features({})
        assert not set(ours) & set(sys.modules)
    finally:
        sys.modules.update(held)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"priority_replay": {}}, r"features\.priority_replay.*did you mean 'prioritized_replay'"),
        ({"prioritized_replay": {"prio_alfa": 1}}, r"prio_alfa.*did you mean 'prio_alpha'"),
        ({"prioritized_replay": {"prio_alpha": -1}}, "from 0 to 100"),
        ({"prioritized_replay": {"prio_beta": 2}}, "from 0 to 1"),
        ({"prioritized_replay": {"prio_floor": 0}}, "from 0.001 to 1"),
        ({"prioritized_replay": 3}, "expected its keys"),
        ({"profiler": {"interval_epochs": -1}}, "at least 0"),
        ({"profiler": {"interval_epochs": 2.5}}, "whole number"),
        ({"profiler": {"trace_epochs": 0}}, "at least 1"),
        ({"profiler": {"sync": 1}}, "true or false"),
        ({"weight_analysis": {"interval_epochs": True}}, "whole number"),
        ({"reward_centering": {"rate": 0}}, "from 1e-06 to 1"),
        ({"reward_centering": {"rate": True}}, "expected a number"),
        ({"contrastive": {"coef": -1}}, "from 0 to"),
        ({"contrastive": {"temperature": 0}}, "from 0.001"),
        ({"contrastive": {"distance": 0.5}}, "from 1 to"),
        ({"contrastive": {"pairs": 1}}, "at least 2"),
        ({"contrastive": {"module": 3}}, "expected the name of a module"),
        ({"kickstart": True}, r"features\.kickstart\.teachers=.*give features\.kickstart\.teachers=runs"),
        ({"kickstart": {"teachers": "nonesuch"}}, "teachers='nonesuch': no such folder"),
        ({"kickstart": {"teachers": ["tests", "tests"]}}, "named twice"),
        ({"kickstart": {"teachers": {"tests": -1}}}, "from 0 to"),
        ({"kickstart": {"teachers": "tests", "until": 0}}, r"until=0: expected a number from 1e-06"),
        ({"kickstart": {"teachers": 3}}, "expected a run or checkpoint"),
    ],
)
def test_mistakes_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_features(given)


def plug_in(hooks: Hooks, *, figure: float = 1.0) -> None:
    hooks.on_epoch.append(lambda context: {"mine/figure": figure})


def test_a_feature_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", f"{__name__}:plug_in", FEATURES)
    monkeypatch.setattr(extension, "entry_points", lambda group: [point] if group == FEATURES else [])
    ppo = run(make_ppo(tickers(2), hooks=make_features({"mine": {"figure": 7.0}})), 1)
    assert ppo.metrics()["mine/figure"] == 7.0


HERE = f"{__name__}:plug_in"


def test_a_feature_by_module_and_name() -> None:
    ppo = run(make_ppo(tickers(2), hooks=make_features({HERE: {"figure": 3.0}})), 1)
    assert ppo.metrics()["mine/figure"] == 3.0
    for off in (None, False):
        assert make_features({HERE: off}) == Hooks()
    assert len(make_features({HERE: True}).on_epoch) == 1


NOT_A_FUNCTION = 3


def needs(hooks: Hooks, *, coef: float) -> None: ...


def breaks(hooks: Hooks) -> None:
    raise ZeroDivisionError("by nothing")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"no_such_module:add": True}, r"features=no_such_module:add: .*there is no module 'no_such_module'"),
        ({f"{__name__}:plug_inn": True}, r"has no plug_inn; did you mean 'plug_in'"),
        ({f"{__name__}:NOT_A_FUNCTION": True}, "is int, expected a function or class"),
        ({f"{__name__}:": True}, "expected package.module:function"),
        ({HERE: {"figur": 1}}, r"plug_in\.figur: unknown key; did you mean 'figure'"),
        ({HERE: 3}, "expected its keys"),
        ({f"{__name__}:needs": True}, r"needs a value for coef; give features\..*needs\.coef=…"),
        ({f"{__name__}:breaks": True}, r"breaks failed: ZeroDivisionError: by nothing \(.*\.py:\d+\)"),
    ],
)
def test_mistakes_in_ones_own_feature_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_features(given)


def test_probabilities() -> None:
    """Σ|A| of each segment to the power α, in the order segment · agents + agent."""
    ppo = make_ppo(tickers(2), horizon=4, bptt=2, minibatches=1)
    ppo.rollout.vec.close()
    ppo.buffers.advantage.copy_(torch.tensor([[1.0, -2.0], [1.0, 2.0], [0.0, 9.0], [0.0, 0.0]]))
    assert probabilities(ppo.buffers, 1.0).tolist() == pytest.approx([2 / 15, 4 / 15, 0, 9 / 15], abs=1e-6)
    assert probabilities(ppo.buffers, 0.5).tolist() == pytest.approx(
        [x / (2**0.5 + 2 + 3) for x in (2**0.5, 2, 0, 3)], abs=1e-3
    )


def sums(*values: float) -> torch.Tensor:
    return torch.tensor(values)


SKEWED = sums(10.0, 0.1, 0.1, 0.1)
MIXED = torch.rand(9, generator=torch.Generator().manual_seed(3)) ** 6
ZEROS = sums(0.0, 0.0, 3.0, 1e-9, 2.0, 0.0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 9])
@pytest.mark.parametrize("sizes", [SKEWED, MIXED, ZEROS, sums(0.0, 0.0, 0.0)])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
def test_weighted_draws_are_unbiased(count: int, sizes: torch.Tensor, alpha: float) -> None:
    """At β = 1: E of the sum over the drawn of weight · |A| / count is |A| / N, by 1e5 draws, for any number drawn."""
    n, draws = len(sizes), 100_000
    if count > n:
        return
    ppo = make_ppo(tickers(n), horizon=2, bptt=2, minibatches=1)
    ppo.rollout.vec.close()
    ppo.buffers.advantage.zero_()
    ppo.buffers.advantage[0].copy_(sizes)
    chance = inclusion(probabilities(ppo.buffers, alpha, 0.1), count)
    assert float(chance.double().sum()) / UNIT == pytest.approx(count, abs=1e-9)
    segments = draw(chance.expand(draws, n), count, torch.Generator().manual_seed(count))
    assert (segments.sort(-1).values.diff(dim=-1) > 0).all(), "a segment drawn twice"
    drawn = torch.bincount(segments.flatten(), minlength=n)
    weight = count / (n * chance.double() / UNIT)
    found, spread = drawn / draws * weight / count, (chance.double() / UNIT * draws).rsqrt()
    assert ((found - 1 / n).abs() <= 5 * spread / n).all()
    assert float(weight.max()) <= 10.0 * (1 + 1e-6)
    if count == n:
        assert (found == 1 / n).all()


def test_the_issue_of_four_segments() -> None:
    """|A| = 10, .1, .1, .1, two of four: the expected contributions are the uniform mean, 2.5 and .025."""
    chance = inclusion(0.9 * SKEWED.double() / SKEWED.sum() + 0.1 / 4, 2).double() / UNIT
    assert chance.tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    contribution = chance * (2 / (4 * chance)) * SKEWED / 2
    assert contribution.tolist() == pytest.approx([2.5, 0.025, 0.025, 0.025])


def test_draws_of_the_feature() -> None:
    ppo = make_ppo(tickers(2), horizon=4, bptt=2, minibatches=1)
    ppo.rollout.vec.close()
    ppo.buffers.advantage.copy_(torch.tensor([[1.0, -2.0], [1.0, 2.0], [0.0, 9.0], [0.0, 0.0]]))
    given = {"prio_alpha": 1.0, "prio_beta": 0.0, "prio_floor": 0.2}
    sample = make_features({"prioritized_replay": given}).sample
    assert sample is not None
    shares = [0.8 * x / 15 + 0.05 for x in (2, 4, 0, 9)]
    drawn: Counter[int] = Counter()
    for update in range(2000):
        context = Context(ppo.buffers, seed=0, epoch=1, progress=1.0, update=update, segments=1)
        segments, weight = sample(context)
        drawn[segments.tolist()[0]] += 1
        assert weight is not None
        assert float(weight[0]) == pytest.approx(1 / (4 * shares[segments.tolist()[0]]), rel=1e-4)
    assert [drawn[i] / 2000 for i in range(4)] == pytest.approx(shares, abs=0.04)
    start = sample(Context(ppo.buffers, seed=0, epoch=1, progress=0.0, segments=2)).weight
    assert start is not None
    assert start.tolist() == [1.0, 1.0]


def test_a_run_with_it_is_repeatable() -> None:
    given = {"prioritized_replay": {"prio_alpha": 0.6}}
    a, b = (weights(run(make_ppo(tickers(4), hooks=make_features(given)), 2)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, weights(run(make_ppo(tickers(4)), 2)))
