"""Tests the policies: every combination of observation, core and head."""

from typing import Any

import pytest
import torch
from torch import Tensor

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.policy import Policy, make_policy
from metta_fast.policy.encoders import AnyTokenEncoder
from tests.policy.specs import flat_spec, grid_obs, grid_spec, random_obs

SPECS = {
    "compact": grid_spec("compact"),
    "dense": grid_spec("dense"),
    "tokens": grid_spec("tokens"),
    "floats": flat_spec((2, 7, 3)),
    "bytes": flat_spec(obs=Leaf((3, 2), "uint8")),
    "dict": flat_spec(a=Leaf((2,), "float32"), b=Leaf((), "int32"), compact=Leaf((387,), "uint8")),
    "foreign tokens": flat_spec(obs=Leaf((17, 3), "uint8")),
}


def policy_for(name: str, core: str = "none", hidden: int = 16) -> Policy:
    torch.manual_seed(0)
    kind = "tokens" if "tokens" in name else "mlp"
    return make_policy(PolicyConfig(name=kind, core=core, hidden_size=hidden), SPECS[name])


def run(policy: Policy, obs: dict[str, Tensor], reset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return policy(obs, policy.initial_state(reset.shape[1]), reset)


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("name", list(SPECS))
def test_shapes_types_and_gradients(name: str, core: str) -> None:
    policy, spec = policy_for(name, core), SPECS[name]
    out = run(policy, random_obs(spec, 4, 3), torch.rand(4, 3) < 0.3)
    assert out.params.shape == (4, 3, sum(spec.action.nvec))
    assert out.value.shape == (4, 3)
    assert out.value.dtype == torch.float32
    assert out.state.shape == {"none": (0, 3, 0), "lstm": (2, 3, 16), "mingru": (1, 3, 16)}[core]
    action, _ = policy.head.sample(out.params, torch.rand(4, 3, spec.action.width))
    logprob, entropy = policy.head.logprob_entropy(out.params, action)
    (logprob.sum() + entropy.sum() + out.value.square().sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in policy.parameters())


@pytest.mark.parametrize("core", ["lstm", "mingru"])
@pytest.mark.parametrize("name", ["compact", "tokens", "floats"])
def test_the_learner_finds_the_rollouts_probabilities(name: str, core: str) -> None:
    """Ratio 1: one row at a time with the state carried, then 32 at once in two segments, with resets inside,
    for MultiDiscrete heads of unequal size too."""
    policy, spec = policy_for(name, core), SPECS[name]
    rows, agents = 32, 5
    obs = random_obs(spec, rows, agents)
    reset = torch.rand(rows, agents, generator=torch.Generator().manual_seed(2)) < 0.15
    noise = torch.rand(rows, agents, spec.action.width)
    state, stored, actions, logprobs, values = policy.initial_state(agents), [], [], [], []
    with torch.inference_mode():
        for t in range(rows):
            if t % 16 == 0:
                stored.append(state.clone())
            out = policy({k: v[t : t + 1] for k, v in obs.items()}, state, reset[t : t + 1])
            action, logprob = policy.head.sample(out.params, noise[t : t + 1])
            state = out.state
            actions.append(action), logprobs.append(logprob), values.append(out.value)
    for s in range(2):
        part = slice(16 * s, 16 * s + 16)
        out = policy({k: v[part] for k, v in obs.items()}, stored[s].clone(), reset[part])
        logprob, _ = policy.head.logprob_entropy(out.params, torch.cat(actions)[part])
        torch.testing.assert_close((logprob - torch.cat(logprobs)[part]).exp(), torch.ones(16, agents))
        torch.testing.assert_close(out.value, torch.cat(values)[part], rtol=1e-4, atol=1e-5)


def test_uint8_of_others_is_neither_an_image_nor_divided_by_255() -> None:
    policy = policy_for("bytes")
    same = make_policy(policy_config(), flat_spec(obs=Leaf((3, 2), "float32")))
    same.load_state_dict(policy.state_dict())
    obs = random_obs(SPECS["bytes"], 2, 3)
    reset = torch.zeros(2, 3, dtype=torch.bool)
    ours, floats = run(policy, obs, reset), run(same, {"obs": obs["obs"].float()}, reset)
    assert torch.equal(ours.value, floats.value)


def policy_config() -> PolicyConfig:
    return PolicyConfig(hidden_size=16)


def test_a_tensor_stands_for_the_only_leaf() -> None:
    policy, obs = policy_for("floats"), random_obs(SPECS["floats"], 1, 4)
    reset = torch.zeros(1, 4, dtype=torch.bool)
    state = policy.initial_state(4)
    assert torch.equal(policy(obs["obs"], state, reset).value, policy(obs, state, reset).value)


def test_first_actions_are_about_equally_likely_and_values_small() -> None:
    policy = policy_for("compact", hidden=128)
    obs = {"obs": grid_obs("compact", 64).unsqueeze(0)}
    out = run(policy, obs, torch.zeros(1, 64, dtype=torch.bool))
    assert 0 < out.params.abs().max() < 0.1
    assert 0 < out.value.abs().max() < 0.1


def test_empty_foreign_tokens_change_nothing() -> None:
    encoder = AnyTokenEncoder(SPECS["foreign tokens"], 16)
    obs = torch.full((1, 2, 17, 3), 255, dtype=torch.uint8)
    obs[..., :3, :] = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.uint8)
    before = encoder({"obs": obs})
    obs[0, 1, 3:, 2] = 7  # values of tokens that are not there
    obs[0, 1, [0, 2]] = obs[0, 1, [2, 0]]  # nor does the order of those that are
    torch.testing.assert_close(encoder({"obs": obs}), before)


@pytest.mark.parametrize("name", [name for name in SPECS if name != "foreign tokens"])
def test_the_first_layer_at_some_rows(name: str) -> None:
    policy, obs = policy_for(name), random_obs(SPECS[name], 3, 4)
    encoder: Any = policy.encoder
    rows = torch.tensor([11, 0, 5, 5])
    wanted = encoder.first_layer(obs).flatten(0, 1)[rows]
    torch.testing.assert_close(encoder.first_layer(obs, rows), wanted)


@pytest.mark.parametrize("core", ["lstm", "mingru"])
@pytest.mark.parametrize("name", ["compact", "tokens"])
def test_bf16(name: str, core: str) -> None:
    policy, obs = policy_for(name, core), random_obs(SPECS[name], 3, 4)
    reset = torch.zeros(3, 4, dtype=torch.bool)
    exact = run(policy, obs, reset)
    with torch.autocast("cpu", torch.bfloat16):
        out = run(policy, obs, reset)
    assert out.value.dtype == out.params.dtype == torch.float32
    torch.testing.assert_close(out.value, exact.value, atol=0.1, rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("name", ["compact", "dense", "tokens", "floats", "foreign tokens"])
def test_it_compiles_whole(name: str, core: str) -> None:
    """One graph, forward and backward, with the same numbers."""
    torch.compiler.reset()  # the cases before count towards dynamo's limit of compilations
    policy, spec = policy_for(name, core), SPECS[name]
    obs, reset, state = random_obs(spec, 3, 4), torch.rand(3, 4) < 0.3, policy.initial_state(4)
    action = torch.zeros(3, 4, spec.action.width, dtype=torch.int32)

    def loss(obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Tensor:
        out = policy(obs, state, reset)
        logprob, entropy = policy.head.logprob_entropy(out.params, action)
        return (logprob + entropy + out.value).sum()

    found = []
    for run_loss in (loss, torch.compile(loss, fullgraph=True, dynamic=False)):
        total = run_loss(obs, state, reset)
        found.append((total.detach(), *torch.autograd.grad(total, list(policy.parameters()))))
    for plain, compiled in zip(*found):
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-4)


def test_what_a_policy_cannot_read_is_said() -> None:
    with pytest.raises(UserError, match=r"policy=tokens, or env\.observation=compact"):
        make_policy(PolicyConfig(name="mlp"), SPECS["tokens"])
    with pytest.raises(UserError, match=r"reads \[n, 3\] uint8 tokens, but grid gives obs \[387\] uint8"):
        make_policy(PolicyConfig(name="tokens"), SPECS["compact"])
    with pytest.raises(UserError, match="expected mlp, tokens, or your own"):
        make_policy(PolicyConfig(name="cnn"), SPECS["compact"])
