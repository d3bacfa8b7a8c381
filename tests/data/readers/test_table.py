"""Tables as people have them: the inputs against scikit-learn's encoders, splits, and cells that are refused with their place."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from helpers.nnlo_command import nnlo, refused
from helpers.requires import optional
from helpers.training_here import run_here
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.table import encode_rows, read

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
    encoder = make_column_transformer(
        (SimpleImputer(strategy="median"), ["age"]),
        (
            make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False)),
            ["city"],
        ),
        ("passthrough", ["pay"]),
    ).fit(table[train])
    for split, rows in (("train", train), ("test", ~train)):
        features, found, contents = samples(tmp_path, split, split_column="part", missing="median")
        np.testing.assert_array_equal(features, encoder.transform(table[rows]).astype(np.float32))
        np.testing.assert_array_equal(found, labels[rows])
    assert contents.class_names == ("<=50K", ">50K")
    assert contents.notes[0].startswith("age: missing values (2) are ")


def test_an_identifier_among_the_features_is_reported_unless_it_is_excluded_or_named(tmp_path, caplog):
    table = people(tmp_path, na_rep="").dropna()
    numbers = np.arange(len(table))
    drawn = np.random.default_rng(1).permutation
    table = table.assign(person=7 + 2 * numbers, seat=drawn(numbers), halves=drawn(numbers) / 2)
    table = table.assign(inhabitants=drawn(numbers) * 999)  # different, as numbers of a wide range are
    table.to_csv(tmp_path / "people.csv", index=False)
    samples(tmp_path, exclude=["person", "seat"])
    samples(tmp_path, features=["person", "seat", "age"])
    assert "may be a row number" not in caplog.text
    samples(tmp_path)
    lines = [record.getMessage() for record in caplog.records if "may be a row number" in record.getMessage()]
    assert [line.partition("column ")[2].partition(" ")[0] for line in lines] == ["person", "seat"]
    assert "list it in data.reader.exclude" in lines[0]


def test_test_rows_are_a_fraction_of_each_class_and_the_same_for_all_shard_sizes(tmp_path):
    table = people(tmp_path, na_rep="").dropna()
    features, labels, contents = samples(tmp_path, "test", missing="drop", test_fraction=0.25)
    counts = table["income"].map({"<=50K": 0, ">50K": 1}).value_counts()
    assert [int((labels == each).sum()) for each in (0, 1)] == [counts[each] // 4 for each in (0, 1)]
    assert contents.notes == ("3 of 60 rows with missing values are left out",)
    others = samples(tmp_path, missing="drop", test_fraction=0.25)[0]
    assert {*map(tuple, features)}.isdisjoint(map(tuple, others))
    assert len(features) + len(others) == ROWS - 3
    one = read(tmp_path, 999, train="people.csv", label="income", missing="drop", test_fraction=0.25).units[
        -1
    ]
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
    "true and false": ("x,y\nTrue,1\nFalse,2\n", {}, [[0, 1], [1, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_csv_files(tmp_path, form, packed):
    text, options, expected = FORMS[form]
    content = text.encode()
    (tmp_path / "a.csv").write_bytes(gzip.compress(content) if packed else content)
    features, labels, contents = samples(tmp_path, train="a.csv", label="y", test_fraction=0.0, **options)
    np.testing.assert_array_equal(features, expected)
    assert (labels.tolist(), contents.class_names) == ([0, 1], ("1", "2"))


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
    "missing label": ("age,y\n1,0\n2,\n3,1\n", {"missing": "median"}, r"row 2, column y: missing; .*missing: drop,"),
    "infinity": ("age,y\n1,0\n-inf,1\n", {}, r"row 2, column age: -inf is infinite"),
    "too large": ("age,y\n1,0\n1e39,1\n", {}, r"row 2, column age: 1e\+39 is infinite or beyond float32"),
    "a text among numbers": ("age,y\n1,0\nold,1\n", {}, r"row 2, column age: 'old' is no number, but .*data\.reader\.na"),
    "decimal commas": ("x;y\n0,5;0\n1,5;1\n", {}, r"row 1, column x: '0,5' is no plain number; set data\.reader\.decimal"),
    "amounts": ("x,y\n$5,0\n$6,1\n", {}, r"'\$5' is no plain number; .* remove signs"),
    "dates": ("x,y\n2026-11-01,0\n2026-11-02,1\n", {}, r"'2026-11-01' is a date; .*data\.reader\.exclude"),
    "names": ("x,y\n" + "".join(f"n{i},{i % 2}\n" for i in range(90)), {}, r"column x has 72 different texts in 72 training"),
    "unknown label": (GOOD, {"label": "income"}, r"data\.reader\.label: no column income; the columns are age, city, y"),
    "unknown feature": (GOOD, {"exclude": "pixel*"}, r"data\.reader\.exclude: no column pixel\*"),
    "one class": ("x,y\n1,0\n2,0\n", {}, r"column y has 1 different labels in 2 rows"),
    "label of many numbers": ("x,y\n" + "".join(f"{i},{i}\n" for i in range(90)), {}, r"90 different labels.*target: numbers"),
    "label of fractions": ("x,y\n1,0.5\n2,1\n", {}, r"row 1, column y: 0\.5 is no class number; .*target: numbers"),
    "label of texts as numbers": (GOOD, {"label": "city", "target": "numbers"}, r"row 1, column city: a is no number to learn"),
    "class only in test": ("x,y,s\n1,a,train\n2,b,train\n3,c,test\n", {"split_column": "s"}, r"row 3, column y: no training row has .*c"),
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
    "no such file": (GOOD, {"train": "b.csv"}, r"b\.csv not found"),
    "another kind of file": (GOOD, {"train": "other.xlsx"}, r"other\.xlsx: not the name of a table; known: \.csv"),
    "a folder": (GOOD, {"train": "."}, r"is a folder; set data\.reader\.train"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_file_row_and_column(tmp_path, case):
    text, options, message = REFUSED[case]
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
    (tmp_path / "other.xlsx").write_bytes(b"PK")
    with pytest.raises(UserError, match=message):
        read(tmp_path, 10, **{"train": "a.csv", "label": "y"} | options)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_parquet_file_gives_the_samples_of_the_csv_file(tmp_path):
    people(tmp_path).to_parquet(tmp_path / "people.parquet")
    csv, parquet = (
        samples(tmp_path, train=f"people.{each}", missing="median") for each in ("csv", "parquet")
    )
    np.testing.assert_array_equal(csv[0], parquet[0])
    np.testing.assert_array_equal(csv[1], parquet[1])


MOVES = Path(__file__).with_name(
    "moves"
)  # written by `DatasetDict.save_to_disk` of the package datasets 5.2.0


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_folder_of_datasets_gives_its_splits_and_the_names_of_its_classes(tmp_path):
    """The fixture has x = k / 4, v = (k, -k) and the classes sit, run and walk in turn."""
    options = {"train": "moves", "label": "label", "exclude": "words"}
    x, labels, contents = samples(MOVES.parent, **options)
    k = np.arange(12)
    np.testing.assert_array_equal(x, np.stack([k / 4, k % 2 == 0, k % 2 == 1, k, -k], 1))
    assert [contents.class_names[each] for each in labels] == ["sit", "run", "walk"] * 4
    assert len(samples(MOVES.parent, "test", **options)[0]) == 6
    assert "the split unsupervised is not used" in contents.notes[0]
    alone = samples(
        MOVES, **options | {"train": "train", "test": "test"}
    )  # a folder of `Dataset.save_to_disk`
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
    with pytest.raises(
        UserError, match=r"people\.root: 2 trees; set data\.reader\.tree to one of: events, other"
    ):
        samples(tmp_path, **options)
    np.testing.assert_array_equal(samples(tmp_path, tree="events", **options)[0], root[0])
    (tmp_path / "people.root").write_bytes(b"root\0\0")
    with pytest.raises(UserError, match=r"people\.root: not a file of ROOT"):
        samples(tmp_path, **options)


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_pyarrow_names_the_package(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"a\.parquet: Parquet needs pyarrow; run `pip install pyarrow`"):
        read(tmp_path, 10, train="a.parquet", label="y")


def test_an_experiment_names_the_file_as_its_source(tmp_path):
    people(tmp_path)
    reader = {"name": "table", "label": "income", "missing": "median"}
    data = {"dataset": "people", "source": "people.csv", "normalize": "standard", "reader": reader}
    parallel = {"ranks": 2, "transport": "simulated"}
    experiment = {"data": data, "model": {"name": "perceptron"}, "train": {"epochs": 1}, "parallel": parallel}
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(experiment))
    assert run_here("x.yaml", folder=tmp_path).returncode == 0
    shown = nnlo("data", "x.yaml", folder=tmp_path).stdout
    assert "age: missing values (2) are" in shown
    assert "<=50K" in shown
    del reader["missing"]
    file.write_text(yaml.safe_dump(experiment))
    assert "data.reader: people.csv: row 4, column age: missing; 3 of 60 rows" in refused(
        nnlo("check", "x.yaml", folder=tmp_path)
    )
