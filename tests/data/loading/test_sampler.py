"""Orders of the samples: shared by all workers, or of the samples of each worker."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.sampler import (
    PartitionedSampler,
    SamplingPlan,
    SharedOrderSampler,
    ShufflePurpose,
    shuffled,
)

sizes = st.fixed_dictionaries(
    {"samples": st.integers(8, 355), "batch_size": st.integers(1, 70), "workers": st.integers(1, 8)}
)
seeds, epochs = st.integers(0, 2**40), st.integers(0, 1000)


def team_of(kind, plan):
    return [kind(plan, worker) for worker in range(plan.workers)]


def shared(samples, batch_size, workers, seed=1, steps=None, processes=1):
    parts = [np.arange(355)[::-1][:samples]]
    plan = SamplingPlan(parts, workers, batch_size, seed, steps, processes=processes)
    return team_of(SharedOrderSampler, plan)


def used(team, epoch):
    """Return the sample ids of each worker at each step of an epoch."""
    return [[worker.ids(epoch, step) for worker in team] for step in range(team[0].steps_per_epoch)]


@given(sizes=sizes, seed=seeds, epoch=epochs)
def test_workers_together_walk_over_one_order(sizes, seed, epoch):
    team = shared(**sizes, seed=seed)
    steps = used(team, epoch)
    for step, parts in enumerate(steps):
        counts = [len(part) for part in parts]
        assert {worker.global_count(epoch, step) for worker in team} == {sum(counts)}
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == sizes["batch_size"] * sizes["workers"] or step == len(steps) - 1
    together = np.concatenate([part for parts in steps for part in parts])
    assert np.array_equal(together, team[0].order(epoch))
    assert sorted(together.tolist()) == list(range(355 - sizes["samples"], 355))
    assert team[0].samples == sizes["samples"]


@given(seed=seeds, epoch=epochs)
def test_shared_order_does_not_depend_on_workers_or_batch(seed, epoch):
    orders = [
        shared(300, batch, workers, seed)[0].order(epoch)
        for batch, workers in ((1, 1), (64, 1), (16, 4), (7, 300))
    ]
    assert all(np.array_equal(order, orders[0]) for order in orders)


parts_of_any_size = st.lists(st.integers(1, 60), min_size=1, max_size=9)


def owned(counts, batch_size, seed=1, steps=None):
    parts = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    return parts, team_of(PartitionedSampler, SamplingPlan(parts, len(parts), batch_size, seed, steps))


@given(counts=parts_of_any_size, batch_size=st.integers(1, 70), seed=seeds, epoch=epochs)
def test_workers_with_samples_of_their_own_use_each_once_and_stay_in_step(counts, batch_size, seed, epoch):
    parts, team = owned(counts, batch_size, seed)
    steps = used(team, epoch)
    assert len(steps) == -(-max(counts) // batch_size)
    for step, taken in enumerate(steps):
        assert {worker.global_count(epoch, step) for worker in team} == {sum(map(len, taken))}
        assert max(map(len, taken)) <= batch_size
    for worker, part in enumerate(parts):
        assert sorted(np.concatenate([taken[worker] for taken in steps]).tolist()) == part.tolist()
    assert team[0].samples == sum(counts)


@settings(max_examples=40)
@given(counts=parts_of_any_size, sizes=sizes, batch_size=st.integers(1, 20))
def test_positions_of_an_epoch_are_its_samples_numbered(counts, sizes, batch_size):
    for team, samples in ((owned(counts, batch_size)[1], sum(counts)), (shared(**sizes), sizes["samples"])):
        places = [
            worker.position(0, step) + offset
            for step in range(team[0].steps_per_epoch)
            for worker in team
            for offset in range(len(worker.ids(0, step)))
        ]
        assert sorted(places) == list(range(samples))


@settings(max_examples=50)
@given(before=sizes, workers=st.integers(1, 8), seed=seeds, data=st.data())
def test_another_number_of_workers_goes_on_in_the_same_order(before, workers, seed, data):
    old, new = shared(**before, seed=seed), shared(**before | {"workers": workers}, seed=seed)
    done = data.draw(st.integers(0, old[0].steps_per_epoch), label="steps done")
    first = [worker.ids(3, index) for index in range(done) for worker in old]
    (step,) = {worker.resume(3, np.isin(np.arange(355), np.concatenate([[], *first]))) for worker in new}
    rest = [worker.ids(3, index) for index in range(step, new[0].steps_per_epoch) for worker in new]
    assert np.concatenate([*first, *rest]).tolist() == old[0].order(3).tolist()
    for index in range(step, new[0].steps_per_epoch):
        assert {w.global_count(3, index) for w in new} == {sum(len(w.ids(3, index)) for w in new)}
    assert sum(len(w.ids(4, 0)) for w in new) == min(before["batch_size"] * workers, before["samples"])


@settings(max_examples=50)
@given(before=sizes, workers=st.integers(1, 8), seed=seeds, data=st.data())
def test_another_number_of_workers_goes_on_where_each_of_the_old_ones_was(before, workers, seed, data):
    old, new = shared(**before, seed=seed), shared(**before | {"workers": workers}, seed=seed)
    done = [data.draw(st.integers(0, old[0].steps_per_epoch), label="steps done") for _ in old]
    first = [worker.ids(3, index) for worker, steps in zip(old, done, strict=True) for index in range(steps)]
    (step,) = {worker.resume(3, np.isin(np.arange(355), np.concatenate([[], *first]))) for worker in new}
    rest = [worker.ids(3, index) for index in range(step, new[0].steps_per_epoch) for worker in new]
    assert sorted(np.concatenate([*first, *rest]).tolist()) == sorted(old[0].order(3).tolist())


@pytest.mark.parametrize(
    "make", [lambda steps: shared(100, 5, 2, steps=steps), lambda steps: owned([50, 50], 5, steps=steps)[1]]
)
def test_an_epoch_can_be_trimmed_and_the_next_one_takes_others(make):
    team = make(4)
    assert team[0].steps_per_epoch == 4
    assert team[0].samples == 40
    first, second = (
        np.concatenate([part for parts in used(team, epoch) for part in parts]) for epoch in (0, 1)
    )
    assert len(first) == len(set(first.tolist())) == 40
    assert set(first.tolist()) != set(second.tolist())
    with pytest.raises(UserError, match=r"train\.steps_per_epoch: 11 is more than the 10 steps"):
        make(11)


def test_epochs_seeds_and_workers_have_orders_of_their_own():
    samplers = [shared(355, 10, 1, seed)[0] for seed in (0, 1)]
    assert len({tuple(each.order(epoch).tolist()) for each in samplers for epoch in (0, 1, 2)}) == 6
    plan = SamplingPlan([np.arange(50), np.arange(50)], 2, 5, 1)
    assert plan.sampler(0).order(0).tolist() != plan.sampler(1).order(0).tolist()


def test_order_is_fixed_for_ever():
    """A new numpy or another machine does not change the sample order, because runs must be repeatable."""
    assert shuffled(np.arange(10), 1, ShufflePurpose.EPOCH, 0).tolist() == [5, 6, 3, 0, 7, 2, 1, 4, 9, 8]


def test_orders_are_uniform():
    """Each sample is first about equally often (chi-squared, 9 degrees of freedom, 99.9 % point)."""
    keys = [(seed, epoch) for seed in range(50) for epoch in range(50)]
    first = [shuffled(np.arange(10), seed, ShufflePurpose.EPOCH, epoch)[0] for seed, epoch in keys]
    observed = np.bincount(first, minlength=10)
    assert ((observed - 250) ** 2 / 250).sum() < 27.9


@pytest.mark.parametrize("samples", [0, 1, 2])
def test_fewer_samples_than_ranks(samples):
    message = rf"parallel\.ranks: 3 ranks for {samples} training samples.*lower parallel\.ranks"
    with pytest.raises(UserError, match=message):
        shared(samples, 1, 3)


@settings(max_examples=40)
@given(sizes=sizes, processes=st.integers(1, 4), seed=seeds, epoch=epochs)
def test_processes_of_a_worker_divide_its_samples(sizes, processes, seed, epoch):
    workers = sizes["workers"] = min(sizes["workers"], sizes["samples"] // processes)
    whole = shared(**sizes, seed=seed)
    team = shared(sizes["samples"], sizes["batch_size"], workers * processes, seed, processes=processes)
    for one, parts in zip(used(whole, epoch), used(team, epoch), strict=True):
        for worker, samples in enumerate(one):
            own = parts[worker * processes : (worker + 1) * processes]
            assert np.array_equal(np.concatenate(own), samples)
            assert max(map(len, own)) - min(map(len, own)) <= 1


@settings(max_examples=40)
@given(counts=st.lists(st.integers(4, 60), min_size=1, max_size=5), batch_size=st.integers(1, 30), processes=st.integers(1, 4))  # fmt: skip
def test_processes_of_a_worker_with_its_own_samples_have_its_batch_together(counts, batch_size, processes):
    parts, team = owned(counts, batch_size)
    split = [piece for part in parts for piece in np.array_split(part, processes)]
    apart = team_of(PartitionedSampler, SamplingPlan(split, len(split), batch_size, 1, processes=processes))
    assert apart[0].steps_per_epoch == team[0].steps_per_epoch
    for step in range(team[0].steps_per_epoch):
        for worker, one in enumerate(team):
            own = apart[worker * processes : (worker + 1) * processes]
            assert sum(len(each.ids(0, step)) for each in own) == len(one.ids(0, step)) <= batch_size
    for each, part in zip(apart, split, strict=True):
        ids = np.concatenate([each.ids(0, step) for step in range(each.steps_per_epoch)])
        assert sorted(ids) == sorted(part)


@settings(max_examples=40)
@given(count=st.integers(1, 60), others=st.integers(0, 9), window=st.integers(1, 60), mode=st.sampled_from(["disjoint", "sliding"]), seed=seeds, epoch=epochs)  # fmt: skip
def test_a_stream_uses_each_sample_once_within_a_window_of_its_place(
    count, others, window, mode, seed, epoch
):
    window = min(window, count)
    parts = np.split(np.arange(2 * count + others), [count])
    plan = SamplingPlan(parts, 2, 7, seed, stream=(window, mode))
    assert plan.expected_uses(2 * count + others, epoch).tolist() == [1] * (2 * count + others)
    for worker, part in enumerate(parts):
        order = plan.sampler(worker).order(epoch) - part[0]
        assert sorted(order) == list(range(len(part)))
        if mode == "disjoint":
            for start in range(0, len(part), window):
                assert set(order[start : start + window]) <= set(range(start, start + window))
        else:
            assert abs(order - np.arange(len(part))).max() < window


@pytest.mark.parametrize("mode", ["disjoint", "sliding"])
def test_a_window_is_in_random_order_and_has_no_more_samples_than_a_part(mode):
    parts = np.split(np.arange(2000), 2)
    plan = partial(SamplingPlan, parts, 2, 10, 1)
    orders = [plan(stream=(window, mode)).sampler(0).order(0) for window in (1, 100, 1000)]
    moved = [abs(order - parts[0]).mean() for order in orders]
    assert moved[0] == 0 < 20 < moved[1] < 50 < 150 < moved[2]
    with pytest.raises(UserError, match=r"data\.stream\.window: 1001 samples are more than the 1000 samples"):
        plan(stream=(1001, mode)).sampler(0)
