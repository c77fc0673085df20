"""Tests messages over sockets: any size both ways at once, slow readers, stuck, closed and senseless ones."""

from __future__ import annotations

import os
import socket
import threading
import time

import numpy as np
import pytest

from metta_fast.vector.messages import APART, Closed, Link, Stalled, Unreadable, exchange


@pytest.fixture
def pair():
    """Makes connected ends: (non-blocking link, socket of the other end)."""
    made = []

    def make():
        here, there = socket.socketpair()
        link = Link(here.detach(), blocking=False)
        made.append((link, there))
        return link, there

    yield make
    for link, there in made:
        link.close()
        there.close()


def linked(there):
    """A blocking link of a copy of the socket's descriptor."""
    return Link(os.dup(there.fileno()))


def nothing():
    pass


MESSAGES = {
    "empty": None,
    "small": ("load", [1, {"a": "b"}]),
    "arrays": {
        "big": np.arange(300_000).reshape(3, -1),
        "same": 2 * [np.arange(APART)],
        "strided": np.arange(200_000)[::2],
        "fortran": np.asfortranarray(np.arange(60_000).reshape(2, -1)),
        "scalar": np.float32(3),
        "none": np.zeros((0, 3)),
    },
    "many parts": [np.full(APART, i % 251, np.uint8) for i in range(700)],
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_arrives_as_it_was_sent(pair, name):
    sent = MESSAGES[name]
    link, there = pair()
    end = linked(there)
    echo = threading.Thread(target=lambda: end.send(end.recv()))
    echo.start()
    link.post(sent)
    (came,) = exchange([link], pair()[0], nothing, 10.0)
    echo.join()
    end.close()
    np.testing.assert_equal(came, sent)
    if name == "arrays":
        came["big"][0, 0] = 5  # is writable and its own
        assert sent["big"][0, 0] == 0


def test_all_links_move_at_once_and_both_ways(pair):
    """The first peer answers only after the last has: nobody waits for his neighbour."""
    pairs = [pair() for _ in range(3)]
    data, last = np.zeros(3_000_000, np.uint8), threading.Event()

    def peer(index, end):
        message = end.recv()
        if index == 2:
            last.set()
        assert last.wait(10)
        end.send((index, message))
        end.close()

    threads = [threading.Thread(target=peer, args=(i, linked(there))) for i, (_, there) in enumerate(pairs)]
    for thread in threads:
        thread.start()
    for link, _ in pairs:
        link.post(data)
    replies = exchange([link for link, _ in pairs], pair()[0], nothing, 10.0)
    for thread in threads:
        thread.join()
    assert [index for index, _ in replies] == [0, 1, 2]
    assert all(len(message) == len(data) for _, message in replies)


def test_bytes_that_move_count_as_an_answer(pair):
    """A peer that reads slowly is not stuck, however long the whole message takes."""
    link, there = pair()
    there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.post(np.zeros(3_000_000, np.uint8))
    end, read = linked(there), 0

    def reads():
        nonlocal read
        while read < 3_000_000:
            read += len(there.recv(100_000))
            time.sleep(0.04)
        end.send("read")

    thread = threading.Thread(target=reads)
    thread.start()
    start = time.monotonic()
    assert exchange([link], pair()[0], nothing, 0.7) == ["read"]
    assert time.monotonic() - start > 0.7
    thread.join()
    end.close()


def test_the_links_that_are_stuck_are_named(pair):
    stuck, answers, full = pair(), pair(), pair()
    full[0].post(np.zeros(3_000_000, np.uint8))  # more than the socket takes
    end = linked(answers[1])
    end.send("here")
    with pytest.raises(Stalled) as caught:
        exchange([stuck[0], answers[0], full[0]], pair()[0], nothing, 0.2)
    assert caught.value.links == [0, 2]
    end.close()


def test_half_a_message_is_stuck_too(pair):
    link, there = pair()
    there.sendall(b"\1\0\0\0\0\0\0\0\50")
    with pytest.raises(Stalled):
        exchange([link], pair()[0], nothing, 0.2)


@pytest.mark.parametrize("unsent", [0, 3_000_000])
def test_a_closed_end_is_named(pair, unsent):
    alive, (link, there) = pair(), pair()
    if unsent:
        link.post(np.zeros(unsent, np.uint8))
    there.close()
    with pytest.raises(Closed) as caught:
        exchange([alive[0], link], pair()[0], nothing, 10.0)
    assert caught.value.links == [1]


def test_a_message_that_cannot_be_unpickled_is_named(pair):
    link, there = pair()
    there.sendall(b"\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0abc")
    with pytest.raises(Unreadable) as caught:
        exchange([link], pair()[0], nothing, 10.0)
    assert caught.value.links == [0]
    assert "UnpicklingError" in repr(caught.value.__cause__)


def test_the_look_gives_up_and_the_link_aside_is_served(pair):
    (link, _), (aside, there) = pair(), pair()
    aside.post(np.zeros(3_000_000, np.uint8))
    end, read = linked(there), []
    thread = threading.Thread(target=lambda: read.append(end.recv().size))
    thread.start()

    def look():
        if read:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        exchange([link], aside, look, 10.0)
    thread.join()
    end.close()
    assert read == [3_000_000]


def test_closing_a_link_ends_the_connection_though_a_forked_copy_is_open(pair):
    link, there = pair()
    copy = os.dup(link.fileno())
    link.close()
    link.close()
    there.settimeout(5)
    assert there.recv(1) == b""
    os.close(copy)
