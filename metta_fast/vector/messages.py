"""Sends pickled messages through stream sockets: whole, or piece by piece so that nobody waits for a stuck reader.

    worker, launcher                            parent
    link.send(message)   waits                  link.post(message)            queues it
    link.recv()          waits                  exchange(links, …)            moves bytes both ways on all links
                                                                              until each has replied

A message on the wire: the number of parts, their sizes, the parts. The first part is the pickle; the others are
arrays, which are neither copied for sending nor after receiving. Nothing here imports anything heavy.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

APART = 16384
"""Bytes from which an array is a part of its own."""
POLL_S = 0.05
"""Seconds between two calls of `exchange`'s `look`."""
MOST_PARTS = 256
"""Parts that are passed to one system call (the system's limit is 1024 or more)."""


class Undelivered(Exception):
    """Some links did not reply. Attributes: links: their indices."""

    def __init__(self, links: Sequence[int]) -> None:
        super().__init__(list(links))
        self.links = list(links)


class Stalled(Undelivered):
    """No byte moved on any link for too long."""


class Closed(Undelivered):
    """The process at the other end has closed the socket."""


class Unreadable(Undelivered):
    """A message came that cannot be unpickled; the cause is the reason."""


class Link:
    """One end of a connected stream socket.

    Args:
        fd: the socket, which the link owns from now on.
        blocking: False for an end that uses `post` and `exchange`, which never wait for this socket.

    Attributes:
        whole: a message has arrived completely and was not taken yet.
    """

    def __init__(self, fd: int, *, blocking: bool = True) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(blocking)
        self._unsent: list[memoryview] = []
        self._room = memoryview(b"")
        """What arrives next goes here."""
        self._expect()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Ends the connection, also where a forked process holds the socket as well. May be called twice."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, message: Any) -> None:
        """Sends a message through a blocking socket. Raises OSError if the other end is closed."""
        self.post(message)
        self.push()

    def recv(self) -> Any:
        """Waits for a message on a blocking socket. Raises EOFError if the other end is closed."""
        self.pull()
        return self.take()

    @property
    def unsent(self) -> bool:
        """Whether a posted message was not sent completely yet."""
        return bool(self._unsent)

    def post(self, message: Any) -> None:
        """Queues a message; its arrays must not change until it was sent."""
        self._unsent += _parts(message)

    def push(self) -> int:
        """Sends what the socket takes. Returns the number of bytes. Raises OSError if the other end is closed."""
        moved = 0
        while self._unsent:
            try:
                sent = self._socket.sendmsg(self._unsent[:MOST_PARTS])
            except BlockingIOError:
                break
            moved += sent
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        return moved

    def pull(self) -> int:
        """Receives what has arrived, of one message. Returns the number of bytes. Raises EOFError or OSError if the
        other end is closed."""
        moved = 0
        while not self.whole:
            try:
                came = self._socket.recv_into(self._room)
            except BlockingIOError:
                break
            if not came:
                raise EOFError("the other end of the socket is closed")
            moved += came
            self._room = self._room[came:]
            if not self._room:
                self._advance()
        return moved

    def take(self) -> Any:
        """Returns the message that has arrived completely."""
        data, *arrays = self._arrived
        self._expect()
        return pickle.loads(data, buffers=arrays)

    def _expect(self) -> None:
        """Begins to receive a message."""
        self._arrived: list[bytearray] = []
        self._rooms = _rooms(self._arrived)
        self.whole = False
        self._advance()

    def _advance(self) -> None:
        room = next(self._rooms, None)
        self.whole = room is None
        self._room = memoryview(room or b"")


def _parts(message: Any) -> list[memoryview]:
    """Returns a message as it goes over the wire."""
    arrays: list[memoryview] = []

    def together(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= APART:
            arrays.append(raw)
        return raw.nbytes < APART

    parts = [memoryview(pickle.dumps(message, 5, buffer_callback=together)), *arrays]
    head = struct.pack(f"={1 + len(parts)}Q", len(parts), *(part.nbytes for part in parts))
    return [memoryview(head), *parts]


def _rooms(parts: list[bytearray]) -> Iterator[bytearray]:
    """Yields the memory to fill next with what arrives, and adds the message's parts to `parts`."""
    count = bytearray(8)
    yield count
    sizes = bytearray(8 * struct.unpack("=Q", count)[0])
    yield sizes
    for size in struct.unpack(f"={len(sizes) // 8}Q", sizes):
        parts.append(bytearray(size))
        yield parts[-1]


def exchange(links: Sequence[Link], aside: Link, look: Callable[[], None], patience_s: float) -> list[Any]:
    """Sends what is queued on all links, all at once, and returns one message of each of `links`.

    Args:
        aside: a link whose queue is sent too, and whose messages `look` receives.
        look: called every POLL_S seconds, and when something has arrived on `aside`; raises an exception to give up.
        patience_s: seconds without a byte moving on any link. A pause of this whole process does not count.

    Raises:
        Stalled, Closed, Unreadable: with the indices of the links that did not reply; −1 is `aside`. Messages may be
            incomplete then: the links cannot be used any more.
    """
    replies: list[Any] = [None] * len(links)
    missing = dict(enumerate(links))
    waited = 0.0
    while missing:
        look()
        poll = select.poll()
        for link in (aside, *missing.values()):
            poll.register(link.fileno(), select.POLLIN | (select.POLLOUT if link.unsent else 0))
        start = time.monotonic()
        ready = {fd for fd, _ in poll.poll(POLL_S * 1000)}
        waited += min(time.monotonic() - start, 2 * POLL_S)
        if aside.unsent and aside.fileno() in ready and _move(-1, aside.push):
            waited = 0.0
        for i, link in [(i, link) for i, link in missing.items() if link.fileno() in ready]:
            if _move(i, link.push) + _move(i, link.pull):
                waited = 0.0
            if link.whole:
                try:
                    replies[i] = link.take()
                except Exception as error:
                    raise Unreadable([i]) from error
                del missing[i]
        if waited > patience_s:
            raise Stalled(list(missing))
    return replies


def _move(index: int, way: Callable[[], int]) -> int:
    try:
        return way()
    except (OSError, EOFError) as error:
        raise Closed([index]) from error
