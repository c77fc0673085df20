"""Measures the fused act kernel and the compiled policy on a GPU.

    python -m tests.policy.time_gpu_act [rows] [width]

Microseconds a call, of calls replayed in one CUDA graph over different rows, as in a rollout.
"""

from __future__ import annotations

import sys
from itertools import product

import torch

from metta_fast.bench.gpu.clock import MOST_CALLS, Call, microseconds
from metta_fast.buffers.act_row import ActRow
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from metta_fast.policy.fused_act.triton_act import fused_act, pack
from metta_fast.policy.network import Network
from metta_fast.rollout.act import ActInto
from tests.policy.specs import grid_obs, grid_spec

CALLS = MOST_CALLS


def us(call: Call) -> float:
    return microseconds(call, torch.device("cuda")).us


def main(n: int, width: int) -> None:
    policy = make_policy(PolicyConfig(name="mlp", hidden_size=width), grid_spec("compact")).cuda()
    assert isinstance(policy, Network)
    rows = grid_obs("compact", 4096).cuda()
    at = torch.randint(0, len(rows), (CALLS, n), device="cuda")
    obs = rows[at]  # [CALLS, n, 387]
    noise = torch.rand(CALLS, n, 2, device="cuda")
    action = torch.zeros(CALLS, n, 2, dtype=torch.int32, device="cuda")
    logprob, value = torch.zeros(CALLS, n, device="cuda"), torch.zeros(CALLS, n, device="cuda")
    packed = pack(policy, torch.bfloat16)
    print(f"{torch.cuda.get_device_name()}, {n} rows, width {width}")
    for block, warps, step in product((16, 32), (4, 8), (2, 4, 8)):

        def call(t: int, block: int = block, warps: int = warps, step: int = step) -> None:
            fused_act(
                packed, obs[t], noise[t], action[t], logprob[t], value[t], rows=block, warps=warps, step=step
            )  # fmt: skip

        print(f"rows={block:3} warps={warps} step={step}: {us(call):6.1f} us", flush=True)
    value_only = us(lambda t: fused_act(packed, obs[t], None, None, None, value[t]))
    print(f"values alone: {value_only:.1f} us; packing: {us(lambda t: packed.update()):.1f} us")

    state, reset = policy.initial_state(n, "cuda"), torch.zeros(1, n, dtype=torch.bool, device="cuda")
    act = torch.compile(ActInto(policy), dynamic=False)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        plain = us(
            lambda t: act(
                ActRow(
                    {"obs": obs[t : t + 1]}, state, reset, noise[t : t + 1], action[t : t + 1], logprob[t : t + 1],
                    value[t : t + 1],
                )
            )
        )  # fmt: skip
    print(f"compiled: {plain:.1f} us")


if __name__ == "__main__":
    given = [int(x) for x in sys.argv[1:]]
    main(*(given + [8192, 128][len(given) :]))
