"""Compares the policy on a GPU, eager and compiled, with the CPU: every byte, each layout, both precisions.

python -m pytest -m gpu tests/policy/test_cuda.py
"""

from __future__ import annotations

import copy

import pytest
import torch

from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from metta_fast.policy.grid.layout import LAYOUTS
from metta_fast.policy.grid.sparse_layer import SparseLayer
from tests.interpreter import gpu
from tests.policy.specs import grid_obs, grid_spec

pytestmark = [*gpu, pytest.mark.usefixtures("exact_products")]


def every_byte(kind: str) -> torch.Tensor:
    """Observations in which each place takes each value once: uint8 [256, *shape]."""
    shape = LAYOUTS[kind].shape
    places = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return ((torch.arange(256).reshape(-1, *[1] * len(shape)) + 37 * places) % 256).to(torch.uint8)


@pytest.mark.parametrize("mode", ["eager", "default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_first_layer_gives_the_same_numbers(kind: str, dtype: torch.dtype, mode: str) -> None:
    """As the rollout calls it, [1, n, …] of a wider buffer, and its gradients, against float64 on the CPU."""
    layer = SparseLayer(LAYOUTS[kind], 96)
    torch.nn.init.normal_(layer.bias)
    bytes_ = grid_obs(kind, 64) if kind == "tokens" else torch.cat([every_byte(kind), grid_obs(kind, 64)])
    obs = bytes_.unsqueeze(0)
    pull = torch.randn(*obs.shape[:2], 96).to(dtype)

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype).double()

    inputs = rounded(LAYOUTS[kind].decode(obs, torch.float32))[0]
    wanted = [
        inputs @ rounded(layer.weight) + layer.bias.double(),
        inputs.t() @ pull[0].double(),
        pull[0].double().sum(0),
    ]
    on_gpu = copy.deepcopy(layer).cuda()
    run = on_gpu if mode == "eager" else torch.compile(on_gpu, mode=mode, dynamic=False)
    with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
        out = run(obs.cuda())
    assert out.dtype == dtype
    grads = torch.autograd.grad(out, [on_gpu.weight, on_gpu.bias], pull.cuda())
    limits = (6e-3 if dtype == torch.bfloat16 else 2e-6, 2e-6, 2e-6)
    for found, want, limit in zip((out[0], *grads), wanted, limits):
        difference = (found.detach().cpu().double() - want).norm() / want.norm()
        assert difference < limit, float(difference)


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_what_was_compiled_for_training_is_what_is_evaluated(kind: str, core: str) -> None:
    """bf16 in a graph, as on the card; eager float32, as in an evaluation; the C kernel, on the CPU."""
    name = "tokens" if kind == "tokens" else "mlp"
    policy = make_policy(PolicyConfig(name=name, core=core), grid_spec(kind))
    on_gpu = copy.deepcopy(policy).cuda()
    obs = grid_obs(kind, 64).unsqueeze(0)
    reset = torch.zeros(1, 64, dtype=torch.bool)
    state = policy.initial_state(64, torch.device("cpu"))
    with torch.no_grad():
        want = policy({"obs": obs}, state, reset)
        given = ({"obs": obs.cuda()}, state.cuda(), reset.cuda())
        eager = on_gpu(*given)
        with torch.autocast("cuda", torch.bfloat16):
            compiled = torch.compile(on_gpu, mode="reduce-overhead", dynamic=False)(*given)
    torch.testing.assert_close(eager.params.cpu(), want.params, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(eager.value.cpu(), want.value, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(compiled.params.cpu(), want.params, rtol=0.05, atol=0.02)
    torch.testing.assert_close(compiled.value.cpu(), want.value, rtol=0.05, atol=0.02)
