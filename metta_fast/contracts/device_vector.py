"""Defines the contract of environments whose rows are torch tensors on the learner's device.

    vec.attach(buffers)                        rows are written into `buffers` from now on
    vec.async_reset(seed)                      writes row T: the first rows of all episodes
    copy row T to row 0
    for t in range(T):
        if vec.build_every and t % vec.build_every == 0:
            vec.build_ahead()                  may run beside the policy's work of row t
        …                                      the policy writes action[t]
        vec.step_row(t)                        row t → row t+1

The grid's engine (vector/gpu.py) implements it. For a batched environment in plain torch, copy tests/device_envs.py.
A factory's `make_device_vector` makes one; vector.backend=gpu selects it, also on the CPU.

**What `step_row(t)` reads and writes** (N agents; `buffers` is a DeviceRows):

    reads    buffers.given_actions(t)  [N, W]    int32 choices, or float32 within the bounds
    writes   reward[t], terminal[t], truncation[t]  [N]; stats[t]  [N, S] where an episode ended (S = len(spec.stats))
             obs[leaf][t+1]  [N, *shape] for every leaf; mask[t+1], reset[t+1]  [N]
             action_mask[t+1]  [N, P]            spec.action_mask: True for legal choices; each head of a row with
                                                 mask=True needs one
             final_obs[leaf]  [N, *shape]        same-step resets with spec.has_final_obs: the last observation of
                                                 agents whose episode action[t] ended; other entries are not read

`async_reset` and `load_state_dict` write obs, mask, reset (and action_mask) of row T. The rollout copies row T to
row 0, and computes `bootstrap[t]` from `final_obs` by one extra inference a row.

**Episode ends.** spec.autoreset="next_step": if action[t] ends an episode, row t+1 has the true last observation with
mask=False; its action is ignored, reward[t+1] and both flags are 0, and row t+2 is the next episode's first with
mask=reset=True. "same_step": row t+1 is the next episode's first, reset=True; every row has mask=True. Where the next
episode is not ready, rows have mask=False, rewards and flags 0 until it is; how many depends on the environment's own
episodes alone.

All calls launch work in order on torch's current stream and wait for nothing; `step_row` and `build_ahead` allocate
nothing that outlives them. `capturable` says whether a CUDA graph may capture and replay these two: then they
read only tensors that stay in place, and never wait for the device. The environment with global id i depends on
(seed, i) alone. Nothing here imports torch at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from metta_fast.contracts.env import EnvSpec, check_spec
from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class DeviceRows(Protocol):
    """Declares the part of Buffers that a vector writes into and reads from."""

    horizon: int
    num_agents: int
    obs: dict[str, Tensor]
    """{leaf: [T+1, N, *shape]} in the leaf's dtype."""
    mask: Tensor
    """[T+1, N] bool."""
    reset: Tensor
    """[T+1, N] bool."""
    action_mask: Tensor | None
    """[T+1, N, P] bool; None: spec.action_mask is False."""
    reward: Tensor
    """[T, N] float32."""
    terminal: Tensor
    """[T, N] bool."""
    truncation: Tensor
    """[T, N] bool."""
    stats: Tensor
    """[T, N, S] float32."""
    final_obs: dict[str, Tensor] | None
    """{leaf: [N, *shape]}; None unless resets are same-step and spec.has_final_obs is True."""

    @property
    def device(self) -> torch.device:
        """Device of the arrays."""
        ...

    def given_actions(self, t: int) -> Tensor:
        """Returns action[t] [N, W] in the environment's form: int32, or float32 within the bounds."""
        ...


class DeviceVector(Protocol):
    """Steps environments on the learner's device (see the module's docstring). Inherit from it to get the defaults."""

    spec: EnvSpec
    num_envs: int
    num_agents: int
    """num_envs · spec.agents_per_env."""
    first_env: int
    """Global id of the first environment; the others follow."""
    total_envs: int
    """Environments of the whole run, over all vectors."""
    device: torch.device
    capturable: bool = False
    """True: `step_row` and `build_ahead` may be captured in a CUDA graph."""
    build_every: int = 0
    """The most rows between two calls of `build_ahead`; 0: there is nothing to build ahead."""

    @property
    def ready(self) -> bool:
        """Whether row T is valid: after `async_reset`, `load_state_dict` or a rollout."""
        ...

    def attach(self, buffers: DeviceRows) -> None:
        """Writes rows into `buffers` from now on. `async_reset` or `load_state_dict` follows.

        Raises:
            ValueError: the buffers are on another device or for another number of agents.
        """

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        """Restarts every environment and writes row T. seed: 0 … 2^64−1. stagger: start episodes in the middle
        (needs spec.stagger)."""

    def build_ahead(self) -> None:
        """Prepares the next episodes, on any stream. Called at least once every `build_every` rows."""

    def step_row(self, t: int) -> None:
        """Steps all environments from row t to row t+1, 0 ≤ t < T."""

    def notes(self) -> list[str]:
        """Returns messages for the user, each once."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of all environments with row T, as NumPy arrays and plain values: copies."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Copies the state on the device. Returns a function that waits for the copy and returns it as `state_dict`
        does."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state, and writes row T.

        Raises:
            ValueError: the state of another environment or number of environments.
        """

    def close(self) -> None:
        """Frees the vector's memory. May be called twice."""


def check_buffers(buffers: DeviceRows, num_agents: int, device: torch.device) -> None:
    """Raises ValueError for buffers on another device or for another number of agents: what `attach` refuses."""
    if buffers.device != device or buffers.num_agents != num_agents:
        raise ValueError(
            f"buffers of {buffers.num_agents} agents on {buffers.device}, expected {num_agents} on {device}"
        )


@runtime_checkable
class DeviceFactory(Protocol):
    """Makes environments (contracts/env.py: EnvFactory) that step on the learner's device."""

    spec: EnvSpec

    def make_device_vector(
        self, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> DeviceVector:
        """Makes environments first_env … first_env+num_envs−1 of a run's total_envs on `device`."""


def check_device_factory(factory: DeviceFactory) -> None:
    """Raises UserError for a wrong spec, or a factory whose `make_device_vector` takes other arguments."""
    check_spec(factory)
    name = type(factory).__name__
    if not (factory.spec.device_rows or factory.spec.gpu):
        raise UserError(
            f"{name} has make_device_vector, but {name}.spec has device_rows=False; expected True"
        )
    try:
        signature = inspect.signature(factory.make_device_vector)
        signature.bind(1, None, 0, 1)
    except ValueError:  # compiled: no signature to read
        return
    except TypeError as error:
        raise UserError(
            f"{name}.make_device_vector({', '.join(signature.parameters)}): expected "
            f"{name}.make_device_vector(num_envs, device, first_env, total_envs)"
        ) from error


def check_device_vector(
    vec: Any, factory: DeviceFactory, num_envs: int, first_env: int, total_envs: int
) -> None:
    """Raises UserError for a vector without the contract's methods, or of other environments than asked for."""
    made = f"{type(factory).__name__}.make_device_vector({num_envs}, …)"
    methods = ("attach", "async_reset", "step_row", "snapshot", "load_state_dict", "close")
    missing = [method for method in methods if not callable(getattr(vec, method, None))]
    if missing:
        raise UserError(
            f"{made} gave {type(vec).__name__} without {', '.join(missing)}: expected a DeviceVector "
            "(metta_fast/contracts/device_vector.py)"
        )
    wanted = {
        "num_envs": num_envs,
        "num_agents": num_envs * factory.spec.agents_per_env,
        "first_env": first_env,
        "total_envs": total_envs,
    }
    for name, value in wanted.items():
        if (found := getattr(vec, name, None)) != value:
            raise UserError(f"{made} gave a vector whose {name} is {found}: expected {value}")
