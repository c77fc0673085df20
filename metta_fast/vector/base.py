"""Implements the parts that all CPU backends share: the slab, held blocks, misuse, waiting, states, closing.

A backend implements the hooks at the end: it starts to reset or step a block, names what failed or hangs, reads and
loads the environments' states, and stops everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NoReturn, cast

import numpy as np

from metta_fast.config.extension import described
from metta_fast.contracts import batch_state as states
from metta_fast.contracts.closing import Closing
from metta_fast.contracts.env import Array, EnvBatch, EnvError, EnvFactory, InfoBatch, NotingBatch
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.slab import EnvRange, slab_rows, slab_size, split
from metta_fast.contracts.vector import Block, VectorError, WorkerError
from metta_fast.envs.native._sync import FAULT, NOTHING, Memory, Ready

LOOK_S = 0.05
"""Seconds between two checks of the workers while recv waits."""

MOST_INFO = 64
"""Most statistics that no environment declared: the names that come first."""


class BaseVector(Closing):
    """Implements contracts/vector.py: VectorEnv, except the hooks at the end. The contract documents the methods."""

    ready: Ready

    def __init__(
        self,
        factory: EnvFactory,
        envs: EnvRange,
        num_blocks: int,
        worker_timeout_s: float,
        memory: Memory | None = None,
        offset: int = 0,
    ) -> None:
        self.spec = spec = factory.spec
        self.envs, self.num_envs, self.num_agents = envs, envs.count, envs.count * spec.agents_per_env
        self.first_env, self.total_envs = envs.first, envs.total
        self.worker_timeout_s = worker_timeout_s
        size = slab_size(spec, self.num_agents)
        self.slab = np.frombuffer(memory or Memory(size), np.uint8, size, offset)
        self.rows = slab_rows(spec, self.num_agents, self.slab)
        a = spec.agents_per_env
        self.env_ranges = split(envs.count, num_blocks)
        """Each block's environments, counted from 0; global ids are `first_env` higher."""
        self.blocks = tuple(
            Block(i, lo * a, hi * a, self.rows.slice(lo * a, hi * a))
            for i, (lo, hi) in enumerate(self.env_ranges)
        )
        self.batches: list[EnvBatch] = []
        """The batches of this process, in order of environments; workers keep their own."""
        self.batch_ranges: Sequence[tuple[int, int]] = ()
        """Each batch's environments, counted from 0."""
        self._waited = 0.0
        self._closed = ""
        self._box = spec.action.kind != "discrete"
        self.watchers: list[Callable[[], None]] = []
        """Called whenever block 0 was received, when its environments are not stepping."""
        self._info_names: set[str] = set()
        self._told: set[str] = set()
        """Kinds of notes that were returned already."""

    # ---- the contract ----

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        self._check_open()
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed {seed}: expected 0 … 2^64−1")
        while self.ready.in_flight:
            self.recv()
        self._reset(seed, stagger)

    def recv(self, timeout: float | None = None) -> Block:
        self._check_open()
        if not self.ready.in_flight:
            raise VectorError("recv with no block in flight: send one, or call async_reset first")
        index = self.ready.wait(0.0)
        if index < 0:
            index = self._wait(index, timeout)
        self._arrived(index)
        if index == 0 and self.watchers:
            for watch in self.watchers:
                watch()
        return self.blocks[index]

    def send(self, block: Block, actions: Array | None = None) -> None:
        self._check_open()
        index = block.index
        if not self.ready.is_held(index) or self.blocks[index] is not block:
            raise VectorError(
                f"block {index} was sent but is not held: send each block once after recv has returned it"
            )
        if actions is not None:
            to = block.rows.action
            if actions.shape != to.shape:
                raise ValueError(f"actions of block {index} have shape {actions.shape}, expected {to.shape}")
            np.copyto(to, actions, casting="same_kind")
        if self._box and not np.isfinite(block.rows.action).all():
            self._check_actions(block)
        self._step(index)

    def hold_all(self) -> list[Block]:
        self._check_open()
        while self.ready.in_flight:
            self.recv()
        if self.ready.num_held != len(self.blocks):
            raise VectorError("no block was ever in flight: call async_reset first")
        return list(self.blocks)

    def notes(self) -> list[str]:
        self._check_all_held("notes")
        if not self.spec.notes:
            return []
        new: dict[str, str] = {}
        for notes in self._notes():
            new |= {kind: text for kind, text in notes.items() if kind not in self._told and kind not in new}
        self._told |= new.keys()
        return list(new.values())

    def info_stats(self) -> dict[str, float]:
        """Returns the means of the statistics that no environment declared, over the episodes that ended since the last
        call. Only while every block is held, and if `spec.info_stats`."""
        self._check_all_held("info_stats")
        found: dict[str, tuple[float, int]] = {}
        for sums in self._info_sums():
            for name, (total, count) in sums.items():
                if name in self._info_names or len(self._info_names) < MOST_INFO:
                    self._info_names.add(name)
                    before = found.get(name, (0.0, 0))
                    found[name] = before[0] + total, before[1] + count
        return {name: total / count for name, (total, count) in found.items()}

    def state_dict(self) -> dict[str, Any]:
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        self._check_all_held("state_dict")
        parts, rows = self._env_states(), states.save_rows(self.rows)
        return lambda: {"envs": states.join(parts), "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._check_open()
        while self.ready.in_flight:
            self.recv()
        states.load_rows(self.rows, state["rows"])
        self._load_env_states(state["envs"])
        self.ready.hold_all()

    def close(self) -> None:
        if not self._closed:
            self._closed = "the vector is closed"
            self._stop()

    # ---- waiting and failing ----

    def _wait(self, index: int, timeout: float | None) -> int:
        """Waits for a block and checks the workers meanwhile. `index`: the result of the first poll."""
        start = last = time.monotonic()
        while index < 0:
            if index == FAULT:
                self._fault()
            left = LOOK_S if timeout is None else min(LOOK_S, timeout - (last - start))
            if left <= 0:
                raise TimeoutError(f"no block was ready within {timeout} s")
            index = self.ready.wait(left)
            now = time.monotonic()
            if index == NOTHING:
                if self._hangs(now - last):
                    self._hung()
                self._look()
            last = now
        return index

    def _hangs(self, passed: float) -> bool:
        """Counts the seconds that recv waits without a reply. A pause of the whole program does not count."""
        self._waited += min(passed, 2 * LOOK_S)
        return self._waited > self.worker_timeout_s

    def _check_open(self) -> None:
        if self._closed:
            raise VectorError(self._closed)

    def _check_all_held(self, call: str) -> None:
        self._check_open()
        if self.ready.num_held != len(self.blocks):
            raise VectorError(
                f"{call} with {self.ready.num_held} of {len(self.blocks)} blocks held: hold_all first"
            )

    def _check_actions(self, block: Block) -> None:
        """Raises NonFiniteError, naming the first action of a live row that is not finite. Actions of masked
        rows, which are never used, become 0."""
        action, mask = block.rows.action, block.rows.mask
        wrong = ~np.isfinite(action)
        if not wrong[mask].any():
            action[wrong] = 0
            return
        row, entry = np.argwhere(wrong & mask[:, None])[0].tolist()
        env, agent = divmod(block.start + row, self.spec.agents_per_env)
        raise NonFiniteError(
            f"action is {block.rows.action[row, entry]} in environment {self.first_env + env} "
            f"(agent {agent} of it, entry {entry}): "
            "actions must be finite; the policy has diverged, or its observations held NaN"
        )

    def _fail(
        self,
        message: str,
        *,
        env: int | None = None,
        worker: int | None = None,
        cause: BaseException | None = None,
    ) -> NoReturn:
        """Closes everything and raises WorkerError."""
        try:
            self._break(f"the vector is closed since an error: {message}")
        except Exception as error:
            message += f"\n(and then {error})"
        raise WorkerError(message, env=env, worker=worker) from cause

    def _break(self, why: str) -> None:
        """Closes everything without patience. why: the message of every later call."""
        if not self._closed:
            self._closed = why
            self._stop(broken=True)

    def _fail_from(self, error: BaseException, what: str) -> NoReturn:
        """Closes everything and raises WorkerError for an environment's exception. `what` names the
        environments if the exception names none."""
        env = error.env if isinstance(error, EnvError) else None
        self._fail(
            str(error) if env is not None else f"{what} raised {described(error)}",
            env=env,
            cause=error,
        )

    def _make_batches(self, factory: EnvFactory, ranges: Sequence[tuple[int, int]]) -> None:
        """Makes and binds a batch for each range of the vector's environments. If one fails, closes those before it."""
        self.batch_ranges, agents = ranges, self.spec.agents_per_env
        try:
            for start, stop in ranges:
                with self._no_exit(f"{self.envs.describe(start, stop)} could not be made:"):
                    batch = factory.make_batch(self.first_env + start, stop - start, self.total_envs)
                    self.batches.append(batch)
                    batch.bind(self.rows.slice(start * agents, stop * agents))
        except BaseException:
            with suppress(Exception):
                self._close_batches()
            raise

    def _close_batches(self) -> None:
        """Closes all batches of this process, also if one raises."""
        what = "closing the environments raised"
        try:
            with self._named(what), ExitStack() as stack:
                for batch in self.batches:
                    stack.callback(batch.close)
        except (KeyboardInterrupt, WorkerError):
            raise
        except Exception as error:  # of a batch that names no environment
            raise WorkerError(f"{what} {described(error)}") from error

    @contextmanager
    def _no_exit(self, what: str) -> Iterator[None]:
        """Turns an environment's SystemExit (and the like) into WorkerError, so that it cannot end the program."""
        try:
            yield
        except Exception:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise WorkerError(f"{what} {described(error)}") from error

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Turns what an environment raises in a call other than reset and step into WorkerError."""
        try:
            with self._no_exit(what):
                yield
        except EnvError as error:
            cause = error.__cause__
            text = f"environment {error.env}: {what} {described(cause)}" if cause is not None else str(error)
            raise WorkerError(text, env=error.env) from error

    # ---- hooks ----

    def _reset(self, seed: int, stagger: bool) -> None:
        """Starts to reset every block."""
        raise NotImplementedError

    def _step(self, index: int) -> None:
        """Starts to step a held block."""
        raise NotImplementedError

    def _arrived(self, index: int) -> None:
        """Called when a block was received."""
        self._waited = 0.0

    def _look(self) -> None:
        """Called while recv waits."""

    def _fault(self) -> NoReturn:
        """Called when `ready` reports a failure: finds the cause and raises."""
        raise NotImplementedError

    def _hung(self) -> NoReturn:
        """Called after worker_timeout_s without a reply: raises an error that names what hangs."""
        raise NotImplementedError

    def _env_states(self) -> list[states.State]:
        """Returns copies of the batches' states, in order of environments. Native batches copy them themselves."""
        with self._named("state_dict() raised"):
            parts = [batch.state_dict() for batch in self.batches]
        return parts if self.spec.native else states.copied(parts)

    def _notes(self) -> list[dict[str, str]]:
        """Returns the batches' notes, in order of environments."""
        with self._named("notes() raised"):
            return [cast("NotingBatch", batch).notes() for batch in self.batches]

    def _info_sums(self) -> list[dict[str, tuple[float, int]]]:
        """Returns the batches' sums, in order of environments."""
        return [cast("InfoBatch", batch).info_sums() for batch in self.batches]

    def _load_env_states(self, state: states.State) -> None:
        """Loads a state into all environments: each batch gets its part."""
        with self._named("load_state_dict() raised"):
            for batch, (start, stop) in zip(self.batches, self.batch_ranges):
                batch.load_state_dict(states.cut(state, start, stop))

    def _stop(self, broken: bool = False) -> None:
        """Ends threads and processes and closes environments. broken: without waiting for a step in flight."""
        raise NotImplementedError
