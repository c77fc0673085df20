"""Checks a composed configuration and resolves every `auto`, or raises UserError before anything starts.

    compose ─► profile ─► algorithm ─► environment ─► derived ─► device ─► env_device ─► sizes ─► vector ─► graphs
            ─► policy ─► features ─► memory ─► Resolved

Where env.device is cuda, the recipes' sections `on_gpu` come first (recipe_on_gpu.py).

`origins` keeps the reason for every value that changes here, for --explain. torch is imported only if a feature is
enabled: machine/hardware.py finds the cards without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from metta_fast.config.action_mask_keys import NAME as MASK_NAME
from metta_fast.config.action_mask_keys import WRONG as WRONG_MASK
from metta_fast.config.action_mask_keys import check_masks
from metta_fast.config.encoders import (
    check_encoder_name,
    check_images,
    check_no_params,
    check_reads,
    own_encoder,
)
from metta_fast.config.encoding.image_sides import check_shift
from metta_fast.config.encoding.leaf_notes import read_notes
from metta_fast.config.frame_stack import explain as explain_frames
from metta_fast.config.frame_stack import stacked
from metta_fast.config.keys import Config, RunConfig, config_from_dict, config_to_dict, get
from metta_fast.config.policy_inputs import check_policy_name, only, reads
from metta_fast.contracts.algorithm import MemoryPart
from metta_fast.contracts.env import EnvFactory, EnvSpec, check_batches
from metta_fast.contracts.env_answers import advice, differences, gpu_bytes
from metta_fast.contracts.env_answers import viewer as viewer_of
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.progress import watched_by
from metta_fast.distributed.share import share
from metta_fast.envs import is_ours
from metta_fast.envs.env_keys import check_env_keys
from metta_fast.machine import hardware
from metta_fast.machine.hardware import Machine
from metta_fast.machine.time_limit import time_limit
from metta_fast.metrics.wandb_logger import check_wandb
from metta_fast.resolve import memory_estimate as memory
from metta_fast.resolve.algorithm_keys import check_algorithm
from metta_fast.resolve.compose import COMMAND_LINE, Composed
from metta_fast.resolve.derived.defaults import Defaults
from metta_fast.resolve.derived.step_cost import first_look
from metta_fast.resolve.fit_sizes import fit_sizes
from metta_fast.resolve.no_effect import check_effects
from metta_fast.resolve.processes.fit import fit_minibatch, fit_processes, part_of
from metta_fast.resolve.recipe_on_gpu import OnGpu
from metta_fast.storage.run_folder import safe_name
from metta_fast.storage.user_files import exists, is_folder
from metta_fast.vector.choose import choose

if TYPE_CHECKING:
    from metta_fast.envs.python_env import PythonEnvFactory


@dataclass
class Resolved:
    """Holds a configuration that can run."""

    config: Config
    """The configuration, without any `auto`."""
    origins: dict[str, str]
    """Where each leaf comes from; "auto: why" for values chosen or fitted here."""
    notes: list[str] = field(default_factory=list)
    """Messages for the user before training."""
    groups: dict[str, str] = field(default_factory=dict)
    """The chosen option of each group."""
    memory: tuple[MemoryPart, ...] = ()
    """The estimated memory, by part."""
    made: EnvFactory | None = None
    """The environments' factory, if it was made already."""
    remarks: list[str] = field(default_factory=list)
    """Messages for --explain alone."""
    machine: Machine | None = None
    """The machine that it was resolved for; None: unknown."""

    @cached_property
    def factory(self) -> EnvFactory:
        """Returns the environments' factory, which is made once and used by all parts of the run."""
        from metta_fast.envs import make_factory

        return self.made or make_factory(self.config.env)


def resolve(composed: Composed, *, machine: Machine | None = None) -> Resolved:
    """Checks `composed` and resolves every `auto`.

    Args:
        machine: the machine to resolve for; None: the one that compose inspected, or this one.

    Raises:
        UserError: incompatible values, an environment that cannot be made, or a missing GPU.
    """
    machine = machine or composed.machine or hardware.detect()
    if composed.config.env.device == "cuda":
        composed = with_gpu_values(composed)
    work = _Resolve(composed, machine)
    work.profile()
    check_place(work.config.run)
    work.algorithm()
    factory = work.environment()
    spec = factory.spec
    work.derived(factory)
    work.processes(factory)
    work.device()
    work.env_device(factory)
    chosen = work.config.env.device == "cuda"
    if chosen and composed.on_gpu.values:  # by auto: again with the GPU's values
        config = config_from_dict(config_to_dict(composed.config))
        config.env.device = "cuda"
        origins = composed.origins | {"env.device": work.origins["env.device"]}
        return resolve(replace(composed, config=config, origins=origins), machine=machine)
    work.horizon(composed.horizon)
    work.sizes(spec)
    work.budget()
    work.stop(spec)
    work.vector(spec)
    check_env_keys(work.config, factory, work.typed)
    work.viewer(factory)
    work.intervals(factory)
    work.graphs()
    work.policy(spec)
    work.features()
    work.notes += check_effects(work.config, composed.config, factory, work.typed, is_ours(work.config.env))
    check_wandb(work.config.wandb)
    on_gpu = gpu_bytes(factory) if work.config.env.device == "cuda" else (0, 0)
    own = share(work.config, work.config.distributed.processes)
    parts = memory.check(own, spec, work.machine, on_gpu)
    if composed.groups.get("hardware") == "original" and "kickstart" not in work.config.features:
        work.notes.append(
            "hardware=original runs without kickstart, which the guide enables: it needs a teacher; give "
            "features=kickstart features.kickstart.teachers=runs/…"
        )
    groups = dict(composed.groups)
    return Resolved(work.config, work.origins, work.notes, groups, parts, factory, work.remarks, work.machine)


def with_gpu_values(composed: Composed) -> Composed:
    """Returns the configuration with the recipes' values for environments on the GPU."""
    config, origins = composed.on_gpu.given(composed.config, composed.origins)
    return replace(composed, config=config, origins=origins, on_gpu=OnGpu())


def check_place(run: RunConfig) -> None:
    """Raises UserError if the run's folder cannot have this name, or cannot be in this place."""
    if run.name is not None:
        safe_name(str(run.name))
    root = Path(run.dir)
    if not is_folder(root) and exists(root):
        raise UserError(f"run.dir={run.dir}: is not a folder; choose another with run.dir=…")


class _Resolve(Defaults):
    """Resolves a configuration: the steps that are not about devices or derived values."""

    def horizon(self, given: tuple[str, int] | None) -> None:
        """Makes a batch of the steps that each agent is to give, in another program's words.

        Raises:
            UserError: trainer.batch_size was typed as well.
        """
        if given is None:
            return
        word, steps = given
        env = self.config.env
        batch = steps * env.num_envs * env.agents_per_env
        if self.typed("trainer.batch_size") and self.config.trainer.batch_size != batch:
            if word.startswith("-"):  # of a named configuration: what is typed wins
                return
            raise UserError(
                f"{word} means trainer.batch_size={batch}, but trainer.batch_size={self.config.trainer.batch_size} was "
                "given; leave one of them out"
            )
        self.config.trainer.batch_size = batch
        self.origins["trainer.batch_size"] = COMMAND_LINE
        if not word.startswith("-"):
            self.notes.append(
                f"{word} means trainer.batch_size={batch}: {steps} steps of {env.num_envs * env.agents_per_env} agents"
            )

    def algorithm(self) -> None:
        """Checks that the algorithm reads the keys that were typed (metta_fast/resolve/algorithm_keys.py)."""
        self.kind, notes = check_algorithm(self.config, self.origins, self.typed)
        self.notes += notes

    def environment(self) -> EnvFactory:
        """Makes the run's factory, whose spec gives the number of agents."""
        from metta_fast.envs import make_factory

        env, patience = self.config.env, self.config.vector.worker_timeout_s
        with watched_by(lambda: time_limit(patience, "vector.worker_timeout_s")):
            factory = make_factory(env)
        spec = factory.spec
        if spec.agents_per_env != env.agents_per_env:
            if self.typed("env.agents_per_env"):
                raise UserError(
                    f"env.agents_per_env={env.agents_per_env}, but {env.factory} has "
                    f"{spec.agents_per_env}; remove it or give env.agents_per_env={spec.agents_per_env}"
                )
            self._adjust("env.agents_per_env", spec.agents_per_env, f"{env.factory} has this many")
        self.batched(factory)
        self.seen = first_look(env, factory, patience)
        return self._action_mask(factory)

    def _action_mask(self, factory: EnvFactory) -> EnvFactory:
        """Resolves env.action_mask. Returns the factory, with the mask in info if there is one."""
        env, seen = self.config.env, self.seen
        if advised := advice(factory):
            self.notes.append(advised)
        self.notes += [f"drawn for each episode: {line}" for line in differences(factory)]
        mask = getattr(factory, "mask", None)  # of a Python environment
        if env.action_mask == "info" and seen.mask is False:
            raise UserError(
                f'env.action_mask=info: {factory.spec.name} gives no info["action_mask"] at its first reset; give it '
                "with every reset and step, or leave env.action_mask out"
            )
        if seen.failure is not None and WRONG_MASK in str(seen.failure):
            raise UserError(f"{env.factory}: {seen.failure}; env.action_mask=none turns masks off")
        if env.action_mask != "auto":
            return factory
        if mask is not None:
            self._set("env.action_mask", mask.describe(), "found there")
        elif not getattr(factory, "mask_unknown", False):
            dropped = MASK_NAME in env.drop
            if dropped:
                self.notes.append(
                    f"env.drop=[{MASK_NAME}] leaves the action mask out, as env.action_mask=none does: actions are "
                    "chosen without it, illegal ones too"
                )
            if not factory.spec.action_mask:
                why = "env.drop leaves it out" if dropped else "the environment gives none"
                self._set("env.action_mask", "none", why)
        elif seen.mask:
            factory = cast("PythonEnvFactory", factory).with_mask("info")
            check_masks(env, factory)
            self._set("env.action_mask", "info", "found there at the first reset")
        else:
            why = f"not known: {seen.failure}" if seen.mask is None else "the environment gives none"
            self._set("env.action_mask", "absent", why)
        return factory

    def sizes(self, spec: EnvSpec) -> None:
        """Fits the algorithm to the environment, then its sizes and the blocks (metta_fast/resolve/fit_sizes.py)."""
        changes = self.kind.fit(self.config, spec, self.typed)
        changes += fit_sizes(self.config, self.typed)
        if fitted := fit_minibatch(self.config, self.kind, self.typed):
            changes += [fitted, *fit_sizes(self.config, self.typed)]
        for change in changes:
            self._adjust(change.path, change.value, change.why, tell=change.tell)

    def processes(self, factory: EnvFactory) -> None:
        """Finds the number of processes, and divides the environments and the machine among them."""
        config = self.config
        for change in fit_processes(config, self.kind, factory, self.machine, self.typed):
            self._adjust(change.path, change.value, change.why, tell=change.tell)
        self.machine = part_of(self.machine, config.distributed.processes)

    def vector(self, spec: EnvSpec) -> None:
        """Chooses backend, workers and threads for this environment and the allowed cores."""
        vector, cores = self.config.vector, self.machine.cores
        envs = self.config.env.num_envs // self.config.distributed.processes
        if vector.backend == "auto" and (self.config.env.device == "cuda" or spec.device_rows):
            why = f"{spec.name} steps on the learner's device" if spec.device_rows else "env.device=cuda"
            self._set("vector.backend", "gpu", why)
        waits = self.config.env.step_waits
        if vector.backend == "auto":
            choice = choose(spec, envs, cores, waits)
            self._set("vector.backend", choice.backend, choice.why)
        choice = choose(spec, envs, cores, waits, vector.backend)
        if vector.num_workers == "auto":
            if vector.backend == "workers":
                self._set("vector.num_workers", choice.num_workers, choice.why_so_many)
            else:
                self._set("vector.num_workers", 1, f"not used by vector.backend={vector.backend}")
        for path in ("vector.num_workers", "vector.num_threads"):
            count = get(self.config, path)
            if path in (self.detected or {}) and not self.typed(path) and count != "auto" and count > cores:
                self._adjust(path, cores, f"{count} lowered to the allowed cores", tell=False)
        self._at_most("vector.num_workers", envs, "env.num_envs")
        if vector.num_threads == "auto":
            if vector.backend == "threads":
                self._set("vector.num_threads", choice.num_threads, choice.why_so_many)
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
                    f"{path}={get(self.config, path)} has no effect: it is for environments on the CPU in threads or "
                    "workers, but these step on the learner's device (vector.backend=gpu)"
                )
        if vector.backend == "workers" and vector.num_workers > max(cores, choice.num_workers):
            self.notes.append(
                f"vector.num_workers={vector.num_workers} ({self.origins['vector.num_workers']}) share "
                f"{cores} cores; vector.num_workers=auto takes {choice.num_workers}"
            )
        if vector.restart_workers and vector.backend != "workers":
            raise UserError(
                f"vector.restart_workers={vector.restart_workers}: vector.backend={vector.backend} has no workers to "
                "restart; remove it, or give vector.backend=workers"
            )

    def stop(self, spec: EnvSpec) -> None:
        """Checks that trainer.stop_at_return=solved has a threshold."""
        if self.config.trainer.stop_at_return == "solved" and spec.reward_threshold is None:
            raise UserError(
                f"trainer.stop_at_return=solved: {spec.name} has no reward_threshold (Gymnasium's "
                "env.spec.reward_threshold); give the return at which to stop, trainer.stop_at_return=…, or null"
            )

    def viewer(self, factory: EnvFactory) -> None:
        """Checks that the environment has a viewer, is stepped in this process, and that there is a display."""
        env, backend = self.config.env, self.config.vector.backend
        if not env.show_viewer:
            return
        viewer = viewer_of(factory)
        if viewer is None:
            raise UserError(
                f"env.show_viewer=true is for environments with a viewer, such as robots; {env.factory} has none: "
                "leave it out; `metta-fast replay RUN` shows an episode"
            )
        if backend == "workers":
            raise UserError(
                "env.show_viewer=true with vector.backend=workers: the environments are in other processes; give "
                "vector.backend=threads"
            )
        viewer.check()

    def intervals(self, factory: EnvFactory) -> None:
        """Checks that the environments that evaluations and replays play can be made on the CPU."""
        for path in ("run.evaluate_interval", "run.replay_interval"):
            value = get(self.config, path)
            if value and self.typed(path):
                check_batches(factory, f"{path}={value}")
                if check := getattr(factory, "check_apart", None):  # of a batched environment: once more
                    check(self.config.run.evaluate_episodes if "evaluate" in path else 1)
            elif value and not isinstance(factory, EnvFactory):
                self._adjust(path, 0, "these environments step on the learner's device alone")

    def _at_most(self, path: str, limit: int, what: str) -> None:
        value = get(self.config, path)
        if value <= limit:
            return
        if self.typed(path):
            raise UserError(
                f"{path}={value} is more than {what}={limit}; try {path}={limit}, or {what}={value}"
            )
        self._adjust(path, limit, f"{value} lowered to {what}")

    def policy(self, spec: EnvSpec) -> None:
        """Checks that the policy is known and supports this observation, and so trainer.random_shift."""
        policy = self.config.policy
        check_policy_name(policy.name)
        check_encoder_name(policy.encoder)
        check_no_params(policy)
        if self.config.trainer.random_shift:
            self.remarks.append(check_shift(self.config, spec))
        if policy.frame_stack > 1:
            self.remarks.append(explain_frames(spec, policy.frame_stack))
            spec = stacked(spec, policy.frame_stack)
        for leaves in reads(policy, spec):
            if (kind := own_encoder(policy)) is not None:
                check_reads(kind, only(spec, leaves))
            check_images(policy, only(spec, leaves))
        self._unbounded(spec)
        self.notes += read_notes(policy, spec)

    def _unbounded(self, spec: EnvSpec) -> None:
        """Adds a note on continuous actions without bounds, where a wrong unit causes no error, only poor
        learning."""
        bounds = spec.action.bounded
        free = [str(i) for i, bounded in enumerate(bounds) if not bounded]
        if free:
            which = "all" if len(free) == len(bounds) else "numbers " + ", ".join(free)
            self.notes.append(
                f"{spec.name}: {which} of {len(bounds)} continuous actions lack a finite bound and are not scaled: "
                "the environment gets the policy's own numbers, of size exp(policy.initial_log_std) at first; "
                "declare finite bounds (within ±1e6) if it expects another scale"
            )

    def features(self) -> None:
        """Checks that every feature is known, accepts its keys and works with the algorithm.

        Imports torch only if there is a feature.
        """
        config, name = self.config, self.config.algorithm["name"]
        if config.run.gradient_stats_interval and "on_gradients" not in self.kind.hooks:
            path = "run.gradient_stats_interval"
            why = f"algorithm={name} has no gradients to log"
            if self.typed(path):
                raise UserError(f"{path}={config.run.gradient_stats_interval}: {why}; leave it out")
            self._adjust(path, 0, why, tell=False)
        if not config.features:
            return
        from metta_fast.features import make_features

        if not make_features(config.features).used() - self.kind.hooks:
            return
        for feature, given in list(config.features.items()):
            missing = make_features({feature: given}).used() - self.kind.hooks
            if missing:
                self._without(feature, f"algorithm={name} does not call {', '.join(sorted(missing))}")

    def _without(self, feature: str, why: str) -> None:
        """Leaves out a feature that the algorithm does not support, or refuses it if the user named it."""
        path = f"features.{feature}"
        origins = [known for known in self.origins if known == path or known.startswith(path + ".")]
        named = any(self.origins[known].startswith("features/") for known in origins)
        if named or any(map(self.typed, origins)):
            raise UserError(f"{path}: {why}, which this feature needs; leave the feature out")
        del self.config.features[feature]
        source = self.origins[origins[0]] if origins else "default"
        for known in origins:
            del self.origins[known]
        if not self.config.features:
            self.origins["features"] = source
        self.notes.append(f"{path} ({source}) is left out: {why}")
