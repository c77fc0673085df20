"""Tests the ladder: one change at a time from one setting exactly to the other; its results and its table."""

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.bench.main import main
from metta_fast.bench.sizing import interval_cost
from metta_fast.bench.training.ablate import (
    FIRST,
    LadderReport,
    _first_name,
    add_gains,
    differences,
    measured,
    steps,
)
from metta_fast.bench.training.ladder import CHANGES, INTERVALS, ladder, mixed
from metta_fast.bench.training.side import composed_side
from metta_fast.config.keys import Config, get, keys
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

ORIGINAL = ["env=grid_bench", "hardware=original"]
ULTRA_FAST = ["env=grid_bench", "hardware=ultra_fast"]


def test_every_key_goes_over_once_and_only_those_that_differ():
    a, b = compose(ORIGINAL), compose(ULTRA_FAST)
    changes = ladder(a, b)
    paths = [path for change in changes for path in change.paths]
    assert len(paths) == len(set(paths))
    assert set(paths) == {path for path in keys() if get(a.config, path) != get(b.config, path)}
    names = [change.name for change in changes]
    assert names == [name for name in (*CHANGES, INTERVALS) if name in names]
    wanted = {
        "batch",
        "minibatch",
        "workers",
        "envs",
        "async factor",
        "BPTT",
        "features",
        "compile",
        "intervals",
    }
    assert wanted <= set(names)


def test_a_step_changes_its_own_keys_only_and_the_last_is_the_other_side():
    a, b = composed_side(ORIGINAL), composed_side(ULTRA_FAST)
    found = steps(a, b)
    assert found[0].name == FIRST
    assert found[0].config == resolve(a).config
    assert found[-1].config == resolve(b).config
    done: set[str] = set()
    for before, after in itertools.pairwise(found):
        new = set(after.paths) - done
        assert new == set(after.paths[len(before.paths) :])
        composed = mixed(a, b, after.paths).config
        for path in keys():
            assert get(composed, path) == get((b if path in after.paths else a).config, path)
        done |= new


def test_values_keep_where_they_come_from():
    """A profile's value is a ceiling on the way as it is at the end: typed, it would be refused."""
    a, b = compose(ORIGINAL), compose([*ULTRA_FAST, "trainer.minibatch_size=16384"])
    half = mixed(a, b, ["trainer.minibatch_size", "features"])
    assert half.origins["trainer.minibatch_size"] == "command line"
    assert half.origins["trainer.batch_size"] == a.origins["trainer.batch_size"]
    assert not [key for key in half.origins if key.startswith("features.")]
    assert half.config.features == {}
    assert a.config.features != {}
    assert mixed(a, b, [path for change in ladder(a, b) for path in change.paths]).origins == b.origins


def test_what_changes_nothing_here_is_not_run_again():
    a, b = compose(["hardware=cpu"]), compose(["hardware=cpu", "run.checkpoint_interval=7"])
    assert [step.name for step in measured(steps(a, b))] == [FIRST]
    b = compose(["hardware=cpu", "env.device=cpu"])  # what auto becomes
    if resolve(a).config == resolve(b).config:
        assert [step.name for step in measured(steps(a, b))] == [FIRST]


def test_two_equal_sides_are_a_mistake(capsys):
    with pytest.raises(UserError, match="they are the same"):
        steps(compose(ORIGINAL), compose(ORIGINAL))
    assert main(["--ablate", "--a", "hardware=cpu", "--b", "hardware=cpu"]) == 2
    assert "but they are the same; change --a or --b" in capsys.readouterr().err


def test_a_step_that_cannot_run_is_named():
    a = compose(["hardware=cpu", "env.num_envs=8", "trainer.batch_size=1024", "trainer.minibatch_size=1024"])
    b = compose(["hardware=cpu", "env.num_envs=16", "trainer.batch_size=4096", "trainer.bptt_horizon=64"])
    with pytest.raises(UserError, match=r"no run is possible after the change of \w+: trainer\."):
        steps(a, compose(["hardware=cpu", "env.num_envs=16", "trainer.batch_size=1000"]))
    assert steps(a, b)[-1].config == resolve(b).config


def test_what_does_nothing_is_no_difference():
    a, b = Config(), Config()
    a.trainer.compile = b.trainer.compile = False
    b.trainer.compile_mode = "max-autotune"
    assert differences(a, b) == {}
    b.trainer.compile = True
    assert set(differences(a, b)) == {"trainer.compile", "trainer.compile_mode"}
    found = steps(composed_side(ORIGINAL), composed_side([*ULTRA_FAST, "trainer.device=cpu"]))
    assert "compile" not in [step.name for step in measured(found)]


@pytest.mark.parametrize(
    ("text", "name"), [("hardware=original", "original"), ("hardware=cpu env=grid", FIRST), ("", FIRST)]
)
def test_the_first_row_has_the_profiles_name(text, name):
    assert _first_name(text) == name


def test_differences_are_old_and_new():
    a, b = Config(), Config()
    b.trainer.batch_size, b.features = 5, {"x": {"y": 1.0}}
    assert differences(a, b) == {"trainer.batch_size": "16384 → 5", "features": "{} → {x: {y: 1.0}}"}


speeds = st.floats(1.0, 1e9)


@settings(deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(speeds, min_size=n, max_size=n), min_size=2, max_size=6)
    )
)
def test_gains_multiply_up_to_the_total_in_every_round(rounds):
    report = LadderReport({}, "x")
    for i, one in enumerate(rounds):
        report.add_row(f"step {i}", one, changes={})
    add_gains(report, rounds)
    assert "gain" not in report.rows[0]
    for i, row in enumerate(report.rows[1:], start=1):
        pairs = [new / old for new, old in zip(rounds[i], rounds[i - 1], strict=True)]
        assert row["gain"]["value"] == pytest.approx(statistics.median(pairs))
        assert row["gain"]["low"] <= row["gain"]["value"] <= row["gain"]["high"]
        if len(rounds[0]) == 1:
            product = 1.0
            for other in report.rows[1 : i + 1]:
                product *= other["gain"]["value"]
            assert row["total"]["value"] == pytest.approx(product)
    assert len(report.ratios) == 2 * (len(rounds) - 1)
    assert report.show().count("step ") >= len(rounds)


@settings(deadline=None)
@given(st.floats(1e-4, 1e3), st.integers(0, 1000), st.floats(0, 10))
def test_the_share_of_intervals_falls_with_their_length(epoch_s, epochs, cost):
    run = Config().run
    run.checkpoint_interval = run.monitor_interval = 0
    run.evaluate_interval = epochs
    found = interval_cost.share(run, {"evaluate": cost, "checkpoint": 99.0, "monitor": 99.0}, epoch_s)
    assert found == (pytest.approx(cost / max(epochs * epoch_s, run.min_interval_s)) if epochs else 0.0)
    run.evaluate_interval = 2 * epochs
    assert interval_cost.share(run, {"evaluate": cost}, epoch_s) <= found


def test_a_checkpoint_comes_at_the_latest_after_its_longest_time():
    run = Config().run
    run.checkpoint_interval = 1000
    assert interval_cost.share(run, {"checkpoint": 3.0}, 10.0) == pytest.approx(3.0 / run.checkpoint_max_s)


def test_one_of_each_is_timed_and_the_training_goes_on_as_it_was():
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve
    from metta_fast.run.build import build_parts

    config = resolve(compose([*SMALL.split(), "run.gradient_stats_interval=100"])).config
    parts = build_parts(config)
    hooks = parts.algorithm.hooks
    before = list(hooks.on_gradients), list(hooks.on_epoch)
    try:
        costs = interval_cost.measure(config, parts, [*interval_cost.COUNTED, "log"])
        assert list(costs) == list(interval_cost.COUNTED)
        assert all(cost > 0 for name, cost in costs.items() if name != "gradient_stats")
        assert (hooks.on_gradients, hooks.on_epoch) == before
        assert parts.algorithm.epoch == 2 * interval_cost.PAIRS + 1
        assert set(interval_cost.measure(config, parts, ["monitor"])) == {"monitor"}
    finally:
        parts.close()


SMALL = (
    "hardware=cpu env=counter env.num_envs=32 env.max_steps=16 trainer.batch_size=1024 trainer.torch_threads=1 "
    "trainer.compile=false vector.backend=serial"
)


@pytest.mark.slow
def test_a_short_ladder(tmp_path, capsys):
    import json

    file, picture = tmp_path / "ladder.json", tmp_path / "ladder.png"
    more = ["--plot", str(picture)] if pytest.importorskip("matplotlib") else []
    code = main(["--ablate", "--a", f"{SMALL} trainer.minibatch_size=256", "--b",
                 f"{SMALL} trainer.minibatch_size=1024 run.monitor_interval=9 run.replay_interval=7",
                 "--quick", "--seconds", "0.2", "--return", "-1", "--json", str(file), *more])  # fmt: skip
    assert code == 0, capsys.readouterr().err
    document = json.loads(file.read_text())
    rows = document["rows"]
    assert [row["name"] for row in rows] == [FIRST, "minibatch", INTERVALS]
    assert rows[1]["changes"] == {"trainer.minibatch_size": "256 → 1024"}
    assert rows[1]["to_return"]["reached"]
    assert rows[2]["reckoned"]
    assert any("estimated, not measured: one of each takes replay " in note for note in document["notes"])
    assert picture.read_bytes().startswith(b"\x89PNG")
