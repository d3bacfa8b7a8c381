"""The stop flag of a rank: set by signals and before the time limit."""

import os
import signal

import pytest

from nnlo_lib.train import preemption
from nnlo_lib.train.preemption import STOP_SIGNALS, StopFlag


@pytest.fixture
def handlers():
    """Restore the signal handlers of the process after the test."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_only_sets_the_flag(handlers, number):
    stop = StopFlag().install_handlers()
    assert not stop()
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), signal.SIGTERM)  # a scheduler may send a second signal
    assert stop()
    assert stop.signal == number.name


@pytest.mark.parametrize(("limit", "wish"), [(3600, 3600 - 90), (60, 30)])
def test_the_time_limit_asks_in_time_to_save(monkeypatch, limit, wish):
    now = [1000.0]
    monkeypatch.setattr(preemption.time, "monotonic", lambda: now[0])
    stop = StopFlag(limit)
    now[0] += wish - 1
    assert not stop()
    now[0] += 2
    assert stop()


def test_without_a_limit_nothing_asks(monkeypatch):
    monkeypatch.setattr(preemption.time, "monotonic", lambda: 1e300)
    assert not StopFlag()()
