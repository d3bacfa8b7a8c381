"""Duplicated MPI communicators of consecutive trainings in one allocation."""

import pytest
from helpers.duplicate_communicator_programs import abandoned, many
from helpers.run_on_ranks import on_ranks

pytestmark = pytest.mark.mpi


def test_communicators_are_given_back():
    assert on_ranks(many, "mpi", 2, 350) == [0, 0]


def test_memory_that_mpi_may_still_write_into_outlives_a_failure():
    assert on_ranks(abandoned, "mpi", 2) == [True, True]
