"""Tests compiling ahead: the rehearsal names all kernels of an epoch, and changes nothing.

No card is needed: nothing is launched here. test_gpu_loop.py compares results on one.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from metta_fast.algorithms.hooks import Context
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.device_ppo import DevicePPO
from metta_fast.config.keys import EnvConfig, PolicyConfig
from metta_fast.envs import make_factory
from metta_fast.policy import make_policy
from metta_fast.rollout.graph_rollout import GraphRollout
from metta_fast.runtime.fast_paths import Situation
from metta_fast.vector import make_vector
from tests.ppo.device_vector import DeviceVector
from tests.ppo.stand_in import make_config

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1",
    reason="needs Triton's compiler",
)


class Driver:
    """A card that is not there: code for sm_90, and nobody to launch it."""

    launched = 0

    def __init__(self) -> None:
        self.launcher_cls = lambda source, metadata: self._launch
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (1, 1, 32, 0, 1024),
            get_device_properties=lambda _: {"max_shared_mem": 232448},
        )

    def _launch(self, *_: Any) -> None:
        self.launched += 1

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    from triton.runtime import driver as active

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    ours = Driver()
    monkeypatch.setattr(active, "_active", ours)
    return ours


@pytest.fixture
def on_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors go the way of a card's."""
    from metta_fast.policy.grid.sparse_layer import SparseLayer
    from metta_fast.policy.grid.triton import compact_operator as gpu_compact

    monkeypatch.setattr(Situation, "on_gpu", True)

    def at_rows(layer: SparseLayer, obs: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        found = gpu_compact.cells(obs.flatten(0, 1), torch.bfloat16, rows)
        out: torch.Tensor = _Layer.apply(
            *found, layer.weight, layer.bias, len(obs.flatten(0, 1) if rows is None else rows)
        )
        return out if rows is not None else out.unflatten(0, obs.shape[:2])

    monkeypatch.setattr(SparseLayer, "at_rows", at_rows)
    monkeypatch.setattr(SparseLayer, "forward", at_rows)
    for name in ("device_rollout", "graph_rollout"):
        monkeypatch.setattr(f"metta_fast.rollout.{name}.check_compiled", lambda *_: None)
    monkeypatch.setattr("metta_fast.algorithms.ppo.ppo.GraphRollout", partial(GraphRollout, graphs=False))


class _Layer(torch.autograd.Function):
    """gpu_compact's operator, which is the card's only."""

    @staticmethod
    def forward(ctx: Any, cells: Any, own: Any, seen: Any, weight: Any, bias: Any, rows: int) -> Any:
        from metta_fast.policy.grid.triton import compact_operator as gpu_compact

        ctx.save_for_backward(cells, own, seen)
        return gpu_compact.forward(cells, own, seen, weight, bias, rows)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
        from metta_fast.policy.grid.triton import compact_operator as gpu_compact

        return None, None, None, *gpu_compact.gradient(*ctx.saved_tensors, grad), None


Launches = set[tuple[Any, ...]]


def record(found: Launches) -> Any:
    """In the place of a launch or a compilation: what decides what is compiled."""

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **keys: Any) -> None:
        plain = tuple(
            (str(x.dtype), x.data_ptr() % 16) if isinstance(x, torch.Tensor) else x
            for x in args
            if not isinstance(x, tuple)
        )
        found.add((kernel.fn.__qualname__, *plain, *sorted(keys.items())))

    return run


def grid_ppo(kind: type[PPO] = DevicePPO, core: str = "none", **keys: Any) -> PPO:
    factory = make_factory(EnvConfig(agents_per_env=4, params={"map": "arena", "room_size": [8, 8]}))
    config = make_config(
        batch_size=64 * 16, minibatch_size=512, bptt_horizon=8, precision="bf16", cuda_graphs=True,
        normalize_reward=True, **keys,
    )  # fmt: skip
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=32, core=core), factory.spec)
    vec: Any = (
        DeviceVector(factory, 16)
        if kind is DevicePPO
        else make_vector(factory, 16, backend="serial", num_blocks=2)
    )
    return kind(config, factory.spec, vec, policy, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("kind", "accumulation", "core"),
    [(DevicePPO, 1, "none"), (DevicePPO, 2, "none"), (PPO, 1, "none"), (DevicePPO, 1, "mingru")],
)
def test_an_epoch_launches_what_was_rehearsed(
    on_kernels: None, monkeypatch: pytest.MonkeyPatch, kind: type[PPO], accumulation: int, core: str
) -> None:
    from triton.runtime import JITFunction

    from metta_fast.runtime.compile_ahead import Ahead

    rehearsed: Launches = set()
    launched: Launches = set()
    note = record(rehearsed)
    monkeypatch.setattr(
        Ahead, "_compile", lambda _, kernel, args, grid, keys: note(kernel, *args, grid=grid, **keys)
    )
    monkeypatch.setattr("triton.runtime.driver._active", Driver())
    run = JITFunction.run
    ppo = grid_ppo(kind, core, gradient_accumulation=accumulation)
    assert JITFunction.run is run
    ppo._compiling.wait()

    monkeypatch.setattr(JITFunction, "run", record(launched))
    ppo.learner._run.enabled = False  # no CUDA graphs here
    if kind is DevicePPO:
        ppo.rollout._run.enabled = False
    ppo.rollout.collect(0)
    if kind is PPO:
        ppo.summary.run()
    ppo.learner.update(Context(ppo.buffers, 0, 0, 0.0), 0)
    assert launched == rehearsed
    names = [name for name, *_ in launched]
    assert {"_act_kernel", "tail_kernel", "partial_kernel", "summarize", "adam"} <= set(names)
    assert names.count("cells_forward_kernel") == 2  # of the learner, and to check the rollout's
    assert ("count" in names) == (accumulation == 2)


def test_a_rehearsal_leaves_everything_as_it_was(on_kernels: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from metta_fast.runtime.compile_ahead import Ahead

    monkeypatch.setattr(Ahead, "_compile", lambda *_: None)
    monkeypatch.setattr("triton.runtime.driver._active", Driver())
    with monkeypatch.context() as without:
        without.setattr(DevicePPO, "_compile_ahead", lambda _: None)
        plain = grid_ppo()
        random = torch.get_rng_state()
    rehearsed = grid_ppo()
    assert torch.equal(torch.get_rng_state(), random)
    for (name, expected), value in zip(
        plain.policy.state_dict().items(), rehearsed.policy.state_dict().values()
    ):
        assert torch.equal(expected, value), name
    assert all(p.grad is None for p in rehearsed.policy.parameters())
    assert not rehearsed.learner.sums.any()
    assert not rehearsed.learner.step.stop.any()
    assert all(
        not v.any() for state in rehearsed.learner.step.optimizer.state.values() for v in state.values()
    )
    assert rehearsed.steps == rehearsed.epoch == 0
    assert not rehearsed.rollout.held


def test_kernels_are_compiled_and_not_launched(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    from metta_fast.algorithms.ppo.triton.loss_kernels import gather_kernel
    from metta_fast.algorithms.ppo.triton.optimizer_step import count
    from metta_fast.runtime.compile_ahead import Ahead

    for kernel in (gather_kernel, count):
        monkeypatch.setattr(kernel, "device_caches", type(kernel.device_caches)(kernel.create_binder))

    def work() -> None:
        numbers, rows, moments = (torch.zeros(n, dtype=torch.int64) for n in (4, 32, 3))
        flags, floats = torch.zeros(64, dtype=torch.bool), torch.zeros(64)
        gather_kernel[(1,)](numbers, flags, floats, rows, moments.float(), 32, 4, 8, 8, 1, 1024, num_warps=8)
        count[(1,)](floats, floats, floats, STATS=5, KL=3, num_warps=1)

    ahead = Ahead(torch.device("cpu"), 2)
    with ahead:
        work()
    ahead.wait()
    assert ahead.failed == []
    assert ahead.kernels == ["gather_kernel", "count"]
    assert driver.launched == 0
    for kernel in (gather_kernel, count):
        compiled, *_ = kernel.device_caches[0]
        assert len(compiled) == 1, kernel
    compiled_before = [dict(k.device_caches[0][0]) for k in (gather_kernel, count)]
    work()
    assert driver.launched == 2
    assert [dict(k.device_caches[0][0]) for k in (gather_kernel, count)] == compiled_before


def test_an_error_in_the_rehearsal_lets_kernels_be_launched_again(driver: Driver) -> None:
    from triton.runtime import JITFunction

    from metta_fast.runtime.compile_ahead import Ahead

    run = JITFunction.run
    with pytest.raises(ZeroDivisionError), Ahead(torch.device("cpu"), 1):
        raise ZeroDivisionError
    assert JITFunction.run is run


def test_training_does_not_import_the_compiler() -> None:
    """torch._dynamo takes some seconds to import: only torch.compile may do so."""
    code = """
import sys
from metta_fast.run.build import build_parts
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
keys = ["hardware=cpu", "env=grid", "policy=mingru", "env.num_envs=8", "env.agents_per_env=2",
        "trainer.batch_size=256", "trainer.minibatch_size=128", "trainer.bptt_horizon=8", "trainer.torch_threads=1"]
parts = build_parts(resolve(compose(keys)).config)
parts.algorithm.collect()
parts.algorithm.update()
parts.algorithm.load_state_dict(parts.algorithm.state_dict())
parts.close()
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr[-2000:]


def test_threads_that_disturb_each_other_in_pythons_parser_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python up to 3.12.2 does now and then."""
    from metta_fast.runtime.compile_ahead import PARSES, Ahead

    monkeypatch.setattr("triton.runtime.driver._active", Driver())
    errors = [SystemError("AST constructor recursion depth mismatch (before=42, after=83)")] * PARSES

    def run(*_: Any, **__: Any) -> Any:
        if errors:
            raise errors.pop()
        return SimpleNamespace(run=None)

    ahead = Ahead(torch.device("cpu"), 1)
    ahead._run = run
    ahead._compile(None, (), (1,), {})
    assert (ahead.failed, errors) == ([], [])
    ahead.wait()
