"""Traffic counters: equal to closed forms, the same on every transport and preserved across restarts."""

import json

import pytest
import torch
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks

from nnlo_lib.comm.accounting import ALLGATHER_MAX_BYTES, Traffic, allreduce_bytes

SMALL, LARGE = 10, 100_003  # values


def everything(comm):
    """Make every communication call once; return the state of this rank's ledger."""
    rank, size = comm.rank, comm.size
    comm.allreduce(torch.zeros(SMALL), "small sum")
    comm.allreduce(torch.zeros(LARGE), "large sum")
    comm.reduce_scatter(torch.zeros(LARGE), "halves")
    comm.allgather(torch.zeros(LARGE), "halves")
    comm.broadcast(torch.zeros(SMALL), 1, "word")
    right, left = (rank + 1) % size, (rank - 1) % size
    comm.exchange({right: torch.zeros(LARGE)}, {left: torch.zeros(LARGE)}, "ring")
    if rank == 0:
        comm.send(torch.zeros(SMALL), 1, purpose="letter")
        comm.send(torch.zeros(LARGE), 1, purpose="letter")
    if rank == 1:
        comm.receive(torch.zeros(SMALL), 0)
        comm.receive(torch.zeros(LARGE), 0)
    return comm.traffic.state()


def in_halves(comm):
    """Split into odd and even ranks; in each half rank 0 sends to rank 1, then all ranks of the half all-reduce."""
    half = comm.split(comm.rank % 2)
    quarter = half.split(0)
    if half.rank == 0:
        quarter.send(torch.zeros(SMALL), 1)
    if half.rank == 1:
        quarter.receive(torch.zeros(SMALL), 0)
    half.allreduce(torch.zeros(SMALL), "half")
    return [comm.traffic.state(), half.traffic is comm.traffic]


@pytest.mark.parametrize(("transport", "size"), TRANSPORTS, ids=IDS)
def test_ledger(transport, size):
    for rank, told in enumerate(on_ranks(everything, transport, size)):
        messages = {"small sum": size - 1, "large sum": 2 * (size - 1), "halves": 2 * (size - 1), "ring": 1}
        mine = {2: (50_048, 49_955), 4: (25_024, 25_024, 25_024, 24_931)}[size][rank]  # whole blocks of 64
        sent = {
            "small sum": 4 * SMALL * (size - 1),
            "large sum": allreduce_bytes(LARGE, 4, rank, size),
            "halves": 4 * (LARGE - mine + mine * (size - 1)),
            "ring": 4 * LARGE,
        }
        edges = [[(rank + 1) % size, 1, 4 * LARGE]]
        if rank == 0:
            messages["letter"], sent["letter"] = 2, 4 * (SMALL + LARGE)
            edges = [[1, 3, 4 * (SMALL + 2 * LARGE)]]
        if rank == 1:
            messages["word"], sent["word"] = size - 1, 4 * SMALL * (size - 1)
        assert told == {"bytes": sent, "messages": messages, "edges": edges}


@pytest.mark.parametrize("transport", ["simulated", "mpi"])
def test_parts_count_into_the_whole_by_world_rank(transport):
    told = on_ranks(in_halves, transport, 4)
    edges = [[[2, 1, 4 * SMALL]], [[3, 1, 4 * SMALL]], [], []]
    assert [ledger["edges"] for ledger, _ in told] == edges
    assert all(same and ledger["messages"]["half"] == 1 for ledger, same in told)


def test_shares_of_an_allreduce_add_up_to_the_bytes_of_a_ring():
    values, ranks = 100_003, 7
    shares = [allreduce_bytes(values, 4, rank, ranks) for rank in range(ranks)]
    assert sum(shares) == 2 * (ranks - 1) * values * 4
    assert allreduce_bytes(ALLGATHER_MAX_BYTES // 8, 4, 0, 3) == ALLGATHER_MAX_BYTES
    assert allreduce_bytes(5, 4, 0, 1) == 0


def test_counts_go_on_after_a_restart():
    before, after = Traffic(), Traffic()
    before.count_message(10, 3, "parameters")
    before.count_ring(100, 2, "gradient")
    after.count_message(5, 3, "parameters")
    after.count_message(7, 1, "control")
    total = Traffic.load(json.loads(json.dumps(before.state()))) + after
    assert total.state() == {
        "bytes": {"parameters": 15, "gradient": 100, "control": 7},
        "messages": {"parameters": 2, "gradient": 2, "control": 1},
        "edges": [[1, 1, 7], [3, 2, 15]],
    }
    assert before.edges == {3: [1, 10]}, "adding leaves the parts alone"


def test_nothing_sent_is_nothing_counted():
    alone = Traffic()
    alone.count_broadcast(10, 1, "word")
    alone.count_allreduce(10, 4, 0, 1, "sum")
    assert alone.state() == {"bytes": {}, "messages": {}, "edges": []}
