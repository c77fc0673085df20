"""Describes an exported file's inputs and outputs, in FILE.json and inside the file."""

from __future__ import annotations

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from metta_fast.config.keys import Config
from metta_fast.contracts.env import EnvSpec
from metta_fast.export.formats import ONNX_PACKAGES
from metta_fast.export.step import ACTION_MASK, gives_value, has_memory, input_names
from metta_fast.policy import Policy
from metta_fast.policy.mixed_head import box_of
from metta_fast.version import __version__

SCHEMA = 1


def describe(
    config: Config, policy: Policy, spec: EnvSpec, *, form: str, run: str, step: int
) -> dict[str, Any]:
    """Returns the description as JSON values. "B" in a shape is the number of agents, at least 1.

    Args:
        form: a name of formats.FORMATS.
        run, step: the training run's name, and its step.
    """
    memory = has_memory(policy)
    layers, size = policy.state_shape
    names = input_names(spec, memory=memory)
    inputs = [
        {"name": name, "dtype": leaf.dtype, "shape": ["B", *leaf.shape]}
        for name, leaf in zip(names, spec.obs.values())
    ]
    if spec.action_mask:
        inputs.append({"name": ACTION_MASK, "dtype": "bool", "shape": ["B", sum(spec.action.nvec)]})
    outputs: list[dict[str, Any]] = [
        {"name": "action", "dtype": spec.action.dtype, "shape": ["B", spec.action.width]},
        {"name": "params", "dtype": "float32", "shape": ["B", policy.head.num_params]},
    ]
    if gives_value(policy):
        outputs.append({"name": "value", "dtype": "float32", "shape": ["B"]})
    if memory:
        inputs.append({"name": "state", "dtype": "float32", "shape": [layers, "B", size]})
        inputs.append({"name": "reset", "dtype": "bool", "shape": ["B"]})
        outputs.append({"name": "new_state", "dtype": "float32", "shape": [layers, "B", size]})
    return {
        "schema": SCHEMA,
        "format": form,
        "run": run,
        "step": step,
        "env": config.env.name,
        "policy": config.policy.name,
        "core": config.policy.core,
        "frame_stack": config.policy.frame_stack,
        "inputs": inputs,
        "outputs": outputs,
        "action": _action(policy, spec),
        "use": _use(memory),
        "versions": _versions(form),
    }


def _action(policy: Policy, spec: EnvSpec) -> dict[str, Any]:
    action = spec.action
    if action.kind == "discrete":
        return {
            "kind": "discrete",
            "choices": list(action.nvec),
            "start": list(action.start) or [0] * action.width,
            "params": "logits of all heads side by side; action is the most likely choice plus start",
        }
    box = box_of(policy.head)
    squash = box is not None and box.squash
    bent = "squashed into the bounds with tanh" if squash else "clipped to the bounds"
    if action.kind == "mixed":
        return {
            "kind": "mixed",
            "choices": list(action.nvec),
            "start": list(action.start) or [0] * len(action.nvec),
            "low": [_number(bound) for bound in action.low],
            "high": [_number(bound) for bound in action.high],
            "squash": squash,
            "params": "logits of all heads side by side; then means, then logs of standard deviations, of normal "
            "distributions in units in which an entry's two finite bounds are -1 and 1; action is the most likely "
            f"choice of each head plus start, then the mean of each other entry, {bent}",
        }
    return {
        "kind": "box",
        "low": [_number(bound) for bound in action.low],
        "high": [_number(bound) for bound in action.high],
        "squash": squash,
        "params": "means, then logs of standard deviations, of normal distributions in units in which an entry's "
        f"two finite bounds are -1 and 1; action is the mean, {bent}",
    }


def _use(memory: bool) -> str:
    if not memory:
        return "one call a step, for B agents at once"
    return (
        "one call a step, for B agents at once: begin with a state of zeros, give new_state back as the next state, "
        "and set reset for an agent whose episode begins with this observation"
    )


def _number(value: float) -> float | None:
    """Returns a value for JSON: null for infinity, which JSON lacks."""
    return value if math.isfinite(value) else None


def _versions(form: str) -> dict[str, str]:
    found = {"metta_fast": __version__, "torch": torch.__version__, "python": platform.python_version()}
    for package in ONNX_PACKAGES if form == "onnx" else ():
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
