"""Checks and `auto`: a composed configuration becomes one that can run, or a UserError before any start.

    compose ─► environment ─► device ─► env_device ─► sizes ─► vector ─► graphs ─► policy ─► features ─► memory
            ─► Resolved

Every value that changes here keeps its reason in `origins`, which --explain prints. torch is not imported:
cards are found by metta_fast/hardware.py (a feature that is on brings it in).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from metta_fast import hardware
from metta_fast.compose import Composed
from metta_fast.config import Config, config_from_dict, config_to_dict, get, nearest, put, shown
from metta_fast.errors import UserError
from metta_fast.gpu_engine import PREFERENCES, Obstacle, cpu_wishes, differing, obstacle, said
from metta_fast.hardware import GIB, Machine
from metta_fast.sizes import fit_sizes
from metta_fast.spec import EnvSpec

POLICIES = ("mlp", "tokens")
OWN_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
"""Modes of torch.compile that use CUDA graphs, and the same without."""

NOT_BUILT_YET = (
    "contrastive",
    "kickstart",
    "weight analysis",
    "profiler",
    "replay files",
    "gradient statistics",
)
"""What the guide's original setting switches on and this version does not have."""


@dataclass
class Resolved:
    """A configuration that can run."""

    config: Config
    """No value is `auto`."""
    origins: dict[str, str]
    """Where each leaf comes from; "auto: why" for the values found or fitted here."""
    notes: list[str] = field(default_factory=list)
    """What the user should be told before training."""
    groups: dict[str, str] = field(default_factory=dict)
    """The option chosen of each group."""


def resolve(composed: Composed, *, machine: Machine | None = None) -> Resolved:
    """Check `composed` and fill in every `auto`.

    Args:
        machine: what to resolve for; None: the machine that compose looked at, or this one.

    Raises:
        UserError: values that cannot work together, an environment that cannot be made, a missing GPU.
    """
    machine = machine or composed.machine or hardware.detect()
    work = _Resolve(composed, machine)
    spec = work.environment()
    work.device()
    work.env_device(spec)
    spec = replace(spec, num_envs=work.sizes())
    work.vector(spec)
    work.graphs()
    work.policy(spec)
    work.features()
    work.memory(spec)
    if composed.groups.get("hardware") == "original":
        work.notes.append(f"hardware=original runs without what is not built yet: {', '.join(NOT_BUILT_YET)}")
    return Resolved(work.config, work.origins, work.notes, dict(composed.groups))


class _Resolve:
    def __init__(self, composed: Composed, machine: Machine) -> None:
        self.config = config_from_dict(config_to_dict(composed.config))
        self.origins = dict(composed.origins)
        self.notes = list(composed.notes)
        self.typed = composed.typed
        self.machine = machine

    def _set(self, path: str, value: Any, why: str) -> None:
        put(self.config, path, value)
        self.origins[path] = f"auto: {why}"

    def _adjust(self, path: str, value: Any, why: str, *, tell: bool = True) -> None:
        """Change a value that a profile, recipe or default gave, and tell the user."""
        source = self.origins[path]
        put(self.config, path, value)
        self.origins[path] = f"auto: {why} ({source})"
        if tell:
            self.notes.append(f"{path}={shown(value)} ({source}: {why})")

    def environment(self) -> EnvSpec:
        """The environment can be made, and gives the number of agents."""
        from metta_fast.envs import make_factory

        env = self.config.env
        spec = make_factory(env).spec
        if spec.agents_per_env != env.agents_per_env:
            if self.typed("env.agents_per_env"):
                raise UserError(
                    f"env.agents_per_env={env.agents_per_env}, but {env.factory} has "
                    f"{spec.agents_per_env}; leave it out or give env.agents_per_env={spec.agents_per_env}"
                )
            self._adjust("env.agents_per_env", spec.agents_per_env, f"what {env.factory} has")
        return spec

    def env_device(self, spec: EnvSpec) -> None:
        """Where environments step, and what follows from it (metta_fast/gpu_engine.py)."""
        env, vector = self.config.env, self.config.vector
        missing = obstacle(spec, self.machine)
        if env.device == "auto":
            self._choose_env_device(spec, missing)
        elif env.device == "cuda" and missing:
            raise UserError(f"env.device=cuda: {missing.why}; {missing.cure}")
        if env.device == "cuda":
            if self.config.trainer.device == "cpu":
                raise UserError(
                    "env.device=cuda has the policy on the GPU as well, but trainer.device=cpu; leave one of "
                    "them out"
                )
            for wish in differing(self.config):
                if self.typed(wish.path):
                    raise UserError(
                        f"{said(self.config, wish)} does not go with env.device=cuda: {wish.why}; leave one of "
                        "them out"
                    )
                self._adjust(wish.path, wish.needed, wish.why, tell=wish.path not in PREFERENCES)
        elif vector.backend == "gpu":
            if self.typed("vector.backend"):
                why, cure = (missing.why, missing.cure) if missing else ("env.device=cpu", "leave one out")
                raise UserError(f"vector.backend=gpu steps environments on the GPU, but {why}; {cure}")
            vector.backend = "auto"

    def _choose_env_device(self, spec: EnvSpec, missing: Obstacle | None) -> None:
        """What env.device=auto becomes."""
        on_gpu = self.config.trainer.device == "cuda"
        wishes = cpu_wishes(self.config, self.typed)
        if missing:
            self._set("env.device", "cpu", missing.why)
            if missing.surprising and on_gpu:
                self.notes.append(f"environments step on the CPU: {missing.why}; {missing.cure}")
        elif not on_gpu:
            self._set("env.device", "cpu", "the policy runs on the CPU")
        elif wishes:
            asked = " and ".join(f"{said(self.config, w)} ({self.origins[w.path]})" for w in wishes)
            self._set("env.device", "cpu", f"for {asked}")
            self.notes.append(f"environments step on the CPU for {asked}; without, they step on the GPU")
        else:
            self._set("env.device", "cuda", f"{spec.name} has a GPU engine")

    def sizes(self) -> int:
        """Agents, segments, batch and minibatches that divide each other (metta_fast/sizes.py).

        Returns the number of environments.
        """
        for change in fit_sizes(self.config, self.typed):
            self._adjust(change.path, change.value, change.why)
        return self.config.env.num_envs

    def vector(self, spec: EnvSpec) -> None:
        """Backend, workers and threads for this environment and the cores allowed."""
        vector, envs, cores = self.config.vector, self.config.env.num_envs, self.machine.cores
        if vector.backend == "auto" and self.config.env.device == "cuda":
            self._set("vector.backend", "gpu", "env.device=cuda")
        if vector.backend == "auto":
            backend = "threads" if spec.native else "workers"
            self._set(
                "vector.backend", backend, "a native environment" if spec.native else "a Python environment"
            )
        if vector.num_workers == "auto":
            if vector.backend == "workers":
                self._set("vector.num_workers", min(cores, envs), f"{cores} cores allowed, {envs} envs")
            else:
                self._set("vector.num_workers", 1, f"not used by vector.backend={vector.backend}")
        self._at_most("vector.num_workers", envs, "env.num_envs")
        if vector.num_threads == "auto":
            if vector.backend == "threads":
                self._set("vector.num_threads", min(cores, envs), f"{cores} cores allowed, {envs} envs")
            elif vector.backend == "workers":
                each = max(1, cores // vector.num_workers)
                self._set(
                    "vector.num_threads", each, f"{cores} cores allowed for {vector.num_workers} workers"
                )
            else:
                self._set("vector.num_threads", 1, f"not used by vector.backend={vector.backend}")
        self._at_most("vector.num_threads", envs, "env.num_envs")
        for path in ("vector.num_workers", "vector.num_threads"):
            if vector.backend == "gpu" and self.typed(path):
                self.notes.append(
                    f"{path}={get(self.config, path)} is for environments on the CPU (env.device=cpu); these "
                    "step on the GPU"
                )
        if vector.backend == "workers" and vector.num_workers > cores:
            self.notes.append(
                f"vector.num_workers={vector.num_workers} ({self.origins['vector.num_workers']}) share "
                f"{cores} cores; vector.num_workers=auto takes {min(cores, envs)}"
            )

    def _at_most(self, path: str, limit: int, what: str) -> None:
        value = get(self.config, path)
        if value <= limit:
            return
        if self.typed(path):
            raise UserError(
                f"{path}={value} is more than {what}={limit}; try {path}={limit}, or {what}={value}"
            )
        self._adjust(path, limit, f"{value} lowered to {what}")

    def device(self) -> None:
        """Where the policy runs, and in which arithmetic."""
        trainer, machine = self.config.trainer, self.machine
        if trainer.device == "auto":
            if machine.gpus:
                self._set("trainer.device", "cuda", machine.gpus[0].name)
            else:
                self._set("trainer.device", "cpu", "no GPU that the installed torch can use")
        if trainer.device == "cuda" and not machine.gpus:
            why = machine.notes[0] if machine.notes else "no GPU was found that the installed torch can use"
            raise UserError(f"trainer.device=cuda: {why}; give trainer.device=cpu or leave it auto")
        cuda = trainer.device == "cuda"
        if trainer.precision == "auto":
            if cuda and machine.gpus[0].bf16:
                self._set("trainer.precision", "bf16", f"{machine.gpus[0].name} has it")
            else:
                self._set("trainer.precision", "fp32", "this GPU has no bf16" if cuda else "on the CPU")
        if trainer.compile == "auto":
            self._set("trainer.compile", cuda, "on a GPU" if cuda else "it does not pay on the CPU")
        if trainer.torch_threads == "auto":
            threads = min(4, machine.cores) if cuda else machine.cores
            self._set(
                "trainer.torch_threads",
                threads,
                f"{machine.cores} cores allowed" + (", few are needed beside a GPU" if cuda else ""),
            )
        if not cuda:
            self._on_the_cpu()
        if trainer.deterministic and trainer.cudnn_benchmark and cuda:
            if self.typed("trainer.cudnn_benchmark"):
                raise UserError(
                    "trainer.cudnn_benchmark=true chooses kernels by time, which trainer.deterministic=true "
                    "rules out; give only one of them"
                )
            self._set("trainer.cudnn_benchmark", False, "trainer.deterministic=true")

    def _on_the_cpu(self) -> None:
        """What only a GPU has: an error where typed, else switched off and said."""
        trainer = self.config.trainer
        if trainer.precision == "fp16":
            if self.typed("trainer.precision"):
                raise UserError(
                    "trainer.precision=fp16 needs a GPU; give trainer.precision=fp32 or bf16 on the CPU"
                )
            self._adjust("trainer.precision", "fp32", "fp16 needs a GPU")
        if trainer.cpu_offload:
            if self.typed("trainer.cpu_offload"):
                raise UserError(
                    "trainer.cpu_offload=true keeps the rollout out of the GPU's memory, but the policy runs "
                    "on the CPU; leave it out"
                )
            self._adjust("trainer.cpu_offload", False, "the policy runs on the CPU")
        if (
            trainer.compile
            and not self.typed("trainer.compile")
            and self.origins["trainer.compile"][:5] != "auto:"
        ):
            self._adjust(
                "trainer.compile",
                False,
                "compiling for the CPU takes long and gains little; typed, trainer.compile=true does it",
            )

    def graphs(self) -> None:
        """CUDA graphs of our own, and the mode of torch.compile that goes with them."""
        trainer, on_gpu = self.config.trainer, self.config.env.device == "cuda"
        if trainer.cuda_graphs == "auto":
            self._set("trainer.cuda_graphs", on_gpu, f"env.device={self.config.env.device}")
        if trainer.cuda_graphs and not on_gpu:
            why = f"needs environments on the GPU, but env.device=cpu ({self.origins['env.device']})"
            if self.typed("trainer.cuda_graphs"):
                raise UserError(f"trainer.cuda_graphs=true {why}; leave it auto")
            self._adjust("trainer.cuda_graphs", False, why)
        if trainer.compile_mode == "auto":
            if trainer.compile and trainer.device == "cuda" and not trainer.cuda_graphs:
                self._set("trainer.compile_mode", "reduce-overhead", "no launch cost for each kernel")
            else:
                graphs = "trainer.cuda_graphs=true" if trainer.cuda_graphs else "on the CPU"
                why = graphs if trainer.compile else "trainer.compile=false"
                self._set("trainer.compile_mode", "default", why)
        if trainer.cuda_graphs and trainer.compile and trainer.compile_mode in OWN_GRAPHS:
            why = "torch's graphs cannot be captured into those of trainer.cuda_graphs"
            if self.typed("trainer.compile_mode"):
                raise UserError(
                    f"trainer.compile_mode={trainer.compile_mode}: {why}; leave it out, or give "
                    f"trainer.cuda_graphs=false"
                )
            self._adjust("trainer.compile_mode", OWN_GRAPHS[trainer.compile_mode], why)

    def policy(self, spec: EnvSpec) -> None:
        """The policy is known and reads this observation."""
        name, observation = self.config.policy.name, self.config.env.observation
        if "." not in name and name not in POLICIES:
            guess = nearest(name, POLICIES)
            raise UserError(
                f"policy.name={name!r}: "
                + (f"did you mean '{guess}'? " if guess else "")
                + f"known: {', '.join(POLICIES)}, or your own as package.module.Class"
            )
        leaves = list(spec.obs.values())
        tokens = len(leaves) == 1 and leaves[0].dtype == "uint8" and leaves[0].shape[1:] == (3,)
        if name == "tokens" and not tokens:
            cure = "env.observation=tokens" if self.config.env.factory == "grid" else "policy=mlp"
            raise UserError(
                f"policy tokens reads [n, 3] tokens, but {spec.name} gives "
                f"{', '.join(f'{k} {list(v.shape)} {v.dtype}' for k, v in spec.obs.items())}; give {cure}"
            )
        if name == "mlp" and observation == "tokens":
            raise UserError(
                "policy mlp does not read token observations; give policy=tokens, or env.observation=compact"
            )

    def features(self) -> None:
        """Every feature named is known and takes its keys. Imports torch, but only if there is one."""
        if self.config.features:
            from metta_fast.features import make_features

            make_features(self.config.features)

    def memory(self, spec: EnvSpec) -> None:
        """The rollout's buffers fit the memory of where they lie, with room for the rest."""
        trainer = self.config.trainer
        row = sum(prod(leaf.shape) * _itemsize(leaf.dtype) for leaf in spec.obs.values()) + 32
        agents = self.config.env.num_envs * self.config.env.agents_per_env
        need = row * (trainer.batch_size + agents)
        on_gpu = trainer.device == "cuda" and not trainer.cpu_offload
        have = self.machine.gpus[0].memory if on_gpu else self.machine.memory
        if need > 0.9 * have:
            raise UserError(
                f"the rollout of trainer.batch_size={trainer.batch_size} rows takes {need / GIB:.1f} GiB, "
                f"but the {'GPU' if on_gpu else 'machine'} has {have / GIB:.1f}\n"
                f"try {hardware.smaller_sizes(self.config)}"
            )


def _itemsize(dtype: str) -> int:
    import numpy as np

    return np.dtype(dtype).itemsize
