"""Tests signals: handled at once where allowed, delayed where a write must be completed."""

import os
import signal

import pytest

from metta_fast.run import signals as module
from metta_fast.run.signals import Interrupt, Interrupted


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
