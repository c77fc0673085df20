"""Makes a factory of a batched environment: what `env=my:make` becomes when make(config) returns one.

    BatchedEnvFactory(gymnasium.make_vec("CartPole-v1", num_envs=64))      # with its own number of environments
    BatchedEnvFactory(lambda num_envs: gymnasium.make_vec("CartPole-v1", num_envs))       # with env.num_envs
    BatchedEnvFactory(gymnax.make("CartPole-v1"))                          # JAX: any number

Place in the flow: metta_fast.envs makes one of what the user's function returns; make_vector asks it for a
DeviceVector. torch and jax are imported only for what needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metta_fast.config.action_mask_keys import NAME
from metta_fast.config.extension import described as in_words
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.actions.mask_values import MaskReader
from metta_fast.envs.actions.masks import MaskSource, find_source, is_mask
from metta_fast.envs.batched import interface
from metta_fast.envs.batched.described import Described
from metta_fast.envs.batched.making import check_jax, close, made
from metta_fast.envs.observed.leaf_kinds import with_kinds
from metta_fast.envs.python_slot import DISABLED, NEXT_STEP

if TYPE_CHECKING:
    import torch

    from metta_fast.contracts.device_vector import DeviceVector
    from metta_fast.envs.batched.gym_batch import GymBatch
    from metta_fast.envs.batched.source_batch import SourceBatch

PROBE = 2
"""Environments that a function of num_envs makes once, so that their spaces can be read."""


NO_BATCHES = {
    interface.RSL_RL: "RSL-RL's interface has no reset, so no episode of a given seed can be played",
    interface.TORCH: "they are tensors, and reset themselves in the next step; metadata['autoreset_mode'] SameStep "
    "or Disabled can be evaluated",
}
"""Interface → why evaluations cannot play such environments, of tensors those of next-step mode."""


class BatchedEnvFactory:
    """Makes one vector of a batched environment (metta_fast/contracts/device_vector.py: DeviceFactory).

    Args:
        env: the environment, (env, params) of gymnax's interface, or a function of num_envs that makes one.
        has_final_obs: whether info has last observations after a reset in the same step; None: what the interface says.
        drop: leaves of the observation that are left out (env.drop).
        leaf_kinds: kinds of leaves by name (env.leaf_kinds).
        action_mask: where the mask of legal actions is (env.action_mask): a leaf, or for arrays also info.
        again: makes such an environment once more for evaluations; it is asked for num_envs of them. None: `env` can be
            evaluated where no training has it.

    Raises:
        UserError: an object of another kind, spaces that are not supported, or jax is missing.
    """

    def __init__(
        self,
        env: Any,
        *,
        name: str = "batched",
        has_final_obs: bool | None = None,
        drop: Sequence[str] = (),
        leaf_kinds: Mapping[str, str] | None = None,
        action_mask: str = "auto",
        again: Callable[[int], Any] | None = None,
    ) -> None:
        self._again, self._taken = again, False
        self._make: Callable[[int], Any] | None = None
        kind = interface.interface_of(env)
        if not kind and callable(env):
            self._make, env = env, made(env, PROBE)
            kind = interface.interface_of(env)
        if not kind:
            raise UserError(f"{name} is {type(env).__name__}: {interface.EXPECTED}")
        self.interface, self._drop = kind, tuple(drop)
        try:
            about = self._describe(env)
        except UserError:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise UserError(f"{name}: {type(env).__name__} cannot be read: {in_words(error)}") from error
        finally:
            if self._make is not None:
                close(env)
        self._env = None if self._make is not None else env
        self.about = about
        self.same_step = about.autoreset != NEXT_STEP
        final = about.has_final_obs if has_final_obs is None else has_final_obs
        if final is False and not self.same_step:
            raise UserError(
                f"has_final_obs=False is for environments that reset themselves in the same step; {name} is "
                f"{about.autoreset}"
            )
        if final and kind == interface.JAX and not about.has_final_obs:
            raise UserError(f"{name}: has_final_obs=True, but its info has no final_observation")
        self.parts, self.mask = self._parts(about, leaf_kinds, action_mask, drop)
        self.kind_reasons = {part.name: part.reason for part in self.parts}
        self.spec = EnvSpec(
            name=name,
            agents_per_env=1,
            obs={part.name: part.leaf for part in self.parts},
            action=about.action,
            privileged=tuple(leaf for leaf in about.privileged if leaf in self.kind_reasons),
            max_steps=about.max_steps,
            has_final_obs=final,
            notes=True,
            reward_threshold=about.threshold,
            info_stats=True,
            stagger=about.stagger,
            autoreset="same_step" if self.same_step else "next_step",
            action_mask=self.mask is not None,
            device_rows=True,
        )
        self._device: Any = None
        self.no_batches = NO_BATCHES.get(kind, "") if kind == interface.RSL_RL or not self.same_step else ""
        """Why evaluations cannot play them; "": they can."""
        if not self.no_batches:
            self.make_batch = self._make_batch  # with it, evaluations can have environments of their own

    def _describe(self, env: Any) -> Described:
        drop = self._drop
        if self.interface == interface.JAX:
            check_jax(env)
            from metta_fast.envs.batched.in_jax.spaces import describe_jax

            self.rules, about = describe_jax(env, drop)
            return about
        if self.interface == interface.GYMNASIUM:
            from metta_fast.envs.batched.gym_batch import described

            return described(env, drop)
        from metta_fast.envs.batched.torch_source import describe_rsl_rl, describe_vector

        describe = describe_rsl_rl if self.interface == interface.RSL_RL else describe_vector
        return describe(env, drop)

    def _parts(
        self, about: Described, kinds: Mapping[str, str] | None, action_mask: str, drop: Sequence[str]
    ) -> tuple[tuple[Any, ...], MaskSource | None]:
        """Returns the leaves that the policy sees, and where the action mask is."""
        parts = with_kinds(about.parts, about.declared_kinds or {}, kinds)
        reader = MaskReader(about.action.nvec, about.action_space)
        mask = find_source(action_mask, None, reader, parts, drop)
        arrays = self.interface == interface.GYMNASIUM
        if mask is not None and mask.kind == "info" and (not arrays or about.autoreset == DISABLED):
            raise UserError(
                f"env.action_mask=info is for environments in NumPy that reset themselves; give the mask as a leaf "
                f"{NAME} of the observation"
            )
        self._refuses = mask is None and action_mask not in ("none",) and NAME not in drop
        return tuple(part for part in parts if not is_mask(part, mask)), mask

    def fixed_num_envs(self) -> int:
        """Returns the environment's own number of environments; 0: any."""
        return 0 if self._make is not None else self.about.num_envs

    def tensors_device(self) -> str:
        """Returns the type of the device that the environment's tensors are on; "": any."""
        return self.about.device

    def has_state(self) -> bool:
        """Returns whether the environments' state can be saved exactly: those in JAX."""
        return self.interface == interface.JAX

    def make_device_vector(
        self, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> DeviceVector:
        """Makes the vector.

        Raises:
            UserError: another number of environments than the environment has, or tensors on another device.
        """
        count, there = self.fixed_num_envs(), self.tensors_device()
        if count and num_envs != count:
            raise UserError(
                f"env.num_envs={num_envs}, but {self.spec.name} has {count}; leave env.num_envs out"
            )
        if there and device.type != there:
            raise UserError(
                f"{self.spec.name} gives tensors on {there}, and the learner is on {device.type}; give "
                f"trainer.device={there}, or make the environment on {device.type}"
            )
        self._device = device
        where = num_envs, device, first_env, total_envs
        if self.interface == interface.JAX:
            return self._over(self._jax_source(num_envs, device, first_env), *where)
        self._taken = True
        env, about = self._made(num_envs)
        if self.interface == interface.GYMNASIUM:
            from metta_fast.envs.batched.host_vector import HostVector

            batch = self._gym_batch(env, about, first_env)
            return HostVector(self.spec, batch, device, first_env, total_envs)
        from metta_fast.envs.batched import torch_source as torch_

        if self.interface == interface.RSL_RL:
            return self._over(torch_.RslRl(env, about, first_env, total_envs), *where)
        return self._over(torch_.VectorTensors(env, about, first_env), *where)

    def _made(self, num_envs: int) -> tuple[Any, Described]:
        """Returns the environment, or one that the user's function makes now."""
        if self._make is None:
            return self._env, self.about
        env = made(self._make, num_envs)
        about = self._describe(env)
        if about.num_envs != num_envs:
            raise UserError(
                f"env.num_envs={num_envs}, but the function made {about.num_envs} environments; make as many as "
                "it is asked for"
            )
        return env, about

    def _gym_batch(self, env: Any, about: Described, first_env: int) -> GymBatch:
        from metta_fast.envs.batched.gym_batch import GymBatch

        final, refuses = self.spec.has_final_obs, self._refuses
        return GymBatch(env, about, self.parts, self.mask, final=final, refuses=refuses, first_env=first_env)

    def _jax_source(self, num_envs: int, device: torch.device, first_env: int) -> Any:
        from metta_fast.envs.batched.in_jax.source import JaxSource

        names = tuple(part.name for part in self.about.parts)
        return JaxSource(self.rules, names, num_envs, device, first_env, final=bool(self.spec.has_final_obs))

    def _make_batch(self, first_env: int, num_envs: int, total_envs: int) -> GymBatch | SourceBatch:
        """Makes environments apart from the vector's (metta_fast.contracts.env.EnvFactory)."""
        if self.interface == interface.GYMNASIUM:
            return self._gym_batch(*self._apart(num_envs), first_env)
        import torch

        from metta_fast.envs.batched.source_batch import SourceBatch
        from metta_fast.envs.batched.torch_source import VectorTensors

        device, source = self._device or torch.device("cpu"), None
        if self.interface == interface.JAX:
            source = self._jax_source(num_envs, device, first_env)
        else:
            env, about = self._apart(num_envs)
            device, source = torch.device(interface.seek(env, "device")), VectorTensors(env, about, first_env)
        return SourceBatch(source, self.parts, self._mask_part(), num_envs, device)

    def check_apart(self, num_envs: int) -> None:
        """Raises UserError if no environments can be made apart from the vector's: for evaluations in a training."""
        if self.interface == interface.GYMNASIUM or self.interface == interface.TORCH:
            self._taken = True
            close(self._apart(num_envs)[0])

    def _apart(self, num_envs: int) -> tuple[Any, Described]:
        """Returns num_envs environments that no vector has: the one that was given, or one that is made now.

        Raises:
            UserError: there is none, or the function makes another number of them.
        """
        if self._make is not None:
            return self._made(num_envs)
        if not self._taken and self.about.num_envs == num_envs:
            self._taken = True
            return self._env, self.about
        name = self.spec.name
        if self._again is None:
            raise UserError(
                f"an evaluation of {num_envs} environments needs some of its own, and {name} was given as it is, "
                f"{self.about.num_envs} of them; give a function of their number: "
                "BatchedEnvFactory(lambda num_envs: …)"
            )
        env = made(self._again, num_envs)
        found = interface.count(env)
        if env is self._env:
            raise UserError(
                f"an evaluation needs environments of its own, and {name}'s function gives the same object again; "
                "make a new one each time"
            )
        if found != num_envs:
            close(env)
            raise UserError(
                f"an evaluation of {num_envs} environments: {name}'s function was asked for config.num_envs="
                f"{num_envs} and made {found}; make config.num_envs of them, or play {found} (eval --episodes "
                f"{found}, run.evaluate_episodes={found})"
            )
        return env, self._describe(env)

    def _mask_part(self) -> Any:
        return next((part for part in self.about.parts if is_mask(part, self.mask)), None)

    def _over(
        self, source: Any, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> DeviceVector:
        from metta_fast.envs.batched.tensor_vector import TensorVector

        mask = self._mask_part()
        return TensorVector(self.spec, source, self.parts, num_envs, device, first_env, total_envs, mask)
