"""Measures the advantage alone: our kernels and plainer implementations, in turns.

    python benchmark_performance.py --advantage

    kernel     as in a run: the C kernel on the CPU, the Triton kernel on a GPU (algorithms/ppo/advantage)
    torch      δ of all rows at once, then one torch operation per row, backwards (on_tensors.py)
    numpy      the same loop over rows, vectorised over agents with NumPy
    python     two plain loops over single numbers (reference.py)
    pufferlib  PufferLib's own kernel, if it is installed and loads: V-trace in another layout, without masks

A step is one row of one agent. Before timing, each implementation is checked against the kernel, except PufferLib's,
whose formula differs at episode ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from metta_fast.algorithms.ppo.advantage import Inputs, compute_advantage
from metta_fast.algorithms.ppo.advantage.on_tensors import advantage_on_tensors
from metta_fast.algorithms.ppo.advantage.reference import advantage_reference
from metta_fast.bench.harness.libraries import PUFFERLIB
from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.contracts.env import Array
from metta_fast.envs.counter import CounterFactory

SHAPES = ((64, 256), (128, 2048))
"""(rows, agents) of the performance guide's original and ultra-fast settings."""
ENDS = 0.01
"""Share of rows at which an episode ends, half of them by a time limit."""


def measure(report: Report, seconds: float, repeats: int, say: Callable[[str], None], *, quick: bool) -> None:
    """Adds a row for each device, shape and implementation, and ratios of the kernel to the others.

    Args:
        quick: measure the first shape only.
    """
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    for device in devices:
        for shape in SHAPES[:1] if quick else SHAPES:
            for name in ("gae", "vtrace"):
                _measure(report, device, shape, name, seconds, repeats, say)


def forms(buffers: Buffers, config: TrainerConfig) -> dict[str, Callable[[], None]]:
    """Returns the implementations by name; each fills `buffers.advantage` and `buffers.returns`."""
    b = buffers
    inputs = Inputs.of(b, config)
    found: dict[str, Callable[[], None]] = {
        "kernel": partial(compute_advantage, b, config),
        "torch": partial(advantage_on_tensors, inputs, b.advantage, b.returns),
    }
    if b.device.type == "cpu":
        host = inputs.with_arrays(lambda array: array.numpy())
        out = b.advantage.numpy(), b.returns.numpy()

        def python() -> None:
            out[0][...], out[1][...] = advantage_reference(host)

        found["numpy"] = partial(advantage_numpy, host, *out)
        found["python"] = python
    return found


def advantage_numpy(inputs: Inputs[Array], advantage: Array, returns: Array) -> None:
    """Computes the advantage as most trainers do: backwards over rows, with operations over agents."""
    value, reward, ratio = inputs.value, inputs.reward, inputs.ratio
    carry = np.zeros(reward.shape[1], np.float32)
    for t in reversed(range(len(reward))):
        delta = reward[t] + inputs.gamma * np.where(inputs.terminal[t], 0.0, value[t + 1]) - value[t]
        decay = inputs.gamma * inputs.gae_lambda * ~(inputs.terminal[t] | inputs.truncation[t])
        if ratio is not None:
            delta = delta * np.minimum(ratio[t], inputs.rho_clip)
            decay = decay * np.minimum(ratio[t], inputs.c_clip)
        carry = np.where(inputs.mask[t], delta + decay * carry, 0.0)
        advantage[t] = carry
    np.add(advantage, value[:-1], out=returns)


def filled(device: str, horizon: int, agents: int) -> Buffers:
    """Returns buffers with a plausible random rollout, the same on every device."""
    spec = CounterFactory().spec
    b = Buffers.allocate(
        spec,
        num_agents=agents,
        horizon=horizon,
        bptt_horizon=horizon,
        state_shape=(0, 0),
        device=torch.device(device),
    )
    rng = torch.Generator().manual_seed(0)

    def uniform(like: torch.Tensor) -> torch.Tensor:
        return torch.rand(like.shape, generator=rng).to(device)

    for array in (b.value, b.reward):
        array.copy_(uniform(array) * 2 - 1)
    b.ratio.copy_(0.5 + uniform(b.ratio))
    ends = uniform(b.reward)
    b.terminal.copy_(ends < ENDS / 2)
    b.truncation.copy_((ends >= ENDS / 2) & (ends < ENDS))
    b.mask.fill_(True)
    b.mask[1:] = ~(b.terminal | b.truncation)  # the row after an end is the true last observation
    return b


def puffer(buffers: Buffers, config: TrainerConfig) -> Callable[[], None]:
    """Returns PufferLib's kernel on agents × rows. Raises ImportError or RuntimeError if it does not load."""
    import pufferlib  # noqa: F401
    from pufferlib import _C  # noqa: F401 - registers the operation

    b = buffers
    value, reward = b.value[:-1].T.contiguous(), b.reward.T.contiguous()
    ended = (b.terminal | b.truncation).T.float().contiguous()
    ratio, advantage = b.ratio.T.contiguous(), torch.zeros_like(value)
    clips = config.vtrace_rho_clip, config.vtrace_c_clip
    return partial(
        torch.ops.pufferlib.compute_puff_advantage,
        value, reward, ended, ratio, advantage, config.gamma, config.gae_lambda, *clips,
    )  # fmt: skip


def _measure(
    report: Report,
    device: str,
    shape: tuple[int, int],
    name: str,
    seconds: float,
    repeats: int,
    say: Callable[[str], None],
) -> None:
    horizon, agents = shape
    buffers, config = filled(device, horizon, agents), TrainerConfig(advantage=name)
    found = forms(buffers, config)
    check(buffers, found)
    if name == "vtrace":
        try:
            found["pufferlib"] = puffer(buffers, config)
            found["pufferlib"]()
        except (ImportError, RuntimeError, NotImplementedError) as error:
            found.pop("pufferlib", None)
            note = PUFFERLIB.absent(str(error).splitlines()[0])
            if note not in report.notes:
                report.notes.append(note)
    head = f"{name}, {horizon} rows of {agents} agents, {device}"
    results, notes = in_turns(
        [partial(_round, work, seconds, horizon * agents, device) for work in found.values()],
        repeats,
        headed(say, head),
    )
    report.notes += [f"{head}: {note}" for note in notes]
    speeds = {
        form: [one["steps_per_s"] for one in rounds] for form, rounds in zip(found, results, strict=True)
    }
    for form, one in speeds.items():
        report.add_row(f"{head}: {form}", one, peer=form)
    for form in list(speeds)[1:]:
        report.add_ratio(f"{head}: kernel / {form}", speeds["kernel"], speeds[form])


def check(buffers: Buffers, found: dict[str, Callable[[], None]]) -> None:
    """Checks that every implementation gives the kernel's advantages. Raises RuntimeError if one does not."""
    found["kernel"]()
    expected = buffers.advantage.clone(), buffers.returns.clone()
    for form, work in found.items():
        buffers.advantage.zero_()
        work()
        for one, other in zip((buffers.advantage, buffers.returns), expected, strict=True):
            if not torch.allclose(one, other, atol=1e-3, rtol=1e-3):
                raise RuntimeError(f"--advantage: {form} differs from the kernel")


def _round(work: Callable[[], object], seconds: float, steps: int, device: str) -> dict[str, Any]:
    """Calls `work` for `seconds` seconds; the device is synchronised before each reading of the clock."""
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for _ in range(1 if device == "cpu" else 16):
            work()
            calls += 1
        if device != "cpu":
            torch.cuda.synchronize()
    return {"steps_per_s": calls * steps / elapsed}
