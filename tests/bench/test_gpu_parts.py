"""Tests the parts of an epoch on a run with a stand-in for the GPU's vector, without torch's compiler."""

import pytest
import torch

from metta_fast.algorithms.ppo.device_ppo import DevicePPO
from metta_fast.bench.gpu import parts as gpu_parts
from metta_fast.bench.gpu import plain_torch as gpu_plain
from metta_fast.bench.gpu import simulator as gpu_simulator
from metta_fast.bench.gpu import training as gpu_train
from metta_fast.bench.gpu.parts_table import parts_lines, with_shares
from metta_fast.policy import make_policy
from metta_fast.policy.cores import MinGRUCore
from metta_fast.run.build import Parts as RunParts
from tests.ppo.device_vector import DeviceVector

SMALL = ["hardware=cpu", "trainer.device=cpu", "env=grid_bench", "env.num_envs=4", "trainer.batch_size=128",
         "trainer.bptt_horizon=4", "trainer.minibatch_size=32", "trainer.torch_threads=1"]  # fmt: skip


@pytest.fixture
def stand_in(monkeypatch):
    device = torch.device("cpu")

    def build(config, factory):
        torch.set_num_threads(1)
        vec, policy = DeviceVector(factory, config.env.num_envs), make_policy(config.policy, factory.spec)
        ppo = DevicePPO(config, factory.spec, vec, policy, device=device)
        return RunParts(factory.spec, vec, policy, ppo, device)

    monkeypatch.setattr(gpu_train, "build_parts", build)
    monkeypatch.setattr(gpu_train, "BURN_IN_S", 0.0)
    monkeypatch.setattr(gpu_train, "SETTLE_S", 0.0)
    monkeypatch.setattr(gpu_parts, "EPOCHS_S", 0.0)
    monkeypatch.setattr(torch, "compile", lambda work, **_: work)


WITHOUT_CARD = {"second layer, heads, loss and back", "optimizer: clip and Adam"}
"""Our own form of these needs Triton."""


@pytest.mark.parametrize(("core", "count"), [("none", 9), ("mingru", 4)])
def test_every_part_is_measured_in_every_form(stand_in, core, count):
    found = gpu_parts.Parts([*SMALL, f"policy.core={core}"])
    try:
        assert len(found.ready()["parts"]) == count
        measured = found.measure()
    finally:
        found.close()
    assert measured["epoch_us"] > 0
    for part in measured["parts"]:
        expected = {"ours"} if part["name"].startswith("simulator") else set(gpu_parts.FORMS)
        if part["name"] in WITHOUT_CARD:
            assert set(part["failed"]) == {"ours"}
            expected -= {"ours"}
        else:
            assert part["failed"] == {}
        assert set(part["us"]) == expected, part
        assert all(us > 0 for us in part["us"].values())
    row = with_shares("run", measured)
    for part in row["parts"]:
        assert (part["share"] is None) == (part["name"] in WITHOUT_CARD)
    assert len(list(parts_lines(row))) == 2 + count + (2 if core == "none" else 0)


def test_a_form_that_fails_leaves_the_others(stand_in, monkeypatch):
    def broken(algorithm):
        def run():
            raise RuntimeError("so it is\nand more")

        return run

    monkeypatch.setattr(gpu_plain, "summary", broken)
    found = gpu_parts.Parts(SMALL)
    try:
        (summary,) = [part for part in found.parts if part.name.startswith("summary")]
    finally:
        found.close()
    assert list(summary.forms) == ["ours"]
    assert summary.failed == dict.fromkeys(("eager", "compiled"), "RuntimeError: so it is")


@pytest.mark.parametrize("core", ["none", "mingru"])
def test_the_plain_policy_says_the_same(core, stand_in):
    run = gpu_train.Training([*SMALL, f"policy.core={core}"])
    policy, b = run.algorithm.policy, run.algorithm.buffers
    plain = gpu_plain.plain_policy(policy)
    assert isinstance(policy.core, MinGRUCore) == isinstance(plain.core, gpu_plain.PlainMinGRU)
    with torch.no_grad():
        state = torch.zeros((1 if core != "none" else 0, *policy.initial_state(16, "cpu").shape[1:]))
        one, other = (net({"obs": b.obs["obs"][:4]}, state, b.reset[:4]) for net in (policy, plain))
    torch.testing.assert_close(one.params, other.params)
    torch.testing.assert_close(one.value, other.value)
    run.close()


def test_the_engine_alone_counts_rows_that_act(monkeypatch):
    monkeypatch.setattr(gpu_simulator, "BURN_IN", 1)

    def make(factory, num_envs, *, backend, device):
        assert backend == "gpu"
        vec = DeviceVector(factory, num_envs)
        vec.device = device
        return vec

    monkeypatch.setattr(gpu_simulator, "make_vector", make)
    found = gpu_simulator.Stepping("grid_bench", "compact", 4, device="cpu")
    assert found.ready() == {"agents": 16, "notes": []}
    row = found.round(0.05)
    agents = row["steps_per_s"] * row["us_per_row"] / 1e6
    assert 0.9 * 16 <= agents <= 16.001
    found.close()
