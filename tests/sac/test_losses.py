"""Each loss beside numbers that are worked out by hand, and whole updates beside a plain one with torch's own parts."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from metta_fast.algorithms.hooks import Context
from metta_fast.algorithms.registry import own_values
from metta_fast.algorithms.sac import losses
from metta_fast.algorithms.sac.critics import Critics
from metta_fast.algorithms.sac.kind import OffPolicyKind, SACKind, TD3Kind
from metta_fast.algorithms.sac.learner import Learner
from metta_fast.algorithms.sac.temperature import Temperature
from metta_fast.buffers.replay import Replay
from metta_fast.config.keys import Config
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.policy import make_policy
from metta_fast.policy.box_head import BoxHead
from tests.run.same import same

BOX = ActionSpec("box", low=(-2.0, 0.0), high=(2.0, 1.0))
CHOICE = ActionSpec("discrete", nvec=(3,))
CPU = torch.device("cpu")


def test_td_loss_by_hand():
    q = torch.tensor([[1.0, 2.0, 9.0], [0.0, 4.0, 9.0]])
    target, weight = torch.tensor([2.0, 2.0, 0.0]), torch.tensor([1.0, 1.0, 0.0])
    # ½ · ((1 + 4) + (0 + 4)) / 2; the third has no weight
    assert losses.td_loss(q, target, weight) == pytest.approx(0.5 * (5 + 4) / 2)
    assert losses.td_loss(q, target, torch.zeros(3)) == 0


def test_soft_values_by_hand():
    q = torch.tensor([[3.0], [2.0]])
    assert losses.soft_value(q.amin(0), torch.tensor([-0.5]), torch.tensor(0.2)) == pytest.approx(2.0 + 0.1)
    logits = torch.tensor([[0.0, math.log(3.0), -torch.inf]])  # 1/4, 3/4, impossible
    q = torch.tensor([[[1.0, 5.0, 100.0]], [[2.0, 4.0, 100.0]]])
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    expected = 0.25 * 1 + 0.75 * 4 + 0.3 * entropy
    assert losses.discrete_value(q, logits, torch.tensor(0.3)) == pytest.approx(expected)
    assert losses.discrete_entropy(logits) == pytest.approx(entropy)


def test_a_masked_choice_gives_finite_gradients():
    logits = torch.tensor([[0.3, -0.2, -torch.inf]], requires_grad=True)
    losses.discrete_value(torch.ones(2, 1, 3), logits, torch.tensor(0.5)).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0


def test_temperatures_loss_moves_it_towards_the_target():
    temperature = Temperature(0.5, -2.0)
    loss = temperature.loss(torch.tensor(1.0))  # more entropy than asked for
    assert float(loss.detach()) == pytest.approx(0.5 * 3.0)
    loss.backward()
    assert temperature.log_alpha.grad == pytest.approx(0.5 * 3.0)  # d(α · 3) / d log α; a step lowers α
    assert not Temperature(0.5, None).log_alpha.requires_grad


def test_reparameterized_is_sample_with_torchs_own_density():
    head = BoxHead(BOX, squash=True)
    generator = torch.Generator().manual_seed(0)
    params = torch.randn(7, 4, generator=generator, requires_grad=True)
    noise = torch.randn(7, 2, generator=generator)
    action, logprob = head.reparameterized(params, noise)
    plain, plain_logprob = head.sample(params, noise)
    torch.testing.assert_close(action, plain)
    torch.testing.assert_close(logprob, plain_logprob)
    mean, log_std = params.chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    tanh = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform(cache_size=1)]
    )
    torch.testing.assert_close(logprob, tanh.log_prob(action.tanh()).sum(-1), rtol=1e-4, atol=1e-4)
    chosen = (mean + noise * log_std.exp()).tanh()
    expected = torch.autograd.grad(tanh.log_prob(chosen).sum(), params, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(logprob.sum(), params)[0], expected, rtol=1e-3, atol=1e-3)


def made(kind: OffPolicyKind, action: ActionSpec, *, policy: dict[str, Any] | None = None, **own):
    """A learner over 40 random rows of two agents, and its keys. policy: keys of the policy beside the usual ones."""
    torch.manual_seed(3)
    spec = EnvSpec(name="x", agents_per_env=1, obs={"obs": Leaf((5,), "float32")}, action=action)
    config = Config()
    config.policy.hidden_size, config.policy.squash = 16, action.kind == "box"
    config.policy.state_std = isinstance(kind, SACKind)
    for name, value in (policy or {}).items():
        setattr(config.policy, name, value)
    config.trainer.minibatch_size, config.trainer.learning_rate = 12, 0.01
    config.trainer.schedule, config.trainer.max_grad_norm, config.trainer.gamma = "constant", 0.0, 0.9
    config.algorithm = {
        "name": "sac",
        "critic_width": 24,
        "layer_norm": False,
        "tau": 0.1,
        "actor_delay": 1,
        **own,
    }
    if isinstance(kind, SACKind):
        config.algorithm.setdefault("target_entropy", -2.0)
    keys = own_values(kind, config)
    actor = make_policy(config.policy, spec)
    replay = Replay(spec, num_agents=2, rows=40, slack=40, gamma=0.9, n_step=keys.n_step, device=CPU)
    replay.obs["obs"].normal_()
    replay.mask.fill_(True)
    replay.reward.normal_()
    replay.terminal.copy_(torch.rand(replay.terminal.shape) < 0.2)
    if action.kind == "box":
        replay.action.normal_()
    else:
        replay.action.random_(0, 3)
    replay.added, replay.is_open = 40, True
    critics = Critics(config.policy, spec, keys)
    from contextlib import nullcontext

    learner = Learner(
        actor, critics, kind.objective(actor, spec, keys, CPU), replay, config.trainer, keys,
        seed=1, device=CPU, autocast=nullcontext, chunk=4,
    )  # fmt: skip
    return learner, keys


def run(learner: Learner, count: int, epoch: int = 0) -> None:
    learner.run(count, Context(None, 1, epoch, 0.0), steps=0)  # type: ignore[arg-type]


class PlainQ(nn.Module):
    """One critic of an ensemble, in torch's own layers."""

    def __init__(self, critics: Critics, number: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for one in (*critics.layers, critics.last):
            linear = nn.Linear(one.weight.shape[1], one.weight.shape[2])
            linear.weight.data = one.weight[number].detach().t().clone()
            linear.bias.data = one.bias[number, 0].detach().clone()
            layers += [linear, nn.ReLU()]
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, *parts):
        return self.net(torch.cat(parts, -1))


def weights_of(plain: list[PlainQ]) -> list[torch.Tensor]:
    """The weights in the ensemble's layout."""
    found = []
    for at in range(0, len(plain[0].net), 2):
        found.append(torch.stack([q.net[at].weight.t() for q in plain]))
        found.append(torch.stack([q.net[at].bias for q in plain]).unsqueeze(1))
    return found


@pytest.mark.parametrize("delay", [1, 2])
def test_updates_of_sac_are_a_plain_implementations(delay):
    """Two critics as two modules, torch.optim.Adam, torch.distributions; the same draws."""
    learner, keys = made(SACKind(), BOX, actor_delay=delay)
    actor = copy.deepcopy(learner.policy)
    qs = [PlainQ(learner.critics, i) for i in (0, 1)]
    slow = copy.deepcopy(qs)
    log_alpha = torch.zeros((), requires_grad=True)
    q_steps = torch.optim.Adam([p for q in qs for p in q.parameters()], lr=0.01)
    pi_step, alpha_step = (
        torch.optim.Adam(actor.parameters(), lr=0.01),
        torch.optim.Adam([log_alpha], lr=0.01),
    )

    def sample(obs, noise):
        out = actor(
            {"obs": obs}, torch.zeros(0, len(obs[0]), 0), torch.zeros(obs.shape[:2], dtype=torch.bool)
        )
        mean, log_std = out.params[0].chunk(2, -1)
        tanh = torch.distributions.TransformedDistribution(
            torch.distributions.Normal(mean, log_std.clamp(-10, 2).exp()),
            [torch.distributions.TanhTransform(cache_size=1)],
        )
        action = (mean + noise * log_std.clamp(-10, 2).exp()).tanh()
        return action, tanh.log_prob(action).sum(-1)

    drawn = []
    plain_update = learner._update

    def recorded(i, due):
        drawn.append((learner.replay.gather(learner._index[i], learner._left[i]), learner._noise[i].clone()))
        plain_update(i, due)

    learner._update = recorded
    learner._graph._work = lambda: [recorded(i, (i + 1) % keys.actor_delay == 0) for i in range(4)]
    run(learner, 6)
    assert len(drawn) == 6
    for number, (t, noise) in enumerate(drawn, start=1):
        with torch.no_grad():
            action, logp = sample(t.next_obs["obs"], noise[0])
            best = torch.minimum(*(q(t.next_obs["obs"][0], action)[:, 0] for q in slow))
            y = t.reward + t.discount * (best - log_alpha.exp() * logp)
        loss = sum(0.5 * (q(t.obs["obs"][0], t.action.tanh())[:, 0] - y).square().mean() for q in qs)
        q_steps.zero_grad()
        loss.backward()
        q_steps.step()
        if number % delay == 0:
            action, logp = sample(t.obs["obs"], noise[1])
            best = torch.minimum(*(q(t.obs["obs"][0], action)[:, 0] for q in qs))
            pi_step.zero_grad()
            (log_alpha.exp().detach() * logp - best).mean().backward()
            pi_step.step()
            alpha_step.zero_grad()
            (log_alpha.exp() * (-logp.detach().mean() - keys.target_entropy)).backward()
            alpha_step.step()
        for q, other in zip(slow, qs):
            for a, b in zip(q.parameters(), other.parameters()):
                a.data.lerp_(b.data, 0.1)
    close = {"rtol": 2e-3, "atol": 2e-4}
    for ours, theirs in zip(learner.critics.parameters(), weights_of(qs)):
        torch.testing.assert_close(ours, theirs, **close)
    for ours, theirs in zip(learner.target.parameters(), weights_of(slow)):
        torch.testing.assert_close(ours, theirs, **close)
    for ours, theirs in zip(learner.policy.parameters(), actor.parameters()):
        torch.testing.assert_close(ours, theirs, **close)
    torch.testing.assert_close(learner.temperature.log_alpha, log_alpha, **close)


def test_an_update_of_td3_by_hand():
    learner, _ = made(TD3Kind(), BOX, actor_delay=1, target_noise=0.3, target_noise_clip=0.2)
    learner._draw(1, 0, 0)
    t, noise = learner.replay.gather(learner._index[0], learner._left[0]), learner._noise[0]

    def mean(policy, obs):
        return (
            policy({"obs": obs}, torch.zeros(0, 12, 0), torch.zeros(1, 12, dtype=torch.bool))
            .params[0, :, :2]
            .tanh()
        )

    with torch.no_grad():
        qs = [PlainQ(learner.critics, i) for i in (0, 1)]
        action = (mean(learner.policy, t.next_obs["obs"]) + (0.3 * noise[0]).clamp(-0.2, 0.2)).clamp(-1, 1)
        y = t.reward + t.discount * torch.minimum(*(q(t.next_obs["obs"][0], action)[:, 0] for q in qs))
        expected = sum(0.5 * (q(t.obs["obs"][0], t.action.tanh())[:, 0] - y).square().mean() for q in qs)
    spread = learner.policy.log_std.detach().clone()
    run(learner, 1)
    assert learner.sums[0] == pytest.approx(float(expected), rel=1e-4)
    first = PlainQ(learner.critics, 0)
    with torch.no_grad():  # the actor's loss was of the critics after their step
        assert learner.sums[3] != 0
        assert first(t.obs["obs"][0], mean(learner.policy, t.obs["obs"])).shape == (12, 1)
    same(learner.policy.log_std.detach(), spread)  # exploration's noise is not learned


@pytest.mark.parametrize(("kind", "action"), [(SACKind(), BOX), (SACKind(), CHOICE), (TD3Kind(), BOX)])
def test_chunks_change_nothing_and_states_go_on_to_the_bit(kind, action):
    whole, _ = made(kind, action)
    run(whole, 8)
    run(whole, 5, epoch=1)
    first, _ = made(kind, action)
    run(first, 8)
    second, _ = made(kind, action)
    second.load_state_dict(first.state_dict())
    run(second, 5, epoch=1)
    same(second.state_dict(), whole.state_dict())
    assert whole.updates == 13


def test_discrete_updates_learn_the_choice_that_pays():
    learner, _ = made(SACKind(), CHOICE, target_entropy=0.1)
    learner.replay.reward.copy_((learner.replay.action[..., 0] == 1).float())
    learner.replay.terminal.fill_(True)
    run(learner, 150)
    obs = learner.replay.obs["obs"][:1]
    out = learner.policy({"obs": obs}, torch.zeros(0, 2, 0), torch.zeros(1, 2, dtype=torch.bool))
    assert (out.params.softmax(-1)[..., 1] > 0.8).all()


def test_layer_norm_and_more_critics_are_those_of_single_networks():
    learner, _ = made(SACKind(), BOX, critics=3, layer_norm=True, critic_layers=3)
    obs, action = torch.randn(6, 5), torch.randn(6, 2)
    x = torch.cat([obs, action], -1)
    q = learner.critics(obs, action)
    assert q.shape == (3, 6, 1)
    for i in range(3):
        y = x
        for layer in learner.critics.layers:
            y = nn.functional.layer_norm(y @ layer.weight[i] + layer.bias[i], (24,)).relu()
        torch.testing.assert_close(q[i], y @ learner.critics.last.weight[i] + learner.critics.last.bias[i])
