"""Connects a run with remote storage (run.remote): takes its lease, and brings a newer state than the local one.

    remote = Remote(composed, lock, notes)
    remote.holds("job")             # whether that run is kept there
    remote.join(folder)             # the local lock is held: lease, then a newer state or a whole run is fetched
    begin("s3://bucket/runs", folder)                                     # of a new run

A mistake (no such bucket, no rights, in use, another run) is a UserError. Storage that does not answer ends a run
without a local state (Unreachable, exit code 1, so that a scheduler tries again); one with a local state goes on, and
uploads when it can.

Place in the flow: resume.py joins; trainer.py begins; run_writer.py uploads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from metta_fast.contracts.errors import Unreachable, UserError
from metta_fast.resolve.compose import Composed
from metta_fast.storage import checkpoint
from metta_fast.storage.durable import make_folders
from metta_fast.storage.remote.address import Address, parse
from metta_fast.storage.remote.cache import cached
from metta_fast.storage.remote.fetch import DamagedPart, fetch_files, fetch_state, newest
from metta_fast.storage.remote.files import RemoteError, refused
from metta_fast.storage.remote.lease import Lease
from metta_fast.storage.remote.manifest import DamagedManifest
from metta_fast.storage.remote.open_files import open_files
from metta_fast.storage.remote.run_store import RunStore
from metta_fast.storage.run_folder import RunDir
from metta_fast.storage.run_identity import run_digits, stored_config

KEY = "run.remote"


@dataclass(frozen=True)
class RemoteRun:
    """A run's place in remote storage. `close` gives the lease back."""

    store: RunStore
    lease: Lease
    """Not held yet if remote storage did not answer."""

    def close(self) -> None:
        self.lease.release()


def begin(place: str, folder: RunDir) -> RemoteRun:
    """Takes the place of a new run, whose folder this process has locked.

    Raises:
        UserError: a run of that name is kept there, or it cannot be used.
        Unreachable: remote storage does not answer.
    """
    store, lease = _open(parse(place), folder)
    with _told(store.address):
        found = store.run_id()
        if found is not None and found != run_digits(folder):
            raise UserError(
                f"{KEY}={place}: {store.address} holds a run already; continue it with resume=auto "
                f"run.name={folder.name}, or choose another name with run.name=…"
            )
        lease.take()
    return RemoteRun(store, lease)


class Remote:
    """Remote storage of the run that `resume` names.

    Attributes:
        place: where runs are kept, as typed or, after `join`, as the run's configuration says; None: nowhere.
        run: the run's, after `join`.
    """

    def __init__(self, composed: Composed, notes: list[str]) -> None:
        """Asks for nothing yet.

        Raises:
            UserError: run.remote is no address, or its package is missing.
        """
        remote = composed.config.run.remote
        self.place = None if remote is None else parse(str(remote))
        if self.place is not None:
            open_files(self.place)
        self._typed = composed.typed(KEY)
        self._notes = notes
        self.run: RemoteRun | None = None

    def holds(self, name: str) -> bool:
        """Returns whether a run of that name is kept there."""
        if self.place is None:
            return False
        address = self.place.child(name)
        with _told(address):
            return RunStore(open_files(address), address).run_id() is not None

    def newest_name(self) -> str | None:
        """Returns the name of the run whose state was uploaded last; None: there is no run with one."""
        if self.place is None:
            return None
        found: list[tuple[float, str]] = []
        with _told(self.place):
            for name in open_files(self.place).folders():
                address = self.place.child(name)
                store = RunStore(open_files(address), address)
                for step in reversed(store.steps()):
                    with suppress(DamagedManifest):
                        found.append((store.state(step).time, name))
                        break
        return max(found)[1] if found else None

    def local_copy(self, name: str) -> RunDir:
        """Returns a copy of the run in the cache, for a command that trains nothing."""
        assert self.place is not None
        return RunDir(cached(str(self.place.child(name)), KEY, warn=self._notes.append).parent.parent)

    def join(self, folder: RunDir, step: int | None = None) -> None:
        """Takes the run's lease, and fetches what is newer there than in `folder`, which this process has locked.

        Args:
            step: fetch this state instead, if it is not in the folder.

        Raises:
            UserError, Unreachable: see the module's docstring.
        """
        if not self._typed and self.place is None:
            stored = (stored_config(folder) or {}).get("run") or {}
            self.place = parse(str(stored["remote"])) if stored.get("remote") else None
        if self.place is None:
            return
        local = checkpoint.steps(folder.checkpoints)
        store, lease = _open(self.place, folder)
        self.run = RemoteRun(store, lease)
        try:
            with _told(store.address):
                self._join(store, lease, folder, step)
        except Unreachable as error:
            if not local or step is not None:
                raise
            self._notes.append(
                f"warning: {error}. The run continues from the local state, and uploads when it can"
            )

    def _join(self, store: RunStore, lease: Lease, folder: RunDir, step: int | None) -> None:
        there, here = store.run_id(), run_digits(folder)
        if there is None:
            lease.take()
            return
        if here is not None and here != there:
            raise UserError(
                f"{store.address} is in use by another run than {folder.path}: the two have one name; start another "
                "run with run.name=…, or choose another place with run.remote=…"
            )
        lease.take()
        if here is None:
            self._notes += fetch_files(store, folder)
        local = {found for found, _ in checkpoint.steps(folder.checkpoints)}
        if step is not None:
            if step not in local:
                self._fetch_exactly(store, step, folder)
            return
        with suppress(OSError):
            folder.checkpoints.mkdir(exist_ok=True)
        found = newest(
            store,
            max(local, default=-1),
            lambda text: self._notes.append(f"{text}; trying the one before"),
            lambda state: fetch_state(store, state, folder),
        )
        if found is not None:
            self._notes.append(f"fetched {found.name} from {store.address}")

    def _fetch_exactly(self, store: RunStore, step: int, folder: RunDir) -> None:
        try:
            fetch_state(store, store.state(step), folder)
        except (DamagedManifest, DamagedPart) as error:
            raise UserError(
                f"{store.address}: the state of step {step} cannot be used: {error}; resume={store.address} takes the "
                "newest complete one"
            ) from error


def make_place(folder: RunDir) -> bool:
    """Makes a run's folder for what is fetched. Returns whether it is new.

    Raises:
        UserError: it cannot be made.
    """
    new = not folder.path.is_dir()
    try:
        make_folders(folder.path)
    except OSError as error:
        raise UserError(
            f"cannot create the run's folder {folder.path}: {error.strerror}; choose another with run.dir=…"
        ) from error
    return new


def _open(place: Address, folder: RunDir) -> tuple[RunStore, Lease]:
    address = place.child(folder.name)
    files = open_files(address)
    return RunStore(files, address), Lease(files, "lease.json", run_digits(folder) or "", str(address))


@contextmanager
def _told(address: Address) -> Iterator[None]:
    """Turns a RemoteError into the user's."""
    try:
        yield
    except RemoteError as error:
        if error.kind != "failed":
            raise refused(KEY, address, error) from error
        raise Unreachable(f"{KEY}: {address} does not answer ({error})") from error
