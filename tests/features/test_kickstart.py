"""Compares kickstart with torch's distributions; a run with a trained teacher learns at once; resumes are exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from metta_fast.cli import main
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError
from metta_fast.features import kickstart, make_features
from metta_fast.features.kickstart import divergence
from metta_fast.policy import make_policy
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.mixed_head import MixedHead
from tests.features.exact import check_resume
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_rollout import weights
from tests.tiny import COUNTER, QUIET

MASK = torch.tensor([[True, False], [True, True], [False, True]])


def two(size: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    first, second = 0.5 * torch.randn(3, 2, size, generator=g), 0.5 * torch.randn(3, 2, size, generator=g)
    first[0, 1] = torch.nan  # a masked row
    return first, second.requires_grad_()


def choices(nvec: tuple[int, ...], teacher: Tensor, own: Tensor) -> Tensor:
    parts = zip(teacher.split(nvec, -1), own.split(nvec, -1))
    return sum(
        (kl_divergence(Categorical(logits=p), Categorical(logits=q)) for p, q in parts), torch.zeros(3, 2)
    )


def normals(teacher: Tensor, own: Tensor) -> Tensor:
    (m, s), (n, r) = teacher.chunk(2, -1), own.chunk(2, -1)
    return kl_divergence(Normal(m, s.exp()), Normal(n, r.exp())).sum(-1)


@pytest.mark.parametrize("kind", ["discrete", "box", "mixed"])
def test_it_is_the_divergence(kind: str) -> None:
    nvec, low, high = (3, 2), (-1.0, -2.0, 0.0), (1.0, 2.0, 1.0)
    spec = {
        "discrete": ActionSpec("discrete", nvec=nvec),
        "box": ActionSpec("box", low=low, high=high),
        "mixed": ActionSpec("mixed", nvec=nvec, low=low, high=high),
    }[kind]
    head: Any = {"discrete": ActionHead, "box": BoxHead, "mixed": MixedHead}[kind](spec)
    teacher, own = two(head.num_params)
    found = divergence(head, teacher, own, MASK)
    good = torch.where(MASK.unsqueeze(-1), teacher, 0.0)
    wanted = {
        "discrete": lambda: choices(nvec, good, own),
        "box": lambda: normals(good, own),
        "mixed": lambda: choices(nvec, good[..., :5], own[..., :5]) + normals(good[..., 5:], own[..., 5:]),
    }[kind]()
    torch.testing.assert_close(found[MASK], wanted[MASK])
    assert (found[~MASK] == 0).all()
    found.sum().backward()
    assert own.grad is not None
    assert own.grad.isfinite().all()
    same = divergence(head, own.detach(), own, MASK)
    torch.testing.assert_close(same, torch.zeros_like(same), atol=1e-5, rtol=0)


def test_forbidden_choices_take_no_part() -> None:
    head = ActionHead(ActionSpec("discrete", nvec=(4,)))
    teacher, own = two(4)
    legal = torch.tensor([True, False, True, True]).expand(3, 2, 4)
    found = divergence(head, teacher, own, MASK, legal)
    wanted = choices((3,), torch.where(MASK.unsqueeze(-1), teacher, 0.0)[..., [0, 2, 3]], own[..., [0, 2, 3]])
    torch.testing.assert_close(found[MASK], wanted[MASK])
    found.sum().backward()
    assert own.grad is not None
    assert own.grad.isfinite().all()


def policy_of(factory: Any, core: str = "none", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return make_policy(PolicyConfig(hidden_size=16, core=core), factory.spec)


@pytest.fixture
def teachers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Policies that stand for runs, by name: of their folder, which is there."""
    found: dict[str, Any] = {}

    def load(name: str, built: Any) -> Any:
        return found[name].eval().requires_grad_(False)

    monkeypatch.setattr(kickstart, "load_teacher", load)
    return found


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("box", [False, True])
def test_the_loss_is_that_of_the_teachers_own_rollout(
    core: str, box: bool, teachers: dict[str, Any], tmp_path: Path
) -> None:
    """Against a second PPO whose policy is the teacher: its rows are computed one by one, with its own state."""
    factory = tickers(4, box=box)
    name = str(tmp_path)
    teachers[name] = policy_of(factory, core, seed=1)
    given = {"kickstart": {"teachers": {name: 0.7}, "coef": 2.0, "value_coef": 0.3, "until": 0.4}}
    ppo = make_ppo(
        factory, policy=policy_of(factory, "lstm"), hooks=make_features(given), total_timesteps=640
    )
    kick: Any = ppo.hooks.states["kickstart"]
    state = teachers[name].initial_state(4)
    for _ in range(2):
        ppo.collect()
        b = ppo.buffers
        params, values = [], []
        with torch.no_grad():
            for t in range(b.horizon):
                obs = {leaf: x[t : t + 1] for leaf, x in b.obs.items()}
                out = teachers[name](obs, state, b.reset[t : t + 1])
                state = out.state
                params.append(out.params)
                values.append(out.value)
        ppo.update()  # in it, the teacher looks at the rollout
        torch.testing.assert_close(kick.teachers[0].params, torch.cat(params))
        torch.testing.assert_close(kick.teachers[0].value, torch.cat(values))
        torch.testing.assert_close(kick.teachers[0].state, state)
    batch = ppo.learner.gather.minibatch(s := torch.tensor([3, 0, 6]), ppo.learner.gather.rows(s))
    ppo.rollout.vec.close()
    output: Any = ppo.policy(batch.obs, batch.state, batch.reset)
    found = float(kick(batch, output).detach())
    theirs = torch.cat(params).flatten(0, 1)[batch.rows].unflatten(0, batch.mask.shape)
    value = torch.cat(values).flatten()[batch.rows].view(batch.mask.shape)
    apart = divergence(ppo.policy.head, theirs, output.params, batch.mask)[batch.mask].mean()
    error = (output.value - value)[batch.mask].square().mean()
    assert 0 < kick._scale < 1
    assert found == pytest.approx(
        kick._scale * 0.7 * float((2.0 * apart + 0.3 * 0.5 * error).detach()), rel=1e-4
    )


def test_the_teachers_leave(teachers: dict[str, Any], tmp_path: Path) -> None:
    """λ falls from 1 to 0 at `until`; from then on they do not run."""
    factory, name = tickers(4), str(tmp_path)
    teachers[name] = policy_of(factory, seed=1)
    given = {"kickstart": {"teachers": [name], "until": 0.5}}
    ppo = make_ppo(factory, policy=policy_of(factory), hooks=make_features(given))
    ppo.rollout.vec.close()
    kick: Any = ppo.hooks.states["kickstart"]
    scales, looked = [], []
    for progress in (0.0, 0.25, 0.5, 1.0):
        kick.teachers[0].params.fill_(7.0)
        context = ppo._context()
        context.progress = progress
        kick.begin(context)
        scales.append(kick._scale)
        looked.append(not (kick.teachers[0].params == 7.0).all())
    assert scales == [1.0, 0.5, 0.0, 0.0]
    assert looked == [True, True, False, False]


@pytest.mark.parametrize("box", [False, True])
def test_a_resume_is_exact_with_a_recurrent_teacher(
    box: bool, teachers: dict[str, Any], tmp_path: Path
) -> None:
    factory = tickers(4, box=box)
    name = str(tmp_path)
    teachers[name] = policy_of(factory, "lstm", seed=1)
    given = {"kickstart": {"teachers": name}}
    keys: Any = {"deterministic": True, "update_epochs": 2, "total_timesteps": 400}

    def make() -> Any:
        return make_ppo(factory, policy=policy_of(factory, "mingru"), hooks=make_features(given), **keys)

    whole = check_resume(make)
    bare = make_ppo(factory, policy=policy_of(factory, "mingru"), **keys)
    assert not torch.equal(weights(whole), weights(run(bare, 4)))


def test_a_head_of_ones_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"features\.kickstart: the policy's head is a DiscreteHead"):
        make_ppo(tickers(2), hooks=make_features({"kickstart": {"teachers": str(tmp_path)}}))


def test_a_run_learns_from_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With no learning of its own, it plays as its teacher does; another environment's teacher is refused."""
    words = ("env.params.goal=2", "trainer.gamma=0.9", "policy.hidden_size=32", f"run.dir={tmp_path}")
    train = ("trainer.total_timesteps=30000", "trainer.learning_rate=5e-3", "trainer.update_epochs=4")
    assert main(["train", *COUNTER, *words, *train, "run.name=teacher"]) == 0
    kick = (
        "features=kickstart", f"features.kickstart.teachers={tmp_path}/teacher", "features.kickstart.until=1",
        "trainer.learning_rate=5e-3", "trainer.update_epochs=4", "trainer.clip_coef=0", "trainer.entropy_coef=0",
    )  # fmt: skip
    small = "trainer.total_timesteps=6000"
    scores = {}
    for name, own in (("pupil", kick), ("alone", kick[3:])):
        policy = "policy.core=mingru" if name == "pupil" else "policy.core=none"
        assert main(["train", *COUNTER, *words, small, *own, policy, f"run.name={name}"]) == 0
        capsys.readouterr()
        assert main(["eval", str(tmp_path / name), "--episodes", "8", "--json"]) == 0
        players = json.loads(capsys.readouterr().out)["players"]
        scores[name] = next(iter(players.values()))["return"]
    assert scores["pupil"] > scores["alone"] + 5
    other = [
        "train",
        *QUIET,
        "env=metta_fast.envs.sanity.copy:make",
        "trainer.total_timesteps=200",
        *kick[:2],
    ]
    assert main([*other, f"run.dir={tmp_path}", "run.name=other"]) == 2
    assert "features.kickstart.teachers" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
