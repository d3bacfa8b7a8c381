"""Batches of the samples that a sampler gives, read at once or ahead in a thread."""

import threading

import numpy as np
import pytest
from helpers.conversions import conversion_for
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.data.catalog import DIGITS
from nnlo_lib.data.loading import loader as loading
from nnlo_lib.data.loading.augment import Augment
from nnlo_lib.data.loading.loader import BatchLoader, prefetched
from nnlo_lib.data.loading.sampler import SamplingPlan
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.split import Split

AUGMENT = Augment(flip=0.5, pad=2, window=5, seed=3)


@pytest.fixture(scope="module")
def split(digits_raw, tmp_path_factory) -> Split:
    folder = tmp_path_factory.mktemp("store")
    return Split(convert(conversion_for(DIGITS, digits_raw, folder, "hdf5", 400)), "test")


@pytest.fixture(params=["at once", "ahead"])
def when(request, monkeypatch):
    """Read each batch on request, or ahead in a thread."""
    monkeypatch.setattr(loading, "MIN_PREFETCH_BYTES", 1 << 20 if request.param == "at once" else 0)


def same(batch, other):
    assert (batch.index, batch.count, batch.global_count) == (other.index, other.count, other.global_count)
    for one, two in zip(
        (batch.ids, batch.labels, *batch.inputs), (other.ids, other.labels, *other.inputs), strict=True
    ):
        assert np.array_equal(one, two)


@pytest.mark.usefixtures("when")
@pytest.mark.parametrize("augment", [None, AUGMENT])
@settings(max_examples=10)
@given(
    samples=st.integers(8, 355), batch_size=st.integers(1, 70), workers=st.integers(1, 8),
    epoch=st.integers(0, 99), own=st.booleans(), data=st.data(),
)  # fmt: skip
def test_resume_at_any_step_continues_the_same_sequence(
    split, augment, samples, batch_size, workers, epoch, own, data
):
    worker = data.draw(st.integers(0, workers - 1), label="worker")
    indices = np.arange(samples)
    parts = np.array_split(indices, workers) if own else [indices]
    sampler = SamplingPlan(parts, workers, batch_size, 1).sampler(worker)
    loader = BatchLoader(split, sampler, augment)
    start = data.draw(st.integers(0, loader.steps_per_epoch), label="start")
    whole, rest = list(loader.epoch(epoch))[start:], list(loader.epoch(epoch, start))
    assert len(whole) == len(rest) == loader.steps_per_epoch - start
    for expected, batch in zip(whole, rest, strict=True):
        same(batch, expected)


@pytest.mark.usefixtures("when")
def test_batch_holds_the_samples_of_its_ids(split):
    for batch in BatchLoader(split, SamplingPlan([np.arange(355)], 2, 32, 5).sampler(1)).epoch(3):
        (features,), labels = split.take(batch.ids)
        assert batch.inputs[0].dtype == np.uint8
        assert batch.inputs[0].shape == (batch.count, 1, 8, 8)
        assert np.array_equal(batch.inputs[0], features)
        assert np.array_equal(batch.labels, labels)


def test_a_sample_is_changed_alike_whatever_the_number_of_workers(split):
    def changed(count):
        samplers = [SamplingPlan([np.arange(355)], count, 8, 5).sampler(worker) for worker in range(count)]
        batches = [batch for each in samplers for batch in BatchLoader(split, each, AUGMENT).epoch(2)]
        pairs = [pair for batch in batches for pair in zip(batch.ids, batch.inputs[0], strict=True)]
        return {int(number): image.tobytes() for number, image in pairs}

    assert changed(2) == changed(3) == changed(7) == changed(1)


def test_reading_ahead_changes_nothing_and_leaves_no_thread(split, monkeypatch):
    loader = BatchLoader(split, SamplingPlan([np.arange(355)], 1, 32, 5).sampler(0), AUGMENT)
    at_once = list(loader.epoch(0))
    monkeypatch.setattr(loading, "MIN_PREFETCH_BYTES", 0)
    for batch, expected in zip(loader.epoch(0), at_once, strict=True):
        same(batch, expected)
    early = loader.epoch(0)
    next(early)
    assert any(thread.name == "prefetch_0" for thread in threading.enumerate())
    early.close()
    assert not any(thread.name == "prefetch_0" for thread in threading.enumerate())


def test_items_come_in_order():
    assert list(prefetched(iter(range(100)), 3)) == list(range(100))
    assert list(prefetched(iter(()), 3)) == []


def test_what_the_source_raises_comes_in_its_turn():
    def source():
        yield 1
        raise OSError("the disk is gone")

    items = prefetched(source(), 3)
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    assert "prefetch_0" not in {thread.name for thread in threading.enumerate()}


def test_no_more_than_its_depth_is_made_ahead():
    made, may_go_on = [], threading.Semaphore(0)

    def source():
        for item in range(100):
            made.append(item)
            may_go_on.release()
            yield item

    items = prefetched(source(), 2)
    next(items)
    # One item is taken, and the thread made the next ones.
    for _ in range(4):
        assert may_go_on.acquire(timeout=200)
    assert not may_go_on.acquire(timeout=0.1)
    items.close()
    assert len(made) <= 5
