"""Every communicator passes the same list of conformance tests."""

import functools

import pytest
import torch
from helpers import communicator_conformance as behaviours
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
    message = "rank 0 waits for a message from rank 1, rank 1 waits for a message from rank 0"
    with pytest.raises(PeerLostError, match=message):
        SimulatedWorld(2).run(lambda comm: comm.receive(torch.zeros(1), 1 - comm.rank))


def test_an_exception_in_one_simulated_rank_ends_all():
    def program(comm):
        if comm.rank == 1:
            raise ValueError("rank 1 had enough")
        comm.barrier()

    with pytest.raises(ValueError, match="had enough"):
        SimulatedWorld(3).run(program)
