import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.data.catalog import DIGITS
from nnlo_lib.data.loader import Loader
from nnlo_lib.data.order import Purpose, shuffled
from nnlo_lib.data.split import Split
from nnlo_lib.data.store import convert
from nnlo_lib.errors import UserError


@pytest.fixture(scope="module")
def split(digits_raw, tmp_path_factory) -> Split:
    return Split(convert(DIGITS, digits_raw, tmp_path_factory.mktemp("store"), "hdf5", 100), "test")


sizes = st.fixed_dictionaries(
    {"samples": st.integers(8, 355), "batch_size": st.integers(1, 70), "workers": st.integers(1, 8)}
)
seeds, epochs = st.integers(0, 2**40), st.integers(0, 1000)


def loaders(split, samples, batch_size, workers, seed, shuffle=True):
    indices = np.arange(355)[::-1][:samples]
    return [Loader(split, indices, batch_size, workers, worker, seed, shuffle) for worker in range(workers)]


@settings(max_examples=60, deadline=None)
@given(sizes=sizes, seed=seeds, epoch=epochs, shuffle=st.booleans())
def test_workers_together_use_each_sample_once_in_the_global_order(split, sizes, seed, epoch, shuffle):
    team = loaders(split, **sizes, seed=seed, shuffle=shuffle)
    together = []
    for step, batches in enumerate(zip(*(loader.epoch(epoch) for loader in team), strict=True)):
        assert {batch.index for batch in batches} == {step}
        counts = [batch.count for batch in batches]
        assert {batch.global_count for batch in batches} == {sum(counts)}
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == sizes["batch_size"] * sizes["workers"] or step == team[0].steps_per_epoch - 1
        together += [batch.ids for batch in batches]
    assert step == team[0].steps_per_epoch - 1
    used = np.concatenate(together)
    assert np.array_equal(used, team[0].order(epoch))
    assert sorted(used.tolist()) == list(range(355 - sizes["samples"], 355))


@settings(max_examples=40, deadline=None)
@given(sizes=sizes, seed=seeds, epoch=epochs, data=st.data())
def test_resume_at_any_step_continues_the_same_sequence(split, sizes, seed, epoch, data):
    team = loaders(split, **sizes, seed=seed)
    loader = team[data.draw(st.integers(0, len(team) - 1), label="worker")]
    start = data.draw(st.integers(0, loader.steps_per_epoch), label="start")
    whole, rest = list(loader.epoch(epoch))[start:], list(loader.epoch(epoch, start))
    assert len(whole) == len(rest) == loader.steps_per_epoch - start
    for expected, batch in zip(whole, rest, strict=True):
        assert (batch.index, batch.count, batch.global_count) == (
            expected.index,
            expected.count,
            expected.global_count,
        )
        assert np.array_equal(batch.ids, expected.ids)
        assert np.array_equal(batch.features, expected.features)


@given(seed=seeds, epoch=epochs)
def test_order_does_not_depend_on_workers_or_batch(split, seed, epoch):
    orders = [
        Loader(split, np.arange(300), batch, workers, 0, seed).order(epoch)
        for batch, workers in ((1, 1), (64, 1), (16, 4), (7, 300))
    ]
    assert all(np.array_equal(order, orders[0]) for order in orders)


def test_batch_holds_the_samples_of_its_ids(split):
    for batch in Loader(split, np.arange(355), 32, 2, 1, 5).epoch(3):
        features, labels = split.take(batch.ids)
        assert batch.features.dtype == np.uint8
        assert batch.features.shape == (batch.count, 1, 8, 8)
        assert np.array_equal(batch.features, features)
        assert np.array_equal(batch.labels, labels)


def test_last_batch_is_shared_and_may_be_empty(split):
    team = [Loader(split, np.arange(8 * 4 + 3), 2, 4, worker, 1) for worker in range(4)]
    assert {loader.steps_per_epoch for loader in team} == {5}
    last = [list(loader.epoch(0))[-1] for loader in team]
    assert [batch.count for batch in last] == [1, 1, 1, 0]
    assert {batch.global_count for batch in last} == {3}
    assert last[3].features.shape == (0, 1, 8, 8)


def test_epochs_and_seeds_differ(split):
    def order(seed, epoch):
        return Loader(split, np.arange(355), 10, 1, 0, seed).order(epoch).tolist()

    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}) == 6


def test_order_is_fixed_for_ever():
    """The order is part of what makes a run repeatable: a new numpy or a new machine must not change it."""
    assert shuffled(np.arange(10), 1, Purpose.EPOCH, 0).tolist() == [5, 6, 3, 0, 7, 2, 1, 4, 9, 8]


def test_orders_are_uniform():
    """Each sample comes first about equally often (chi-squared, 9 degrees of freedom, 99.9 % point)."""
    first = [
        shuffled(np.arange(10), seed, Purpose.EPOCH, epoch)[0] for seed in range(50) for epoch in range(50)
    ]
    observed = np.bincount(first, minlength=10)
    assert ((observed - 250) ** 2 / 250).sum() < 27.9


@pytest.mark.parametrize("samples", [0, 1, 2])
def test_fewer_samples_than_ranks(split, samples):
    with pytest.raises(UserError, match=rf"3 ranks asked on a {samples}-sample set.*parallel\.ranks"):
        Loader(split, np.arange(samples), 1, 3, 0, 1)


@pytest.mark.parametrize(("workers", "worker", "batch"), [(2, 2, 1), (2, -1, 1), (2, 0, 0)])
def test_nonsense_is_the_programmers_error(split, workers, worker, batch):
    with pytest.raises(ValueError, match="worker"):
        Loader(split, np.arange(9), batch, workers, worker, 1)
