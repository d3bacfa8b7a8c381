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


def test_simulated_ranks_share_what_the_first_of_them_makes():
    def program(comm):
        made = comm.shared("one", list)
        made.append(comm.rank)
        return made, comm.split(comm.rank % 2).shared("one", dict), comm.shared("other", list)

    found = SimulatedWorld(3).run(program)
    assert all(one is within is found[0][0] and other is not one for one, within, other in found)
    assert found[0][0] == [0, 1, 2]


def test_a_vector_for_several_ranks_is_one_copy_of_its_value_at_the_call():
    def program(comm):
        vector = torch.tensor([float(comm.rank)])
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        found = comm.exchange_like(vector, dict.fromkeys(others, vector), others)
        vector.fill_(-1)
        return found

    found = SimulatedWorld(3).run(program)
    assert [{source: each.item() for source, each in own.items()} for own in found] == [
        {1: 1, 2: 2}, {0: 0, 2: 2}, {0: 0, 1: 1}
    ]  # fmt: skip
    assert found[1][0].data_ptr() == found[2][0].data_ptr()
