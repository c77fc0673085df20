"""Compares exported files with `load_policy`; failures are reported and leave no file behind."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.export import formats
from metta_fast.export.main import export_policy
from metta_fast.machine.installation import install_packages
from metta_fast.policy.cores import CORES
from tests.export.runs import HERE, fake_run

OWN = ("env=custom", f"env.factory={HERE}:mixed", "env.num_envs=4", "env.agents_per_env=1")
CASES = {
    "counter": ("env=counter",),
    "counter lstm": ("env=counter", "policy=lstm"),
    "own mingru": (*OWN, "policy=mingru"),
    "own frames": (*OWN, "policy=mingru", "policy.frame_stack=3"),
    "own normalized": (*OWN, "policy.normalize_obs=true"),
    "grid compact, a network for the value": ("env=grid", "policy=mingru", "policy.shared=false"),
    "grid dense": ("env=grid", "env.observation=dense"),
    "grid tokens": ("env=grid", "env.observation=tokens", "policy=tokens_lstm"),
    "hopper": ("env=hopper", "policy.squash=true"),
    "sac": ("env=Pendulum-v1", "algorithm=sac", "policy.normalize_obs=true"),
    "sac discrete": ("env=CartPole-v1", "algorithm=sac"),
    "sac pixels": ("env=metta_fast.envs.sanity.catch:make", "algorithm=sac", "policy.frame_stack=3"),
    "td3": ("env=Pendulum-v1", "algorithm=td3"),
}
QUICK = ("counter lstm", "sac")
"""Cases that are exported to ONNX in every test run."""
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def runner(path):
    """The file as a program without metta_fast uses it: numpy arrays by position → numpy arrays."""
    if path.suffix == ".onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
        names = [one.name for one in session.get_inputs()]
        return lambda *inputs: session.run(None, dict(zip(names, inputs)))
    module = torch.jit.load(str(path)) if path.suffix == ".pt" else torch.export.load(str(path)).module()
    return lambda *inputs: [out.numpy() for out in module(*map(torch.from_numpy, inputs))]


def check(run, path, n=5, steps=4):
    """Play the loaded policy and the file side by side on random observations."""
    loaded = metta_fast.load_policy(run, deterministic=True)
    play, rng = runner(path), np.random.default_rng(n)
    layers, size = loaded.policy.state_shape
    state = np.zeros((layers, n, size), np.float32)
    for _ in range(steps):
        obs = {}
        for name, leaf in loaded.spec.obs.items():
            high = 7 if name == "place" else 256
            shape = (n, *leaf.shape)
            real = "float" in leaf.dtype
            array = rng.normal(size=shape) * 3 if real else rng.integers(0, high, shape)
            obs[name] = array.astype(leaf.dtype)
        reset = rng.random(n) < 0.4
        action = loaded.act(obs, reset)
        out = play(*obs.values(), *((state, reset) if size else ()))
        assert out[0].shape == action.shape
        assert out[0].dtype == action.dtype
        if action.dtype == np.int32:
            assert (out[0] == action).all()
        else:
            np.testing.assert_allclose(out[0], action, **TOLERANCE)
        if size:
            np.testing.assert_allclose(out[3], loaded._player._state.numpy(), **TOLERANCE)
            state = out[3]
        with torch.no_grad():
            policy = loaded.policy
            if not size:
                given = {name: torch.from_numpy(leaf)[None] for name, leaf in obs.items()}
                right = policy(given, policy.initial_state(n), torch.from_numpy(reset)[None])
                scale = max(1.0, float(right.params.abs().max()))
                np.testing.assert_allclose(out[1] / scale, right.params[0] / scale, **TOLERANCE)
                np.testing.assert_allclose(out[2] / scale, right.value[0] / scale, **TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_torchscript_is_the_policy(case, tmp_path):
    if case == "hopper":
        pytest.importorskip("mujoco")
    run = fake_run(tmp_path / "r", *CASES[case])
    done = export_policy(run, tmp_path / "p.pt")
    assert done.metadata["check"]["largest_difference"] < 1e-5
    for n in (1, 5):
        check(run, done.path, n)


@pytest.mark.parametrize("case", ["own mingru", pytest.param("grid tokens", marks=pytest.mark.slow)])
def test_torch_export_is_the_policy(case, tmp_path):
    run = fake_run(tmp_path / "r", *CASES[case])
    done = export_policy(run, tmp_path / "p.pt2")
    for n in (1, 5):
        check(run, done.path, n)


@pytest.mark.parametrize(
    "case",
    [
        *QUICK,
        *(pytest.param(case, marks=pytest.mark.slow) for case in CASES if case not in QUICK),
    ],
)
def test_onnx_is_the_policy(case, tmp_path):
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    run = fake_run(tmp_path / "r", *CASES[case])
    done = export_policy(run, tmp_path / "p.onnx")
    for n in (1, 5):
        check(run, done.path, n)
    model = onnx.load(done.path)
    assert {one.key for one in model.metadata_props} == {formats.METADATA}
    axes = {axis.dim_param for one in model.graph.input for axis in one.type.tensor_type.shape.dim}
    assert axes == {"", "batch"}


@pytest.mark.parametrize("core", CORES)
def test_plain_cores_are_the_cores(core):
    torch.manual_seed(0)
    made = CORES[core](12)
    x, state = torch.randn(7, 4, 12), torch.randn(*made.state_shape[:1], 4, 12)
    reset = torch.rand(7, 4) < 0.3
    for right, got in zip(made(x, state, reset), made.plain(x, state, reset)):
        torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-6)


def test_what_is_said_of_the_file(tmp_path):
    run = fake_run(tmp_path / "spring-3", *OWN, "policy=lstm")
    done = export_policy(run, tmp_path / "p.pt")
    beside = json.loads((tmp_path / "p.pt.json").read_text())
    assert beside == done.metadata
    assert beside["inputs"] == [
        {"name": "obs/place", "dtype": "int64", "shape": ["B", 1]},
        {"name": "obs/reset", "dtype": "float64", "shape": ["B", 2]},
        {"name": "obs/tile", "dtype": "uint8", "shape": ["B", 2, 2]},
        {"name": "state", "dtype": "float32", "shape": [2, "B", 16]},
        {"name": "reset", "dtype": "bool", "shape": ["B"]},
    ]
    assert [out["name"] for out in beside["outputs"]] == ["action", "params", "value", "new_state"]
    assert (beside["action"]["choices"], beside["action"]["start"]) == ([2, 5], [3, -1])
    assert (beside["run"], beside["step"], beside["versions"]["torch"]) == (
        "spring-3",
        1000,
        torch.__version__,
    )
    inside = {formats.METADATA: ""}
    torch.jit.load(str(done.path), _extra_files=inside)
    assert json.loads(inside[formats.METADATA])["outputs"] == beside["outputs"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.pt", "p.pt.json", "spring-3"]


@pytest.mark.parametrize(("name", "random"), [("Table", True), ("Narrow", False)])
def test_random_observations_only_where_the_policy_takes_them(name, random, tmp_path):
    run = fake_run(tmp_path / "r", *OWN, f"policy={HERE}.{name}")
    assert export_policy(run, tmp_path / "p.pt").metadata["check"]["random_observations"] is random


def test_a_file_that_differs_is_not_kept(tmp_path, monkeypatch):
    """Plain decoding that is wrong in one weight."""
    run = fake_run(tmp_path / "r", "env=counter")

    def write(work, path):
        work.step.policy.heads.bias.data[1] += 0.01
        formats.write_torchscript(work, path)

    monkeypatch.setitem(
        formats.FORMATS, "torchscript", formats.Format(".pt", write, formats.load_torchscript)
    )
    with pytest.raises(
        UserError, match=r"the file's outputs differ from the policy's: params differs by 0\.\d+"
    ):
        export_policy(run, tmp_path / "p.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["r"]


def test_a_branch_on_values(tmp_path):
    run = fake_run(tmp_path / "r", *OWN, f"policy={HERE}.Branches")
    with pytest.raises(UserError, match=rf"--format torch_export: policy {HERE}.Branches cannot be exported"):
        export_policy(run, tmp_path / "p.pt2")
    with pytest.raises(UserError, match="the file's outputs differ from the policy's"):
        export_policy(run, tmp_path / "p.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["r"]


def test_mistakes(tmp_path, monkeypatch, capsys):
    run = str(fake_run(tmp_path / "r", "env=counter"))
    for words, message in (
        ((run,), "required: --out; see metta-fast export --help"),
        ((run, "--out", "policy.bin"), "--out policy.bin: its ending names no format"),
        ((run, "--out", "p.pt", "--format", "tensorrt"), "expected torchscript, torch_export, onnx"),
        ((run, "--out", str(tmp_path / "none" / "p.pt")), "there is no folder"),
        ((run, "--out", str(tmp_path / "r"), "--format", "onnx"), "is a folder"),
        ((str(tmp_path / "q"), "--out", str(tmp_path / "p.pt")), "no run or checkpoint"),
    ):
        assert main(["export", *words]) == 2
        assert message in capsys.readouterr().err
    out = tmp_path / "p.pt"
    assert main(["export", run, "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert "equal to the policy on" in told.out
    assert told.err == "torchscript: writing and checking …\n"  # nothing about ONNX
    assert main(["export", run, "--out", str(out)]) == 2
    assert "exists already; give another name, or --overwrite" in capsys.readouterr().err
    assert main(["export", run, "--out", str(out), "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "torchscript"
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "onnxscript" else True)
    assert main(["export", run, "--out", str(tmp_path / "p.onnx")]) == 2
    assert f"needs onnxscript: {install_packages('onnxscript')}" in capsys.readouterr().err
