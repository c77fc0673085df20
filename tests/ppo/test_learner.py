"""Tests the update: it sees what the rollout saw, ignores masked rows, and repeats exactly after a resume."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from metta_fast.algorithms.hooks import Context, Hooks, Sample
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.algorithms.ppo.loss import normalized
from metta_fast.algorithms.ppo.minibatch import Gather
from metta_fast.algorithms.ppo.schedule import learning_rate
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from metta_fast.runtime.copied import copied
from metta_fast.runtime.keyed_random import ORDER, Keyed
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_rollout import weights


def learnt_logprobs(ppo: PPO) -> torch.Tensor:
    """log-probabilities [T, N] that the learner computes for the buffers' actions, segment by segment."""
    b, gather = ppo.buffers, ppo.learner.gather
    found = torch.full_like(b.logprob, float("nan"))
    for segments in torch.arange(b.num_segments, device=b.device).split(3):
        rows = gather.rows(segments)
        batch = gather.minibatch(segments, rows)
        with torch.no_grad():
            out = ppo.policy(batch.obs, batch.state, batch.reset)
            gather.put(found, rows, ppo.policy.head.logprob_entropy(out.params, batch.action)[0])
    return found


@pytest.mark.parametrize(
    ("kind", "box"),
    [("ours", False), ("ours+lstm", False), ("ours+mingru", False), ("tiny+lstm", False), ("tiny", True)],
)
def test_with_unchanged_weights_the_learner_sees_the_rollout(kind: str, box: bool) -> None:
    """Ratio 1 across episode ends, masked rows, segment borders and blocks."""
    factory, core = tickers(5, box=box), kind.partition("+")[2] or "none"
    policy = make_policy(PolicyConfig(hidden_size=32, core=core), factory.spec) if "ours" in kind else None
    ppo = make_ppo(
        factory,
        horizon=24,
        bptt=6,
        minibatches=1,
        blocks=3,
        lstm=core == "lstm",
        policy=policy,
        learning_rate=0.02,
    )
    for _ in range(3):  # from the second epoch on the state comes over from the last one
        ppo.collect()
        assert int((~ppo.buffers.mask[:24]).sum()) > 5
        assert int(ppo.buffers.reset[1:24].sum()) > 5
        torch.testing.assert_close(learnt_logprobs(ppo), ppo.buffers.logprob, rtol=1e-4, atol=1e-5)
        ppo.update()
    ppo.rollout.vec.close()


def test_without_the_stored_state_it_would_not() -> None:
    ppo = make_ppo(tickers(5), horizon=24, bptt=6, lstm=True, learning_rate=0.02)
    run(ppo, 2)
    ppo.rollout.buffers.state.zero_()
    assert not torch.allclose(learnt_logprobs(ppo), ppo.buffers.logprob, rtol=1e-4, atol=1e-5)


def test_masked_rows_take_no_part() -> None:
    """Whatever stands in a masked row's action, reward and log-probability, the update is the same."""
    results = []
    for spoil in (False, True):
        ppo = make_ppo(tickers(4), horizon=16, bptt=16, minibatches=1)
        ppo.collect()
        if spoil:
            masked = ~ppo.buffers.mask[:16]
            ppo.buffers.action[masked] = 1
            ppo.buffers.reward[masked] = 1e6
            ppo.buffers.logprob[masked] = -50.0
        ppo.update()
        results.append(weights(ppo))
        ppo.rollout.vec.close()
    assert torch.equal(*results)


def test_the_update_is_the_bare_algorithm() -> None:
    """Bitwise the update written out: permutation, gather, loss, clipped gradient, Adam."""
    settings = {"learning_rate": 0.01, "vf_clip_coef": 0.2, "entropy_coef": 0.01}
    ppo = make_ppo(tickers(4), horizon=16, bptt=8, minibatches=2, update_epochs=2, **settings)
    ppo.collect()
    policy = copy.deepcopy(ppo.policy)
    c, b = ppo.config.trainer, copy.deepcopy(ppo.buffers)
    ppo.update()
    ppo.rollout.vec.close()

    compute_advantage(b, c, True)
    adam = torch.optim.Adam(policy.parameters(), lr=learning_rate(c, 0), eps=1e-5, fused=True)
    for number in range(2):
        order = torch.randperm(8, generator=Keyed(0, torch.device("cpu"))(ORDER, 0, number))
        for half in order.split(4):

            def take(x: torch.Tensor, half: torch.Tensor = half) -> torch.Tensor:
                return torch.stack([x[int(s) // 4 * 8 : int(s) // 4 * 8 + 8, int(s) % 4] for s in half], 1)

            out = policy({"obs": take(b.obs["obs"])}, torch.zeros(0, 4, 0), take(b.reset))
            logprob, entropy = policy.head.logprob_entropy(out.params, take(b.action))
            m, old, returns = take(b.mask), take(b.value), take(b.returns)
            a = normalized(take(b.advantage), m)
            log_ratio = torch.where(m, logprob - take(b.logprob), 0.0)
            r = log_ratio.exp()
            near = old + (out.value - old).clamp(-0.2, 0.2)
            error = torch.maximum((out.value - returns).square(), (near - returns).square())
            count = m.sum()
            surrogate = torch.minimum(r * a, r.clamp(0.8, 1.2) * a)
            loss = (
                -(torch.where(m, surrogate, 0.0).sum() / count)
                + 0.5 * (0.5 * (torch.where(m, error, 0.0).sum() / count))
                - 0.01 * (torch.where(m, entropy, 0.0).sum() / count)
            )
            adam.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            adam.step()
    assert torch.equal(weights(ppo), torch.cat([p.detach().flatten() for p in policy.parameters()]))


def test_hooks_are_called_and_change_the_update() -> None:
    calls: list[Any] = []

    def sample(context: Context) -> Sample:
        calls.append(("sample", context.update))
        return Sample(torch.arange(context.segments), torch.ones(context.segments))

    def extra(batch: Any, output: Any) -> torch.Tensor:
        calls.append(("loss", tuple(batch.mask.shape)))
        return output.value.mean() * 0.1

    def figures(context: Context) -> dict[str, float]:
        return {"feature/epoch": float(context.epoch)}

    hooks = Hooks(
        on_rollout=[lambda context: calls.append(("rollout", context.epoch))],
        sample=sample,
        extra_loss=[extra],
        on_epoch=[figures],
    )
    ppo = run(make_ppo(tickers(4), hooks=hooks), 1)
    assert calls == [("rollout", 0), ("sample", 0), ("loss", (8, 4)), ("sample", 1), ("loss", (8, 4))]
    assert ppo.metrics()["feature/epoch"] == 0
    assert not torch.equal(weights(ppo), weights(run(make_ppo(tickers(4)), 1)))


@pytest.mark.parametrize(
    "trainer",
    [
        {"advantage": "vtrace"},
        {"recompute": "minibatch"},
        {"advantage": "vtrace", "recompute": "minibatch", "update_epochs": 2},
        {"precision": "bf16"},
        {"normalize_advantage": False},
        {"vf_clip_coef": None},
        {"max_grad_norm": 0.0},
        {"schedule": "cosine", "lr_scaling": "sqrt"},
        {"gradient_accumulation": 2},
    ],
)
def test_every_setting_learns_something_finite(trainer: dict) -> None:
    ppo = make_ppo(tickers(4), lstm=True, **trainer)
    before = weights(ppo)
    run(ppo, 2)
    assert torch.isfinite(weights(ppo)).all()
    assert not torch.equal(before, weights(ppo))


def test_vtrace_writes_the_ratios_back() -> None:
    ppo = make_ppo(tickers(4), advantage="vtrace", update_epochs=2, learning_rate=0.01)
    ppo.collect()
    assert bool((ppo.buffers.ratio == 1).all())
    ppo.update()
    changed = ppo.buffers.ratio != 1
    assert changed.float().mean() > 0.5
    assert not bool(changed[~ppo.buffers.mask[:16]].any())
    ppo.rollout.vec.close()


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("chunk", [1 << 16, 20])
def test_recompute_each_pass_takes_the_values_of_that_moment(
    lstm: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every row, masked and last ones too; the core runs from the rollout's first state, over resets and chunks."""
    monkeypatch.setattr("metta_fast.algorithms.ppo.revalue.CHUNK", chunk)
    ppo = make_ppo(tickers(4), recompute="pass", update_epochs=3, learning_rate=0.05, lstm=lstm)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    advantage = ppo.learner._advantage

    def watched() -> None:
        b = ppo.buffers
        with torch.no_grad():
            seen.append((b.value.clone(), ppo.policy(b.obs, b.state[0], b.reset).value))
        advantage()

    ppo.learner._advantage = watched  # type: ignore[method-assign]
    for _ in range(2):
        ppo.collect()
        rollout = ppo.buffers.value.clone()
        ppo.update()
        assert torch.equal(ppo.learner.gather.rollout_value, rollout)
        assert torch.equal(seen[0][0], rollout)
        for given, expected in seen:
            torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
        assert len(seen) == 3
        assert not torch.allclose(seen[1][0], seen[2][0])
        seen.clear()
    ppo.rollout.vec.close()


def test_recompute_each_minibatch_clips_against_the_rollouts_values() -> None:
    ppo = make_ppo(tickers(4), recompute="minibatch", update_epochs=2, learning_rate=0.05)
    ppo.collect()
    before = ppo.buffers.value.clone()
    ppo.update()
    assert torch.equal(ppo.learner.gather.rollout_value, before)
    assert not torch.equal(ppo.buffers.value[:16], before[:16])
    assert torch.equal(ppo.buffers.value[16], before[16])
    ppo.rollout.vec.close()


@pytest.mark.parametrize("recompute", ["epoch", "minibatch"])
def test_recompute_takes_values_and_ratios_as_last_written(recompute: str) -> None:
    """Each minibatch's advantages, written out on a copy of the buffers; recompute=epoch keeps the first."""
    changed: list[bool] = []

    def sample(context: Context) -> Sample:
        return Sample((torch.arange(4) + len(changed) * 4) % 8)

    def extra(batch: Any, output: Any) -> torch.Tensor:
        if recompute == "minibatch":
            compute_advantage(copied.buffers, ppo.config.trainer, True)
        segments = (torch.arange(4) + len(changed) * 4) % 8
        rows = copied.rows(segments)
        own = copied.minibatch(segments, rows)
        assert torch.equal(batch.advantage, own.advantage)
        assert torch.equal(batch.returns, own.returns)
        logprob = ppo.policy.head.logprob_entropy(output.params, batch.action)[0].detach()
        ratio = torch.where(batch.mask, logprob - batch.logprob, 0.0).exp()
        copied.put(copied.buffers.ratio, rows, ratio)
        if recompute == "minibatch":
            copied.put(copied.buffers.value, rows, output.value.detach())
        changed.append(not torch.equal(batch.advantage, first.flatten(0, 1)[rows].view_as(own.advantage)))
        return output.value.sum() * 0

    ppo = make_ppo(
        tickers(4),
        advantage="vtrace",
        recompute=recompute,
        update_epochs=3,
        learning_rate=0.02,
        hooks=Hooks(sample=sample, extra_loss=[extra]),
    )
    ppo.collect()
    copied = Gather(copy.deepcopy(ppo.buffers), torch.device("cpu"))
    compute_advantage(copied.buffers, ppo.config.trainer, True)
    first = copied.buffers.advantage.clone()
    ppo.update()
    ppo.rollout.vec.close()
    # minibatch 1 holds the later half of the rollout, on which minibatch 0, the earlier, has no influence
    assert changed == [recompute == "minibatch" and i > 1 for i in range(6)]


def test_accumulated_minibatches_are_one_step_with_their_mean_gradient() -> None:
    whole = make_ppo(tickers(4), minibatches=1, normalize_advantage=False)
    halves = make_ppo(tickers(4), minibatches=2, gradient_accumulation=2, normalize_advantage=False)
    for ppo in (whole, halves):
        ppo.collect()
        ppo.buffers.mask.fill_(True)
        ppo.update()
        ppo.rollout.vec.close()
    torch.testing.assert_close(weights(whole), weights(halves), rtol=1e-4, atol=1e-6)
    norm = SUMS.index("gradient_norm")  # Adam's first step is the same for any multiple of a gradient
    torch.testing.assert_close(whole.learner.sums[norm], halves.learner.sums[norm], rtol=1e-4, atol=0)


def test_target_kl_stops_the_update() -> None:
    ppo = make_ppo(tickers(4), update_epochs=20, learning_rate=0.1, target_kl=1e-3)
    run(ppo, 1)
    taken = dict(zip(("steps", "minibatches"), (ppo.learner.sums[-1], ppo.learner.sums[-2])))
    assert 0 < taken["steps"] < 40
    assert taken["minibatches"] == taken["steps"] + 1


@pytest.mark.parametrize("lstm", [False, True])
def test_a_deterministic_resume_is_bit_identical(lstm: bool) -> None:
    def fresh(blocks: int) -> PPO:
        return make_ppo(
            tickers(4), horizon=8, bptt=4, blocks=blocks, lstm=lstm, deterministic=True, total_timesteps=400
        )

    unbroken = fresh(2)
    for _ in range(2):
        unbroken.collect()
        unbroken.update()
    state, env = unbroken.state_dict(), unbroken.rollout.vec.state_dict()
    kept = copy.deepcopy(state)
    metrics = [unbroken.metrics() for _ in (unbroken.collect(), unbroken.update())][-1]
    run(unbroken, 2)

    torch.manual_seed(99)
    resumed = fresh(2)
    resumed.rollout.vec.load_state_dict(env)
    resumed.load_state_dict(state)
    assert (resumed.epoch, resumed.steps) == (2, kept["steps"])
    resumed.collect()
    resumed.update()
    again = resumed.metrics()
    run(resumed, 2)
    same = {name for name in metrics if not name.startswith("perf/")}
    assert {n: metrics[n] for n in same} == {n: again[n] for n in same}
    assert torch.equal(weights(unbroken), weights(resumed))
    assert all(torch.equal(kept["policy"][name], value) for name, value in state["policy"].items()), (
        "not copies"
    )


def test_a_state_is_of_copies_whatever_is_in_it() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 4).t())
    given = {
        "a": [weight, {"b": torch.tensor(3)}, (torch.ones(2, dtype=torch.bfloat16), torch.zeros(0))],
        "c": torch.arange(6).view(2, 3)[:, 1:], "d": (1, 2.5, None), "e": weight.detach()[1],
    }  # fmt: skip
    made = copied(given)
    torch.testing.assert_close(made, given, rtol=0, atol=0)
    with torch.no_grad():
        weight.zero_()
    given["a"][1]["b"].zero_()
    given["c"].zero_()
    assert made["a"][0].all()
    assert not made["a"][0].requires_grad
    assert made["e"].all()
    assert made["a"][1]["b"] == 3
    assert made["c"].tolist() == [[1, 2], [4, 5]]


def test_a_resume_without_environment_state_starts_new_episodes() -> None:
    ppo = run(make_ppo(tickers(4), lstm=True), 2)
    state = ppo.state_dict()
    resumed = make_ppo(tickers(4), lstm=True)
    resumed.load_state_dict(state)
    assert torch.equal(weights(ppo), weights(resumed))
    resumed.collect()
    assert bool(resumed.buffers.reset[0].all())
    resumed.update()
    assert resumed.steps > ppo.steps
    resumed.rollout.vec.close()


@pytest.mark.parametrize(
    "trainer", [{}, {"gradient_accumulation": 2}, {"recompute": "minibatch", "lstm": True}]
)
def test_minibatches_on_their_own_are_the_same_update(
    trainer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with graphs, of which there are none on the CPU: each works on the segments that lie in `_now`."""
    keys: dict[str, Any] = {"minibatches": 4, "update_epochs": 2} | trainer
    whole = make_ppo(tickers(4), **keys)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    single = make_ppo(tickers(4), **keys)
    graphs = single.learner._make_single(print)
    for graph in graphs.values():
        graph.enabled = False
    single.learner._single = graphs
    assert torch.equal(weights(run(whole, 3)), weights(run(single, 3)))
    assert torch.equal(whole.learner.sums, single.learner.sums)


def test_a_memory_starts_from_the_same_without_the_rows() -> None:
    ppo = make_ppo(tickers(5), horizon=12, bptt=4, minibatches=1, lstm=True)
    ppo.collect()
    gather, segments = ppo.learner.gather, torch.randperm(15)[:7]
    batch = gather.minibatch(segments, gather.rows(segments))
    assert batch.reset.any()
    assert torch.equal(gather.reset(segments), batch.reset)
    assert torch.equal(gather.state(segments), batch.state)
    ppo.rollout.vec.close()


@pytest.mark.parametrize("trained", [False, True])
def test_a_loaded_state_goes_into_the_tensors_that_were_there(trained: bool) -> None:
    """Workers that broke bring the last boundary back into a learner whose graph has the tensors' addresses."""
    source, ours = make_ppo(tickers(4), minibatches=2), make_ppo(tickers(4), minibatches=2)
    for ppo in (source, ours) if trained else (ours,):
        ppo.collect()
        ppo.update()
    ours.collect()
    ours.update()

    def moments(ppo: PPO) -> list[dict[str, torch.Tensor]]:
        return [ppo.learner.step.optimizer.state[p] for p in ppo.policy.parameters()]

    held = [dict(state) for state in moments(ours)]
    ours.learner.load_state_dict(source.learner.state_dict())
    for before, now, theirs in zip(held, moments(ours), moments(source)):
        assert sorted(now) == sorted(before) == ["exp_avg", "exp_avg_sq", "step"]
        for name, tensor in now.items():
            assert tensor is before[name]
            assert torch.equal(tensor, theirs[name] if trained else torch.zeros_like(tensor)), name
    for ppo in (source, ours):
        ppo.vec.close()
