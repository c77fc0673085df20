"""The policy on a GPU, eager and compiled, against the CPU: every byte, each layout, both precisions.

python -m pytest -m gpu tests/policy/test_cuda.py
"""

from __future__ import annotations

import copy

import pytest
import torch

from metta_fast.config import PolicyConfig
from metta_fast.policy import make_policy
from metta_fast.policy.grid_layout import LAYOUTS
from tests.policy.specs import grid_obs, grid_spec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def every_byte(kind: str) -> torch.Tensor:
    """Observations in which each place takes each value once: uint8 [256, *shape]."""
    shape = LAYOUTS[kind].shape
    places = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return ((torch.arange(256).reshape(-1, *[1] * len(shape)) + 37 * places) % 256).to(torch.uint8)


@pytest.mark.parametrize("mode", ["eager", "default", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_decoding_gives_the_same_numbers(kind: str, dtype: torch.dtype, mode: str) -> None:
    layout = LAYOUTS[kind]

    def decode(x: torch.Tensor) -> torch.Tensor:
        return layout.decode(x, dtype)

    run = decode if mode == "eager" else torch.compile(decode, mode=mode, dynamic=False)
    obs = torch.cat([every_byte(kind), grid_obs(kind, 64)])
    found = run(obs.cuda()).float().cpu()
    torch.testing.assert_close(found, layout.decode(obs, torch.float32), rtol=0.02, atol=0.02)


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
