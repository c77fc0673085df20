"""Fits the sizes of an on-policy rollout to each other: agents, segments, batch, minibatches.

    num_agents = env.num_envs * env.agents_per_env
    horizon    = batch_size / num_agents      rows per agent and epoch, a multiple of bptt_horizon
    minibatch  = whole segments; divides the batch

A value that the user typed is used, or refused with the nearest values that work. A value from a profile,
recipe or default is a ceiling and is rounded down. It only computes numbers; torch is not imported.
"""

from __future__ import annotations

from collections.abc import Callable

from metta_fast.config.divisors import divisors
from metta_fast.config.keys import Config, get, put
from metta_fast.contracts.algorithm import SizeChange
from metta_fast.contracts.errors import UserError


def fit_rollout(config: Config, typed: Callable[[str], bool]) -> list[SizeChange]:
    """Fits the sizes of `config` in place and returns the changes.

    Raises:
        UserError: a typed value that cannot be used, with the values that can.
    """
    fit = _Fit(config, typed)
    fit.segments()
    fit.minibatches()
    fit.accumulation()
    _check_vtrace(config)
    return fit.changes


def derived(config: Config) -> list[tuple[str, str]]:
    """Returns values derived from the sizes, as (`name = value`, why), for --explain."""
    env, trainer = config.env, config.trainer
    horizon = trainer.batch_size // (env.num_envs * env.agents_per_env)
    steps = (
        trainer.batch_size // trainer.minibatch_size // trainer.gradient_accumulation * trainer.update_epochs
    )
    return [
        (f"horizon = {horizon}", "trainer.batch_size / num_agents: rows each agent gives in an epoch"),
        (f"segments = {horizon // trainer.bptt_horizon}", "horizon / trainer.bptt_horizon, for each agent"),
        (f"optimizer steps = {steps}", "in an epoch"),
        (
            f"epochs = {-(-trainer.total_timesteps // trainer.batch_size)}",
            "about, for trainer.total_timesteps",
        ),
    ]


def halve(config: Config) -> bool:
    """Halves batch and minibatch in place. Returns False where the batch would be smaller than one environment."""
    config.trainer.batch_size //= 2
    config.trainer.minibatch_size = max(1, config.trainer.minibatch_size // 2)
    return config.trainer.batch_size >= config.env.agents_per_env


def _check_vtrace(config: Config) -> None:
    """Raises UserError where V-trace is GAE to the bit: every ratio that it reads is 1.

    A minibatch writes its ratios before its step, so those of an update's first step are 1. They are read when
    advantages are computed again: for rows of an earlier pass, or in one pass for another segment of the same agent.
    """
    env, trainer = config.env, config.trainer
    if trainer.advantage != "vtrace":
        return
    segments = trainer.batch_size // (env.num_envs * env.agents_per_env * trainer.bptt_horizon)
    minibatches, first = trainer.batch_size // trainer.minibatch_size, trainer.gradient_accumulation
    again = trainer.recompute != "epoch" and minibatches * (trainer.update_epochs - 1) > first
    within = trainer.recompute == "minibatch" and segments > 1 and minibatches - 1 > first
    if not (again or within):
        given = f"trainer.recompute={trainer.recompute}, trainer.update_epochs={trainer.update_epochs}"
        given += f" and {minibatches} minibatch{'es' * (minibatches > 1)} a pass"
        raise UserError(
            f"trainer.advantage=vtrace has no effect with {given}: advantages are computed while the policy is still "
            "the rollout's, so every ratio is 1; give trainer.recompute=pass (or minibatch) and "
            f"trainer.update_epochs={first // minibatches + 2} or more, or trainer.advantage=gae"
        )


class _Fit:
    def __init__(self, config: Config, typed: Callable[[str], bool]) -> None:
        self.config, self.typed = config, typed
        self.changes: list[SizeChange] = []

    def _set(self, path: str, value: int, why: str) -> None:
        """Changes a value. `{}` in `why` is replaced by the old value."""
        self.changes.append(SizeChange(path, value, why.format(get(self.config, path))))
        put(self.config, path, value)

    def segments(self) -> None:
        """Fits agents and bptt_horizon first, then the batch to whole segments."""
        env, trainer = self.config.env, self.config.trainer
        agents, bptt, batch = env.num_envs * env.agents_per_env, trainer.bptt_horizon, trainer.batch_size
        if self.typed("trainer.batch_size"):
            if batch % (agents * bptt):
                raise UserError(self._indivisible_batch())
            return
        if batch < agents * bptt:
            fewer = batch // (env.agents_per_env * bptt)
            if not self.typed("env.num_envs") and fewer >= 1:
                blocks = self.config.vector.async_factor
                fewer -= fewer % blocks if fewer >= blocks else 0
                self._set(
                    "env.num_envs",
                    fewer,
                    f"{{}} lowered: one segment of {bptt} rows for each agent must fit "
                    f"trainer.batch_size={batch}",
                )
            elif not self.typed("trainer.bptt_horizon") and batch >= agents:
                self._set(
                    "trainer.bptt_horizon",
                    batch // agents,
                    f"{{}} lowered: trainer.batch_size={batch} is {batch // agents} rows for each of "
                    f"{agents} agents",
                )
            else:
                raise UserError(
                    f"env.num_envs={env.num_envs} with {env.agents_per_env} agents and "
                    f"trainer.bptt_horizon={bptt} needs {agents * bptt} rows, more than "
                    f"trainer.batch_size={batch}; try {self._cures(batch)}"
                )
        segment = env.num_envs * env.agents_per_env * trainer.bptt_horizon
        if batch % segment:
            self._set(
                "trainer.batch_size",
                batch - batch % segment,
                f"{{}} rounded down to whole segments: {env.num_envs * env.agents_per_env} agents × "
                f"bptt_horizon {trainer.bptt_horizon} = {segment}",
            )

    def _indivisible_batch(self) -> str:
        env, trainer = self.config.env, self.config.trainer
        agents = env.num_envs * env.agents_per_env
        return (
            f"trainer.batch_size={trainer.batch_size} is not a whole number of segments "
            f"({env.num_envs} envs × {env.agents_per_env} agents × bptt_horizon {trainer.bptt_horizon} = "
            f"{agents * trainer.bptt_horizon} rows); try {self._cures(trainer.batch_size)}"
        )

    def _cures(self, batch: int) -> str:
        """Returns values that work, nearest first. Changing one key is enough."""
        env, trainer = self.config.env, self.config.trainer
        agents, bptt = env.num_envs * env.agents_per_env, trainer.bptt_horizon
        segment = agents * bptt
        down = batch // segment * segment
        cures = [
            f"trainer.batch_size={down} or {down + segment}" if down else f"trainer.batch_size={segment}"
        ]
        if batch < segment:
            fewer = batch // (env.agents_per_env * bptt)
            if fewer and (
                not self.typed("trainer.batch_size") or batch % (fewer * env.agents_per_env * bptt) == 0
            ):
                cures.append(f"env.num_envs={fewer}")
            if batch >= agents and (not self.typed("trainer.batch_size") or batch % agents == 0):
                cures.append(f"trainer.bptt_horizon={batch // agents}")
        return ", or ".join(cures)

    def minibatches(self) -> None:
        """Fits the minibatch: whole segments that divide the batch."""
        trainer = self.config.trainer
        bptt, batch, minibatch = trainer.bptt_horizon, trainer.batch_size, trainer.minibatch_size
        if minibatch % bptt == 0 and batch % minibatch == 0:
            return
        usable = [bptt * count for count in divisors(batch // bptt)]
        down = max((value for value in usable if value <= minibatch), default=None)
        if self.typed("trainer.minibatch_size"):
            up = min((value for value in usable if value >= minibatch), default=None)
            raise UserError(
                f"trainer.minibatch_size={minibatch} is not a whole part of trainer.batch_size={batch} in "
                f"segments of bptt_horizon {bptt}; nearest that work: "
                + " or ".join(str(value) for value in (down, up) if value is not None)
            )
        if minibatch > batch:
            why = "{} lowered to the batch"
        elif down is None:
            why = "{} raised to one segment"
        else:
            why = f"{{}} rounded down to whole segments of {bptt} that divide trainer.batch_size={batch}"
        self._set("trainer.minibatch_size", usable[0] if down is None else down, why)

    def accumulation(self) -> None:
        """Fits the accumulation: whole optimizer steps per epoch."""
        trainer = self.config.trainer
        count = trainer.batch_size // trainer.minibatch_size
        if count % trainer.gradient_accumulation == 0:
            return
        given = trainer.gradient_accumulation
        usable = divisors(count)
        down = max(value for value in usable if value <= given)
        if self.typed("trainer.gradient_accumulation"):
            up = [value for value in usable if value > given][:1]
            raise UserError(
                f"trainer.gradient_accumulation={given} does not divide the {count} minibatches of an epoch; "
                f"nearest that work: {' or '.join(map(str, [down, *up]))}"
            )
        self._set("trainer.gradient_accumulation", down, f"{{}} lowered: an epoch has {count} minibatches")
