"""Tests a run whose environments and policy are on a GPU: its output, and later use of its policy.

python -m pytest -m gpu tests/run/test_cuda_run.py
"""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.cli import main
from metta_fast.contracts.env import EVAL_SEED_BIT, Array, EnvBatch, Rows
from metta_fast.contracts.recording import Recording
from metta_fast.export.formats import ONNX_PACKAGES
from metta_fast.export.main import export_policy
from metta_fast.inference.evaluate import evaluate, load_run
from metta_fast.inference.players import PolicyPlayer, play
from metta_fast.metrics.loggers import Row, read_rows
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.trainer import Trainer
from tests.interpreter import gpu

pytestmark = [*gpu, pytest.mark.usefixtures("exact_products")]
DEVICE = "cuda"
EPOCHS, ROWS = 8, 2048
CORES = ("none", "mingru")


@pytest.fixture(scope="module", params=CORES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that watches is on: evaluation, replays, gradients, weights, a trace."""
    folder = tmp_path_factory.mktemp("runs")
    words = [
        "hardware=cpu", "env=grid", f"env.device={DEVICE}", f"trainer.device={DEVICE}",
        "env.num_envs=32", "env.max_steps=40", f"trainer.batch_size={ROWS}", "trainer.minibatch_size=1024",
        "trainer.bptt_horizon=8", f"trainer.total_timesteps={EPOCHS * ROWS}", "trainer.compile=false",
        "policy.hidden_size=32", f"policy.core={request.param}",
        "run.dashboard=none", "run.tensorboard=false", "run.min_interval_s=0",
        "run.evaluate_interval=4", "run.evaluate_episodes=8", "run.replay_interval=4", "run.gradient_stats_interval=2",
        "features=[profiler,weight_analysis]", "features.profiler.interval_epochs=2",
        "features.profiler.trace_from=5", "features.profiler.trace_epochs=2",
        "features.weight_analysis.interval_epochs=4", f"run.dir={folder}", "run.name=on_card",
    ]  # fmt: skip
    assert Trainer(resolve(compose(words))).run() == 0
    return folder / "on_card"


def test_what_watches_gives_its_figures(run: Path) -> None:
    rows = list(read_rows(run / "metrics.jsonl"))
    assert len(rows) >= EPOCHS, "a masked row is no step: at least as many epochs"
    for name, every in (
        ("eval/return", 4),
        ("gradient/norm", 2),
        ("profile/epoch", 2),
        ("weights/", 4),
    ):
        given = [row["train/epoch"] for row in rows if any(key.startswith(name) for key in row)]
        due = list(range(every, len(rows) + 1, every))
        assert given == due, name
    assert all(math.isfinite(value) for row in rows for value in row.values() if value is not None)


def test_the_trace_holds_kernels(run: Path) -> None:
    with gzip.open(run / "traces/epoch_5-6.json.gz") as file:
        events = json.load(file)["traceEvents"]
    kernels = [event["name"] for event in events if event.get("cat") == "kernel"]
    assert len(set(kernels)) > 5, sorted(set(kernels))


class InLockstep:
    """One policy on two devices over the same rows; the CPU's actions are played."""

    def __init__(self, path: Path) -> None:
        self.players = []
        for device in ("cpu", DEVICE):
            _, policy, place, _, factory = load_run(str(path), best=False, device=device)
            self.players.append(PolicyPlayer(policy, factory.spec, place, deterministic=True))
        self.rows = self.other = 0

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        on_cpu, on_card = (player.choose(rows.obs, rows.reset) for player in self.players)
        self.rows += len(on_cpu)
        self.other += int((on_cpu != on_card).any(-1).sum())
        one, two = (player._state.cpu() for player in self.players)
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)
        return on_cpu


def test_evaluation_on_the_card_is_that_on_the_cpu(run: Path) -> None:
    """Sums in another order may turn an action over whose logit is as good as another's; such are few."""
    both = InLockstep(run)
    play(load_run(str(run), best=False, device="cpu").factory, both, 16, seed=EVAL_SEED_BIT | 3)
    assert both.rows >= 16 * 4 * 40
    assert both.other <= both.rows / 500

    def figures(device: str) -> Row:
        _, policy, place, _, factory = load_run(str(run), best=False, device=device)
        return evaluate(factory, policy, device=place, num_envs=16, seed=3, deterministic=True)

    on_cpu, on_card = figures("cpu"), figures(DEVICE)
    assert on_card == figures(DEVICE)
    assert on_card.keys() == on_cpu.keys()
    if both.other == 0:
        assert on_card == on_cpu


def test_the_loaded_policy_is_on_the_card_and_goes_to_the_cpu(run: Path) -> None:
    """deterministic=True gives the same actions from the same observations, whatever the device."""
    rng = np.random.default_rng(0)
    here, there = (metta_fast.load_policy(run, deterministic=True, device=d) for d in (None, "cpu"))
    assert (here.device.type, there.device.type) == (DEVICE, "cpu")
    same = []
    for _ in range(5):
        obs = {
            name: rng.integers(0, 3, (64, *leaf.shape)).astype(leaf.dtype)
            for name, leaf in here.spec.obs.items()
        }
        same.append((here.act(obs) == there.act(obs)).all(-1).mean())
    assert min(same) > 0.95


def test_an_export_is_the_policy_on_the_card(run: Path, tmp_path: Path) -> None:
    """The file is checked against the policy on the CPU by export_policy; here it stands beside that on the card."""
    done = export_policy(run, tmp_path / "policy.pt")
    assert done.metadata["check"]["largest_difference"] < 1e-4
    module = torch.jit.load(str(done.path))
    _, policy, place, *_ = load_run(str(run), best=False, device=DEVICE)
    shape = metta_fast.load_policy(run).spec.obs["obs"].shape
    obs = torch.randint(0, 3, (1, 32, *shape), dtype=torch.uint8)
    reset, state = torch.ones(1, 32, dtype=torch.bool), policy.initial_state(32)
    memory = state.numel() > 0
    with torch.no_grad():
        given = module(obs[0], *((state, reset[0]) if memory else ()))
        right = policy({"obs": obs.to(place)}, state.to(place), reset.to(place))
    torch.testing.assert_close(given[1], right.params[0].cpu(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(given[2], right.value[0].cpu(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("ending", ["pt2", "onnx"])
def test_the_other_formats_are_written_where_there_is_a_card(run: Path, ending: str, tmp_path: Path) -> None:
    if ending == "onnx":
        for package in ONNX_PACKAGES:
            pytest.importorskip(package)
    if (run / "config.yaml").read_text().count("core: none") != (ending == "onnx"):
        pytest.skip("one format for each core: they take long")
    assert export_policy(run, tmp_path / f"p.{ending}").metadata["check"]["largest_difference"] < 1e-4


def test_a_replay_of_the_run_is_the_page_that_the_training_wrote(run: Path, tmp_path: Path) -> None:
    """The last page is of the last checkpoint; both are played on the CPU, by environments there."""
    path = tmp_path / "now.json"
    assert main(["replay", str(run), "--json", str(path)]) == 0
    page = sorted((run / "replays").glob("step_*.html"))[-1]
    found = re.search(r'id="recording">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    assert json.loads(found[1]) == Recording.load(path).to_json()


def test_the_commands_take_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--episodes", "4", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["players"]) == ["policy", "scripted", "random"]
