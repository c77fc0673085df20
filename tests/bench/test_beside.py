"""Tests comparisons with other libraries: advantage kernels, CartPole in every vector backend, training."""

import importlib.util
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.bench.harness import libraries
from metta_fast.bench.harness.child_handle import Child, Failed
from metta_fast.bench.main import main
from metta_fast.bench.sizing import advantage
from metta_fast.bench.training import peers as beside
from metta_fast.bench.training.peer_env import Stepper
from metta_fast.bench.training.peer_variants import PUFFER_ON_GPU, SB3_ON_GPU, Variant, on_cpu, variants
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.errors import UserError
from metta_fast.envs.puffer.guard import unchanged
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

SMALL = [
    "hardware=cpu",
    "env=counter",
    "env.num_envs=8",
    "env.max_steps=4",
    "trainer.batch_size=128",
    "trainer.bptt_horizon=16",
    "trainer.minibatch_size=64",
    "trainer.torch_threads=1",
    "trainer.compile=false",
]


# ---- advantages ----


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["gae", "vtrace"]), st.integers(0, 99))
def test_every_form_gives_the_same_advantages(horizon, agents, name, seed):
    buffers = advantage.filled("cpu", horizon, agents)
    rng = np.random.default_rng(seed)
    for array in (buffers.terminal, buffers.truncation, buffers.mask):
        array.copy_(torch.from_numpy(rng.random(array.shape) < 0.3))
    found = advantage.forms(buffers, TrainerConfig(advantage=name))
    assert set(found) == {"kernel", "torch", "numpy", "python"}
    advantage.check(buffers, found)


def test_a_form_that_differs_is_not_measured():
    buffers = advantage.filled("cpu", 4, 3)
    found = advantage.forms(buffers, TrainerConfig())
    found["wrong"] = lambda: buffers.advantage.fill_(7.0)
    with pytest.raises(RuntimeError, match="wrong differs from the kernel"):
        advantage.check(buffers, found)


def test_a_short_measurement(capsys):
    assert main(["--advantage", "--quick", "--seconds", "0.01"]) == 0
    text = capsys.readouterr().out
    for part in (
        "gae, 64 rows of 256 agents, cpu: kernel ",
        "vtrace, 64 rows of 256 agents, cpu: kernel / numpy",
    ):
        assert part in text
    if not importlib.util.find_spec("pufferlib"):
        assert "note: absent: PufferLib: " in text


# ---- children ----


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux only")
def test_a_peer_is_stopped_between_its_turns():
    code = "import sys\nfor line in sys.stdin: print('{}', flush=True)\nwhile True: pass"
    with Child("spins", command=[sys.executable, "-c", code]) as child:

        def state():
            return Path(f"/proc/{child._process.pid}/stat").read_text().rpartition(")")[2].split()[0]

        assert child.alone(20.0, do="x") == {}
        end = time.monotonic() + 5
        while state() != "T" and time.monotonic() < end:
            time.sleep(0.01)
        assert state() == "T"
        assert child.alone(20.0, do="y") == {}
    assert child._process.poll() is not None


SERVES = """
import subprocess, sys
from metta_fast.bench.harness.child_loop import serve
class Peer:
    def __init__(self): self.worker = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
    def ready(self): return {'worker': self.worker.pid}
    def close(self): self.worker.kill()
serve(Peer)
"""
MEASURES = """
import os, signal, sys
from metta_fast.bench.harness.child_handle import Child
child = Child('peer', command=[sys.executable, '-c', sys.argv[1]])
print(child._process.pid, child.alone(20.0, do='build')['worker'], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_a_killed_benchmark_leaves_no_process():
    done = subprocess.run([sys.executable, "-c", MEASURES, SERVES], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    left = [Path(f"/proc/{pid}/stat") for pid in done.stdout.split()]
    assert len(left) == 2
    end = time.monotonic() + 5
    while any(running(path) for path in left) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(running(path) for path in left)


def running(stat: Path) -> bool:
    """Whether the process is there and not only unreaped."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# ---- trainers ----


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["policy=lstm"], "remove policy.core=lstm"),
        (["features=prioritized_replay"], "remove features="),
        (["env.num_env=3"], "env.num_envs"),
    ],
)
def test_what_cannot_be_compared_is_told_before_anything_runs(words, message, capsys):
    assert main(["--train", "hardware=cpu", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_all_environments_are_on_the_cpu_and_the_users_word_is_last():
    found = beside.words(["env=counter", "env.device=auto"], "trainer.torch_threads=2")
    config = compose(found).config
    assert (config.env.name, config.env.device, config.trainer.torch_threads) == ("counter", "auto", 2)
    assert compose(beside.words([])).config.env.device == "cpu"


def test_one_thread_and_all_of_them_unless_it_was_said():
    config = resolve(compose(SMALL)).config
    config.trainer.torch_threads = 8
    assert beside.threads(config, []) == [1, 8]
    assert beside.threads(config, ["trainer.torch_threads=8"]) == [8]
    config.trainer.torch_threads = 1
    assert beside.threads(config, []) == [1]


def test_the_fastest_is_by_the_median():
    assert beside.fastest(["a", "b"], {"a": [1.0, 2.0, 99.0], "b": [3.0, 3.0, 3.0]}) == "b"


def test_steps_of_peers_are_actions_of_agents_that_are_trained_on():
    stepper = Stepper(resolve(compose(SMALL)).config)
    obs = stepper.reset()
    assert obs.shape == (8, 1)
    observed, actions = stepper.spaces()
    assert observed.shape == (1,)
    assert actions.n == 2
    try:
        for _ in range(50):
            stepper.send(np.ones(8, np.int64))
            stepper.recv()
    finally:
        stepper.vec.close()
    assert stepper.steps == 50 * 8 * 4 // 5


def test_blocks_come_in_their_order():
    stepper = Stepper(resolve(compose(SMALL)).config, 2)
    try:
        stepper.start()
        order = []
        for _ in range(20):
            rows = stepper.recv()
            order.append(stepper.block.index)
            assert len(rows.reward) == 4
            stepper.send(np.ones(4, np.int64))
    finally:
        stepper.vec.close()
    assert order == [0, 1] * 10
    assert stepper.steps == 20 * 4 * 4 // 5


def test_ways_of_a_peer_by_device():
    config = resolve(compose(SMALL)).config
    assert [variant.label for variant in variants("puffer", config, [1, 8])] == ["1 thread", "8 threads"]
    assert on_cpu([8]) == [Variant("", ("trainer.torch_threads=8",))]
    config.trainer.compile = True
    assert [variant.options for variant in variants("puffer", config, [1])] == [{"compile_mode": "default"}]
    assert [variant.options for variant in variants("sb3", config, [1])] == [{}]
    config.trainer.device = "cuda"
    assert variants("puffer", config, [1]) == list(PUFFER_ON_GPU)
    assert variants("sb3", config, [1]) == list(SB3_ON_GPU)
    for found in (SB3_ON_GPU, PUFFER_ON_GPU):
        assert len({variant.label for variant in found}) == len(found)
        assert [variant.plain for variant in found].count(True) == 1
        for variant in found:
            compose([*beside.words(SMALL), *variant.words])


def test_ours_stands_beside_the_fastest_way_and_the_one_without_our_kernels():
    def entrant(name, *, plain=False):
        return beside.Entrant(name, None, dict, variant=Variant(options={"plain": plain}))

    speeds = {"a": [3.0], "b": [2.0], "c": [1.0]}
    assert beside.theirs_to_compare([entrant("b"), entrant("a")], speeds) == ["a"]
    assert beside.theirs_to_compare([entrant("b"), entrant("a"), entrant("c", plain=True)], speeds) == [
        "a",
        "c",
    ]
    assert beside.theirs_to_compare([entrant("b"), entrant("a", plain=True)], speeds) == ["a"]


def test_a_peer_that_fails_in_a_round_is_left_out_of_the_rest():
    code = (
        "import sys\nprint('{\"steps_per_s\": 7}', flush=True)\nsys.stdin.readline()\nsys.stdin.readline()"
        '\nprint(\'{"error": "out of memory"}\', flush=True)\nsys.stdin.read()'
    )
    failures = []
    with Child("fails", command=[sys.executable, "-c", code]) as child:
        turns = beside.Turns(child, 0.1, failures.append)
        assert turns() == {"steps_per_s": 7}
        assert not turns.failed
        assert [turns()["steps_per_s"], turns()["steps_per_s"]] == [0.0, 0.0]
        assert turns.failed
    assert [failed.why for failed in failures] == ["out of memory"]
    assert isinstance(failures[0], Failed)


def peer(kind, **options):
    from metta_fast.bench.training.child_program import build

    return build(kind, SMALL, **options)


@pytest.mark.parametrize("plain", [False, True])
def test_stable_baselines3_trains_our_environments(plain):
    pytest.importorskip("stable_baselines3")
    run = peer("sb3", plain=plain)
    try:
        before = [p.clone() for p in run.model.policy.parameters()]
        found = run.round(0.01)
        assert found["epochs"] == 1
        assert run.stepper.steps in range(90, 129)
        assert any(not torch.equal(a, b) for a, b in zip(before, run.model.policy.parameters(), strict=True))
    finally:
        run.close()


@pytest.mark.parametrize("options", [{}, {"blocks": 2, "plain": True}])
def test_pufferlib_trains_our_environments(options):
    with unchanged():
        pytest.importorskip("pufferlib.pufferl")
    run = peer("puffer", **options)
    try:
        before = [p.clone() for p in run.trainer.policy.parameters()]
        assert run.round(0.01)["epochs"] == 1
        assert any(
            not torch.equal(a, b) for a, b in zip(before, run.trainer.policy.parameters(), strict=True)
        )
    finally:
        run.close()


def test_pufferlibs_advantage_is_computed_as_it_does():
    with unchanged():
        pytest.importorskip("pufferlib.pufferl")
    from metta_fast.bench.training.pufferlib import advantage as ours

    rng = torch.Generator().manual_seed(1)
    values, rewards, ratio = (torch.rand(3, 6, generator=rng) for _ in range(3))
    ended = (torch.rand(3, 6, generator=rng) < 0.3).float()
    found = ours(values, rewards, ended, 2 * ratio, torch.zeros(3, 6), 0.9, 0.8, 1.0, 1.0)
    for n in range(3):
        last = 0.0
        assert found[n, 5] == 0
        for t in reversed(range(5)):
            live = 1 - ended[n, t + 1]
            weight = min(1.0, float(2 * ratio[n, t]))
            delta = weight * (rewards[n, t + 1] + 0.9 * values[n, t + 1] * live - values[n, t])
            last = delta + 0.9 * 0.8 * weight * live * last
            assert float(found[n, t]) == pytest.approx(float(last), abs=1e-5)


@pytest.mark.slow
def test_a_short_comparison(capsys):
    assert main(["--train", *SMALL, "--seconds", "0.1", "--repeats", "1"]) == 0
    text = capsys.readouterr().out
    assert "metta_fast " in text
    for library in (libraries.SB3, libraries.PUFFERLIB):
        assert (f"metta_fast / {library.name}" if library.version() else f"absent: {library.name}") in text


def test_a_mistake_is_not_a_peers_failure():
    with pytest.raises(UserError, match="without a core"):
        beside.check(["hardware=cpu", "policy=mingru"])
