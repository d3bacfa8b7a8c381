"""One list of behaviours, on every communicator."""

import functools
import subprocess
import sys
from pathlib import Path

import behaviours
import pytest
import ranks
import torch
from checkout import environment
from ranks import IDS, TRANSPORTS, on_ranks

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.simulated import World
from nnlo_lib.config import Simulation


@functools.cache
def outcome(transport: str, size: int) -> list[dict[str, str]]:
    return on_ranks(behaviours.run_all, transport, size)


@pytest.mark.parametrize("behaviour", [b.__name__ for b in behaviours.ALL])
@pytest.mark.parametrize(("transport", "size"), TRANSPORTS, ids=IDS)
def test_behaviour(transport, size, behaviour):
    assert [failed[behaviour] for failed in outcome(transport, size) if behaviour in failed] == []


def test_a_vanished_rank_is_named_within_seconds():
    command = [
        Path(sys.executable).with_name("mpiexec"), "-disable-auto-cleanup", "-n", "3",
        sys.executable, ranks.__file__, "behaviours", "vanish", "[]",
    ]  # fmt: skip
    paths = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        command, env=environment() | paths, capture_output=True, text=True, timeout=60, check=False
    )
    assert "PeerLostError" in done.stderr
    assert "rank 1 (process " in done.stderr
    assert "died" in done.stderr or "silent" in done.stderr
    assert "came back" not in done.stdout


MACHINE = Simulation(sample_seconds=0.5, latency=0.25, bandwidth=100.0)


def test_the_virtual_clock_counts_computing_latency_and_bandwidth():
    def program(comm):
        if comm.rank == 0:
            comm.computed(4)
            comm.send(torch.zeros(25), 1)
            return comm.now()
        comm.receive(torch.zeros(25), 0)
        return comm.now()

    assert World(2, MACHINE).run(program) == [2.0, 2.0 + 0.25 + 1.0]


def test_messages_are_received_by_arrival_not_by_rank():
    def program(comm):
        if comm.rank:
            comm.computed(10 - comm.rank)
            comm.send(torch.zeros(1), 0)
            return None
        comm.computed(100)
        return [receive_any(comm) for _ in range(comm.size - 1)]

    def receive_any(comm):
        source = comm.probe().source
        comm.receive(torch.zeros(1), source)
        return source

    assert World(5, MACHINE).run(program)[0] == [4, 3, 2, 1]


def test_what_arrived_is_what_others_sent_by_this_clock():
    def program(comm):
        if comm.rank:
            comm.computed(comm.rank)
            comm.send(torch.zeros(1), 0, tag=comm.rank)
            return None
        seen = []
        for _ in range(5):
            comm.computed(1)
            message = comm.arrived()
            seen.append(message and message.tag)
            if message:
                comm.receive(torch.zeros(1), message.source, message.tag)
        return seen

    assert World(4, MACHINE).run(program)[0] == [None, 1, 2, 3, None]


def test_a_deadlock_is_an_error_that_names_who_waits_for_whom():
    with pytest.raises(
        PeerLostError, match="rank 0 for a message from rank 1, rank 1 for a message from rank 0"
    ):
        World(2).run(lambda comm: comm.receive(torch.zeros(1), 1 - comm.rank))


def test_an_exception_in_one_simulated_rank_ends_all():
    def program(comm):
        if comm.rank == 1:
            raise ValueError("rank 1 had enough")
        comm.barrier()

    with pytest.raises(ValueError, match="had enough"):
        World(3).run(program)
