"""Mapping of exceptions in a rank to the failure reason that determines whether the launcher retries."""

import errno

import pytest

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.core.errors import DivergedError, InvariantError, UserError
from nnlo_lib.train.rank_status import failure_reason


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
