"""The registry of fast paths: each has a test against its plain path, none is hidden, and they go by structure."""

from __future__ import annotations

import ast
import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.c.mlp_update import C_UPDATE
from metta_fast.algorithms.ppo.fast_paths import LOSS_KERNELS, PATHS, situation_of
from metta_fast.algorithms.registry import kind_of
from metta_fast.algorithms.sac import fast_paths as off_policy
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.algorithm import Choice
from metta_fast.envs import make_factory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.metrics.run_panel import Curve, run_panel
from metta_fast.policy import Policy, PolicyOutput, make_policy
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.network import Network
from metta_fast.policy.plan import Plan
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import resolve
from metta_fast.rollout.c_rollout import C_ROLLOUT
from metta_fast.rollout.fast_paths import FUSED_ACT
from metta_fast.run.trainer import Trainer
from metta_fast.runtime.fast_paths import REGISTRY, FastPath, choose, in_words, register
from metta_fast.vector import make_vector
from tests.ppo.stand_in import make_config, make_ppo, run
from tests.run.fake import Builder, resolved

ROOT = Path(__file__).resolve().parent.parent
CPU, GPU = torch.device("cpu"), torch.device("cuda")
CHOOSES = {"supports", "why_not", "has_triton"}
"""Names of functions that choose a path. Who defines or calls one must be registered."""
FOR_ALL = {"metta_fast.runtime.fast_paths", "metta_fast.runtime.torch_setup"}


def modules_of(path: FastPath) -> set[str]:
    return {path.why_not.__module__, *path.modules}


def sources() -> dict[str, ast.Module]:
    files = sorted((ROOT / "metta_fast").rglob("*.py"))
    inside = [file.relative_to(ROOT) for file in files]
    return {
        ".".join(file.with_suffix("").parts).removesuffix(".__init__"): ast.parse((ROOT / file).read_text())
        for file in inside
        if not file.as_posix().startswith(("metta_fast/envs/", "metta_fast/bench/"))
    }


def chooses(tree: ast.Module) -> bool:
    """Whether a module defines or calls what chooses a path, or asks whether Triton is installed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in CHOOSES:
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in CHOOSES:
                return True
            asks = name == "find_spec" and isinstance(node.args[0], ast.Constant)
            if asks and node.args[0].value == "triton":
                return True
    return False


def test_no_path_is_hidden() -> None:
    known = FOR_ALL.union(*map(modules_of, REGISTRY.values()))
    trees = sources()
    assert {name for name, tree in trees.items() if chooses(tree)} - known == set()
    assert known - set(trees) == set()  # and none that is gone
    hidden = "def supports(policy):\n    return None\n"
    assert chooses(ast.parse(hidden))
    assert chooses(ast.parse("ok = find_spec('triton') is not None"))


ALL = {path.name: path for path in (*PATHS, *off_policy.PATHS)}
"""Of every algorithm of ours."""


@pytest.mark.parametrize("path", ALL.values(), ids=ALL)
def test_each_path_has_its_differential_test(path: FastPath) -> None:
    assert REGISTRY[path.name] is path
    file, _, name = path.test.partition("::")
    assert importlib.util.find_spec(file.removesuffix(".py").replace("/", ".")) is not None
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_all_that_is_registered_can_be_chosen() -> None:
    assert set(ALL) == set(REGISTRY)


def test_a_path_without_a_test_or_with_anothers_name_is_refused() -> None:
    with pytest.raises(ValueError, match="expected tests/"):
        register(FastPath("new", "old", lambda _: None, test=""))
    with pytest.raises(ValueError, match="two fast paths"):
        register(FastPath(C_UPDATE.name, "old", lambda _: None, test="tests/test_x.py::test_y"))
    assert "new" not in REGISTRY


class Same(Network):
    """Another class, nothing more."""


class Own(Policy):
    """A user's policy that says what it is made of."""

    def __init__(self, config: PolicyConfig, spec: Any) -> None:
        super().__init__(spec)
        self.body = MLPEncoder(spec, config.hidden_size)
        self.last = nn.Linear(config.hidden_size, self.head.num_params + 1)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        hidden = self.body(obs)
        with torch.autocast(hidden.device.type, enabled=False):
            out = self.last(hidden.float())
        return PolicyOutput(out[..., :-1], out[..., -1], state)

    def plan(self) -> Plan:
        return Plan(self.body.trunk(None), self.last, self.head)


class Changed(Network):
    """Not what its inherited plan says."""

    def forward(self, obs: Any, state: Tensor, reset: Tensor) -> PolicyOutput:
        out = super().forward(obs, state, reset)
        return out._replace(params=out.params * 2)


def grid() -> GridFactory:
    return GridFactory(observation="compact", num_agents=4, room_size=[10, 10], max_steps=8)


def choices(kind: type[Policy], device: torch.device, **trainer: Any) -> list[Choice]:
    spec = grid().spec
    policy = kind(PolicyConfig(hidden_size=32), spec)  # type: ignore[call-arg, arg-type]
    config = make_config(**trainer)
    return choose(PATHS, situation_of(policy, config, spec, device, Hooks())).choices


@pytest.mark.parametrize("kind", [Same, Own])
def test_a_policy_is_known_by_its_structure(kind: type[Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metta_fast.runtime.fast_paths.importlib.util.find_spec", lambda _: True)  # Triton
    card: dict[str, Any] = {"precision": "bf16", "cuda_graphs": True}
    for device, trainer, paths in (
        (CPU, dict[str, Any](), (C_ROLLOUT, C_UPDATE)),
        (GPU, card, (FUSED_ACT, LOSS_KERNELS)),
    ):
        found = choices(kind, device, **trainer)
        assert found == choices(Network, device, **trainer)
        used = {choice.name for choice in found if choice.why is None}
        assert {path.name for path in paths} <= used
        other = {choice.name: choice for choice in choices(Changed, device, **trainer)}
        assert all(other[path.name].costs_speed for path in paths)


@pytest.mark.parametrize("kind", [Same, Own])
def test_it_learns_the_same_to_the_bit(kind: type[Policy]) -> None:
    learnt = []
    for made in (Network, kind):
        factory = grid()
        torch.manual_seed(0)
        policy: Any = made(PolicyConfig(hidden_size=32), factory.spec)  # type: ignore[call-arg, arg-type]
        if made is kind:  # the layers of Own are drawn in another way
            weights = learnt[0][0]
            for p, value in zip(policy.parameters(), weights, strict=True):
                p.data.copy_(value)
        else:
            weights = [p.detach().clone() for p in policy.parameters()]
        ppo = make_ppo(factory, 3, horizon=24, bptt=4, minibatches=3, policy=policy, learning_rate=3e-3)
        assert ppo.paths.uses(C_ROLLOUT)
        assert ppo.paths.uses(C_UPDATE)
        run(ppo, 2)
        learnt.append((weights, [p.detach().clone() for p in ppo.policy.parameters()]))
    for one, other in zip(learnt[0][1], learnt[1][1], strict=True):
        assert torch.equal(one, other)


def test_the_reasons_are_grouped_and_the_costly_come_first() -> None:
    lines = in_words(
        [
            Choice("a", "x", None),
            Choice("b", "x", "no GPU"),
            Choice("c", "x", "no GPU"),
            Choice("d", "x", "an LSTM", costs_speed=True),
        ]
    )
    assert lines == ["fast paths: a", "slower without d: an LSTM", "not needed: b, c: no GPU"]
    assert in_words([])[0] == "fast paths: none"


def test_the_choice_says_why_a_memory_is_slower() -> None:
    spec = grid().spec
    policy = make_policy(PolicyConfig(hidden_size=32, core="lstm"), spec)
    found = choose(PATHS, situation_of(policy, make_config(), spec, CPU, Hooks()))
    assert not found.uses(C_UPDATE)
    assert found.missed(C_ROLLOUT, C_UPDATE) == "a recurrent policy (LSTMCore)"


def test_the_log_the_dashboards_and_explain_show_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = resolved(tmp_path, dashboard="plain")
    assert Trainer(done, build=Builder()).run() == 0
    assert "slower without update in C: an LSTM" in capsys.readouterr().err.splitlines()
    log = (tmp_path / "fake" / "train.log").read_text()
    for text in ("fast paths: rollout in C", "slower without update in C: an LSTM"):
        assert text in log

    screen = io.StringIO()
    panel = run_panel({}, 10, Curve(), title="x", width=80, slower=["update in C: an LSTM"])
    Console(file=screen, width=80).print(panel)
    assert "slower without update in C: an LSTM" in screen.getvalue()


@pytest.mark.parametrize(
    ("core", "text"), [("none", "rollout in C, "), ("lstm", "slower without rollout in C, update in C:")]
)
def test_explain_shows_what_the_run_will_take(core: str, text: str) -> None:
    done = resolve(
        compose(
            ["hardware=cpu", "env=grid", f"policy.core={core}", "env.num_envs=2", "trainer.batch_size=256"]
        )
    )
    said = explain_text(done)
    assert "\nFast paths\n  fast paths: " in said
    assert text in said
    factory = make_factory(done.config.env)
    policy = make_policy(done.config.policy, factory.spec)
    hooks = Hooks()
    found = kind_of(done.config).fast_paths(done.config, factory.spec, policy, hooks)
    vec = make_vector(factory, 2, backend="serial")
    built = kind_of(done.config).build(done.config, factory.spec, vec, policy, CPU, hooks)
    assert built.fast_paths == found
    vec.close()
