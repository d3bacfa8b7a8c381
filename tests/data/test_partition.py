"""Division of the samples: validation, folds, workers, and the file that keeps it."""

import zipfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import (
    assign_to_workers,
    check_cover,
    load_partition,
    save_partition,
    split_train_validation,
    split_whole_shards,
)


def covers(train, held, samples):
    return np.array_equal(np.sort(np.concatenate([train, held])), np.arange(samples))


@given(
    samples=st.integers(2, 3000),
    validation=st.floats(0, 0.99),
    seed=st.integers(0, 2**64),
    classes=st.none() | st.integers(1, 20),
)
def test_fraction_covers_each_sample_once(samples, validation, seed, classes):
    labels = None if classes is None else np.arange(samples) % classes
    wanted = round(validation * samples)
    if wanted == samples or (validation > 0 and wanted == 0):
        with pytest.raises(UserError, match=r"data\.validation"):
            split_train_validation(samples, labels, validation, 1, None, seed)
        return
    train, held = split_train_validation(samples, labels, validation, 1, None, seed)
    assert covers(train, held, samples)
    assert len(held) == wanted
    assert np.all(np.diff(train) > 0)
    assert np.all(np.diff(held) > 0)


LABELS = st.lists(st.integers(0, 5), min_size=12, max_size=200).map(np.array)


@given(labels=LABELS, folds=st.integers(2, 12), seed=st.integers(0, 99), stratified=st.booleans())
def test_folds_validate_each_sample_once_and_are_even_in_total_and_per_class(labels, folds, seed, stratified):
    samples, given_labels = len(labels), labels if stratified else None
    parts = [split_train_validation(samples, given_labels, 0.5, folds, fold, seed) for fold in range(folds)]
    assert all(covers(train, held, samples) for train, held in parts)
    assert np.array_equal(np.sort(np.concatenate([held for _, held in parts])), np.arange(samples))
    for members in (labels >= 0, *(labels == label for label in range(6) if stratified)):
        counts = [np.count_nonzero(members[held]) for _, held in parts]
        assert max(counts) - min(counts) <= 1


@given(LABELS, st.floats(0.1, 0.9))
def test_fraction_of_any_labels_is_within_one_sample_of_its_share(labels, validation):
    _, held = split_train_validation(len(labels), labels, validation, 1, None, 1)
    for label in range(6):
        wanted = len(held) / len(labels) * np.count_nonzero(labels == label)
        assert abs(np.count_nonzero(labels[held] == label) - wanted) <= 1 + 1e-9


def test_seed_decides_which_samples_validate():
    held = [split_train_validation(1000, None, 0.2, 1, None, seed)[1].tolist() for seed in (1, 1, 2)]
    assert held[0] == held[1] != held[2]


@pytest.mark.parametrize(
    ("samples", "validation", "folds", "fold", "message"),
    [
        (5, 0.05, 1, None, "0.05 of 5 samples gives 0 validation samples"),
        (2, 0.9, 1, None, "0.9 of 2 samples gives 2 validation samples"),
        (100, 1.0, 1, None, "gives 100 validation samples"),
        (100, -0.1, 1, None, "data.validation: -0.1"),
        (3, 0.1, 5, 0, "5 folds need at least 5 samples, not 3"),
        (30, 0.1, 5, 5, "fold 5 of 5 does not exist"),
        (30, 0.1, 1, 0, "fold 0 of 1 does not exist"),
    ],
)
def test_impossible_wishes(samples, validation, folds, fold, message):
    with pytest.raises(UserError, match=message):
        split_train_validation(samples, None, validation, folds, fold, 1)


SIZES = [3, 5, 4, 5, 1, 2, 6]


@given(folds=st.integers(2, len(SIZES)), seed=st.integers(0, 99))
def test_folds_of_shards_validate_each_shard_once_and_divide_none(folds, seed):
    shard = [number for number, size in enumerate(SIZES) for _ in range(size)]
    parts = [split_whole_shards(SIZES, 0.5, folds, fold, seed) for fold in range(folds)]
    assert all(covers(train, held, len(shard)) for train, held in parts)
    held = [{shard[sample] for sample in each} for _, each in parts]
    assert sorted(number for each in held for number in each) == list(range(len(SIZES)))
    for (train, _), each in zip(parts, held, strict=True):
        assert {shard[sample] for sample in train}.isdisjoint(each)
    assert max(map(len, held)) - min(map(len, held)) <= 1


def test_too_few_shards():
    message = r"data\.split_by: shards are divided, not samples: 3 folds need at least 3"
    with pytest.raises(UserError, match=message):
        split_whole_shards([50, 50], 0.1, 3, 0, 1)


BY_CLASS = "by_class"
ANY_SCHEME = st.sampled_from([BY_CLASS, "sorted", "dirichlet"])
ANY_LABELS = st.lists(st.integers(0, 12), min_size=1, max_size=300).map(np.array)


def table(parts, labels):
    """Return one Counter of classes per worker."""
    return [Counter(labels[part].tolist()) for part in parts]


@settings(max_examples=150)
@given(ANY_LABELS, ANY_SCHEME, st.floats(1e-300, 1e300), st.data())
def test_each_sample_has_one_worker_and_each_worker_a_sample(labels, scheme, alpha, data):
    train = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))))
    assume(len(train))
    workers = data.draw(st.integers(1, len(train)))
    parts = assign_to_workers(train, labels, workers, scheme, data.draw(st.integers(0, 2**64)), alpha)
    assert len(parts) == workers
    assert all(len(part) for part in parts)
    assert all(np.all(np.diff(part) > 0) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == train.tolist()


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
    parts = assign_to_workers(np.arange(len(labels)), labels, workers, "sorted", seed)
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
    parts = assign_to_workers(np.arange(len(labels)), labels, workers, "dirichlet", seed, alpha)
    return np.array([[np.sum(labels[part] == kind) for part in parts] for kind in range(classes)]) / size


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


@pytest.mark.parametrize("scheme", [BY_CLASS, "dirichlet"])
def test_seed_decides(scheme):
    labels = np.arange(400) % 4

    def parts(seed, workers=8):
        return [part.tolist() for part in assign_to_workers(np.arange(400), labels, workers, scheme, seed)]

    assert parts(1) == parts(1) != parts(2)
    # With whole classes, nothing is left to the seed.
    assert (parts(1, 4) == parts(2, 4)) == (scheme == BY_CLASS)


def test_division_never_changes():
    """The partition equals a recorded one; numpy freezes RandomState (NEP 19), and finished studies rely on it."""
    parts = assign_to_workers(np.arange(12), np.arange(12) % 2, 3, "dirichlet", 7, 1.0)
    assert [part.tolist() for part in parts] == [[3, 6], [1, 5, 9], [0, 2, 4, 7, 8, 10, 11]]


@pytest.mark.parametrize("scheme", [BY_CLASS, "sorted", "dirichlet"])
def test_too_few_samples_and_labels_that_are_no_classes_are_refused(scheme):
    message = rf"data.partition: {scheme} .* 2 samples for 3 workers; lower parallel.ranks"
    with pytest.raises(UserError, match=message):
        assign_to_workers(np.arange(2), np.arange(9), 3, scheme, 0)
    message = rf"{scheme} divides the samples by class, .* not classes; set .*iid"
    for labels in (None, np.arange(9.0), np.zeros((9, 2), np.int64)):
        with pytest.raises(UserError, match=message):
            assign_to_workers(np.arange(9), labels, 3, scheme, 0)


def test_contiguous_parts_follow_the_stored_order_for_labels_of_any_kind():
    train, labels = np.array([0, 2, 3, 5, 6, 8, 9]), np.linspace(0, 1, 10)
    parts = assign_to_workers(train, labels, 3, "contiguous", 1)
    assert [part.tolist() for part in parts] == [[0, 2, 3], [5, 6], [8, 9]]
    with pytest.raises(UserError, match="contiguous needs a training sample for each worker"):
        assign_to_workers(train[:2], labels, 3, "contiguous", 1)


HELD = np.array([3, 5])
PARTS = [np.array([0, 4]), np.array([1]), np.array([2, 6])]


def test_parts_come_back_from_a_plain_file_whose_bytes_depend_on_them_alone(tmp_path):
    for name, dtype in (("a.npz", np.int64), ("b.npz", np.int32)):
        save_partition(tmp_path / name, HELD.astype(dtype), [part.astype(dtype) for part in PARTS])
        held, parts = load_partition(tmp_path / name)
        assert [each.tolist() for each in (held, *parts)] == [each.tolist() for each in (HELD, *PARTS)]
        assert {each.dtype for each in (held, *parts)} == {np.dtype(np.int64)}
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.namelist() == [*(f"worker-0000{number}.npy" for number in range(3)), "validation.npy"]
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_a_missing_file_or_one_of_objects_is_no_partition(tmp_path):
    np.savez(tmp_path / "objects.npz", validation=np.array([print], dtype=object))
    for name in ("objects.npz", "missing.npz"):
        with pytest.raises(UserError, match=rf"{name}: not the partition of a run .*train the run again"):
            load_partition(tmp_path / name)


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_cut_or_a_flipped_bit_is_noticed_or_harmless(tmp_path, step):
    path = tmp_path / "partition.npz"
    save_partition(path, HELD, PARTS)
    whole, noticed = path.read_bytes(), 0
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="not the partition of a run"):
            load_partition(path)
    for at in range(0, len(whole) * 8, step):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            held, parts = load_partition(path)
        except UserError:
            noticed += 1
        else:
            assert [each.tolist() for each in (held, *parts)] == [each.tolist() for each in (HELD, *PARTS)]
    assert noticed > 1000 / step


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array))
def test_any_division_covers(owners):
    held, *parts = (np.flatnonzero(owners == owner) for owner in range(6))
    check_cover(len(owners), held, parts)


@pytest.mark.parametrize(
    ("held", "parts", "count", "first"),
    [
        (HELD, PARTS[1:], "2 samples", 0),
        (HELD, [*PARTS, np.array([6, 4])], "2 samples", 4),
        (np.array([3, 5, 1]), PARTS, "1 sample", 1),
        (HELD, [*PARTS, np.array([7])], "1 sample", 7),
        (HELD, [*PARTS, np.array([-1])], "1 sample", -1),
    ],
)
def test_samples_that_are_missing_or_twice_are_named(held, parts, count, first):
    check_cover(7, HELD, PARTS)
    message = rf"{count} outside of 0\.\.6 or not in exactly one part, the first is {first}$"
    with pytest.raises(ValueError, match=message):
        check_cover(7, held, parts)
