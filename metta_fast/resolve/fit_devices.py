"""Chooses devices, precision and CUDA graphs: where environments step and where the policy learns.

    device ─► env_device ─► graphs          steps of resolve.py, which has the other steps

An unsupported value from a profile, recipe or default is changed, with a note. A typed value is used or refused.
"""

from __future__ import annotations

from typing import Any

from metta_fast.config.keys import config_from_dict, config_to_dict, get, put, shown
from metta_fast.contracts.env import EnvFactory, EnvSpec
from metta_fast.contracts.env_answers import fixed_num_envs, gpu_keys, gpu_only_if_asked, tensors_device
from metta_fast.contracts.errors import UserError
from metta_fast.envs import is_ours
from metta_fast.machine.hardware import Machine
from metta_fast.resolve.compose import DERIVED, Composed
from metta_fast.resolve.env_on_gpu import PREFERENCES, Obstacle, cpu_wishes, differing, obstacle, said

OWN_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
"""Modes of torch.compile that use CUDA graphs → the same mode without."""


class Devices:
    """Resolves a configuration: the steps about devices."""

    def __init__(self, composed: Composed, machine: Machine) -> None:
        self.config = config_from_dict(config_to_dict(composed.config))
        self.origins = dict(composed.origins)
        self.notes = list(composed.notes)
        self.remarks: list[str] = []
        self.typed = composed.typed
        ours = is_ours(self.config.env)
        self.detected = None if ours or composed.profile_typed else composed.from_profile
        """What a detected profile gave, key → file, for an environment that is not ours; else None."""
        self.machine = machine

    def _set(self, path: str, value: Any, why: str) -> None:
        put(self.config, path, value)
        self.origins[path] = f"auto: {why}"

    def _adjust(self, path: str, value: Any, why: str, *, tell: bool = True) -> None:
        """Changes a value from a profile, recipe or default, with a note. tell: False for no note."""
        source = self.origins[path]
        put(self.config, path, value)
        self.origins[path] = f"auto: {why} ({source})"
        if tell and not source.startswith(DERIVED):
            self.notes.append(f"{path}={shown(value)} ({source}: {why})")

    def batched(self, factory: EnvFactory) -> None:
        """Takes over what a batched environment was made with: how many environments, and where its tensors are."""
        env, trainer, name = self.config.env, self.config.trainer, factory.spec.name
        count, there = fixed_num_envs(factory), tensors_device(factory)
        if count and count != env.num_envs and self.typed("env.num_envs"):
            raise UserError(
                f"env.num_envs={env.num_envs}, but {env.factory} made a batch of {count} environments; leave "
                "env.num_envs out, or make config.num_envs of them there"
            )
        if count and not self.typed("env.num_envs"):
            env.num_envs = count
            self.origins["env.num_envs"] = (
                f"{name} was made with this many"  # not auto: nothing is derived then
            )
        if there and trainer.device == "auto":
            self._set("trainer.device", there, f"the tensors of {name} are there")
        elif there and trainer.device != there:
            raise UserError(
                f"trainer.device={trainer.device}, but the tensors of {name} are on {there}; leave trainer.device out, "
                f"or make the environment on {trainer.device}"
            )

    def device(self) -> None:
        """Chooses where the policy runs, and its precision."""
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
                self._set("trainer.precision", "bf16", f"{machine.gpus[0].name} supports it")
            else:
                self._set(
                    "trainer.precision", "fp32", "this GPU does not support bf16" if cuda else "on the CPU"
                )
        if trainer.compile == "auto":
            self._set("trainer.compile", cuda, "on a GPU" if cuda else "compiling gains little on the CPU")
        if trainer.torch_threads == "auto":
            threads = min(4, machine.cores) if cuda else machine.cores
            self._set(
                "trainer.torch_threads",
                threads,
                f"{machine.cores} cores allowed" + ("; few are needed with a GPU" if cuda else ""),
            )
        if not cuda:
            self._on_the_cpu()
        if trainer.deterministic and trainer.cudnn_benchmark and cuda:
            if self.typed("trainer.cudnn_benchmark"):
                raise UserError(
                    "trainer.cudnn_benchmark=true chooses kernels by measured times, which contradicts "
                    "trainer.deterministic=true; remove one of them"
                )
            self._set("trainer.cudnn_benchmark", False, "trainer.deterministic=true")

    def _on_the_cpu(self) -> None:
        """Disables settings that need a GPU, with a note; refuses typed ones."""
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
                    "on the CPU; remove it"
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
                "compiling for the CPU takes long and gains little; type trainer.compile=true to do it",
            )

    def env_device(self, factory: EnvFactory) -> None:
        """Chooses where environments step, and the keys that depend on it (metta_fast/resolve/env_on_gpu.py)."""
        env, vector, spec = self.config.env, self.config.vector, factory.spec
        if spec.device_rows:
            self._step_on_learners_device(spec)
            return
        asked_only = gpu_only_if_asked(factory) if env.device == "auto" else ""
        missing = None if asked_only else obstacle(factory, self.machine)
        if asked_only:
            self._set("env.device", "cpu", asked_only)
        elif env.device == "auto":
            self._choose_env_device(factory, missing)
        elif env.device == "cuda" and missing:
            raise UserError(f"env.device=cuda: {missing.why}; {missing.cure}")
        if env.device == "cpu" and (keys := gpu_keys(factory)):
            raise UserError(
                f"{keys[0]}={shown(get(self.config, keys[0]))} has no effect with env.device=cpu: it is for "
                f"{spec.name} on the GPU; leave it out, or give env.device=cuda"
            )
        if env.device == "cuda":
            if self.config.trainer.device == "cpu":
                raise UserError(
                    "env.device=cuda requires trainer.device=cuda, but trainer.device=cpu was given; remove one "
                    "of them"
                )
            self._meet_wishes("env.device=cuda")
        elif vector.backend == "gpu":
            if self.typed("vector.backend"):
                why, cure = (missing.why, missing.cure) if missing else ("env.device=cpu", "leave one out")
                if asked_only:
                    cure = "give env.device=cuda, or leave vector.backend out"
                raise UserError(f"vector.backend=gpu steps environments on the GPU, but {why}; {cure}")
            vector.backend = "auto"

    def _step_on_learners_device(self, spec: EnvSpec) -> None:
        """Sets env.device for environments with EnvSpec.device_rows: they step on the policy's device, a GPU or the
        CPU."""
        env, learner = self.config.env, self.config.trainer.device
        if env.device == "auto":
            self._set("env.device", learner, f"{spec.name} steps on the learner's device")
        elif env.device != learner:
            raise UserError(
                f"env.device={env.device} with trainer.device={learner}: {spec.name} steps on the learner's device; "
                "leave env.device out"
            )
        self._meet_wishes(f"{spec.name}, which steps on the learner's device", "remove it")

    def _meet_wishes(self, what: str, cure: str = "remove one of them") -> None:
        """Sets the keys that environments on the learner's device need, or refuses typed values."""
        for wish in differing(self.config):
            if self.typed(wish.path):
                raise UserError(f"{said(self.config, wish)} does not work with {what}: {wish.why}; {cure}")
            self._adjust(wish.path, wish.needed, wish.why, tell=wish.path not in PREFERENCES)

    def _choose_env_device(self, factory: EnvFactory, missing: Obstacle | None) -> None:
        """Resolves env.device=auto."""
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
            self._set("env.device", "cuda", f"{factory.spec.name} has a GPU engine")

    def graphs(self) -> None:
        """Chooses whether CUDA graphs are captured, then torch.compile's mode."""
        trainer, why = self.config.trainer, self._without_graphs()
        if trainer.cuda_graphs == "auto":
            self._set("trainer.cuda_graphs", why is None, why or f"trainer.device={trainer.device}")
        if trainer.cuda_graphs and why:
            if self.typed("trainer.cuda_graphs"):
                raise UserError(f"trainer.cuda_graphs=true: {why}; leave it auto")
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

    def _without_graphs(self) -> str | None:
        """Returns why no CUDA graphs are captured, or None."""
        trainer, gpus = self.config.trainer, self.machine.gpus
        if trainer.device == "cpu":
            return f"the policy runs on the CPU (trainer.device=cpu, {self.origins['trainer.device']})"
        if trainer.cpu_offload:
            return f"the rollout is in host memory (trainer.cpu_offload=true, {self.origins['trainer.cpu_offload']})"
        if gpus and gpus[0].vendor != "nvidia":
            return f"not tested on {gpus[0].name}"
        return None
