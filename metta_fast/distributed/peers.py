"""Watches the other processes of a run, and tells them why this one ends.

    peers = Peers(group)               # a thread that looks several times a second
    peers.failed("Traceback …")        # this process ends by an error: the others end too, and name it
    peers.ended()                      # this process ends as it should
    peers.why_lost()                   # what became of a process that an exchange missed

The processes keep a few words in the store that torchrun's agent (or rank 0) holds. A process that vanishes is noticed
by its number, on the same machine, or because an exchange with it fails. Whoever is then still in an exchange that
cannot end (NCCL waits for ever) is freed by aborting it, and ended if that does not help: within END_S seconds.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from metta_fast.distributed.group import Group

LOOK_S = 0.25
"""Seconds between two looks."""
FREE_S = 3.0
"""Seconds that a process has to end by itself after another one failed, before its exchanges are aborted."""
END_S = 8.0
"""Seconds after which it is ended."""
ASK_S = 2.0
"""Most seconds that a process waits for the word of one that failed."""


class Peers:
    """See the module's docstring. Does nothing for a process that is alone."""

    def __init__(self, group: Group) -> None:
        self._group, self._store = group, None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if group.world == 1:
            return
        self._store = _connect(f"metta_fast/{group.place.restarts}")
        here = f"{socket.gethostname()} {os.getpid()}"
        self._people = dict(enumerate(group.all_of(here)))
        """rank → host and process number."""
        self._watch_store = _connect(f"metta_fast/{group.place.restarts}")
        self._thread = threading.Thread(target=self._watch, name="peers", daemon=True)
        self._thread.start()

    def failed(self, text: str) -> None:
        """Tells the others that this process ends by an error. Never raises."""
        self._say("failed", text)
        self._over.set()

    def ended(self) -> None:
        """Tells the others that this process ends as it should. Never raises."""
        self._say("ended", "")
        self._over.set()

    def _say(self, what: str, text: str) -> None:
        if self._store is not None:
            with suppress(Exception):
                self._store.set(f"{what}/{self._group.rank}", text or "-")

    def wait_for(self, rank: int, seconds: float) -> None:
        """Waits until a process has ended, at most some seconds."""
        deadline = time.monotonic() + seconds
        while self._store is not None and time.monotonic() < deadline:
            if self._has(self._store, f"ended/{rank}") or self._has(self._store, f"failed/{rank}"):
                return
            if not self._alive(rank):
                return
            time.sleep(0.05)

    def why_lost(self) -> str | None:
        """Returns which other process ended, and why, in words; None if none is known to have failed. Waits a moment
        for its last word."""
        deadline = time.monotonic() + ASK_S
        while self._store is not None and time.monotonic() < deadline:
            for rank in self._others():
                if text := self._read(self._store, f"failed/{rank}"):
                    return f"process {rank} ({self._people[rank]}) failed: {text}"
            gone = [rank for rank in self._others() if self._vanished(self._store, rank)]
            if gone:
                who = ", ".join(f"{rank} ({self._people[rank]})" for rank in gone)
                text = self._read(self._store, f"failed/{gone[0]}")
                return f"process {who} {'failed: ' + text if text else 'was killed'}"
            time.sleep(0.05)
        return None

    # ---- the thread ----

    def _watch(self) -> None:
        store = self._watch_store
        while not self._over.wait(LOOK_S):
            if any(
                self._has(store, f"failed/{rank}") or self._vanished(store, rank) for rank in self._others()
            ):
                self._free()
                return

    def _vanished(self, store: Any, rank: int) -> bool:
        return not self._alive(rank) and not self._has(store, f"ended/{rank}")

    def _free(self) -> None:
        """Frees the main thread from an exchange that cannot end, or ends this process."""
        if self._over.wait(FREE_S):
            return
        with suppress(Exception):
            import torch.distributed as dist

            dist.distributed_c10d._abort_process_group()
        if not self._over.wait(END_S - FREE_S):
            os._exit(1)

    def _others(self) -> list[int]:
        return [rank for rank in range(self._group.world) if rank != self._group.rank]

    def _alive(self, rank: int) -> bool:
        """Returns whether a process runs; True if it is on another machine, where that is unknown."""
        host, number = self._people[rank].rsplit(" ", 1)
        if host != socket.gethostname():
            return True
        try:
            with open(f"/proc/{number}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] not in "ZX"
        except FileNotFoundError:
            return os.path.isdir("/proc/self") is False and _answers(int(number))
        except OSError:
            return False

    @staticmethod
    def _has(store: Any, key: str) -> bool:
        try:
            return bool(store.check([key]))
        except Exception:  # the store's holder has ended
            return False

    def _read(self, store: Any, key: str) -> str:
        if not self._has(store, key):
            return ""
        with suppress(Exception):
            return bytes(store.get(key)).decode(errors="replace")
        return ""


def _answers(number: int) -> bool:
    try:
        os.kill(number, 0)
    except OSError:
        return False
    return True


def _connect(prefix: str) -> Any:
    """Returns a connection of its own to the store of the run: one thread waits on it, not two."""
    import torch.distributed as dist

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=30))
    return dist.PrefixStore(prefix, store)
