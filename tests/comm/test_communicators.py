"""Every communicator passes the same list of conformance tests."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import communicator_conformance as behaviours
from helpers import run_on_ranks as ranks
from helpers.repository_copy import environment
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config.parallel import SimulationConfig


@functools.cache
def outcome(transport: str, size: int) -> list[dict[str, str]]:
    return on_ranks(behaviours.run_all, transport, size)


@pytest.mark.parametrize("behaviour", [b.__name__ for b in behaviours.ALL])
@pytest.mark.parametrize(("transport", "size"), TRANSPORTS, ids=IDS)
def test_behaviour(transport, size, behaviour):
    assert [failed[behaviour] for failed in outcome(transport, size) if behaviour in failed] == []


@pytest.mark.processes
def test_a_vanished_rank_is_named_within_seconds(tmp_path):
    command = [
        Path(sys.executable).with_name("mpiexec"), "-disable-auto-cleanup", "-n", "3",
        sys.executable, ranks.__file__, "helpers.communicator_conformance", "vanish", "[]",
    ]  # fmt: skip
    paths = {"PYTHONPATH": ":".join(sys.path), ranks.ERROR_FOLDER: str(tmp_path)}
    done = subprocess.run(
        command, env=environment() | paths, capture_output=True, text=True, timeout=200, check=False
    )
    (error, *_) = [path.read_text() for path in tmp_path.glob("error-*")]
    assert "PeerLostError" in error
    assert "rank 1 (process " in error
    assert "died" in error or "silent" in error
    assert "came back" not in done.stdout


MACHINE = SimulationConfig(sample_seconds=0.5, latency=0.25, bandwidth=100.0)


def test_the_virtual_clock_counts_computing_latency_and_bandwidth():
    def program(comm):
        if comm.rank == 0:
            comm.advance_clock(4)
            comm.send(torch.zeros(25), 1)
            return comm.now()
        comm.receive(torch.zeros(25), 0)
        return comm.now()

    assert SimulatedWorld(2, MACHINE).run(program) == [2.0, 2.0 + 0.25 + 1.0]


def test_messages_are_received_by_arrival_not_by_rank():
    def program(comm):
        if comm.rank:
            comm.advance_clock(10 - comm.rank)
            comm.send(torch.zeros(1), 0)
            return None
        comm.advance_clock(100)
        return [receive_any(comm) for _ in range(comm.size - 1)]

    def receive_any(comm):
        source = comm.probe().source
        comm.receive(torch.zeros(1), source)
        return source

    assert SimulatedWorld(5, MACHINE).run(program)[0] == [4, 3, 2, 1]


def test_what_arrived_is_what_others_sent_by_this_clock():
    def program(comm):
        if comm.rank:
            comm.advance_clock(comm.rank)
            comm.send(torch.zeros(1), 0, tag=comm.rank)
            return None
        seen = []
        for _ in range(5):
            comm.advance_clock(1)
            message = comm.iprobe()
            seen.append(message and message.tag)
            if message:
                comm.receive(torch.zeros(1), message.source, message.tag)
        return seen

    assert SimulatedWorld(4, MACHINE).run(program)[0] == [None, 1, 2, 3, None]


def test_a_deadlock_is_an_error_that_names_who_waits_for_whom():
    with pytest.raises(
        PeerLostError, match="rank 0 waits for a message from rank 1, rank 1 waits for a message from rank 0"
    ):
        SimulatedWorld(2).run(lambda comm: comm.receive(torch.zeros(1), 1 - comm.rank))


def test_an_exception_in_one_simulated_rank_ends_all():
    def program(comm):
        if comm.rank == 1:
            raise ValueError("rank 1 had enough")
        comm.barrier()

    with pytest.raises(ValueError, match="had enough"):
        SimulatedWorld(3).run(program)
