"""A message of a rank of the same host wakes a rank that sleeps between two polls."""

import os

import pytest
import torch
from helpers.run_on_ranks import on_ranks

from nnlo_lib.comm.mpi import progress_engine
from nnlo_lib.comm.mpi.progress_engine import Doorbell, own_doorbell


def has_rung():
    return bool(own_doorbell(os.getpid())._ringing.poll(0))


def test_a_ring_ends_a_sleep_and_is_used_up():
    bell = own_doorbell(os.getpid())
    bell.ring(os.getpid())
    bell.ring(os.getpid())
    bell.sleep(3600)
    assert not has_rung()


def test_a_ring_for_a_process_that_does_not_listen_is_no_error():
    own_doorbell(os.getpid()).ring(2**22 + 1)


def test_a_doorbell_whose_name_is_taken_polls_often():
    own_doorbell(os.getpid())
    assert Doorbell().interval == progress_engine.PEER_POLL_INTERVAL_S


def rung_by_messages(comm, size):
    """Return whether a message of `size` numbers has rung at rank 1, before it looks for the message."""
    own_doorbell(os.getpid()).sleep(0)  # uses up the rings of former messages
    comm.barrier()
    if comm.rank == 0:
        comm.send(torch.zeros(size), 1)
    comm.barrier()
    rung = has_rung()
    if comm.rank == 1:
        comm.receive(torch.zeros(size), 0)
    return rung


@pytest.mark.mpi
@pytest.mark.parametrize("size", [0, 1_000, 200_000])
def test_a_message_rings_at_its_receiver(size):
    assert on_ranks(rung_by_messages, "mpi", 2, size) == [False, True]
