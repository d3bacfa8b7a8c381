"""Conformance checks of communicators, independent of the transport. Each function runs on every rank."""

import torch

from nnlo_lib.comm.communicator import Communicator

# Values: below and above the limit of the all-gather. LARGE is prime, so ranks get unequal parts.
SMALL, LARGE = 5, 100_003


def gather_carries_json(comm: Communicator) -> None:
    item = {"rank": comm.rank, "text": "é" * comm.rank, "nothing": None}
    assert comm.gather(item) == [{"rank": r, "text": "é" * r, "nothing": None} for r in range(comm.size)]


def broadcast_overwrites(comm: Communicator) -> None:
    for root in range(comm.size):
        vector = torch.full((SMALL,), float(comm.rank))
        comm.broadcast(vector, root)
        assert vector.tolist() == [root] * SMALL


def allreduce_adds(comm: Communicator) -> None:
    for size in (1, SMALL, LARGE):
        for kind in (torch.float32, torch.float64, torch.int64):
            vector = torch.arange(size, dtype=kind) + comm.rank
            comm.allreduce(vector)
            expected = torch.arange(size, dtype=kind) * comm.size + comm.size * (comm.size - 1) // 2
            assert torch.equal(vector, expected)


def allreduce_adds_in_rank_order(comm: Communicator) -> None:
    """Check the order with 1e8, 1, -1e8, 1 in float32: the sum depends on the order of the ranks."""
    values = [1e8, 1.0, -1e8, 1.0]
    for size in (SMALL, LARGE):
        vector = torch.full((size,), values[comm.rank])
        comm.allreduce(vector)
        expected = torch.tensor(values[0])
        for value in values[1 : comm.size]:
            expected = expected + torch.tensor(value)
        assert torch.equal(vector, expected.expand(size))


def parts_are_reduced_and_gathered(comm: Communicator) -> None:
    """Check that the halves of an all-reduce have its bits, by messages too, and change no value that they should not."""
    near = getattr(comm, "_shares_domain", [])
    for size, shares in ((SMALL, near), (LARGE, near), (LARGE, [False] * comm.size)):
        comm._shares_domain = shares
        vector = torch.rand(size, generator=torch.Generator().manual_seed(comm.rank), dtype=torch.float32)
        whole, expected, mine = vector.clone(), vector.clone(), comm.part(size)
        comm.allreduce(whole)
        comm.reduce_scatter(vector)
        expected[mine] = whole[mine]
        assert torch.equal(vector, expected)
        vector[: mine.start], vector[mine.stop :] = -1, -1
        comm.allgather(vector)
        assert torch.equal(vector, whole)
    comm._shares_domain = near


def requests_overlap(comm: Communicator) -> None:
    vectors = [
        torch.full((size,), float(value)) for value, size in enumerate((LARGE, LARGE, 1, SMALL, LARGE), 1)
    ]
    requests = [comm.iallreduce(vector) for vector in vectors]
    for request in requests:
        request.wait()
    for value, vector in enumerate(vectors, 1):
        assert torch.equal(vector, torch.full_like(vector, value * comm.size))


def neighbors_exchange(comm: Communicator) -> None:
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    received = {peer: torch.empty(LARGE) for peer in (left, right)}
    comm.exchange({peer: torch.full((LARGE,), float(comm.rank)) for peer in (left, right)}, received)
    assert all(torch.equal(vector, torch.full((LARGE,), float(peer))) for peer, vector in received.items())


def messages_keep_their_order(comm: Communicator) -> None:
    """Check small and large messages with several tags; the sender overwrites its vector after each send."""
    if comm.rank == 0:
        vector = torch.empty(LARGE)
        for number in range(6):
            vector.fill_(number)
            comm.send(vector if number % 2 else vector[:SMALL], 1, tag=7)
        comm.send(torch.tensor([9.0]), 1, tag=8)
    if comm.rank == 1:
        for number in range(6):
            vector = torch.empty(LARGE if number % 2 else SMALL)
            comm.receive(vector, 0, tag=7)
            assert torch.equal(vector, torch.full_like(vector, number))
        comm.receive(vector[:1], 0, tag=8)
        assert vector[0].item() == 9


def sending_never_waits(comm: Communicator) -> None:
    """Check that all ranks can send before any rank receives, and that messages of different sizes keep their order."""
    peers = [rank for rank in range(comm.size) if rank != comm.rank]
    for number in range(3):
        for peer in peers:
            comm.send(torch.full((LARGE + number,), float(10 * comm.rank + number)), peer)
    for number in range(3):
        for peer in peers:
            vector = torch.empty(LARGE + number)
            comm.receive(vector, peer)
            assert torch.equal(vector, torch.full_like(vector, 10 * peer + number))


def sending_never_waits_between_hosts(comm: Communicator) -> None:
    """Check three rounds of `sending_never_waits` between ranks without shared memory."""
    near, comm._shares_domain = getattr(comm, "_shares_domain", []), [False] * comm.size
    try:
        for _ in range(3):
            sending_never_waits(comm)
    finally:
        comm.barrier()
        comm._shares_domain = near
    while hasattr(comm, "_progress") and comm._progress.outbox:
        comm.iprobe()


def mailboxes_are_used_again(comm: Communicator) -> None:
    """Check that large messages of one size, received in any order of tags, use a bounded number of mailboxes."""
    peer = comm.rank ^ 1
    for number in range(10):
        for tag in (1, 2):
            comm.send(torch.full((LARGE,), float(10 * comm.rank + tag + number)), peer, tag)
        for tag in (2, 1):
            vector = torch.empty(LARGE)
            comm.receive(vector, peer, tag)
            assert torch.equal(vector, torch.full_like(vector, 10 * peer + tag + number))
        comm.barrier()
    if hasattr(comm, "_mailboxes"):
        assert len([box for box in comm._mailboxes._mine[peer] if box.memory.size == 4 * LARGE]) <= 4


def probe_tells_who_and_what(comm: Communicator) -> None:
    if comm.rank:
        comm.send(torch.tensor([float(comm.rank)]), 0, tag=comm.rank + 10)
        return
    seen = set()
    for _ in range(comm.size - 1):
        message = comm.probe()
        vector = torch.empty(1)
        comm.receive(vector, message.source, message.tag)
        assert vector.item() == message.source == message.tag - 10
        seen.add(message.source)
    assert seen == set(range(1, comm.size))


def arrived_looks_without_waiting(comm: Communicator) -> None:
    assert comm.iprobe() is None
    comm.barrier()
    if comm.rank:
        comm.send(torch.full((SMALL,), float(comm.rank)), 0, tag=comm.rank + 10)
        return
    seen = []
    while len(seen) < comm.size - 1:
        comm.advance_clock(1)
        assert comm.iprobe(1, tag=9) is None
        message = comm.iprobe()
        if message is not None:
            vector = torch.empty(SMALL)
            comm.receive(vector, message.source, message.tag)
            assert vector.tolist() == [message.source] * SMALL
            seen.append(message.tag - 10)
    assert sorted(seen) == list(range(1, comm.size))
    assert comm.iprobe() is None


def split_makes_groups(comm: Communicator) -> None:
    part = comm.split(comm.rank % 2)
    vector = torch.tensor([comm.rank])
    part.allreduce(vector, "part")
    assert vector.item() == sum(rank for rank in range(comm.size) if rank % 2 == comm.rank % 2)
    assert part.rank == comm.rank // 2
    assert comm.bytes_sent["part"] == 8 * (part.size - 1)


ALL = [
    gather_carries_json, broadcast_overwrites, allreduce_adds, allreduce_adds_in_rank_order,
    parts_are_reduced_and_gathered, requests_overlap, neighbors_exchange, messages_keep_their_order, probe_tells_who_and_what,
    sending_never_waits, sending_never_waits_between_hosts, mailboxes_are_used_again,
    arrived_looks_without_waiting,
    split_makes_groups,
]  # fmt: skip


def run_all(comm: Communicator) -> dict[str, str]:
    """Run every check; return the errors of the failed checks, by name."""
    failed = {}
    for behaviour in ALL:
        try:
            behaviour(comm)
        except AssertionError as error:
            failed[behaviour.__name__] = f"rank {comm.rank}: {error!r}"
        comm.barrier()
    return failed
