"""Tests signals: handled at once where allowed, delayed where a write must be completed."""

import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from metta_fast.run import signals as module
from metta_fast.run.signals import Interrupt, Interrupted


@pytest.fixture(autouse=True)
def no_nohup():
    """SIGHUP acts as where nobody has called nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def send(signum):
    os.kill(os.getpid(), signum)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_within_allowed_it_raises_at_once(signum):
    reached = False
    with Interrupt() as interrupt, pytest.raises(Interrupted) as caught, interrupt.allowed():  # noqa: PT012
        send(signum)
        reached = True
    assert caught.value.signum == signum
    assert not reached


def test_elsewhere_it_waits_for_the_next_allowed():
    with Interrupt() as interrupt:
        send(signal.SIGTERM)
        assert interrupt.signum == signal.SIGTERM
        with pytest.raises(Interrupted), interrupt.allowed():
            pytest.fail("must not be entered")


@pytest.mark.parametrize("how", ["signal", "request", "request elsewhere"])
@pytest.mark.parametrize("ended_by_error", [False, True])
def test_between_two_blocks_it_waits_for_the_next(how, ended_by_error):
    def come() -> None:
        if how == "signal":
            send(signal.SIGTERM)
        elif how == "request":
            interrupt.request("the machine ends", 75)
        else:
            thread = threading.Thread(target=interrupt.request, args=("the machine ends", 75))
            thread.start()
            thread.join()
            time.sleep(0.05)  # a signal that it sends is handled here

    with Interrupt() as interrupt:
        with suppress(ValueError), interrupt.allowed():
            if ended_by_error:
                raise ValueError
        try:
            come()
        except Interrupted:
            pytest.fail("it was raised while something may be saved")
        with pytest.raises(Interrupted), interrupt.allowed():
            pytest.fail("must not be entered")


def test_no_except_exception_swallows_it():
    with Interrupt() as interrupt, pytest.raises(Interrupted), interrupt.allowed():  # noqa: PT012
        try:
            send(signal.SIGINT)
        except Exception:
            pytest.fail("swallowed")


def test_an_echo_is_no_second_ctrl_c_and_a_later_one_is(monkeypatch):
    with Interrupt() as interrupt:
        send(signal.SIGINT)
        send(signal.SIGINT)
        send(signal.SIGTERM)
        monkeypatch.setattr(module, "ECHO_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert interrupt.signum == signal.SIGINT


def test_handlers_are_given_back():
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Interrupt():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_nohup_stays_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_request_ends_what_is_allowed_at_once(elsewhere):
    with Interrupt() as interrupt, pytest.raises(Interrupted) as caught, interrupt.allowed():  # noqa: PT012
        if elsewhere:
            threading.Thread(target=interrupt.request, args=("the machine ends", 75)).start()
            time.sleep(5)  # the signal that it sends wakes this thread
        else:
            interrupt.request("the machine ends", 75)
        pytest.fail("it went on")
    assert (caught.value.reason.text, caught.value.reason.exit_code) == ("the machine ends", 75)
    assert caught.value.signum is None


def test_a_request_outside_waits_and_the_first_reason_counts():
    with Interrupt() as interrupt:
        interrupt.request("the first", 1)
        interrupt.request("the second", 2)
        send(signal.SIGTERM)
        send(signal.SIGINT)  # the first Ctrl-C: what is being saved is saved
        assert interrupt.signum is None
        with pytest.raises(Interrupted, match="the first"), interrupt.allowed():
            pytest.fail("must not be entered")


def test_a_request_where_there_are_no_handlers():
    """A run outside the main thread, as `metta_fast.train` may be called."""
    caught = []

    def work() -> None:
        with Interrupt() as interrupt:
            threading.Thread(target=interrupt.request, args=("from elsewhere", 3)).start()
            try:
                while True:
                    with interrupt.allowed():
                        time.sleep(0.01)
            except Interrupted as stop:
                caught.append(stop.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert [reason.exit_code for reason in caught] == [3]
