"""The registered learning algorithms, and what the rest of metta_fast asks of one before a run is built.

    class Sarsa(AlgorithmKind):              # my_module.py; `algorithm=my_module:Sarsa` chooses it
        keys = SarsaKeys                     # a dataclass of config.schema.key(…): algorithm.epsilon=0.1
        reads = frozenset({"learning_rate", "gamma"})                                # of trainer.*

        def build(self, config, spec, vec, policy, device, hooks):
            return SarsaAlgorithm(…)         # contracts/algorithm.py

    kind = kind_of(config)                   # config.algorithm["name"] ─► its kind
    kind.fit_sizes(config, typed) · kind.memory(config, spec) · kind.build(config, …)

An installed package brings one by an entry point of the group "metta_fast.algorithms". No torch here: a kind imports
it in `build`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from metta_fast.config.extension import ALGORITHMS, entry_point, entry_point_names, is_module_name, load_named
from metta_fast.config.keys import Config, Key, dataclass_keys, did_you_mean
from metta_fast.contracts.algorithm import Algorithm, Choice, Idle, MemoryPart, SizeChange
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorEnv

if TYPE_CHECKING:
    import torch

    from metta_fast.algorithms.hooks import Hooks
    from metta_fast.policy import Policy

OURS = {
    "ppo": "metta_fast.algorithms.ppo.kind:PPOKind",
    "sac": "metta_fast.algorithms.sac.kind:SACKind",
    "td3": "metta_fast.algorithms.sac.kind:TD3Kind",
}
"""Algorithms that come with metta_fast."""
READ_BY_RUN = frozenset({"total_timesteps", "stop_at_return", "device", "torch_threads", "deterministic"})
"""Keys of trainer.* that the run itself reads, whatever the algorithm."""


@dataclasses.dataclass
class NoKeys:
    """An algorithm without keys of its own."""


class AlgorithmKind:
    """An algorithm as it is registered. Subclass it, set what differs and write `build`."""

    keys: ClassVar[type] = NoKeys
    """Its own keys, `algorithm.<field>`: a dataclass whose fields have defaults, best made with config.schema.key."""
    reads: ClassVar[frozenset[str]] = frozenset()
    """The keys of trainer.* that it reads, without `trainer.`. Any other that the user types is refused."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Keys (`trainer.x`, `algorithm.y`) that cannot change when a run is resumed: its state depends on them."""
    sizes: ClassVar[tuple[str, ...]] = ("env.num_envs",)
    """The keys that decide how much memory it takes, as messages list them."""
    processes: ClassVar[bool] = False
    """Whether several processes can train one run with it (metta_fast/distributed)."""
    hooks: ClassVar[frozenset[str]] = frozenset({"on_close"})
    """The fields of Hooks that it calls. A feature that needs another is refused."""

    def fit(self, config: Config, spec: EnvSpec, typed: Callable[[str], bool]) -> list[SizeChange]:
        """Fits its values to the environment and the devices in place, before `fit_sizes`, and returns the changes.

        Args:
            config: devices are resolved. Its own keys may still be `auto`, as their schema allows.

        Raises:
            UserError: it cannot learn in this environment, or a typed value contradicts it.
        """
        return []

    def fit_sizes(self, config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
        """Fits its sizes to each other in place and returns the changes.

        Args:
            typed: whether the user typed a key: such a value is used or refused, any other is a ceiling.

        Raises:
            UserError: a typed value that cannot be used, with the values that can.
        """
        return []

    def idle(self, config: Config) -> Iterable[Idle]:
        """Returns the keys that it reads, but that have no effect beside the others."""
        return ()

    def derived(self, config: Config) -> list[tuple[str, str]]:
        """Returns what follows from its sizes, as (`name = value`, why), for --explain."""
        return []

    def halve(self, config: Config) -> bool:
        """Halves the sizes that take memory, in place; `fit_sizes` follows. Returns False if they cannot be halved."""
        return False

    def memory(self, config: Config, spec: EnvSpec) -> list[MemoryPart]:
        """Returns its estimate: buffers, activations, weights. What a run without it takes is added."""
        return []

    def fast_paths(self, config: Config, spec: EnvSpec, policy: Policy, hooks: Hooks) -> list[Choice]:
        """Returns what `Algorithm.fast_paths` will hold, for --explain; `policy` is on the CPU."""
        return []

    def build(
        self,
        config: Config,
        spec: EnvSpec,
        vec: VectorEnv,
        policy: Policy,
        device: torch.device,
        hooks: Hooks,
    ) -> Algorithm:
        """Makes the algorithm.

        Args:
            config: resolved: no value is `auto`.
            policy: on `device` already.
            hooks: of the enabled features; only fields named in `hooks` are set.
        """
        raise UserError(
            f"algorithm={config.algorithm['name']}: {type(self).__name__} has no method build(config, spec, vec, "
            "policy, device, hooks), which makes the algorithm"
        )


def known_algorithms() -> list[str]:
    """Returns the names of our algorithms and of those that installed packages bring."""
    return sorted({*OURS, *entry_point_names(ALGORITHMS)})


def check_name(name: str) -> None:
    """Raises UserError unless `name` can be asked for: a known algorithm, or a part of a module."""
    known = known_algorithms()
    if not is_module_name(name) and name not in known:
        raise UserError(
            f"algorithm={name}: unknown algorithm; {did_you_mean(name, known)}known: {', '.join(known)}, "
            "or your own as package.module:Kind"
        )


def kind_of(config: Config) -> AlgorithmKind:
    """Returns the kind of `config.algorithm`.

    Raises:
        UserError: unknown name, a module that cannot be imported, or something else than an AlgorithmKind.
    """
    return find_kind(config.algorithm["name"])


def find_kind(name: str) -> AlgorithmKind:
    """Returns the kind of this name (see `kind_of`)."""
    check_name(name)
    if name in OURS or is_module_name(name):
        found: Any = load_named(OURS.get(name, name), "algorithm")
    else:
        found = entry_point(ALGORITHMS, name, "algorithm")
    if not (isinstance(found, type) and issubclass(found, AlgorithmKind)):
        raise UserError(f"algorithm={name}: expected a subclass of metta_fast.AlgorithmKind, got {found!r}")
    return found()


def own_keys(kind: AlgorithmKind) -> dict[str, Key]:
    """Returns the algorithm's own keys by their paths (`algorithm.epsilon`)."""
    return dataclass_keys(kind.keys(), "algorithm.")


def own_values(kind: AlgorithmKind, config: Config) -> Any:
    """Returns the algorithm's own keys with the values of `config`, as an instance of `kind.keys`."""
    return kind.keys(**{name: value for name, value in config.algorithm.items() if name != "name"})
