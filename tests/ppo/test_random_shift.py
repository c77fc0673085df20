"""Tests trainer.random_shift: the moved pixels, its loss beside a plain one, and that all else stays as it was."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from metta_fast.algorithms.hooks import Context, Hooks, Sample
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.algorithms.ppo.c.mlp_update import C_UPDATE
from metta_fast.algorithms.ppo.kind import PPOKind
from metta_fast.algorithms.ppo.loss import MOST_APART, shift_loss
from metta_fast.buffers.random_shift import RandomShift
from metta_fast.config.encoding.image_sides import check_shift
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from tests.masks.masked_env import SPACES
from tests.policy.specs import flat_spec
from tests.ppo.stand_in import make_config, make_ppo, run
from tests.ppo.test_rollout import weights

SHIFT, ENVS = 3, 3
ACTIONS = {**SPACES, "box": spaces.Box(-1, 1, (2,), np.float32)}
DTYPES = ["uint8", "int8", "uint16", "int32", "float16", "float32", "float64", "bool"]


class Pixels(gymnasium.Env[Any, Any]):
    """Two images of unlike sizes, one of floats with its channel first, and a speed. All random, and so are masks and
    the ends of episodes. Rewards are the share of dark pixels."""

    metadata: Any = {"kinds": {"depth": "image"}}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, actions: Any, masks: bool = False) -> None:
        self.action_space = actions
        self.observation_space = spaces.Dict(
            camera=spaces.Box(0, 255, (24, 30, 3), np.uint8),
            depth=spaces.Box(-1, 1, (1, 13, 11), np.float32),
            speed=spaces.Box(-1, 1, (2,), np.float32),
        )
        if masks:
            self.action_masks = lambda: self.legal

    def _row(self) -> Any:
        rng = self.np_random
        self.legal = rng.random(sum(self.action_space.nvec)) < 0.6
        self.legal[[0, *np.cumsum(self.action_space.nvec)[:-1]]] = True
        return self._obs(rng)

    def _obs(self, rng: Any) -> Any:
        return {
            "camera": rng.integers(0, 256, (24, 30, 3)).astype(np.uint8),
            "depth": rng.uniform(-1, 1, (1, 13, 11)).astype(np.float32),
            "speed": rng.uniform(-1, 1, 2).astype(np.float32),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return (self._row() if hasattr(self, "action_masks") else self._obs(self.np_random)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, ends = self.reset()[0], self.np_random.random(2) < 0.15
        return obs, float((obs["camera"] < 99).mean()), bool(ends[0]), bool(ends[1] and not ends[0]), {}

    def state_dict(self) -> Any:
        return copy.deepcopy(self.np_random.bit_generator.state)

    def load_state_dict(self, state: Any) -> None:
        self.np_random.bit_generator.state = state


def pixels(kind: str = "heads", masks: bool = False) -> PythonEnvFactory:
    return PythonEnvFactory(lambda index: Pixels(ACTIONS[kind], masks))


def shifted(
    kind: str = "heads", masks: bool = False, policy: dict[str, Any] | None = None, **keys: Any
) -> PPO:
    """A PPO on Pixels, of a tiny policy, or of ours with these keys."""
    factory = pixels(kind, masks)
    made = None
    if policy is not None:
        torch.manual_seed(0)
        made = make_policy(PolicyConfig(hidden_size=8, encoder="mlp", **policy), factory.spec)
    sizes: dict[str, Any] = {"horizon": 8, "bptt": 4, "random_shift": SHIFT, "random_shift_coef": 0.7}
    return make_ppo(factory, ENVS, policy=made, **sizes | keys)


PIXELS = pixels().spec


def plain(image: np.ndarray, axes: tuple[int, int], offset: Any) -> np.ndarray:
    """One image moved as DrQ describes it: padded by repeating the border, and cut back to its size."""
    pad = [(0, 0)] * image.ndim
    cut = [slice(None)] * image.ndim
    for axis, distance in zip(axes, offset):
        most = abs(int(distance))
        pad[axis] = most, most
        cut[axis] = slice(most + int(distance), most + int(distance) + image.shape[axis])
    return np.pad(image, pad, mode="edge")[tuple(cut)]


# ---- pixels ----


@settings(max_examples=60, deadline=None)
@given(
    rows=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    sides=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    channels=st.sampled_from([(None, 1), (0, 1), (0, 4), (1, 2), (2, 1), (2, 3)]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
def test_moved_pixels_are_those_of_a_padded_and_cut_image(
    rows: Any, sides: Any, channels: Any, dtype: str, seed: int
) -> None:
    axis, count = channels
    shape = list(sides)
    if axis is not None:
        shape.insert(axis, count)
    leaf = Leaf(tuple(shape), dtype, "image", axis)
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 100, (*rows, *shape)).astype(dtype)
    offset = rng.integers(-5, 6, (rows[1], 2))
    shift = RandomShift(flat_spec(obs=leaf))
    obs, _ = shift({"obs": torch.from_numpy(images)}, torch.zeros(0, rows[1], 0), torch.from_numpy(offset))
    axes = tuple(i for i in range(len(shape)) if i != axis)
    expected = [[plain(images[t, b], axes, offset[b]) for b in range(rows[1])] for t in range(rows[0])]  # type: ignore[arg-type]
    assert obs["obs"].numpy().dtype == images.dtype
    np.testing.assert_array_equal(obs["obs"].numpy(), np.array(expected))


def test_images_of_a_row_move_alike_and_nothing_else_moves() -> None:
    spec, rng = pixels().spec, np.random.default_rng(0)
    obs = {
        name: torch.from_numpy((100 * rng.random((2, 4, *leaf.shape))).astype(leaf.dtype))
        for name, leaf in spec.obs.items()
    }
    state, offset = torch.rand(2, 4, 5), torch.tensor([[0, 0], [3, -2], [-3, 3], [1, 0]])
    now, same = RandomShift(spec)(obs, state, offset)
    assert torch.equal(same, state)
    assert torch.equal(now["speed"], obs["speed"])
    for b in range(4):
        for name, axes in (("camera", (0, 1)), ("depth", (1, 2))):
            for t in range(2):
                expected = plain(obs[name][t, b].numpy(), axes, offset[b])
                np.testing.assert_array_equal(now[name][t, b].numpy(), expected)


# ---- the loss ----


def moved_loss(ppo: PPO, segments: Tensor, offset: Tensor) -> Tensor:
    """The terms, segment by segment and row by row, of the learner's minibatch."""
    gather, head = ppo.learner.gather, ppo.policy.head
    batch = gather.minibatch(segments, gather.rows(segments))
    policy, value, count = torch.zeros(()), torch.zeros(()), 0
    for b in range(len(segments)):
        part = slice(b, b + 1)
        obs = {name: leaf[:, part] for name, leaf in batch.obs.items()}
        other = dict(obs)
        for name, axes in (("camera", (0, 1)), ("depth", (1, 2))):
            rows = [plain(row[0].numpy(), axes, offset[b]) for row in obs[name]]
            other[name] = torch.from_numpy(np.array(rows)).unsqueeze(1)
        seen, now = (ppo.policy(o, batch.state[:, part], batch.reset[:, part]) for o in (obs, other))
        for t in torch.nonzero(batch.mask[:, b])[:, 0]:
            params = [out.params[t, 0] for out in (seen, now)]
            if batch.action_mask is not None:
                params = [head.masked(one, batch.action_mask[t, b]) for one in params]  # type: ignore[union-attr]
            mine, moved = (head.logprob_entropy(one, batch.action[t, b])[0] for one in params)
            other = (moved - mine).exp().clamp(max=math.exp(MOST_APART)).detach() - 1
            policy = policy + (mine - batch.logprob[t, b]).exp().detach() * other * moved
            value = value + 0.5 * (now.value[t, 0] - seen.value[t, 0].detach()).square()
            count += 1
    return (policy + value) / count


def gradient(ppo: PPO) -> Tensor:
    found = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                       for p in ppo.policy.parameters()])  # fmt: skip
    ppo.policy.zero_grad()
    return found


@pytest.mark.parametrize(
    ("kind", "masks", "policy", "keys"),
    [
        ("discrete", False, None, {"lstm": True}),
        ("heads", True, {"core": "mingru"}, {"gradient_accumulation": 2}),
        ("box", False, {"normalize_obs": True, "shared": False, "state_std": True}, {}),
        ("box", False, {"squash": True}, {"vf_clip_coef": 0.1}),
        ("mixed", False, {}, {}),
    ],
)
def test_the_gradient_is_that_of_the_terms_written_out(
    kind: str, masks: bool, policy: Any, keys: dict[str, Any]
) -> None:
    ppo = shifted(kind, masks, policy, **keys)
    for _ in range(2):
        ppo.collect()
        ppo.update()
    ppo.collect()
    compute_advantage(ppo.buffers, ppo.config.trainer, True)
    with torch.no_grad():  # so that ratios are not 1
        for p in ppo.policy.parameters():
            p += 0.05 * torch.randn_like(p)
    assert not ppo.buffers.mask[:8].all()
    segments, offset = torch.tensor([4, 0, 5]), torch.tensor([[SHIFT, -1], [0, 2], [-2, -SHIFT]])
    gradient(ppo)
    ppo.learner.gradients(segments, None)
    without = gradient(ppo)
    stats = ppo.learner.gradients(segments, None, offset)
    whole = gradient(ppo)
    (0.7 * moved_loss(ppo, segments, offset) / keys.get("gradient_accumulation", 1)).backward()
    added = gradient(ppo)
    assert added.norm() > 0.01 * without.norm()
    assert (whole - without - added).norm() < 1e-4 * added.norm()
    assert torch.equal(
        stats, ppo.learner.gradients(segments, None)
    )  # PPO's figures are of images as they are
    ppo.vec.close()


def test_a_move_of_nothing_changes_nothing() -> None:
    """Not even by chance: each action's weight is 0."""
    ppo = shifted()
    ppo.collect()
    compute_advantage(ppo.buffers, ppo.config.trainer, True)
    segments = torch.arange(6)
    gradient(ppo)
    ppo.learner.gradients(segments, None)
    without = gradient(ppo)
    ppo.learner.gradients(segments, None, torch.zeros(6, 2, dtype=torch.int64))
    assert (gradient(ppo) - without).norm() < 1e-5 * without.norm()
    ppo.vec.close()


def test_over_all_actions_the_gradient_is_that_of_the_kl() -> None:
    here, moved = (
        torch.randn(2, 4, 6),
        torch.randn(2, 4, 6).mul(0.5).requires_grad_(),
    )  # logits [L, B, actions]
    mask, zero = torch.ones(2, 4, dtype=torch.bool), torch.zeros(2, 4)
    before, after = here.log_softmax(-1), moved.log_softmax(-1)
    old = torch.full((2, 4), 1 / 6)  # a rollout's policy that tries every action alike
    loss = sum(
        shift_loss(after[..., a], zero, before[..., a], zero, before[..., a].exp() / old, mask) / 6
        for a in range(6)
    )
    assert (after - before).max() < MOST_APART
    (estimate,) = torch.autograd.grad(loss, moved, retain_graph=True)  # type: ignore[arg-type]
    kl = (before.exp() * (before - after)).sum(-1).mean()
    torch.testing.assert_close(estimate, torch.autograd.grad(kl, moved)[0])


# ---- the update ----


def trained(epochs: int = 2, **keys: Any) -> Tensor:
    return weights(run(shifted(**{"update_epochs": 2, **keys}), epochs))


@pytest.mark.parametrize("kind", ["heads", "box"])
def test_masked_rows_take_no_part(kind: str) -> None:
    results = []
    for spoil in (False, True):
        ppo = shifted(kind)
        ppo.collect()
        masked = ~ppo.buffers.mask[:8]
        assert masked.any()
        if spoil:
            ppo.buffers.action[masked] = 1
            ppo.buffers.logprob[masked] = -50.0
        ppo.update()
        results.append(weights(ppo))
        ppo.vec.close()
    assert torch.equal(*results)


def test_a_seed_gives_the_same_run_and_another_coefficient_another() -> None:
    one = trained()
    assert torch.equal(one, trained())
    assert not torch.equal(one, trained(random_shift_coef=0.1))
    assert not torch.equal(one, trained(random_shift=2))


def test_off_draws_nothing_and_reads_each_row_once() -> None:
    def calls(pixels: int) -> tuple[int, PPO]:
        ppo, seen = shifted(random_shift=pixels), []
        ppo.collect()
        ppo.policy.register_forward_hook(lambda *_: seen.append(1))
        ppo.update()
        ppo.vec.close()
        return len(seen), ppo

    (off, ppo), (on, _) = calls(0), calls(SHIFT)
    assert ppo.learner.gradients.shift is None
    assert ppo.learner._offsets is None
    assert 2 * off == on == 4


def test_the_rollout_and_the_order_are_those_without_it() -> None:
    ppos = [shifted(random_shift=pixels) for pixels in (0, SHIFT)]
    for ppo in ppos:
        ppo.collect()
        ppo.update()
        ppo.vec.close()
    assert torch.equal(ppos[0].learner._order, ppos[1].learner._order)
    for name in ("action", "logprob", "value", "reward", "advantage"):
        assert torch.equal(*(getattr(ppo.buffers, name) for ppo in ppos)), name


def test_offsets_are_uniform_and_new_in_each_update() -> None:
    ppo = shifted(horizon=32, bptt=1, update_epochs=3, minibatches=4)
    seen = []
    for epoch in range(20):
        ppo.learner._draw_offsets(epoch)
        assert ppo.learner._offsets is not None
        seen.append(ppo.learner._offsets.clone())
    drawn = torch.stack(seen).flatten(0, 2)  # [updates, segments, 2]
    assert len({tuple(one.flatten().tolist()) for one in drawn}) == 20 * 3 * 4
    for axis in range(2):
        count = torch.bincount(drawn[..., axis].flatten() + SHIFT, minlength=2 * SHIFT + 1)
        share = count / count.sum()
        assert len(share) == 2 * SHIFT + 1
        assert ((share - 1 / 7).abs() < 0.015).all(), share
    ppo.vec.close()


def test_minibatches_on_their_own_are_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a graph for each minibatch: the offsets lie in memory of its own."""
    keys: dict[str, Any] = {"minibatches": 3, "update_epochs": 2, "gradient_accumulation": 3}
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    single = shifted(**keys)
    graphs = single.learner._make_single(print)
    for graph in graphs.values():
        graph.enabled = False
    single.learner._single = graphs
    assert torch.equal(trained(2, **keys), weights(run(single, 2)))


@pytest.mark.parametrize("recompute", ["epoch", "pass", "minibatch"])
def test_chosen_segments_move_by_their_place_in_the_minibatch(recompute: str) -> None:
    def sample(context: Context) -> Sample:
        return Sample(torch.tensor([5, 1, 1]), torch.tensor([1.0, 0.5, 0.5]))

    ppo = shifted(hooks=Hooks(sample=sample), recompute=recompute, update_epochs=2)
    given, call = [], type(ppo.learner.gradients).__call__

    def watched(segments: Tensor, weight: Tensor | None, offset: Tensor | None) -> Tensor:
        assert offset is not None
        given.append(offset.clone())
        return call(ppo.learner.gradients, segments, weight, offset)

    step = ppo.learner.step
    ppo.learner._minibatch = lambda segments, weight, due, offset, share: step(  # type: ignore[method-assign]
        watched(segments, weight, offset), due=due
    )
    run(ppo, 1)
    assert ppo.learner._offsets is not None
    assert torch.equal(torch.stack(given), ppo.learner._offsets.flatten(0, 1))


def test_a_resume_is_exact() -> None:
    def fresh() -> PPO:
        return shifted(policy={"core": "mingru", "frame_stack": 2}, deterministic=True, update_epochs=2)

    whole, first, second = fresh(), fresh(), fresh()
    for ppo in (whole, first):
        ppo.collect()
        ppo.update()
    second.vec.load_state_dict(first.vec.state_dict())  # type: ignore[union-attr]
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for ppo in (whole, second):
        ppo.collect()
        ppo.update()
    assert not torch.equal(weights(first), weights(whole))
    assert torch.equal(weights(second), weights(whole))
    for ppo in (whole, first, second):
        ppo.vec.close()


# ---- around it ----


def check(pixels: int, policy: dict[str, Any] | None = None, **leaves: Leaf) -> str:
    config = make_config(random_shift=pixels)
    config.policy = PolicyConfig(**policy or {})
    return check_shift(config, flat_spec(**leaves) if leaves else PIXELS)


def test_a_shift_leaves_more_than_half_of_each_image_that_is_read() -> None:
    assert "camera, depth moved by up to 5 pixels" in check(5)
    with pytest.raises(
        UserError, match=r"half of a side of the image 'depth' .1×13×11. or more; give at most 5"
    ):
        check(6)
    camera = {"actor_obs": ["camera"], "critic_obs": ["camera"]}
    assert "camera moved by up to 11 pixels" in check(11, camera)
    with pytest.raises(UserError, match=r"'camera' .24×30×3. or more; give at most 11"):
        check(12, camera)


def test_a_shift_needs_an_image_that_is_read() -> None:
    speed = {"actor_obs": ["speed"], "critic_obs": ["speed"]}
    with pytest.raises(UserError, match=r"the policy reads none of own, only speed \(flat\); remove it, or"):
        check(1, speed, camera=Leaf((24, 24), "uint8", "image"), speed=Leaf((2,), "float32"))
    with pytest.raises(
        UserError, match=r"'clip' of own .4×24×24. is of kind image, but its axes are not height"
    ):
        check(1, clip=Leaf((4, 24, 24), "uint8", "image"))


def test_the_update_in_c_stands_back() -> None:
    """It reads the floats of this image as plain numbers."""

    def chosen(pixels: int) -> Any:
        factory = PythonEnvFactory(
            lambda index: gymnasium.wrappers.FilterObservation(Pixels(ACTIONS["heads"]), ["depth"])
        )
        policy = make_policy(PolicyConfig(hidden_size=8, encoder="mlp"), factory.spec)
        ppo = make_ppo(factory, ENVS, policy=policy, random_shift=pixels)
        ppo.vec.close()
        return next(choice for choice in ppo.fast_paths if choice.name == C_UPDATE.name)

    assert chosen(0).why is None
    assert chosen(2).why == "trainer.random_shift=2 has a loss of its own"
    assert chosen(2).costs_speed


def test_the_estimate_counts_both_passes() -> None:
    spec = flat_spec(obs=Leaf((36, 36, 3), "uint8", "image", 2))

    def activations(pixels: int) -> int:
        config = make_config(random_shift=pixels, batch_size=4096, minibatch_size=1024)
        config.env.num_envs, config.vector.async_factor = 8, 1
        return next(part.bytes for part in PPOKind().memory(config, spec) if part.name == "activations")

    assert 1.9 < activations(4) / activations(0) < 2
