"""Names, patterns and lists of files in `data.reader`."""

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.arrays import resolve_files

PLAIN = "jets0.h5 jets1.h5 deep/jets2.h5 deep/jets0.h5 x.npy y.npy a#1.h5 b[2].h5"
FILES = [*PLAIN.split(), "my jets.h5"]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with files of array suffixes; its name looks like a pattern."""
    folder = tmp_path / "run[1]"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "jets9.h5").mkdir()
    return folder


def names(folder, wanted):
    entries = resolve_files(folder, wanted)
    return [" ".join(path.relative_to(folder).as_posix() for path in entry) for entry in entries]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("jets1.h5", ["jets1.h5"]),
        ("my jets.h5", ["my jets.h5"]),
        ("b[2].h5", ["b[2].h5"]),
        ("jets*.h5", ["jets0.h5", "jets1.h5"]),
        ("**/jets[02].h5", ["deep/jets0.h5", "deep/jets2.h5", "jets0.h5"]),
        (("jets1.h5", "jets0.h5", "jets1.h5"), ["jets1.h5", "jets0.h5", "jets1.h5"]),
        (["deep/*.h5", "jets1.h5"], ["deep/jets0.h5", "deep/jets2.h5", "jets1.h5"]),
        (["x.npy  y.npy"], ["x.npy y.npy"]),
    ],
)
def test_files_and_patterns(folder, wanted, found):
    assert names(folder, wanted) == found


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("jets1.h5\njets0.h5\n", ["jets1.h5", "jets0.h5"]),
        ("\n  jets1.h5  \r\n\n# jets0.h5\n", ["jets1.h5"]),
        ("\ufeffjets1.h5\r\njets0.h5", ["jets1.h5", "jets0.h5"]),
        ("a#1.h5\t# the first\n", ["a#1.h5"]),
        ("my jets.h5\nx.npy y.npy\n", ["my jets.h5", "x.npy y.npy"]),
        ("$JETS/jets2.h5\n~/jets0.h5\n", ["deep/jets2.h5", "deep/jets0.h5"]),
    ],
)
def test_lists_as_users_of_nnlo_have_them(folder, monkeypatch, content, found):
    monkeypatch.setenv("JETS", str(folder / "deep"))
    monkeypatch.setenv("HOME", str(folder / "deep"))
    for name in ("train.txt", "train_list"):
        (folder / name).write_bytes(content.encode())
        assert names(folder, name) == found


def test_paths_are_found_beside_the_list_and_then_in_the_folder(folder):
    (folder / "deep" / "test.list").write_text("jets0.h5\njets1.h5\n")
    assert names(folder, "deep/test.list") == ["deep/jets0.h5", "jets1.h5"]
    assert names(folder, str(folder / "deep" / "test.list")) == ["deep/jets0.h5", "jets1.h5"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("$NOWHERE/a.h5", r"not found in .*run\[\d\]; environment variable NOWHERE is not set; set it"),
        ("${NOWHERE}/*.h5", r"matches \S*; environment variable NOWHERE is not set; set it"),
        ("lost.txt", r"data\.reader: file 'lost\.txt' not found in .*run"),
        ("lost*.h5", r"data\.reader: no file in .*run\[1\] matches lost\*\.h5"),
        (["jets0.h5", "lost.h5"], r"data\.reader: file 'lost\.h5' not found"),
        ("x.npy lost.npy", r"file 'lost\.npy' not found"),
        ("my lost jets.h5", r"file 'my lost jets\.h5' not found"),
        ("x.npy y.npy jets0.h5", "3 files on one line; write each file on its own line"),
        ([], r"the list of files of a split is empty"),
        ("", "file '' not found"),
    ],
)
def test_missing_files_are_named(folder, wanted, message):
    with pytest.raises(UserError, match=message):
        resolve_files(folder, wanted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"jets0.h5\n\nlost.h5\n", r"train\.txt:3: file 'lost\.h5' not found in .*run\[1\]$"),
        (b"jets0.h5\n" + b"x" * 5000, r"train\.txt:2: file 'x{300}' not found in"),
        (b"# nothing\n\n", r"train\.txt: the list contains no file"),
        (b"\xff\xd8\xff\xe0 a photograph", r"train\.txt: not an HDF5, NPZ or NPY file and not a text list"),
        (bytes(1 << 27), r"train\.txt: not an HDF5, NPZ or NPY file and not a text list"),
    ],
    ids=range(5),
)
def test_a_list_without_usable_files_is_named(folder, content, message):
    (folder / "train.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        resolve_files(folder, "train.txt")


def test_a_table_is_not_read_as_a_list(folder):
    (folder / "train.csv").write_text("x,y\n1,0\n")
    with pytest.raises(UserError, match=r"train\.csv: a table, no file of arrays; .*name: table"):
        resolve_files(folder, "train.csv")
