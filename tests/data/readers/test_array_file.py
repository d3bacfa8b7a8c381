"""HDF5, NPZ and NPY files: rows of any array in them, and damage (hostile files: tests/security)."""

import tracemalloc
import zipfile

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_file import find_arrays, is_array_file

ROWS = 50
FEATURES = np.random.default_rng(0).normal(size=(ROWS, 4))


def hdf5(path, values=FEATURES, userblock_size=None, **options):
    with h5py.File(path, "w", userblock_size=userblock_size) as file:
        file.create_dataset("features", data=values, **options)


def npy(path, values=FEATURES):
    with path.open("wb") as file:
        np.save(file, values)


def npz(path, save=np.savez):
    with path.open("wb") as file:
        save(file, features=FEATURES, names=np.array(["a", None], object), wide=np.asfortranarray(FEATURES))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme.txt", "hello")


WRITERS = {
    "hdf5": hdf5,
    "chunked hdf5": lambda path: hdf5(path, compression="gzip", shuffle=True, chunks=(7, 3)),
    "hdf5 of matlab": lambda path: hdf5(path, userblock_size=512),
    "npz": npz,
    "compressed npz": lambda path: npz(path, np.savez_compressed),
    "npy": npy,
    "npy in Fortran's order": lambda path: npy(path, np.asfortranarray(FEATURES)),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_are_those_written_whatever_the_suffix(tmp_path, kind):
    WRITERS[kind](tmp_path / "data")
    assert is_array_file(tmp_path / "data")
    for name in ("features", "wide") if "npz" in kind else ("features",):
        (array,) = find_arrays(tmp_path / "data", name)
        assert (array.shape, array.dtype) == (FEATURES.shape, FEATURES.dtype)
        for start, end in ((0, ROWS), (0, 1), (13, 14), (13, 29), (ROWS - 1, ROWS)):
            assert np.array_equal(array.rows(start, end), FEATURES[start:end])


def test_links_are_followed_unless_they_lead_nowhere_or_form_a_loop(tmp_path):
    hdf5(tmp_path / "other.h5")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["here"] = FEATURES
        file["features/soft"] = h5py.SoftLink("/here")
        file["features/outside"] = h5py.ExternalLink("other.h5", "/features")
        file["round/a"] = FEATURES
        file["round/back"] = file["round/again"] = file["round"]
        file["dangling/a"] = h5py.SoftLink("/lost")
    outside, soft = find_arrays(tmp_path / "data.h5", "features")
    assert (outside.name, soft.name) == ("features/outside", "features/soft")
    assert np.array_equal(outside.rows(3, 5), FEATURES[3:5])
    for name, message in (
        ("round", "contains the group round/again more than once"),
        ("dangling", "cannot be read"),
    ):
        with pytest.raises(UserError, match=message):
            find_arrays(tmp_path / "data.h5", name)


def damaged(good, damage):
    """Return the bytes cut at a fraction of their length, or with bits flipped at given fractions."""
    if isinstance(damage, float):
        return good[: int(damage * len(good))]
    spoiled = bytearray(good)
    for place, bits in damage:
        spoiled[int(place * len(good))] ^= bits
    return bytes(spoiled)


FRACTIONS = st.floats(0, 1, exclude_max=True)
FLIPS = st.lists(st.tuples(FRACTIONS, st.integers(1, 255)), min_size=1, max_size=3)


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=60)
@given(damage=FRACTIONS | FLIPS)
@pytest.mark.filterwarnings("ignore")
def test_damage_is_a_sentence_or_harmless(tmp_path_factory, kind, damage):
    """A damaged file gives an error that names it, or arrays of the right shape.

    NPZ has the checksums of ZIP, so its values are right. The other formats have none, so values and type may differ.
    The stored bytes determine the shape, except for HDF5 with compressed chunks.
    """
    path = tmp_path_factory.mktemp("damage") / "data.h5"
    WRITERS[kind](path)
    path.write_bytes(damaged(path.read_bytes(), damage))
    try:
        (array,) = find_arrays(path, "features")
        found = np.concatenate([array.rows(0, 20), array.rows(20, array.shape[0])])
    except UserError as error:
        reason = str(error)
    else:
        reason = ""
        assert not isinstance(damage, float), "cut files are never read"
        assert found.shape == FEATURES.shape or kind == "chunked hdf5"
        assert "npz" not in kind or np.array_equal(found, FEATURES)
    assert not reason or str(path) in reason


def header(text):
    text = text.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(80)


CANNOT_BE_READ = r"data\.h5: cannot be read \(.+\); create, download or copy it again"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((content, CANNOT_BE_READ) for content in (b"", b"\x93NUM", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"<text>")),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 100)}"), "declares 800,000,000,000 bytes"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -5)}"), r"in the shape \(-2, -5\)"),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (10,)"), CANNOT_BE_READ),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (9,)}"), CANNOT_BE_READ),
        (header("{'descr': '<f8', 'fortran_order': False, 'shape': (11,)}"), CANNOT_BE_READ),
        (header("__import__('os').getcwd()"), CANNOT_BE_READ),
    ],
)  # fmt: skip
def test_other_files_and_false_headers_are_refused(tmp_path, content, message):
    (tmp_path / "data.h5").write_bytes(content)
    with pytest.raises(UserError, match=message):
        find_arrays(tmp_path / "data.h5", "features")


def test_a_file_that_shrank_after_it_was_listed_is_named(tmp_path):
    hdf5(tmp_path / "data.h5")
    (array,) = find_arrays(tmp_path / "data.h5", "features")
    hdf5(tmp_path / "data.h5", FEATURES[:10])
    with pytest.raises(UserError, match="changed while it was read"):
        array.rows(5, 20)


@pytest.mark.parametrize("options", [{"chunks": (10, 10), "compression": "gzip"}, {}])
def test_arrays_that_were_never_written_are_refused_before_allocation(tmp_path, options):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file.create_dataset("features", shape=(10**9, 1000), dtype="f8", **options)
    tracemalloc.start()
    message = r"declares 8,000,000,000,000 bytes, but 0 are stored|chunks of .* were never written"
    with pytest.raises(UserError, match=message):
        find_arrays(tmp_path / "data.h5", "features")
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


@pytest.mark.parametrize("write", [npy, hdf5, lambda path, values: hdf5(path, values, compression="gzip")])
def test_memory_is_that_of_the_rows(tmp_path, write):
    write(tmp_path / "data", np.zeros((80_000, 100)))
    (array,) = find_arrays(tmp_path / "data", "features")
    tracemalloc.start()
    array.rows(70_000, 70_100)
    assert tracemalloc.get_traced_memory()[1] < 1e6  # the whole array has 64 MB
    tracemalloc.stop()


@pytest.mark.parametrize("chunks", [(2, 3), None])
def test_a_fill_value_that_is_meant_is_read_by_a_key(tmp_path, chunks):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        mask = file.create_dataset("features", (10, 3), "f4", chunks=chunks, fillvalue=-1)
        if chunks:
            mask[4:6] = 7
    with pytest.raises(UserError, match=r"samples would be -1\.0; .*set data\.reader\.unwritten: fill"):
        find_arrays(tmp_path / "data.h5", "features")
    (array,) = find_arrays(tmp_path / "data.h5", "features", "fill")
    expected = np.full((10, 3), -1.0)
    expected[4:6] = 7 if chunks else -1
    assert np.array_equal(array.rows(0, 10), expected)


@pytest.mark.parametrize(("code", "name"), [(32015, "Zstandard"), (40000, "not registered")])
def test_a_missing_filter_of_hdf5_is_named(tmp_path, code, name):
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        created = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        created.set_chunk((10, 4))
        created.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (3,))
        space = h5py.h5s.create_simple((40, 4))
        array = h5py.h5d.create(file.id, b"features", h5py.h5t.NATIVE_FLOAT, space, created)
        array.write_direct_chunk((0, 0), bytes(160), 0)
    message = rf"packed\.h5: /features is compressed by filter {code} \({name}\), .*hdf5plugin"
    with pytest.raises(UserError, match=message):
        find_arrays(tmp_path / "packed.h5", "features")
