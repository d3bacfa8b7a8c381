import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read


def write(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name.replace("__", "/")] = array


def targets(folder, labels, shard_size=100, **options):
    """Write the labels with zero features, and return the labels as the reader gives them."""
    write(folder / "part.h5", features=np.zeros((len(labels), 2)), labels=labels)
    contents = read("arrays", folder, shard_size, {"train": "part.h5"} | options)
    return [unit.read().labels for unit in contents.units]


@pytest.mark.parametrize("shape", [(4, 3, 2), (5, 4, 3, 2), (4, 3), (7,)])
def test_channels_of_images_may_be_last(tmp_path, shape):
    images = np.arange(6 * np.prod(shape), dtype=np.float32).reshape(6, *shape)
    np.savez(tmp_path / "part.npz", features=images, labels=np.arange(6))
    (unit,) = read("arrays", tmp_path, 10, {"train": "part.npz", "channels": "last"}).units
    (found,) = unit.read().inputs
    order = (0, len(shape), *range(1, len(shape))) if len(shape) > 2 else tuple(range(len(shape) + 1))
    assert np.array_equal(found, images.transpose(order))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.eye(3)[[2, 0, 1]], [2, 0, 1]),
        (np.eye(3, dtype=np.uint8)[[2, 0, 1]], [2, 0, 1]),
        (np.eye(3, dtype=bool)[[2, 0, 1]], [2, 0, 1]),
        (np.array([[2], [0], [1]], np.int16), [2, 0, 1]),
        (np.array([[2.0], [0.0], [1.0]]), [2, 0, 1]),
        (np.array([2.0, 0.0, 1.0], np.float16), [2, 0, 1]),
        (np.array([True, False, True]), [1, 0, 1]),
        (np.array([2, 0, 1], ">i4"), [2, 0, 1]),
    ],
)
def test_labels_become_classes(tmp_path, labels, classes):
    (found,) = targets(tmp_path, labels)
    assert found.tolist() == classes
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "at"),
    [
        (np.array([0.0, 0.5, 1.0]), 1),
        (np.array([0.0, 1.0, np.nan]), 2),
        (np.array([0.0, np.inf]), 1),
        (np.array([0.0, -1e300]), 1),
        (np.array([1, 2**63], np.uint64), 1),
        (np.eye(3) * 0.9, 0),
        (np.eye(3)[[0, 1, 1]] * [[1], [1], [-1]], 2),
        (np.array([[1, 0], [1, 1], [0, 1]]), 1),
        (np.array([[1, 0], [0, 1], [0, 0]]), 2),
        (np.array([[1.0, np.nan], [0, 1]]), 0),
    ],
)
@pytest.mark.filterwarnings("error")
def test_labels_that_are_no_classes_are_named_by_file_and_sample(tmp_path, labels, at):
    message = rf"part\.h5: the label of sample {at} is .*data\.reader\.one_hot: false"
    for shard_size in (1, 100):
        with pytest.raises(UserError, match=message):
            targets(tmp_path, labels, shard_size)


def test_other_dimensions_are_refused_from_the_header(tmp_path):
    with pytest.raises(UserError, match=r"part\.h5: labels has the shape \(2, 3, 4\), but class labels"):
        targets(tmp_path, np.zeros((2, 3, 4)))
    (found,) = targets(tmp_path, np.ones((2, 3, 4)), one_hot=False)
    assert found.shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("labels", "dtype", "shape"),
    [
        (np.array([0.0, 1.0], np.float32), np.float32, (2,)),
        (np.array([[0.0], [1.0]]), np.float64, (2,)),
        (np.array([0.5, np.nan]), np.float64, (2,)),
        (np.eye(2, dtype=">f4"), np.float32, (2, 2)),
        (np.array([[1, 1], [0, 1]]), np.float64, (2, 2)),
        (np.array([1, 0]), np.int64, (2,)),
        (np.array([[1], [0]], np.uint8), np.int64, (2,)),
        (np.array([70, 3]), np.float64, (2,)),
        (np.array([-1, 1]), np.float64, (2,)),
    ],
)
def test_without_one_hot_type_and_shape_say_what_is_a_class(tmp_path, labels, dtype, shape):
    (found,) = targets(tmp_path, labels, one_hot=False)
    assert np.array_equal(found, labels.reshape(shape), equal_nan=True)
    assert (found.dtype, found.shape) == (dtype, shape)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 4), max_size=20).map(lambda more: [*range(5), *more]),
    st.integers(1, 7),
    st.sampled_from(["rows", "floats", "integers"]),
)
def test_all_shards_have_one_type_whatever_their_values(tmp_path_factory, classes, shard_size, layout):
    labels = {"rows": np.eye(5, dtype=np.float32)[classes], "floats": np.array(classes, float)}
    parts = targets(
        tmp_path_factory.mktemp("labels"), labels.get(layout, np.array(classes, np.uint8)), shard_size
    )
    assert {part.dtype for part in parts} == {np.dtype(np.int64)}
    assert np.concatenate(parts).tolist() == classes


ADAPTORS = """
import numpy as np
def scale(x):
    return x / 2
def swap(x):
    a, b = x
    return b, a.astype(np.float32)
def as_list(x):
    return [x[1], x[0]]
def fail(x):
    raise ValueError('no such column')
def drop(x):
    return x[:-1]
def twice(x):
    return x, x
def words(x):
    return np.array(['a'] * len(x))
def single(x):
    return 3.0
def nothing(x):
    return None
def ragged(x):
    return np.zeros((len(x), len(x)))
"""


@pytest.fixture
def adapted(tmp_path):
    """Return a function that reads two files of 3 and 4 samples as one shard through an adaptor."""
    (tmp_path / "mine.py").write_text(ADAPTORS)
    for number, samples in enumerate((3, 4)):
        values = np.arange(samples * 2.0).reshape(samples, 2)
        write(
            tmp_path / f"part{number}.h5",
            features=values,
            X__a=values,
            X__b=values[:, 0],
            labels=np.arange(samples),
        )

    def run(function, **options):
        options = {"train": "part*.h5", "adaptor": f"{tmp_path}/mine.py:{function}"} | options
        (unit,) = read("arrays", tmp_path, 10, options).units
        return unit.read().inputs

    return run


def test_an_adaptor_is_given_one_array(adapted):
    (features,) = adapted("scale")
    assert features.tolist() == [[0, 0.5], [1, 1.5], [2, 2.5], [0, 0.5], [1, 1.5], [2, 2.5], [3, 3.5]]


@pytest.mark.parametrize("function", ["swap", "as_list"])
def test_an_adaptor_is_given_a_tuple_of_several(adapted, function):
    first, second = adapted(function, features="X")
    assert first.tolist() == [0, 2, 4, 0, 2, 4, 6]
    assert second.shape == (7, 2)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "fail",
            r"part0\.h5: the adaptor .*mine\.py:fail failed: .*mine\.py:11 in fail: ValueError: no such column",
        ),
        ("none", r"part0\.h5: the adaptor .*mine\.py:none failed: AttributeError"),
        (
            "drop",
            r"part0\.h5: .*drop returned \(2, 2\) float64 for 3 samples; it must return 1 .* with 3 rows",
        ),
        ("twice", r"returned \(3, 2\) float64, \(3, 2\) float64 for 3 samples; it must return 1 array"),
        ("words", r"returned \(3,\) <U1 for 3 samples; it must return 1 array\(s\) of numbers"),
        ("single", r"returned \(1,\) float64"),
        ("nothing", r"returned \(1,\) object"),
        ("ragged", r"part1\.h5: .* samples of \(4,\) float64, but of \(3,\) float64 for .*part0\.h5"),
    ],
)
def test_what_an_adaptor_does_wrong_is_said(adapted, function, message):
    with pytest.raises(UserError, match=message):
        adapted(function)


def test_an_adaptor_without_a_file_or_with_a_broken_one_is_said(adapted, tmp_path):
    (tmp_path / "broken.py").write_text("import nnlo_has_no_such_module\n")
    with pytest.raises(
        UserError, match=r"part0\.h5: .*broken\.py:f failed: .*broken\.py:1 in <module>: ModuleNotFoundError"
    ):
        adapted("", adaptor=f"{tmp_path}/broken.py:f")
    with pytest.raises(UserError, match=r"data\.reader\.adaptor: file not found: .*lost\.py"):
        adapted("", adaptor=f"{tmp_path}/lost.py:f")
