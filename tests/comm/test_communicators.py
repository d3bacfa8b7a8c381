"""Every communicator passes the same list of conformance tests."""

import functools
import os
import re
import subprocess
import sys

import pytest
import torch
from helpers import communicator_conformance as behaviours
from helpers.repository_copy import environment
from helpers.run_on_ranks import ERROR_FOLDER, IDS, TRANSPORTS, on_ranks, world_command

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


def vanish(comm):
    """Let rank 1 exit without notice while the other ranks wait for it in a barrier."""
    if comm.rank == 1:
        os._exit(0)
    comm.barrier()


@pytest.mark.exhaustive
@pytest.mark.mpi
def test_a_rank_that_exited_is_named(tmp_path):
    done = subprocess.run(
        world_command(vanish, 3, options=("-disable-auto-cleanup",)), capture_output=True, text=True, timeout=300,
        env=environment() | {"PYTHONPATH": ":".join(sys.path), ERROR_FOLDER: str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode
    (error, *_) = [path.read_text() for path in tmp_path.glob("error-?")]
    assert re.search(r"PeerLostError.*rank 1 \(process .*(died|silent)", error)


MACHINE = SimulationConfig(sample_seconds=0.5, latency=0.25, bandwidth=100.0)


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
