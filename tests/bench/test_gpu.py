"""Tests `--gpu`: its options, tables and JSON from made-up results, a failing child, and a short run on a GPU."""

import json
import sys
import time
from contextlib import contextmanager

import pytest
import torch

from metta_fast.bench.arguments import QUICK
from metta_fast.bench.gpu import command as gpu
from metta_fast.bench.gpu.cases import PARTS, SHAPES, SIMULATORS, VARIANTS, scale_points
from metta_fast.bench.gpu.report import GpuReport
from metta_fast.bench.harness.child_handle import Child, Failed, all_at_once
from metta_fast.bench.main import main
from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

CARD = Gpu("NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0), free=78 * GIB)
H100 = Machine(16, 64, 128 * GIB, (CARD,), "cuda", driver=(13, 0), nvrtc=13)
NO_GPU = Machine(4, 8, 16 * GIB)


# ---- command line ----


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "--simulator"], "not allowed with"),
        (["--gpu-scale", "--vector"], "--gpu-scale goes with --gpu or alone"),
        (["--quick", "--gpu-scale"], "--quick has no effect with --gpu-scale alone; add --gpu"),
    ],
)
def test_options_that_do_not_go_together_are_told_in_one_line(words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [["--gpu"], ["--gpu", "--quick"], ["--gpu-scale"]])
def test_without_a_gpu_one_message_says_so(words, monkeypatch, capsys):
    monkeypatch.setattr(gpu.hardware, "detect", lambda: NO_GPU)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "no GPU was found that the installed torch can use" in error
    assert "--simulator" in error
    assert error.count("\n") == 1


def test_what_the_card_lacks_is_told_with_its_cure():
    with pytest.raises(UserError, match=r"cuda-bindings is not installed; .* install -e"):
        gpu.check_machine(Machine(16, 64, 128 * GIB, (CARD,), "cuda", driver=(13, 0)))
    gpu.check_machine(H100)


# ---- configurations ----


def settings(words):
    return resolve(compose(words, machine=H100), machine=H100).config


def test_every_configuration_can_run_and_keeps_its_sizes():
    for shape, words in SHAPES.items():
        plain = settings([*words])
        assert (plain.env.device, plain.trainer.cuda_graphs, plain.trainer.batch_size) == (
            "cuda",
            True,
            262144,
        )
        assert f"{plain.env.num_envs * 4} agents × {262144 // plain.env.num_envs // 4}" in shape
        for more in VARIANTS.values():
            other = settings([*words, *more])
            assert other.env.num_envs == plain.env.num_envs
            assert other.trainer.minibatch_size == plain.trainer.minibatch_size == 32768
            assert other.trainer.cuda_graphs == ("env.device=cpu" in more)
    assert set(PARTS.values()) <= set(SHAPES.values())


def test_every_point_of_the_scale_curve_has_eight_minibatches():
    points = scale_points()
    assert {point.line for point in points} == {"agents", "agents an env", "horizon", "observation"}
    for point in points:
        config = settings(point.overrides)
        assert config.env.num_envs * config.env.agents_per_env == point.agents
        assert config.env.agents_per_env == point.agents_per_env
        assert config.env.observation == point.observation
        assert config.trainer.batch_size == point.agents * point.horizon == 8 * config.trainer.minibatch_size


# ---- children ----


def child(code):
    return Child("a child", command=[sys.executable, "-c", code])


ECHO = "import sys, json\nfor line in sys.stdin: print(json.dumps({'got': json.loads(line)}), flush=True)"


def test_a_child_answers_and_ends_with_its_pipe():
    with child(ECHO) as one:
        assert one.ask(do="x", n=1) == {"got": {"do": "x", "n": 1}}
        assert one.ask(do="y") == {"got": {"do": "y"}}
    one.close()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; print('the cause', file=sys.stderr); sys.exit(3)", "ended with exit code 3"),
        ("import sys, time; print('the cause', file=sys.stderr, flush=True); time.sleep(60)", "no answer within 2 s"),
        (
            "import sys; print('the cause', file=sys.stderr, flush=True); sys.stdin.readline()\n"
            "print('{\"error\": \"OutOfMemoryError: so much\"}', flush=True)",
            "OutOfMemoryError: so much",
        ),
    ],
)  # fmt: skip
def test_what_goes_wrong_in_a_child_is_one_line_and_what_it_printed(code, why):
    began = time.monotonic()
    with child(code) as one, pytest.raises(Failed) as found:
        one.ask(2.0, do="x")
    assert why in found.value.why
    assert "\n" not in found.value.why
    assert found.value.printed == "the cause"
    assert time.monotonic() - began < 15


def test_all_at_once_gives_results_and_failures_in_order():
    def fails():
        raise Failed("no")

    first, second = all_at_once([lambda: 1, fails])
    assert first == 1
    assert isinstance(second, Failed)


def test_the_workers_mistakes_are_answers():
    with Child("a child") as one:
        with pytest.raises(Failed) as found:
            one.ask(60.0, do="build", kind="train", overrides=["env.num_env=3"])
        assert found.value.why.startswith("UserError: ")
        assert "env.num_envs" in found.value.why


def test_a_short_training_is_measured_in_a_child():
    words = ["hardware=cpu", "env=counter", "env.num_envs=32", "trainer.batch_size=1024",
             "trainer.minibatch_size=512", "trainer.torch_threads=1", "trainer.device=cpu"]  # fmt: skip
    said = []
    rows, _ = gpu.trained({"small": words, "wrong": ["x.y=3"]}, 0.1, 1, said.append, {"small"})
    row = rows["small"]
    assert 0 < row["low"] <= row["high"]
    assert row["epochs"] >= 3
    assert row["gpu_utilization"] is None
    assert {"inference", "update"} <= set(row["phases_ms"])
    assert row["settings"]["batch_size"] == 1024
    assert rows["wrong"]["failed"].startswith("UserError")
    assert any("wrong: failed: UserError" in line for line in said)


# ---- tables and JSON, with figures that nobody measured ----


class FakeTurns(gpu.Turns):
    def __init__(self, name, what):
        self.name, self.what, self.failed, self.ready = name, what, None, {"notes": [], "settings": {}}
        if what["kind"] == "simulator":
            self.ready = {"agents": 5, "notes": []}
        if "policy=lstm" in what.get("overrides", ()) and "env.device=cpu" in what["overrides"]:
            self.failed = Failed("OutOfMemoryError: CUDA out of memory", "Traceback …")

    def ask(self, do, **more):
        if self.failed:
            return {}
        speed = 1e6 if "env.device=cpu" in self.what.get("overrides", ()) else 4e7
        return {
            "round": {
                "steps_per_s": speed,
                "epoch_ms": [6.5, 6.6, 6.7],
                "epoch_steps_per_s": [speed, 0.9 * speed, 1.1 * speed],
                "phases_ms": {"rollout": 4.0, "update": 2.5, "env": 0.0},
                "us_per_row": 12.5,
                "memory_mib": 1000.0,
            },
            "utilization": {"gpu_utilization": 97.0, "memory_mib": 1234.0},
            "measure": {
                "epoch_us": 6500.0,
                "phases_ms": {"rollout": 4.0, "update": 2.5},
                "parts": [
                    {"name": "inference of a row", "calls": 33, "us": {"ours": 20.0, "eager": 300.0, "compiled": 90.0},
                     "failed": {}, "launched": {"eager": "cannot be captured"}},
                    {"name": "summary", "calls": 1, "us": {"eager": 30.0}, "failed": {"ours": "RuntimeError: x"},
                     "launched": {}},
                ],
            },
        }[do]  # fmt: skip


@pytest.fixture
def fake(monkeypatch):
    @contextmanager
    def built(cases, say):
        yield {name: FakeTurns(name, what) for name, what in cases.items()}

    monkeypatch.setattr(gpu, "built", built)
    monkeypatch.setattr(gpu.hardware, "detect", lambda: H100)
    return built


def test_a_whole_run_as_table_and_as_json(fake, tmp_path, capsys):
    file = tmp_path / "gpu.json"
    assert main(["--gpu", "--gpu-scale", "--repeats", "2", "--json", str(file)]) == 0
    table = capsys.readouterr().out
    document = json.loads(file.read_text())
    assert list(document)[:6] == ["machine", "command", "training", "parts", "simulator", "scale"]
    assert [row["name"] for row in document["training"]] == list(SHAPES)
    first = document["training"][0]
    assert (first["steps_per_s"], first["low"], first["high"]) == (4e7, 0.9 * 4e7, 1.1 * 4e7)
    assert [other["name"] for other in first["against"]] == list(VARIANTS)
    assert first["against"][0]["ratio"] == 40.0
    assert "40.0 times (40.0 to 40.0)" in table
    assert "env.device=cpu " in table
    assert "failed: OutOfMemoryError: CUDA out of memory" in table
    assert "rollout 4.00, update 2.50\n" in table
    assert "  97%" in table
    part = document["parts"][0]["parts"][0]
    assert part["share"] == pytest.approx(33 * 20 / 6500)
    assert "300.0*" in table
    assert "10.2%" in table
    assert "summary, ours: RuntimeError: x" in table
    assert [row["name"] for row in document["simulator"]] == [one.name for one in SIMULATORS]
    assert len(document["scale"]) == len(scale_points())


def test_quick_is_one_shape_with_the_parts(fake, tmp_path):
    file = tmp_path / "gpu.json"
    assert main(["--gpu", "--quick", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert len(document["training"]) == 1
    assert len(document["training"][0]["rounds"]) == QUICK["gpu"].repeats
    assert len(document["parts"]) == len(PARTS)
    assert document["scale"] == []


def test_what_several_lines_of_the_curve_share_is_measured_once(fake):
    report, measured = GpuReport({}, "x"), []

    def trained(cases, *rest):
        measured.extend(cases)
        row = {"steps_per_s": 1e6, "low": 1e6, "high": 1e6, "epoch_ms": 1.0, "memory_mib": None}
        return dict.fromkeys(cases, row), []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "trained", trained)
        gpu.measure_scale(report, 0.1, 1, lambda line: None, lambda: None)
    assert len(measured) == len(scale_points()) - 3
    assert [(row["line"], row["value"]) for row in report.scale] == [
        (p.line, p.value) for p in scale_points()
    ]
    assert report.show().count("1.00") > len(report.scale)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.timeout(600)  # minutes, and longer beside other tests
def test_a_quick_run_on_a_card(tmp_path, capsys):
    file = tmp_path / "gpu.json"
    assert main(["--gpu", "--quick", "--json", str(file)]) == 0, capsys.readouterr().err
    document = json.loads(file.read_text())
    failed = [
        row for section in ("training", "parts", "simulator") for row in document[section] if "failed" in row
    ]
    assert not failed, failed
    assert document["training"][0]["steps_per_s"] > 1e6
    for run in document["parts"]:
        for part in run["parts"]:
            assert "ours" in part["us"], part
