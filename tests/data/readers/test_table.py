"""Tables as people have them: the inputs against scikit-learn's encoders, splits, and cells that are refused with their place."""

import gzip
import sys
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.requires import optional
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import EncodedColumn
from nnlo_lib.data.readers.table import encode_rows, read
from nnlo_lib.data.source_identity import describe_unit

ROWS = 60


def people(folder: Path, **options) -> pd.DataFrame:
    """Write people.csv and return its rows: numbers, a category, missing values and two classes."""
    draw = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": draw.integers(18, 90, ROWS).astype(float),
            "city": draw.choice(["Rome", "Köln", "Oslo, North"], ROWS).astype(object),
            "pay": draw.normal(size=ROWS),
            "income": draw.choice([">50K", "<=50K"], ROWS),
        }
    )
    table.loc[[3, 9], "age"] = np.nan
    table.loc[5, "city"] = np.nan
    table.to_csv(folder / "people.csv", **{"index": False, "na_rep": "?"} | options)
    return table


def samples(folder, split="train", **options):
    contents = read(folder, 7, **{"train": "people.csv", "label": "income"} | options)
    blocks = [unit.read() for unit in contents.units if unit.split == split]
    features = np.concatenate([block.inputs[0] for block in blocks])
    return features, np.concatenate([block.labels for block in blocks]), contents


def test_inputs_equal_those_of_scikit_learn(tmp_path):
    """Median, most frequent category and one-hot columns are fitted to the training rows alone."""
    table = people(tmp_path)
    table["part"] = np.where(np.arange(ROWS) % 4, "Training", "TEST")
    table.to_csv(tmp_path / "people.csv", index=False)
    train = (table.pop("part") == "Training").to_numpy()
    labels = (table.pop("income") == ">50K").to_numpy()
    cities = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False))
    encoder = make_column_transformer(
        (SimpleImputer(strategy="median"), ["age"]), (cities, ["city"]), ("passthrough", ["pay"])
    ).fit(table[train])
    for split, rows in (("train", train), ("test", ~train)):
        features, found, contents = samples(tmp_path, split, split_column="part", missing="median")
        np.testing.assert_array_equal(features, encoder.transform(table[rows]).astype(np.float32))
        np.testing.assert_array_equal(found, labels[rows])
    assert contents.class_names == ("<=50K", ">50K")
    assert contents.notes[0].startswith("age: missing values (2) are ")


def test_test_rows_are_a_fraction_of_each_class_and_the_same_for_all_shard_sizes(tmp_path):
    table = people(tmp_path, na_rep="").dropna()
    features, labels, contents = samples(tmp_path, "test", missing="drop", test_fraction=0.25)
    counts = table["income"].map({"<=50K": 0, ">50K": 1}).value_counts()
    assert [int((labels == each).sum()) for each in (0, 1)] == [counts[each] // 4 for each in (0, 1)]
    assert contents.notes == ("3 of 60 rows with missing values are left out (age, city)",)
    others = samples(tmp_path, missing="drop", test_fraction=0.25)[0]
    assert {*map(tuple, features)}.isdisjoint(map(tuple, others))
    assert len(features) + len(others) == ROWS - 3
    options = {"train": "people.csv", "label": "income", "missing": "drop", "test_fraction": 0.25}
    one = read(tmp_path, 999, **options).units[-1]
    np.testing.assert_array_equal(one.read().inputs[0], features)


def test_columns_are_chosen_by_patterns_and_numbers_can_be_categories(tmp_path):
    (tmp_path / "a.csv").write_text(
        "x_1,x_2,zip,y\n" + "".join(f"{i},{-i},{i % 3 * 1000},{i}.5\n" for i in range(9))
    )
    options = {"train": "a.csv", "label": "y", "target": "numbers", "test_fraction": 0.0}
    features, labels, _ = samples(
        tmp_path, **options, features=["x_*", "zip"], exclude="x_2", categorical="zip"
    )
    np.testing.assert_array_equal(features, [[i, *np.eye(3)[i % 3]] for i in range(9)])
    np.testing.assert_array_equal(labels, np.arange(9) + 0.5)
    features = samples(tmp_path, **options, categorical="zip", categories="integer")[0]
    np.testing.assert_array_equal(features, [[i, -i, i % 3] for i in range(9)])


FORMS = {
    "semicolons and decimal commas": ("x;k;y\r\n0,5;a;1\r\n1,5;b;2\r\n", {"decimal": ","}, [[0.5, 1, 0], [1.5, 0, 1]]),
    "tabs and a byte order mark": ("\ufeffx\tk\ty\n0.5\ta\t1\n1.5\tb\t2\n", {}, [[0.5, 1, 0], [1.5, 0, 1]]),
    "no header": ("0.5, a, 1\n1.5, b, 2\n", {"columns": ["x", "k", "y"]}, [[0.5, 1, 0], [1.5, 0, 1]]),
    "row numbers of pandas": (",x,y\n0,0.5,1\n1,1.5,2\n", {}, [[0.5], [1.5]]),
    "quotes, and empty rows of a spreadsheet": ('"x","y"\n"0.5","1"\n\n"1.5","2"\n,\n', {}, [[0.5], [1.5]]),
    "decimal commas beside a missing value": (
        "x;y\n0,5;1\nNA;2\n1,5;1\n2,5;2\n", {"decimal": ",", "missing": "drop"}, [[0.5], [1.5], [2.5]],
    ),
    "a delimiter at the end of each row": ("x,y\n0.5,1,\n1.5,2,\n", {}, [[0.5], [1.5]]),
    "a delimiter at the end of each line": ("x,y,\n0.5,1,\n1.5,2,\n", {}, [[0.5], [1.5]]),
    "a delimiter at the end of the names": ("x,y,\n0.5,1\n1.5,2\n", {}, [[0.5], [1.5]]),
    "empty columns of a spreadsheet": ("x,y,,\n0.5,1,,\n1.5,2,,\n", {}, [[0.5], [1.5]]),
    "the delimiter of Excel": ("sep=;\r\nx;y\r\n0.5;1\r\n1.5;2\r\n", {}, [[0.5], [1.5]]),
    "commas in quoted names": ('"x, in m";"v, in m/s";y\n0.5;1;1\n1.5;2;2\n', {}, [[0.5, 1], [1.5, 2]]),
    "commas in texts, between tabs": ("k\ty\na, b\t1\nc, d\t2\n", {}, [[1, 0], [0, 1]]),
    "blanks": ("  x    y\n 0.5   1\n 1.5   2 \n", {}, [[0.5], [1.5]]),
    "blanks below names of numpy.savetxt": ("# x y\n0.5 1\n1.5 2\n", {}, [[0.5], [1.5]]),
    "comments": ("# made on Monday, noon, by me\n|1x3 Cross validator\nx,y\n0.5,1\n1.5,2\n", {}, [[0.5], [1.5]]),
    "a comment without names": ("|1x3 Cross validator\n0.5, a, 1\n1.5, b, 2\n", {"columns": ["x", "k", "y"]}, [[0.5, 1, 0], [1.5, 0, 1]]),
    "a comma as the decimal mark without names": ("0,5;1,5;1\n1,5;2,5;2\n", {"columns": ["x", "v", "y"], "decimal": ","}, [[0.5, 1.5], [1.5, 2.5]]),
    "blank lines at the end": ("x,y\n0.5,1\n1.5,2\n   \n\t\n\x1a", {}, [[0.5], [1.5]]),
    "lines of old Macintosh": ("x,y\r0.5,1\r1.5,2\r", {}, [[0.5], [1.5]]),
    "columns called by numbers": ("0,1\n0.5,1\n1.5,2\n", {"label": "1"}, [[0.5], [1.5]]),
    "true and false": ("x,y\nTrue,1\nFalse,2\n", {}, [[0, 1], [1, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_csv_files(tmp_path, form, packed):
    text, options, expected = FORMS[form]
    content = text.encode()
    (tmp_path / "a.csv").write_bytes(gzip.compress(content) if packed else content)
    options = {"label": "y", "test_fraction": 0.0} | options
    features, labels, contents = samples(tmp_path, train="a.csv", **options)
    np.testing.assert_array_equal(features, expected)
    assert (labels.tolist()[:2], contents.class_names) == ([0, 1] if len(labels) == 2 else [0, 0], ("1", "2"))


def test_a_table_of_utf_16_and_a_category_only_in_the_test_file(tmp_path):
    (tmp_path / "a.csv").write_text("k,y\na,0\nb,1\n", encoding="utf-16")
    (tmp_path / "b.csv").write_text("y,k\n1,c\n")
    options = {"train": "a.csv", "label": "y", "test": "b.csv"}
    features, labels, contents = samples(tmp_path, "test", **options)
    assert (features.tolist(), labels.tolist()) == ([[0, 0]], [1])
    assert contents.notes == ("k: rows with a value that no training row has: 1",)
    assert samples(tmp_path, "test", **options, categories="integer")[0].tolist() == [[2]]


GOOD = "age,city,y\n1,a,0\n2,b,1\n3,a,0\n"
REFUSED = {
    "missing": ("age,city,y\n1,a,0\nNA,b,1\n", {}, r"row 2, column age: missing; 1 of 2 rows .*: drop or median"),
    "missing label": ("age,y\n1,0\n2,\n3,1\n", {}, r"row 2, column y: missing; .*missing: drop,"),
    "missing in most rows": ("age,b,y\n1,,0\n2,,1\n,3,0\n", {}, r"missing; 3 of 3 rows have missing values \(age, b\): .*missing: median, or exclude the column \(drop"),
    "a column without a value": ("age,b,y\n1,,0\n2,,1\n", {"missing": "drop"}, r"column b has no value in the training rows; list it in data\.reader\.exclude$"),
    "infinity": ("age,y\n1,0\n-inf,1\n", {}, r"row 2, column age: -inf is infinite"),
    "too large": ("age,y\n1,0\n1e39,1\n", {}, r"row 2, column age: 1e\+39 is infinite or beyond float32"),
    "a text among numbers": ("age,y\n1,0\nold,1\n", {}, r"row 2, column age: 'old' is no number, but .*data\.reader\.na"),
    "decimal commas": ("x;y\n0,5;0\n1,5;1\n", {}, r"row 1, column x: '0,5' is no plain number; set data\.reader\.decimal"),
    "a text among decimal commas": ("x;y\n27,19;0\n-;1\n25,5;0\n", {"decimal": ","}, r"row 2, column x: '-' is no number, but other rows have"),
    "amounts": ("x,y\n$5,0\n$6,1\n", {}, r"'\$5' is no plain number; .* remove signs"),
    "dates": ("x,y\n2026-11-01,0\n2026-11-02,1\n", {}, r"'2026-11-01' is a date or a time; .*data\.reader\.exclude$"),
    "units": ("x,y\n5 kg,0\n6 kg,1\n", {}, r"'5 kg' is no plain number; .* remove signs, units"),
    "exponents of Fortran": ("x,y\n1.5D+03,0\n2.5d-01,1\n", {}, r"'1.5D\+03' is no plain number"),
    "dates with names of months": ("x,y\n05-Mar-2021,0\n17 März 2021,1\n", {}, r"'05-Mar-2021' is a date or a time; "),
    "dates as in English": ('x,y\n"Mar 5, 2021",0\n"May 17, 2021",1\n', {}, r"'Mar 5, 2021' is a date or a time; "),
    "a title with delimiters": ("Sales 2026,,\nage,z,y\n1,5,0\n2,6,1\n", {}, r"label: no column y; the columns are Sales 2026"),
    "hexadecimal numbers": ("x,y\n" + "".join(f"{number:#06x},{number % 2}\n" for number in range(99)), {}, r"column x has 80 different texts in 80 training rows, such as '0x0000'; write plain numbers"),
    "times of day": ("x,y\n12:30,0\n7:05:10,1\n", {}, r"'12:30' is a date or a time; "),
    "a minus sign of typography": ("x,y\n\u22125,0\n\u22126,1\n", {}, r"'\u22125' is no plain number; .* remove signs"),
    "a title above the names": ("Sales 2026\nage,y\n1,0\n2,1\n", {}, r"line 2 has 2 cells, but there are 1 columns; correct the line, remove lines above the names"),
    "a class written otherwise": ("x,y,s\n1,<=50K,train\n2,b,train\n3,<=50k.,test\n", {"split_column": "s"}, r"has the class '<=50k\.', but '<=50K': if they are one class"),
    "numbers in place of names": ("0,1\n1,0\n", {}, r"first line has only numbers"),
    "a spreadsheet called csv": ("PK\3\4", {}, r"a spreadsheet; save it as CSV"),
    "an HDF5 file called csv": ("\udc89HDF\r\n", {}, r"an HDF5 file; write a table of pandas as CSV"),
    "a packed file": (GOOD, {"train": "a.csv.bz2"}, r"a\.csv\.bz2: a compressed file; unpack it, or compress it by gzip"),
    "text with another suffix": (GOOD, {"train": "a.test"}, r"a\.test: not the name of a table; .*if it is text, rename it to a\.test\.csv"),
    "names": ("x,y\n" + "".join(f"n{i},{i % 2}\n" for i in range(90)), {}, r"column x has 72 different texts in 72 training"),
    "unknown label": (GOOD, {"label": "income"}, r"data\.reader\.label: no column income; the columns are age, city, y"),
    "unknown feature": (GOOD, {"exclude": "pixel*"}, r"data\.reader\.exclude: no column pixel\*"),
    "one class": ("x,y\n1,0\n2,0\n", {}, r"column y has 1 different labels in 2 rows"),
    "label of many numbers": ("x,y\n" + "".join(f"{i},{i}\n" for i in range(90)), {}, r"90 different labels.*target: numbers"),
    "label of fractions": ("x,y\n1,0.5\n2,1\n", {}, r"row 1, column y: 0\.5 is no class number; .*target: numbers"),
    "label of texts as numbers": (GOOD, {"label": "city", "target": "numbers"}, r"row 1, column city: a is no number to learn"),
    "class only in test": ("x,y,s\n1,a,train\n2,b,train\n3,c,test\n", {"split_column": "s"}, r"row 3, column y: no training row has .*c"),
    "an event of negative weight": ("x,y,w\n1,a,1\n2,b,-0.5\n", {"weight": "w"}, r"row 2, column w: -0\.5 is no weight of at least 0; write absolute"),
    "a weight of text": ("x,y,w\n1,a,1\n2,b,big\n", {"weight": "w"}, r"row 2, column w: big is no weight"),
    "missing weight": ("x,y,w\n1,a,1\n2,b,\n", {"weight": "w", "missing": "refuse"}, r"row 2, column w: missing; 1 of 2 rows .*: drop,"),
    "unknown weight": (GOOD, {"weight": "w"}, r"data\.reader\.weight: no column w; the columns are"),
    "unknown split": ("x,y,s\n1,a,train\n2,b,new\n", {"split_column": "s"}, r"row 2, column s: 'new' is no split"),
    "split of numbers": ("x,y,s\n1,a,0\n2,b,1\n", {"split_column": "s"}, r"row 1, column s: .*0.* is no split"),
    "a short line": ("age,city,y\n1,a,0\n2,b\n", {}, r"line 3 has 2 cells, but there are 3 columns"),
    "a long line": ("age,city,y\n1,a,0\n2,b,1,\n", {}, r"line 3 has 4 cells, but there are 3 columns"),
    "no header": ("1,2\n3,4\n", {}, r"only numbers, no names of columns; .*data\.reader\.columns"),
    "one name twice": ("a,a,y\n1,2,0\n", {}, r"two columns are called 'a'; .* if the first line has no names of columns, name them by data\.reader\.columns"),
    "a Parquet file": ("PAR1\x15\x04", {}, r"a Parquet file; rename it to .*\.parquet"),
    "no rows": ("a,y\n", {}, r"no row below the names"),
    "Latin 1": ("a,y\n\udce9,0\n", {}, r"no text in UTF-8 .*iconv"),
    "an open quote": ('a,y\n"1,0\n', {}, r"line 2: .*correct the quotes"),
    "the same file twice": (GOOD, {"test": "a.*"}, r"is in the splits train and test"),
    "no such file": (GOOD, {"train": "b.csv"}, r"no file in .* matches b\.csv; correct"),
    "a variable that is not set": (GOOD, {"train": "$NOWHERE/b.csv"}, r"matches \$NOWHERE/b\.csv; environment variable NOWHERE is not set; set it"),
    "another kind of file": (GOOD, {"train": "other.xlsx"}, r"other\.xlsx: a spreadsheet; save it as CSV"),
    "a folder": (GOOD, {"train": "."}, r"no file in .* matches \.; set the key to its files"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_file_row_and_column(tmp_path, case):
    text, options, message = REFUSED[case]
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
    for name, start in (("other.xlsx", b"PK\3\4"), ("a.csv.bz2", b"BZh9"), ("a.test", b"x,y")):
        (tmp_path / name).write_bytes(start)
    with pytest.raises(UserError, match=message):
        read(tmp_path, 10, **{"train": "a.csv", "label": "y"} | options)


def test_all_problems_of_a_table_are_named_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("day,age,note,y\n2026-11-01,1,,a\n2026-11-02,None,,b\n2026-11-03,3,,NA\n")
    with pytest.raises(UserError) as refusal:
        read(tmp_path, 10, train="a.csv", label="y", exclude=["sex", "id"], categorical="zip*")
    (first, *others), file = str(refusal.value).split("\n  "), tmp_path / "a.csv"
    assert first == "data.reader.exclude: no column sex; the columns are day, age, note, y"
    assert [line.replace(f"{file}: ", "").split(";")[0] for line in others] == [
        "data.reader.exclude: no column id",
        "data.reader.categorical: no column zip*",
        "row 2, column age: missing",
        "row 1, column day: '2026-11-01' is a date or a time",
        "column note has no value in the training rows",
    ]
    assert "(y: data.reader.na has 'NA' in 1 rows, age: data.reader.na has 'None' in 1 rows)" in others[2]


def stored(folder, **options):
    """Return the key that the data have by their contents, and the inputs of all rows."""
    contents = read(folder, 999, **{"label": "y", "test_fraction": 0.0} | options)
    keys = [describe_unit(unit, folder) for unit in contents.units]
    return keys, contents.units[0].read().inputs[0], contents


@pytest.mark.parametrize("numbers", [
    1_700_000_000 + np.arange(40), 2**31 + 7 * np.arange(40), 2_460_000.5 + np.arange(40) / 1000, 2**53 - 1 - np.arange(40),
])  # fmt: skip
def test_numbers_that_float32_does_not_tell_apart_are_float64(tmp_path, numbers):
    table = pd.DataFrame({"x": numbers, "y": np.arange(40) % 2})
    table.to_csv(tmp_path / "a.csv", index=False)
    (key,), inputs, contents = stored(tmp_path, train="a.csv")
    assert inputs.dtype == np.float64
    np.testing.assert_array_equal(inputs[:, 0], numbers)
    assert contents.notes == ("the inputs are float64, because float32 loses digits of x",)
    # Stores of earlier versions, of float32, have the key without the last word.
    assert key[-1] == "float64"
    predicted, _ = encode_rows(table, contents.columns, {}, inputs.dtype.name)
    np.testing.assert_array_equal(predicted, inputs)


@pytest.mark.parametrize("numbers", [np.arange(40) / 7, 101_325 + np.arange(40) / 3])
def test_other_numbers_stay_float32_and_their_store_keeps_its_key(tmp_path, numbers):
    pd.DataFrame({"x": numbers, "y": np.arange(40) % 2}).to_csv(tmp_path / "a.csv", index=False)
    (key,), inputs, _ = stored(tmp_path, train="a.csv")
    np.testing.assert_array_equal(inputs[:, 0], numbers.astype(np.float32))
    assert inputs.dtype == np.float32
    assert key == ["train", "train-00000-of-00001", ["a.csv"], []]


def test_missing_numbers_are_missing_in_each_format(tmp_path):
    """-999 in 4 of 40 rows becomes the median of the others, whatever the file is."""
    uproot, _ = optional("uproot"), optional("pyarrow")
    x = np.arange(40.0)
    x[::10] = -999
    table = pd.DataFrame({"x": x, "k": np.arange(40) % 3, "y": np.arange(40) % 2})
    table["f"] = np.where(x < 0, -999.9, x).astype(np.float32)
    table.to_csv(tmp_path / "a.csv", index=False)
    with uproot.recreate(tmp_path / "a.root") as file:
        file["t"] = {name: table[name].to_numpy() for name in table}
    names = ["a.csv", "a.root", "a.parquet", "a.feather"]
    table.to_parquet(tmp_path / "a.parquet")
    table.to_feather(tmp_path / "a.feather")
    known = np.isin(x, [-999, 2], invert=True)
    expected = np.where(known, x, np.median(x[known]))
    options = {"missing": "median", "na": ["-999", "-999.9", "2"], "features": ["x", "k", "f"]}
    for name in names:
        (key,), inputs, contents = stored(tmp_path, train=name, **options)
        np.testing.assert_array_equal(inputs[:, 0], expected)
        np.testing.assert_array_equal(inputs[:, 1], np.where(np.arange(40) % 3 == 2, 0, np.arange(40) % 3))
        np.testing.assert_array_equal(inputs[:, 2], expected)
        assert any("x: missing values" in note and "has '-999' in 4 rows" in note for note in contents.notes)
        # Earlier versions trained -999 of binary files as a number.
        assert key[4:] == ([] if name == "a.csv" else ["na"])


def test_codes_that_are_listed_as_categories_are_texts(tmp_path):
    (tmp_path / "a.csv").write_text("zip,year,y\n007,2020,0\n7,2021,1\n010,2020,0\n")
    (key,), inputs, contents = stored(tmp_path, train="a.csv", categorical=["zip", "year"])
    assert [each.values for each in contents.columns] == [("007", "010", "7"), (2020.0, 2021.0)]
    np.testing.assert_array_equal(inputs, [[1, 0, 0, 1, 0], [0, 0, 1, 0, 1], [0, 1, 0, 1, 0]])
    assert key[4:] == ["codes"]
    rows, kept = encode_rows(tmp_path / "a.csv", contents.columns, {}, "float32")
    np.testing.assert_array_equal(rows, inputs)
    assert kept.to_dict("list") == {"row": [1, 2, 3], "y": ["0", "1", "0"]}


def test_names_and_texts_are_compared_in_one_form_of_unicode(tmp_path):
    """The test file has each name in letters with separate accents, as macOS writes them."""
    text = "âge,ville,y\n" + "1,Orléans,thé\n2,Nîmes,café\n" * 2
    (tmp_path / "a.csv").write_text(normalize("NFC", text))
    (tmp_path / "b.csv").write_text(normalize("NFD", text))
    options = {"label": normalize("NFD", "y"), "features": [normalize("NFD", "âge"), "ville"]}
    keys, inputs, contents = stored(tmp_path, train="a.csv", test="b.csv", **options)
    np.testing.assert_array_equal(inputs, contents.units[1].read().inputs[0])
    assert contents.class_names == ("café", "thé")
    assert keys[0][4:] == ["NFC"]
    names = tuple(normalize("NFD", name) for name in ("Nîmes", "Orléans"))
    old = [EncodedColumn(normalize("NFD", "ville"), names, None, True)]  # of earlier versions
    np.testing.assert_array_equal(encode_rows(tmp_path / "a.csv", old, {})[0], inputs[:, 1:])


DAYS = [f"2026-{month:02d}-{day:02d}" for month in range(1, 6) for day in range(1, 26)]
DOUBTS = {
    "a label that is missing": ("y", ["None", "mild", "severe"], {"missing": "drop"}, "label y: data.reader.na has 'None' in 100 rows of 300, which are no class"),
    "mostly missing": ("x", ["NA", "NA", "EU"], {"missing": "median"}, "column x: 200 of 300 cells are missing and become EU; data.reader.na has 'NA' in 200 rows; list it in data.reader.exclude"),
    "a constant": ("x", ["5"], {}, "column x has the value 5 in each row; list it in data.reader.exclude"),
    "the label": ("x", ["q", "p"], {}, "column x tells the label: each of its values belongs to one label"),
    "days as categories": ("x", DAYS, {"categorical": "x"}, "column x gives 125 inputs, one for each text; list it in data.reader.exclude"),
    "beyond 2^53": ("x", [2**60, 2**60 + 3, 2**60 + 5], {}, "column x has whole numbers above 2^53, whose last digits are lost"),
    "-9 for missing": ("x", [-9, 110, 220, 290], {}, "column x has -9 in 75 rows, unlike its other numbers: if it means a missing value, add '-9' to"),
    "999 for missing": ("x", [3, 4, 7, 999], {}, "column x has 999 in 75 rows, unlike its other numbers"),
    "dates as numbers": ("x", [20210228, 20201231, 20240229], {}, "column x has dates as numbers, such as 20210228; write the day of the year"),
    "a row number": ("x", range(7, 607, 2), {}, "column x is a feature, but may be a row number or an identifier (integers, no two of them equal); list it in data.reader.exclude"),
    "a shuffled identifier": ("x", np.random.default_rng(1).permutation(300), {}, "column x is a feature, but may be a row number"),
    "postal codes": ("x", ["01067", "80331", "04109"], {}, "column x: 01067 is read as the number 1067; list the column in data.reader.categorical"),
    "categories by case": ("x", ["Rome", "rome", "Oslo"], {}, "column x: 'Rome' and 'rome' differ only by case, spaces or a final point"),
    "a class that is lost": ("x", [*["1"] * 299, ""], {"missing": "drop"}, "label y: all rows of rare are left out, because they have missing values"),
    "a class without a test row": ("x", ["1", "2"], {"test_fraction": 0.2}, "label y: no test row has the class rare (1 rows), because test_fraction 0.2 of its rows is less than one; add rows"),
}  # fmt: skip


@pytest.mark.parametrize("case", DOUBTS)
def test_what_is_probably_a_mistake_is_named(tmp_path, caplog, case):
    name, cells, options, sentence = DOUBTS[case]
    table = pd.DataFrame({"x": np.arange(300) % 7 / 4, "z": np.arange(300) % 5 / 4, "y": ["a", "b"] * 150})
    if "class" in sentence or "rare" in sentence:
        table.loc[299, "y"] = "rare"
    table[name] = np.resize(np.array(cells, object), 300)
    table.to_csv(tmp_path / "a.csv", index=False)
    for _ in range(2):
        read(tmp_path, 99, **{"train": "a.csv", "label": "y", "test_fraction": 0.0} | options)
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith(f"{tmp_path / 'a.csv'}: {sentence}") for line in lines) == 1, lines


SHUFFLED = np.random.default_rng(1).permutation(60)


@pytest.mark.parametrize(
    ("cells", "options"),
    [
        ([1.5], {"exclude": "more"}), ([-1, 0, 1], {}), ([-9, -3, 4, 5], {}), ([0, 30, 60, 99], {}), (["00", "05", "12"], {}),
        ([2019, 2020, 2021], {}), (SHUFFLED, {"exclude": "more"}), (SHUFFLED, {"features": ["more", "age"]}), (SHUFFLED / 2, {}),
        (SHUFFLED * 999, {}),  # different, as numbers of a wide range are
    ],
    ids=range(10),
)  # fmt: skip
def test_a_table_without_a_doubt_gets_no_warning(tmp_path, caplog, cells, options):
    people(tmp_path)
    table = pd.read_csv(tmp_path / "people.csv", dtype=str, keep_default_na=False)
    table["more"] = np.resize(np.array(cells, object), len(table))
    table.to_csv(tmp_path / "people.csv", index=False)
    read(tmp_path, 99, train="people.csv", label="income", missing="median", **options)
    assert not caplog.records


def test_classes_that_are_too_small_for_a_test_row(tmp_path, caplog):
    """Of 4 rows, a fifth is none, and a quarter is one."""
    rows = [f"{i % 9 / 4},c{i % 50:02d}" for i in range(200)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]))
    assert {unit.split for unit in read(tmp_path, 999, train="a.csv", label="y").units} == {"train"}
    assert "label y: there is no test split, because test_fraction 0.2" in caplog.text
    assert "set data.reader.test_fraction: 0.25, or add rows" in caplog.text
    quarter = read(tmp_path, 999, train="a.csv", label="y", test_fraction=0.25).units
    assert np.bincount(quarter[1].read().labels).tolist() == [1] * 50


def test_rows_without_a_label_are_left_out_if_missing_values_are_replaced(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n,b\n3,\n5,a\n")
    _, inputs, contents = stored(tmp_path, train="a.csv", missing="median")
    np.testing.assert_array_equal(inputs, [[1], [3], [5]])
    assert contents.notes[0] == "1 of 4 rows with missing values are left out (y)"


# Written by `DatasetDict.save_to_disk` of the package datasets 5.2.0.
MOVES = Path(__file__).with_name("moves")


def test_a_folder_of_datasets_gives_its_splits_and_the_names_of_its_classes(tmp_path):
    """The fixture has x = k / 4, v = (k, -k) and the classes sit, run and walk in turn."""
    optional("pyarrow")
    options = {"train": "moves", "label": "label", "exclude": "words"}
    x, labels, contents = samples(MOVES.parent, **options)
    k = np.arange(12)
    np.testing.assert_array_equal(x, np.stack([k / 4, k % 2 == 0, k % 2 == 1, k, -k], 1))
    assert [contents.class_names[each] for each in labels] == ["sit", "run", "walk"] * 4
    assert len(samples(MOVES.parent, "test", **options)[0]) == 6
    assert "the split unsupervised is not used" in contents.notes[0]
    # A folder of `Dataset.save_to_disk`.
    alone = samples(MOVES, **options | {"train": "train", "test": "test"})
    np.testing.assert_array_equal(alone[0], x)
    np.testing.assert_array_equal(encode_rows(MOVES / "test", contents.columns, {})[0], x[:6])
    with pytest.raises(UserError, match=r"column words has arrays of several lengths.*exclude"):
        samples(MOVES.parent, **options | {"exclude": ()})


def test_a_tree_of_a_root_file_gives_the_samples_of_the_csv_file(tmp_path):
    uproot = optional("uproot")
    table = people(tmp_path).drop(columns="city")
    columns = {name: table[name].to_numpy(float) for name in ("age", "pay")}
    columns |= {"income": (table["income"] == ">50K").to_numpy("i4"), "v": np.ones((ROWS, 2), "f4")}
    with uproot.recreate(tmp_path / "people.root") as file:
        file.mktree("events", {name: (each.dtype, each.shape[1:]) for name, each in columns.items()})
        file["events"].extend(columns)
    options = {"missing": "median", "train": "people.root"}
    root, csv = samples(tmp_path, **options), samples(tmp_path, exclude="city", missing="median")
    np.testing.assert_array_equal(root[0], np.concatenate([csv[0], np.ones_like(csv[0])], 1))
    np.testing.assert_array_equal(root[1], csv[1])
    with uproot.update(tmp_path / "people.root") as file:
        file.mktree("other", {"x": "f4"})
    message = r"people\.root: 2 trees; set data\.reader\.tree to one of: events, o"
    with pytest.raises(UserError, match=message):
        samples(tmp_path, **options)
    np.testing.assert_array_equal(samples(tmp_path, tree="events", **options)[0], root[0])
    (tmp_path / "people.root").write_bytes(b"root\0\0")
    with pytest.raises(UserError, match=r"people\.root: not a file of ROOT"):
        samples(tmp_path, **options)


def test_parquet_without_pyarrow_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"a\.parquet: Parquet needs pyarrow; run `pip install pyarrow`"):
        read(tmp_path, 10, train="a.parquet", label="y")


def test_an_experiment_names_the_file_as_its_source(tmp_path):
    people(tmp_path)
    file = "data: {dataset: people, source: people.csv, reader: {name: table, label: income%s}}\nmodel: perceptron\n"
    (tmp_path / "x.yaml").write_text(file % ", missing: median")
    shown = nnlo("data", "x.yaml", folder=tmp_path).stdout
    assert "age: missing values (2) are" in shown
    assert "<=50K" in shown
    (tmp_path / "x.yaml").write_text(file % "")
    told = refused(nnlo("check", "x.yaml", folder=tmp_path))
    assert "data.reader: people.csv: row 4, column age: missing; 3 of 60 rows" in told


def test_numbers_without_quotes_name_columns_and_texts(tmp_path):
    draw = np.random.default_rng(0)
    table = pd.DataFrame({0: draw.choice(["p", "q"], 40), 1: draw.normal(size=40), 2: draw.normal(size=40)})
    table.loc[3, 2] = -999
    table.to_csv(tmp_path / "t.csv", index=False)
    text = "{{data: {{dataset: t, source: t.csv, reader: {{name: table, label: {}, exclude: [1], na: [-999], missing: drop}}}}}}"
    (tmp_path / "x.yaml").write_text(text.format("0"))
    shown = nnlo("data", "x.yaml", folder=tmp_path).stdout
    assert "features: (1,), float32" in shown
    assert "1 of 40 rows with missing values are left out (2: data.reader.na has '-999' in 1 rows)" in shown
    (tmp_path / "x.yaml").write_text(text.format("no"))
    assert "data.reader.label: must be a text, not false; write it in quotes" in refused(
        nnlo("check", "x.yaml", folder=tmp_path)
    )


def test_check_names_a_missing_test_split_and_large_numbers(tmp_path):
    rows = "\n".join(f"{1000 + i * 37 % 500},{i % 9 / 4},{'ab'[i % 2]}" for i in range(60))
    (tmp_path / "t.csv").write_text(f"pay,x,y\n{rows}\n")
    file = "{data: {dataset: %s, source: t.csv, reader: {name: table, label: y%s}, %s}, model: perceptron}"
    large = "data.normalize: the model gets the numbers of pay (about 1.25e+03) as they are, which trains badly; set data.normalize: standard"
    commands = (("check", "unit", 1), ("data", "unit", 0), ("check", "unit", 1), ("check", "standard", 0))
    for command, form, is_named in commands:
        (tmp_path / "x.yaml").write_text(file % ("t", "", f"normalize: {form}"))
        assert nnlo(command, "x.yaml", folder=tmp_path).stderr.count(large) == is_named
    (tmp_path / "x.yaml").write_text(file % ("u", ", test_fraction: 0.0", "validation: test"))
    told = refused(nnlo("check", "x.yaml", folder=tmp_path))
    assert "u has no split test; data.reader.test_fraction gives no row of any class; it has train" in told
