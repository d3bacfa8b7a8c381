"""The process of a rank: its stop flag, the reason of its failure, and its exit."""

import errno
import math
import os
import resource
import signal
import subprocess
import sys

import pytest

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.core.errors import STOP_SIGNALS, DivergedError, InvariantError, UserError
from nnlo_lib.train import rank_process
from nnlo_lib.train.rank_process import StopFlag, failure_reason


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
    monkeypatch.setattr(rank_process.time, "monotonic", lambda: now[0])
    stop = StopFlag(limit)
    now[0] += wish - 1
    assert not stop()
    now[0] += 2
    assert stop()


LIMITED = """
from nnlo_lib.train.rank_process import StopFlag
stop = StopFlag().install_handlers()
while not stop():
    pass
print(stop.signal)
"""


@pytest.mark.processes
def test_a_rank_is_told_before_the_kernel_kills_it_for_its_processor_time():
    """`ulimit -t` sets the soft and the hard limit; the kernel sends SIGKILL alone if both are equal."""
    limit = 2 * process_seconds() + 2

    def limited():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", LIMITED], preexec_fn=limited, capture_output=True, text=True, timeout=250
    )
    assert done.stdout == "SIGXCPU\n", done.stderr


def process_seconds():
    """Return the seconds of processor time, rounded up, that the imports of a rank's process take here."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import nnlo_lib.train.rank_process"], check=True, timeout=250)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return math.ceil(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ArithmeticError("1/0"), "code error"),
        (InvariantError("the mean moved"), "code error"),
        (UserError("no such data set"), "bad input"),
        (DivergedError("the loss became nan"), "diverged"),
        (PeerLostError("rank 1 died"), "peer lost"),
        (MemoryError(), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), "out of memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (RuntimeError("shapes do not fit"), "code error"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk full"),
        (caused(UserError("cannot write x"), OSError(errno.EDQUOT, "Quota exceeded")), "disk full"),
        (OSError(errno.EACCES, "Permission denied"), "code error"),
    ],
)
def test_the_reason_of_an_error(error, reason):
    assert failure_reason(error) == reason


RANKS = """
import os, select, sys
from pathlib import Path
from mpi4py import MPI
from nnlo_lib.train.rank_process import exit_process

rank = MPI.COMM_WORLD.Get_rank()
first = os.pidfd_open(MPI.COMM_WORLD.bcast(os.getpid()))
MPI.Finalize()
if rank:
    ended, *_ = select.select([first], [], [], 200)
    select.select([], [], [], 0.5)  # in which mpiexec would end this rank
    Path(sys.argv[1], f"{rank} saw {len(ended)} end").touch()
exit_process(0)
"""


@pytest.mark.real
@pytest.mark.mpi
@pytest.mark.processes
def test_a_rank_that_exits_with_status_0_does_not_stop_the_others(tmp_path):
    ranks = ["mpiexec", "-n", "3", sys.executable, "-c", RANKS, str(tmp_path)]
    ended = subprocess.run(ranks, timeout=300, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1 saw 1 end", "2 saw 1 end"]
