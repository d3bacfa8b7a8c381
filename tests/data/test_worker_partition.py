"""Samples of each worker: by class, sorted, by a Dirichlet distribution, contiguous."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nnlo_lib.config.data import (
    ByClassPartitionConfig,
    ContiguousPartitionConfig,
    DirichletPartitionConfig,
    SortedPartitionConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import assign_to_workers

ANY_SCHEME = st.sampled_from([ByClassPartitionConfig(), SortedPartitionConfig()]) | st.builds(
    DirichletPartitionConfig, alpha=st.floats(1e-300, 1e300)
)
BY_CLASS = ByClassPartitionConfig()
ANY_LABELS = st.lists(st.integers(0, 12), min_size=1, max_size=300).map(np.array)


def table(parts, labels):
    """Return one Counter of classes per worker."""
    return [Counter(labels[part].tolist()) for part in parts]


@settings(max_examples=150)
@given(ANY_LABELS, ANY_SCHEME, st.data())
def test_each_sample_has_one_worker_and_each_worker_a_sample(labels, scheme, data):
    train = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))))
    assume(len(train))
    workers = data.draw(st.integers(1, len(train)))
    parts = assign_to_workers(train, labels, workers, scheme, data.draw(st.integers(0, 2**64)))
    assert len(parts) == workers
    assert all(len(part) for part in parts)
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == train.tolist()


@settings(max_examples=150)
@given(ANY_LABELS, st.data())
def test_by_class_bounds(labels, data):
    workers = data.draw(st.integers(1, len(labels)))
    counts = table(assign_to_workers(np.arange(len(labels)), labels, workers, BY_CLASS, 1), labels)
    classes = sorted(set(labels.tolist()))
    kinds = [len(count) for count in counts]
    owners = {kind: [count[kind] for count in counts if kind in count] for kind in classes}
    assert max(kinds) - min(kinds) <= (len(classes) % workers > 0 and workers < len(classes))
    if workers <= len(classes):
        assert all(len(shares) == 1 for shares in owners.values())
    else:
        assert set(kinds) == {1}
        assert all(max(shares) - min(shares) <= 1 for shares in owners.values())
    held = [kind for count in counts for kind in sorted(count)]
    assert held == sorted(kind for kind in classes for _ in owners[kind])


@settings(max_examples=50)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.data())
def test_by_class_has_the_least_largest_worker(sizes, data):
    """The largest worker is as small as in the best of all assignments of worker counts to classes."""
    workers = data.draw(st.integers(len(sizes), min(sum(sizes), 9)).filter(lambda count: count >= len(sizes)))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    parts = assign_to_workers(np.arange(len(labels)), labels, workers, BY_CLASS, 0)

    def best(sizes, workers):
        if len(sizes) == 1:
            return -(-sizes[0] // workers)
        shares = range(1, workers - len(sizes) + 2)
        return min(max(-(-sizes[0] // share), best(sizes[1:], workers - share)) for share in shares)

    assert max(len(part) for part in parts) == best(sizes, workers)


@pytest.mark.parametrize("workers", [1, 2, 5, 10])
def test_by_class_is_dinno_where_dinno_loses_nothing(workers):
    """Nodes have the classes of DiNNO's dist_mnist_ex.py: i * (10 // N) to (i + 1) * (10 // N) - 1 on node i."""
    labels = np.random.default_rng(3).integers(0, 10, 500)
    counts = table(assign_to_workers(np.arange(500), labels, workers, BY_CLASS, 0), labels)
    share = 10 // workers
    expected = [list(range(node * share, (node + 1) * share)) for node in range(workers)]
    assert [sorted(count) for count in counts] == expected


@pytest.mark.parametrize(
    ("workers", "classes"),
    [
        (3, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (4, [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9]]),
        (9, [[0, 1], [2], [3], [4], [5], [6], [7], [8], [9]]),
        (11, [[0], [1], [2], [3], [3], [4], [5], [6], [7], [8], [9]]),
    ],
)
def test_by_class_loses_no_digit_where_dinno_does(workers, classes):
    labels = np.repeat(np.arange(10), [9, 9, 9, 10, 9, 9, 9, 9, 9, 9])
    counts = table(assign_to_workers(np.arange(91), labels, workers, BY_CLASS, 0), labels)
    assert [sorted(count) for count in counts] == classes


@given(ANY_LABELS, st.data())
def test_sorted_is_a_cut_of_the_stable_order(labels, data):
    workers = data.draw(st.integers(1, len(labels)))
    seed = data.draw(st.integers(0, 9))
    parts = assign_to_workers(np.arange(len(labels)), labels, workers, SortedPartitionConfig(), seed)
    by_label = sorted(range(len(labels)), key=lambda sample: (labels[sample], sample))
    start = 0
    for part in parts:
        assert part.tolist() == sorted(by_label[start : start + len(part)])
        start += len(part)
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def shares(alpha, seed=5, workers=10, classes=10, size=2000):
    """Return each worker's share of each class in one Dirichlet partition, of shape (classes, workers)."""
    labels = np.repeat(np.arange(classes), size)
    scheme = DirichletPartitionConfig(alpha=alpha)
    parts = assign_to_workers(np.arange(len(labels)), labels, workers, scheme, seed)
    return np.array([[np.sum(labels[part] == kind) for part in parts] for kind in range(classes)]) / size


def test_small_alpha_gives_a_class_to_one_worker():
    for alpha in (1e-3, 1e-12, 1e-300):
        assert np.median(shares(alpha).max(axis=1)) > 0.99


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_moments_are_those_of_the_distribution(alpha):
    """Shares have mean 1/W and variance (1/W)(1 - 1/W) / (W alpha + 1), within a few percent for 500 classes."""
    drawn = shares(alpha, workers=5, classes=500, size=400)
    assert np.abs(drawn.mean(axis=0) - 0.2).max() < 0.06
    assert drawn.var() == pytest.approx(0.2 * 0.8 / (5 * alpha + 1), rel=0.1)


def test_number_of_samples_does_not_change_the_proportions():
    """Folds, and a data set and a part of it, are divided in the same proportions."""
    assert np.abs(shares(0.5, size=2000) - shares(0.5, size=20_000)).max() < 1.5 / 2000


def test_workers_without_a_sample_get_one_of_the_largest():
    counts = shares(1e-300, workers=50, size=2000) * 2000
    sizes = counts.sum(axis=0)
    assert sizes.min() == 1
    assert sizes.sum() == 20_000
    # With a tiny alpha each of the ten classes belongs to one worker.
    assert np.sum(sizes > 1) <= 10
    assert sizes.max() >= 2000


@pytest.mark.parametrize("scheme", [BY_CLASS, DirichletPartitionConfig(alpha=0.5)])
def test_seed_decides(scheme):
    labels = np.arange(400) % 4

    def parts(seed, workers=8):
        return [part.tolist() for part in assign_to_workers(np.arange(400), labels, workers, scheme, seed)]

    assert parts(1) == parts(1) != parts(2)
    # With whole classes, nothing is left to the seed.
    assert (parts(1, 4) == parts(2, 4)) == (scheme == BY_CLASS)


def test_division_never_changes():
    """The partition equals a recorded one; numpy freezes RandomState (NEP 19), and finished studies rely on it."""
    parts = assign_to_workers(np.arange(12), np.arange(12) % 2, 3, DirichletPartitionConfig(alpha=1.0), 7)
    assert [part.tolist() for part in parts] == [[3, 6], [1, 5, 9], [0, 2, 4, 7, 8, 10, 11]]


@pytest.mark.parametrize("scheme", [BY_CLASS, SortedPartitionConfig(), DirichletPartitionConfig()])
def test_too_few_samples_and_labels_that_are_no_classes_are_refused(scheme):
    message = rf"data.partition: {scheme.name} .* 2 samples for 3 workers; lower parallel.ranks"
    with pytest.raises(UserError, match=message):
        assign_to_workers(np.arange(2), np.arange(9), 3, scheme, 0)
    message = rf"{scheme.name} divides the samples by class, .* not classes; set .*iid"
    for labels in (None, np.arange(9.0), np.zeros((9, 2), np.int64)):
        with pytest.raises(UserError, match=message):
            assign_to_workers(np.arange(9), labels, 3, scheme, 0)


def test_contiguous_parts_follow_the_stored_order_for_labels_of_any_kind():
    train, labels = np.array([0, 2, 3, 5, 6, 8, 9]), np.linspace(0, 1, 10)
    parts = assign_to_workers(train, labels, 3, ContiguousPartitionConfig(), 1)
    assert [part.tolist() for part in parts] == [[0, 2, 3], [5, 6], [8, 9]]
    with pytest.raises(UserError, match="contiguous needs a training sample for each worker"):
        assign_to_workers(train[:2], labels, 3, ContiguousPartitionConfig(), 1)
