"""Duplicated MPI communicators of consecutive trainings in one allocation; MPI supports only a few thousand."""

import os

import numpy as np
import pytest
import torch
from helpers.run_on_ranks import on_ranks

pytestmark = pytest.mark.mpi


def many(comm, times):
    """Use and free `times` communicators; return the increase of open files from the first to the last one."""
    opened = []
    for number in range(times):
        mine = type(comm)(comm.duplicate())
        half = mine.split(mine.rank % 2)
        vector = torch.full((100_000,), float(mine.rank))
        mine.allreduce(vector)
        mine.exchange({1 - mine.rank: vector}, {1 - mine.rank: torch.empty_like(vector)})
        mine.send(vector, 1 - mine.rank)
        mine.receive(vector, 1 - mine.rank)
        assert vector[0] == 1
        assert half.size == 1
        mine.barrier()
        mine.free()
        if number in (0, times - 1):
            opened.append(len(os.listdir("/proc/self/fd")))
    return opened[1] - opened[0]


def abandoned(comm):
    """Abandon pending all-reduces; return True if data that arrives later does not overwrite new arrays."""
    mine = type(comm)(comm.duplicate())
    if comm.rank:
        comm.barrier()
    for size in (1000, 100_000):
        mine.iallreduce(torch.ones(size))
    mine.abandon()
    del mine
    fresh = [np.zeros(2000) for _ in range(100)]
    if not comm.rank:
        comm.barrier()
    comm.barrier()
    return not any(each.any() for each in fresh)


def test_communicators_are_given_back():
    assert max(on_ranks(many, "mpi", 2, 350)) <= 0


def test_memory_that_mpi_may_still_write_into_outlives_a_failure():
    assert on_ranks(abandoned, "mpi", 2) == [True, True]
