"""Cost model of the simulated machine: delays of ranks and messages, reproducible from the seed."""

import math
from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.comm.simulated.virtual_machine import CollectiveCost, CostModel, uniform
from nnlo_lib.config.parallel import ParallelConfig, SimulationConfig

EXACT = {"sample_seconds": 0.5, "latency": 0.25, "bandwidth": 100.0}
RANKS, STEPS = 4, 200


def durations(seed=0, steps=STEPS, ranks=RANKS, **settings):
    """Return the seconds of each step of one sample for each rank."""
    machine = CostModel(SimulationConfig(**EXACT | settings), ranks, seed)
    clocks, taken = [0.0] * ranks, [[] for _ in range(ranks)]
    for _ in range(steps):
        for rank in range(ranks):
            taken[rank].append(machine.compute_seconds(rank, 1, clocks[rank]))
            clocks[rank] += taken[rank][-1]
    return taken


def arrivals(count=STEPS, seed=0, **settings):
    machine = CostModel(SimulationConfig(**EXACT | settings), RANKS, seed)
    return [machine.arrival(0, 1, 10, 0.0) for _ in range(count)]


def test_uniform_numbers_are_between_0_and_1_and_a_pure_function():
    draws = [uniform(1, "a", number) for number in range(10_000)]
    assert 0 < min(draws) < 1e-3
    assert 1 - 1e-3 < max(draws) < 1
    assert abs(sum(draws) / len(draws) - 0.5) < 0.01
    assert draws[:9] == [uniform(1, "a", number) for number in range(9)]


WILD = {
    "jitter": 0.5, "mtbf": 20.0, "repair": 3.0, "stragglers": {"fraction": 0.5, "slowdown": 3, "probability": 0.3}
}  # fmt: skip


def test_a_rank_draws_the_same_whatever_others_do():
    machine = CostModel(SimulationConfig(**EXACT | WILD), RANKS, 3)
    clock, alone = 0.0, []
    for _ in range(STEPS):
        alone.append(machine.compute_seconds(2, 1, clock))
        clock += alone[-1]
    assert alone == durations(3, **WILD)[2]


@pytest.mark.parametrize("speeds", [{1: 2.0, 3: 0.5}, (1.0, 2.0, 1.0, 0.5)])
def test_speeds_divide_the_time(speeds):
    assert [taken[0] for taken in durations(speeds=speeds)] == [0.5, 0.25, 0.5, 1.0]


def test_a_straggler_slows_its_rank_as_often_as_its_probability():
    slow = durations(stragglers={"ranks": [2], "slowdown": 5})
    assert slow == [[0.5] * STEPS, [0.5] * STEPS, [2.5] * STEPS, [0.5] * STEPS]
    slow = durations(stragglers={"ranks": [2], "slowdown": 5, "probability": 0.3})[2]
    assert set(slow) == {0.5, 2.5}
    assert abs(slow.count(2.5) / STEPS - 0.3) < 0.1


def test_a_fraction_of_the_ranks_straggles():
    slow = durations(stragglers={"fraction": 0.3, "slowdown": 5}, ranks=10, steps=1)
    assert sorted(taken[0] for taken in slow) == [0.5] * 7 + [2.5] * 3


def test_jitter_has_mean_one_and_its_sigma():
    factors = [taken / 0.5 for rank in durations(jitter=0.2, steps=2000) for taken in rank]
    logs = [math.log(factor) for factor in factors]
    mean = sum(logs) / len(logs)
    assert abs(sum(factors) / len(factors) - 1) < 0.01
    assert abs(math.sqrt(sum((log - mean) ** 2 for log in logs) / len(logs)) - 0.2) < 0.01


def test_a_failure_holds_up_the_work_it_falls_into():
    failures = [{"rank": 1, "at": 1.2, "seconds": 3.0}]
    held = durations(failures=failures, steps=5)
    assert held[0] == [0.5] * 5
    assert held[1] == pytest.approx([0.5, 0.5, 3.5, 0.5, 0.5])


def test_failures_that_overlap_count_once():
    failures = [{"rank": 0, "at": 1.0, "seconds": 3.0}, {"rank": 0, "at": 2.0, "seconds": 1.0},
                {"rank": 0, "at": 3.5, "seconds": 1.0}]  # fmt: skip
    assert sum(durations(failures=failures, steps=10)[0]) == pytest.approx(5 + 3.5)


def test_drawn_failures_take_their_share_of_the_time():
    total = sum(durations(mtbf=10.0, repair=2.0, steps=20_000, ranks=1)[0])
    assert total / 10_000 == pytest.approx(1.2, abs=0.02)


def test_a_rank_that_fails_while_it_waits_goes_on_when_it_is_back():
    settings = SimulationConfig(**EXACT, failures=[{"rank": 1, "at": 1.0, "seconds": 9.0}])

    def program(comm):
        if comm.rank == 0:
            comm.advance_clock(4)
            comm.send(torch.zeros(25), 1)
        else:
            comm.receive(torch.zeros(25), 0)
        at_once = comm.now()
        comm.barrier()
        return [at_once, comm.now()]

    assert SimulatedWorld(2, settings).run(program) == [[2.0, 10.25], [10.0, 10.25]]


def test_loss_delays_and_never_reorders():
    plain, lossy = arrivals(), arrivals(loss=0.2, retransmit=5.0)
    assert all(late >= early for late, early in zip(lossy, plain, strict=True))
    assert all(first <= second for first, second in pairwise(lossy))
    assert lossy != plain


def test_messages_are_lost_as_often_as_the_probability_says():
    machine = CostModel(SimulationConfig(**EXACT, loss=0.25, retransmit=1e6), 2, 0)
    losses = [round(machine.arrival(0, 1, 0, 4e9 * number) / 1e6) % 4000 for number in range(4000)]
    assert sum(losses) / len(losses) == pytest.approx(0.25 / 0.75, abs=0.03)
    assert losses.count(0) / len(losses) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(("messages", "rounds"), [(1, 1), (12, 1), (12, 2), (4032, 2)])
def test_a_round_waits_for_its_unluckiest_message(messages, rounds):
    """The mean of the maximum of m geometric numbers is the sum over k of 1 - (1 - loss^(k+1))^m."""
    machine = CostModel(SimulationConfig(latency=0, loss=0.25, retransmit=1.0), 2, 0)
    waits = [machine.collective(CollectiveCost(0, messages, rounds), 0) for _ in range(4000)]
    mean = sum(1 - (1 - 0.25 ** (k + 1)) ** messages for k in range(60))
    assert sum(waits) / len(waits) == pytest.approx(rounds * mean, abs=0.06)


def meetings(call, seed=0, ranks=4, **settings):
    """Return the times at which 20 collective calls end on rank 0."""

    def program(comm):
        half = comm.split(comm.rank % 2)
        told = []
        for _ in range(20):
            call(comm)
            told.append(comm.now())
            half.barrier()
        return told

    return SimulatedWorld(ranks, SimulationConfig(**EXACT | settings), seed).run(program)[0]


CALLS = {
    "all-reduce": lambda comm: comm.allreduce(torch.zeros(10)),
    "broadcast": lambda comm: comm.broadcast(torch.zeros(10)),
    "gather": lambda comm: comm.gather(1),
    "barrier": lambda comm: comm.barrier(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_lost_messages_hold_up_collective_calls(call):
    lossless, lossy = meetings(call), meetings(call, loss=0.3, retransmit=5.0)
    assert lossy[-1] >= lossless[-1] + 5 * 5.0
    assert lossy == meetings(call, loss=0.3, retransmit=5.0)
    assert lossy != meetings(call, seed=1, loss=0.3, retransmit=5.0)


def test_one_rank_loses_nothing():
    for call in CALLS.values():
        assert meetings(call, ranks=1) == meetings(call, ranks=1, loss=0.9)


def test_what_a_rank_sends_shares_its_card():
    machine = CostModel(SimulationConfig(**EXACT), RANKS, 0)
    assert [machine.arrival(0, to, 100, 5.0) for to in (1, 2, 3)] == [6.25, 7.25, 8.25]
    assert machine.arrival(1, 2, 100, 5.0) == 6.25
    assert machine.arrival(0, 1, 100, 20.0) == 21.25


def test_an_allreduce_takes_its_largest_share_in_one_or_two_rounds():
    def program(comm):
        comm.advance_clock(comm.rank)
        comm.allreduce(torch.zeros(25))
        small = comm.now()
        comm.allreduce(torch.zeros(3 * 4000))
        return [small, comm.now() - small]

    rounds = [1.0 + 0.25 + 2.0, 2 * 0.25 + 4 * 4000 * 4 / 100.0]
    assert SimulatedWorld(3, SimulationConfig(**EXACT)).run(program) == [rounds] * 3


def test_a_rank_that_sleeps_lets_earlier_ones_go_first():
    order = []

    def program(comm):
        for _ in range(2):
            comm.advance_clock_and_yield(3 - comm.rank)
            order.append((comm.now(), comm.rank))

    SimulatedWorld(3, SimulationConfig(**EXACT)).run(program)
    assert order == sorted(order)
    assert len(order) == 6


def test_a_wild_machine_replays_to_the_bit():
    settings = SimulationConfig(**WILD, loss=0.2, latency=0.01, sample_seconds=0.1)

    def program(comm):
        vector, story = torch.full((100,), float(comm.rank)), []
        for step in range(20):
            comm.advance_clock_and_yield(1 + step % 3)
            comm.send(vector, (comm.rank + 1 + step % (comm.size - 1)) % comm.size, tag=step)
            while (message := comm.iprobe()) is not None:
                other = torch.empty(100)
                comm.receive(other, message.source, message.tag)
                vector = (vector + other) / 2
                story.append((message.source, message.tag, comm.now()))
        return story, vector.tolist()

    first, again = (SimulatedWorld(6, settings, 11).run(program) for _ in range(2))
    assert first == again
    assert first != SimulatedWorld(6, settings, 12).run(program)


def test_measured_seconds_advance_the_clock():
    def program(comm):
        sum(range(300_000))
        comm.advance_clock(1)
        return comm.now()

    assert min(SimulatedWorld(3, SimulationConfig(sample_seconds="measured")).run(program)) > 0


@pytest.mark.parametrize(
    "simulation",
    [{"failures": [{"rank": 2, "at": 0, "seconds": 1}]}, {"stragglers": {"ranks": [2]}}, {"speeds": {2: 1.0}},
     {"speeds": [1, 1, 1]}],
)  # fmt: skip
def test_ranks_that_do_not_exist_are_refused(simulation):
    with pytest.raises(ValidationError, match="rank 2 does not exist"):
        ParallelConfig(ranks=2, transport="simulated", simulation=simulation)
    assert ParallelConfig(ranks=3, transport="simulated", simulation=simulation)
