"""Defines the parts of a rollout that `--gpu` measures: simulator, inference, summary, advantage."""

from __future__ import annotations

from typing import cast

import torch

from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.bench.gpu import plain_torch
from metta_fast.bench.gpu.clock import Call
from metta_fast.bench.gpu.measured_run import MeasuredRun, Part, in_all_forms
from metta_fast.buffers.act_row import Act
from metta_fast.contracts.device_vector import DeviceVector
from metta_fast.rollout.act import ActInto
from metta_fast.vector.gpu import build_and_step


def simulator(run: MeasuredRun) -> Part:
    """Measures building maps and stepping; as in the rollout, but one after the other."""

    vec = cast("DeviceVector", run.algorithm.vec)

    def step(i: int) -> None:
        build_and_step(vec, i % run.buffers.horizon)

    return Part("simulator: maps and step", run.buffers.horizon, {"ours": step})


def row(run: MeasuredRun) -> Part:
    """Measures policy and sampling of one row of all agents."""
    b, rollout = run.buffers, run.rollout

    def using(act: Act) -> Call:
        state = rollout._state.clone()

        def call(i: int) -> None:
            with torch.no_grad(), rollout._autocast():
                act(b.act_row(i % b.horizon, state, rollout._noise))

        return call

    plain = ActInto(run.plain)
    forms = {
        "ours": using(rollout._act),
        "eager": using(plain),
        "compiled": using(torch.compile(plain, dynamic=False)),
    }
    return Part("inference of a row", b.horizon + 1, forms)


def summary(run: MeasuredRun) -> Part:
    """Measures the summary of the rollout."""
    plain = plain_torch.summary(run.algorithm)
    return in_all_forms("summary of the rollout", 1, run.algorithm.summary.run, plain)


def advantage(run: MeasuredRun) -> Part:
    """Measures the advantage of the whole rollout."""
    config, final = run.algorithm.config.trainer, run.algorithm.spec.has_final_obs

    def ours() -> None:
        compute_advantage(run.buffers, config, final)

    return in_all_forms("advantage", 1, ours, plain_torch.advantage(run.algorithm))
