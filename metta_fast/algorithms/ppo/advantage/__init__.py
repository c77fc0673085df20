"""Computes the advantages of a whole rollout into the buffers: GAE and V-trace.

    inputs.py      the inputs of all of these
    reference.py   plain loops over NumPy arrays: the reference for tests
    _kernel.pyx    CPU tensors: one C loop backwards through time, vectorised over agents
    on_gpu.py      CUDA and ROCm tensors: one Triton kernel
    on_tensors.py  devices without Triton: torch operations
    value_sums.py  how well values predict returns: sums for the explained variance
    figures.py     that, and an update's other figures beside its losses

`reward[t]`, `terminal[t]` and `truncation[t]` belong to `action[t]`. With V = value [T+1], done = terminal or
truncation:

    nv[t] = 0 where terminal[t], or truncation[t] and the environment gives no final observation; else V[t+1],
            or bootstrap[t] where truncation[t] and row t+1 is the next episode's first (same-step resets)
    δ[t]  = ρ[t] (reward[t] + γ nv[t] − V[t])
    A[t]  = mask[t] (δ[t] + γ λ c[t] (1 − done[t]) A[t+1]),   A[T] = 0
    returns = A + V

GAE: ρ = c = 1. V-trace: ρ = min(vtrace_rho_clip, ratio), c = min(vtrace_c_clip, ratio).
Sources: Schulman et al. 2016, arXiv 1506.02438; Espeholt et al. 2018, arXiv 1802.01561.
"""

from __future__ import annotations

from torch import Tensor

from metta_fast.algorithms.ppo.advantage._kernel import advantage_cpu
from metta_fast.algorithms.ppo.advantage.inputs import Inputs
from metta_fast.algorithms.ppo.advantage.on_tensors import advantage_on_tensors
from metta_fast.algorithms.ppo.advantage.value_sums import add_up
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.runtime.torch_setup import has_triton

__all__ = ["Inputs", "compute_advantage"]


def compute_advantage(
    buffers: Buffers, config: TrainerConfig, has_final_obs: bool = True, sums: Tensor | None = None
) -> None:
    """Fills `buffers.advantage` and `buffers.returns` [T, N] from the other arrays.

    Args:
        config: gamma, gae_lambda, advantage ("gae" or "vtrace") and the two V-trace clips.
        has_final_obs: `EnvSpec.has_final_obs`; False: a truncation does not bootstrap.
        sums: [len(VALUE_SUMS)] float64 on the buffers' device, filled if given (value_sums.py).
    """
    b = buffers
    inputs = Inputs.of(b, config, has_final_obs)
    if b.device.type == "cpu":  # numpy() shares the memory
        advantage_cpu(inputs.with_arrays(lambda array: array.numpy()), b.advantage.numpy(), b.returns.numpy())
    elif has_triton(b.device):
        from metta_fast.algorithms.ppo.advantage.on_gpu import advantage_on_gpu

        advantage_on_gpu(inputs, b.advantage, b.returns, sums)
        return
    else:
        advantage_on_tensors(inputs, b.advantage, b.returns)
    if sums is not None:
        add_up(b, sums)
