"""Tests --find-batch: the search, valid sizes, and a trial that runs out of memory without harm to others."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.bench.harness.child_handle import Child
from metta_fast.bench.main import main
from metta_fast.bench.sizing import find_batch
from metta_fast.bench.sizing.find_batch import CLOSE, Sizes, largest, sizes_of, with_sizes
from metta_fast.bench.sizing.find_batch import find_batch as search
from metta_fast.config.keys import config_to_dict
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.machine.hardware import GIB
from metta_fast.resolve import memory_estimate as memory
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

SMALL = ["hardware=cpu", "env=counter", "env.num_envs=16", "trainer.torch_threads=1", "trainer.compile=false",
         "trainer.batch_size=1024", "trainer.minibatch_size=256"]  # fmt: skip


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 1 << 20), st.integers(1, 64), st.integers(1, 1 << 20))
def test_the_search_ends_near_the_edge(unit, edge, first, most):
    tried = []
    most = max(most, unit)

    def fits(size):
        assert size % unit == 0
        assert 0 < size <= most
        tried.append(size)
        return size <= edge

    found = largest(fits, min(first, most // unit) * unit, unit, most)
    best = min(edge, most) // unit * unit
    assert found <= best
    assert found == best or best < found + unit or best <= CLOSE * found
    assert len(tried) == len(set(tried)) < 60
    assert found == 0 or fits(found)


@settings(deadline=None)
@given(st.sampled_from(["cpu", "original", "ultra_fast"]), st.integers(1, 300), st.integers(1, 20))
def test_every_size_can_be_typed(profile, envs, many):
    words = [f"hardware={profile}", "env=counter", f"env.num_envs={envs}"]
    config = resolve(compose(words)).config
    sizes = sizes_of(config, minibatch_typed=False)
    batch = many * sizes.unit
    done = resolve(
        compose([*words, *sizes.words(batch).split(), f"trainer.bptt_horizon={config.trainer.bptt_horizon}"])
    )
    tried = with_sizes(config, sizes, batch)
    assert done.config.trainer.batch_size == tried.trainer.batch_size == batch
    assert done.config.trainer.minibatch_size == tried.trainer.minibatch_size
    assert done.config.env.num_envs == config.env.num_envs


def test_a_typed_minibatch_stays():
    config = resolve(compose(SMALL)).config
    sizes = sizes_of(config, minibatch_typed=True)
    assert sizes == Sizes(512, 256, 4)
    assert sizes.words(1024) == "trainer.batch_size=1024"


def test_the_batch_is_not_to_be_typed(capsys):
    assert main(["--find-batch", "trainer.batch_size=1024"]) == 2
    assert "--find-batch looks for trainer.batch_size: leave it out" in capsys.readouterr().err
    assert main(["--find-batch", "env.num_env=1024"]) == 2
    assert "env.num_envs" in capsys.readouterr().err


def test_what_it_says(monkeypatch, capsys):
    """Trials that fit up to a million rows."""
    monkeypatch.setattr(
        find_batch, "_trial", lambda config, limit: GIB if config.trainer.batch_size <= 1_000_000 else None
    )
    monkeypatch.setattr(find_batch, "estimated_to_fit", lambda config, spec, machine: True)
    words = ["hardware=cpu", "env=counter", "env.num_envs=64", "trainer.bptt_horizon=32"]
    assert main(["--find-batch", *words]) == 0
    out, err = capsys.readouterr()
    size = int(out.split("trainer.batch_size=")[1].split()[0])
    assert 1_000_000 / CLOSE - 65536 <= size <= 1_000_000
    assert "fits, 1.0 GiB used" in err
    assert "does not fit" in err
    assert f"Each of 64 agents makes {size // 64} steps" in out


def test_what_a_training_would_refuse_is_not_tried(monkeypatch):
    tried, said = [], []
    monkeypatch.setattr(find_batch, "_trial", lambda config, limit: tried.append(config) or GIB)
    few = dataclasses.replace(find_batch.hardware.detect(), memory=GIB, free=None)
    monkeypatch.setattr(find_batch.hardware, "detect", lambda: few)
    text = search(["hardware=cpu", "env=counter", "env.num_envs=64"], said.append)
    typed = text.split(": ", 1)[1].split("\n")[0].split()
    resolve(compose(["hardware=cpu", "env=counter", "env.num_envs=64", *typed]), machine=few)
    assert any("would be refused" in line for line in said)
    spec = make_factory(tried[0].env).spec
    assert all(memory.total(memory.estimate(c, spec), on_gpu=False) <= 0.9 * GIB for c in tried)


def test_nothing_fits(monkeypatch):
    monkeypatch.setattr(find_batch, "_trial", lambda config, limit: None)
    with pytest.raises(
        UserError, match=r"not even the smallest batch fits this machine: .* give a smaller env\.num_envs="
    ):
        search(["hardware=cpu", "env=counter"], lambda line: None)


def test_a_trial_fits_and_one_that_may_take_too_little_does_not():
    config = resolve(compose(SMALL)).config
    config.trainer.batch_size *= 64  # the ballast: a run of one minibatch stands for it
    assert 0 < find_batch._trial(config, 8 * GIB) < 4 * GIB
    config.trainer.batch_size = 1 << 26
    assert find_batch._trial(config, GIB) is None


def test_a_trial_that_fails_for_another_reason_says_so():
    config = resolve(compose(SMALL)).config
    config.env.factory = "no_such_module:make"
    with pytest.raises(UserError, match=r"a trial of trainer\.batch_size=1024 failed: UserError"):
        find_batch._trial(config, 8 * GIB)


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="Linux only")
def test_the_trial_is_the_first_to_be_ended():
    with Child("trial", command=find_batch.WORKER) as child:
        child.ask(60.0, do="build", config=config_to_dict(resolve(compose(SMALL)).config), host_limit=8 * GIB)
        assert Path(f"/proc/{child._process.pid}/oom_score_adj").read_text().strip() == "1000"


@pytest.mark.slow
@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_the_estimate_on_the_cpu_is_what_a_trial_takes(core):
    words = [
        "hardware=cpu",
        "env=grid_bench",
        "env.num_envs=16",
        f"policy.core={core}",
        "trainer.torch_threads=1",
    ]
    taken, estimated = [], []
    for rows in (32768, 98304):  # what a program takes before it trains hides less
        config = resolve(
            compose([*words, f"trainer.batch_size={rows}", f"trainer.minibatch_size={rows}"])
        ).config
        taken.append(find_batch._trial(config, 8 * GIB))
        estimated.append(memory.total(memory.estimate(config, make_factory(config.env).spec), on_gpu=False))
    assert taken[1] < estimated[1]
    assert estimated[1] - estimated[0] == pytest.approx(taken[1] - taken[0], rel=0.25)
