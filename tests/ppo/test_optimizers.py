"""Compares the optimizers with torch's own, and trains with them.

python -m pytest tests/ppo/test_optimizers.py
python -m pytest -m gpu tests/ppo/test_optimizers.py
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.algorithms.ppo.step import SUMS, Step
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.counter import CounterFactory
from metta_fast.policy import make_policy
from metta_fast.runtime.optimizers.make import make_optimizer
from metta_fast.runtime.optimizers.muon import orthogonal
from metta_fast.storage.altered import WrongState
from tests.ppo.envs import tickers
from tests.ppo.stand_in import TinyPolicy, make_config, make_ppo, run
from tests.ppo.test_rollout import weights

CPU = torch.device("cpu")
SHAPES = ((33, 7), (4, 40), (1, 6), (5,), (), (3, 2, 3, 3), (6, 6))
KEYS = {"beta1": 0.8, "beta2": 0.95, "adam_epsilon": 1e-4, "weight_decay": 0.3, "momentum": 0.9}


def pairs() -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    return ours, [nn.Parameter(p.detach().clone()) for p in ours]


def torchs(optimizer: str, parameters: list[nn.Parameter], rate: float) -> list[torch.optim.Optimizer]:
    """The same by torch alone."""
    betas, eps, decay = (KEYS["beta1"], KEYS["beta2"]), KEYS["adam_epsilon"], KEYS["weight_decay"]
    many, few = ([p for p in parameters if (p.dim() > 1) == wide] for wide in (True, False))
    if optimizer == "adam":
        return [torch.optim.Adam(parameters, lr=rate, betas=betas, eps=eps)]
    plain = [torch.optim.AdamW(few, lr=rate, betas=betas, eps=eps, weight_decay=0.0)]
    if optimizer == "adamw":
        return [*plain, torch.optim.AdamW(many, lr=rate, betas=betas, eps=eps, weight_decay=decay)]
    matrices, others = [p for p in many if p.dim() == 2], [p for p in many if p.dim() > 2]
    muon = torch.optim.Muon(
        matrices, lr=rate, weight_decay=decay, momentum=KEYS["momentum"], adjust_lr_fn="match_rms_adamw"
    )
    return [*plain, muon, torch.optim.AdamW(others, lr=rate, betas=betas, eps=eps, weight_decay=decay)]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_it_is_torchs(optimizer: str) -> None:
    """Also with a gradient that is missing now and then, a tiny one and one of zeros."""
    ours, theirs = pairs()
    own = make_optimizer(ours, make_config(optimizer=optimizer, **KEYS).trainer, 1e-2, CPU)
    others = torchs(optimizer, theirs, 1e-2)
    for number in range(8):
        for i, (p, q) in enumerate(zip(ours, theirs)):
            scale = {3: 1e-9, 5: 0.0}.get(number, 1.0)
            p.grad = None if (number + i) % 5 == 4 else scale * torch.randn_like(p)
            q.grad = None if p.grad is None else p.grad.clone()
        own.step()
        for other in others:
            other.step()
    for p, q in zip(ours, theirs):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_an_orthogonal_step_has_singular_values_near_one() -> None:
    for shape in ((40, 12), (12, 40), (9, 9), (1, 5), (5, 1)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        u, _, v = torch.linalg.svd(x, full_matrices=False)
        found = orthogonal(x).float()
        values = torch.linalg.svdvals(found)
        assert values.min() > 0.6
        assert values.max() < 1.3
        assert float((found * (u @ v)).sum() / found.norm() / (u @ v).norm()) > 0.97


def stepped(stop: float) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and state before and after a step that `stop` may skip."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    step = Step(parameters, make_config(optimizer="muon", **KEYS).trainer, CPU)
    step.optimizer.found_inf = step.stop  # type: ignore[attr-defined]  # as on a GPU

    def everything() -> list[Tensor]:
        state = [x for p in parameters for x in step.optimizer.state[p].values()]
        return [x.detach().clone() for x in [*parameters, *state]]

    def go() -> None:
        for p in parameters:
            p.grad = torch.randn_like(p)
        step(torch.zeros(len(SUMS) - 3), due=True)

    go()
    before = everything()
    step.stop.fill_(stop)
    for p in parameters:
        p.grad = torch.full_like(p, torch.nan) if stop else torch.randn_like(p)
    step.optimizer.step()
    return before, everything()


@pytest.mark.parametrize("stop", [0.0, 1.0])
def test_a_stopped_step_changes_nothing(stop: float) -> None:
    before, after = stepped(stop)
    matrices = [i for i, shape in enumerate(SHAPES) if len(shape) == 2]
    same = [torch.equal(before[i], after[i]) for i in matrices]
    assert same == [bool(stop)] * len(matrices)
    assert all(torch.isfinite(x).all() for x in after)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("box", [False, True])
def test_a_resume_is_exact(optimizer: str, lstm: bool, box: bool) -> None:
    def make() -> Any:
        keys: Any = {"optimizer": optimizer, "deterministic": True, **KEYS}
        return make_ppo(tickers(4, box=box), lstm=lstm, update_epochs=2, **keys)

    whole = make()
    for epoch in range(4):
        whole.collect()
        whole.update()
        if epoch == 1:
            state, vec = whole.state_dict(), whole.vec.state_dict()
    again = make()
    again.vec.load_state_dict(vec)
    again.load_state_dict(state)
    run(again, 2)
    whole.rollout.vec.close()
    assert torch.equal(weights(whole), weights(again))


def test_a_state_of_another_optimizer_is_refused() -> None:
    adam, muon = (make_ppo(tickers(2), optimizer=name) for name in ("adam", "muon"))
    run(adam, 1)
    with pytest.raises(WrongState, match="optimizer"):
        muon.load_state_dict(adam.state_dict())
    muon.rollout.vec.close()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_the_fast_paths_are_left_with_a_reason(optimizer: str) -> None:
    factory = CounterFactory()
    policy = make_policy(PolicyConfig(hidden_size=32), factory.spec)
    ppo = make_ppo(factory, 8, policy=policy, optimizer=optimizer)
    ppo.rollout.vec.close()
    why = next(choice.why for choice in ppo.fast_paths if choice.name == "update in C")
    assert (why is None) == (optimizer == "adam")
    assert optimizer == "adam" or f"trainer.optimizer={optimizer}" in str(why)


def test_the_update_in_c_reads_betas_and_epsilon() -> None:
    keys = {"beta1": 0.7, "beta2": 0.9, "adam_epsilon": 1e-2, "update_epochs": 2}
    found = []
    for plain in (False, True):
        torch.manual_seed(0)
        factory = CounterFactory()
        policy = make_policy(PolicyConfig(hidden_size=32), factory.spec)
        ppo = make_ppo(factory, 8, policy=policy, **keys)
        assert ppo.learner._cpu_update is not None
        if plain:
            ppo.learner._cpu_update = None
        found.append(weights(run(ppo, 3)))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_counter_is_solved(optimizer: str) -> None:
    """Always right is 64 steps of reward 1; a random agent has half of it."""
    factory = CounterFactory(max_steps=64, goal=2)
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=32), factory.spec)
    ppo = make_ppo(
        factory, 64, horizon=32, bptt=16, minibatches=4, policy=policy, gamma=0.9, learning_rate=5e-3,
        entropy_coef=0.01, update_epochs=4, total_timesteps=60_000, optimizer=optimizer,
    )  # fmt: skip
    run(ppo, 29)
    assert ppo.metrics()["env/return"] > 62


def test_outer_layers_are_left_to_adamw() -> None:
    """With a plan, by it; without one, by the number of rows."""
    factory = CounterFactory()
    shared, apart, own = (
        make_ppo(factory, 4, policy=policy, optimizer="muon")
        for policy in (
            make_policy(PolicyConfig(hidden_size=32), factory.spec),
            make_policy(PolicyConfig(hidden_size=32, shared=False), factory.spec),
            TinyPolicy(factory.spec, lstm=True),
        )
    )
    for ppo, names in (
        (shared, {"heads.weight"}),
        (apart, {"heads.weight", "critic.value.weight"}),
        (own, {"output.weight", "critic.weight"}),
    ):
        ppo.rollout.vec.close()
        group = ppo.learner.step.optimizer.param_groups[0]
        muons = {name for name, p in ppo.policy.named_parameters() if any(p is q for q in group["params"])}
        assert muons == {n for n, p in ppo.policy.named_parameters() if p.dim() == 2} - names
        assert any("Muon steps" in note and all(name in note for name in muons) for note in ppo.notes)


def test_all_weights_may_be_of_one_kind() -> None:
    """No matrix, or matrices alone: a group without weights is left out."""
    for shapes in (((3,), ()), ((3, 4), (4, 3))):
        parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        optimizer = make_optimizer(parameters, make_config(optimizer="muon").trainer, 1e-2, CPU)
        for p in parameters:
            p.grad = torch.randn_like(p)
        before = [p.detach().clone() for p in parameters]
        optimizer.step()
        assert not any(torch.equal(p, q) for p, q in zip(parameters, before))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_graphs_change_nothing(optimizer: str) -> None:
    """The step is captured: the update is one CUDA graph, and its weights are those of the launches."""
    found = []
    for graphs in (False, True):
        keys: Any = {"optimizer": optimizer, "cuda_graphs": graphs, "update_epochs": 2, **KEYS}
        ppo = make_ppo(tickers(5), device="cuda", minibatches=2, blocks=2, **keys)
        run(ppo, 5)
        assert ppo.learner._run.captured == graphs, ppo.notes
        found.append(weights(ppo))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-5)
