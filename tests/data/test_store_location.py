"""The name of a store changes with everything that its samples depend on, and with nothing else."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data import source_identity
from nnlo_lib.data.store import convert as convert_module
from nnlo_lib.data.store.convert import Conversion, convert
from nnlo_lib.data.store.manifest import DataManifest, manifest_fingerprint
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_location import locate_store
from nnlo_lib.data.store_settings import StoreSettings
from nnlo_lib.train.task import prepare_store

READER = {"name": "arrays", "train": "part*.h5"}
ADAPTED = {"reader": {"adaptor": "adapt.py:scaled"}}
ZIPPED = {"source": "all.zip", "reader": {"train": "one.h5"}}
CHANGED = "the files, or the code that reads them, changed since the start"


def write(path: Path, value: float) -> None:
    with h5py.File(path, "w") as file:
        file["features"] = np.full((6, 3), value, np.float32)
        file["labels"] = np.arange(6) % 2
        file["others"] = np.arange(6) % 3


def pack(project: Path, value: float) -> None:
    """Write all.zip with one file."""
    write(project / "one.h5", value)
    with zipfile.ZipFile(project / "all.zip", "w") as archive:
        archive.write(project / "one.h5", "one.h5")


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("# edited\n")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    for number in range(2):
        write(tmp_path / f"files/part{number}.h5", number)
    (tmp_path / "adapt.py").write_text("import beside\ndef scaled(x):\n    return x * beside.factor\n")
    (tmp_path / "beside.py").write_text("factor = 1\n")
    (tmp_path / "own.py").write_text("def read(folder, shard_size, **options):\n    raise AssertionError\n")
    return tmp_path


def settings(**changes) -> StoreSettings:
    reader = READER | changes.pop("reader", {})
    return StoreSettings(**({"dataset": "mine", "source": "files", "reader": reader} | changes))


def name(**changes) -> str:
    return locate_store(settings(**changes)).folder.name


def own_name(source: str = "files", **args: str) -> str:
    """Return the name of the store of the user's own reader."""
    options = {"args": args} if args else {}
    return locate_store(StoreSettings("mine", source, {"name": "own.py:read"} | options)).folder.name


def features_of(manifest: DataManifest) -> np.ndarray:
    split = Split(manifest, "train")
    return split.take(np.arange(len(split)))[0][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"reader": {"labels": "others"}},
        {"reader": {"train": ["part1.h5", "part0.h5"]}},
        ADAPTED,
        {"shard_size": 5},
        {"format": "npz"},
    ],
    ids=str,
)
def test_settings_change_the_name(project: Path, changes: dict) -> None:
    assert name(**changes) != name() == name()


def test_an_edit_of_imported_code_changes_the_name(project: Path) -> None:
    before = name(**ADAPTED)
    append(project / "beside.py")
    assert name(**ADAPTED) != before


def test_the_contents_of_the_files_decide_and_not_their_place_or_time(project: Path) -> None:
    before = name()
    os.utime(project / "files/part0.h5")
    (project / "files/notes.txt").write_text("not read")
    assert name() == before
    (project / "files").rename(project / "moved")
    assert name(source="moved") == before
    size = (project / "moved/part1.h5").stat().st_size
    write(project / "moved/part1.h5", 7)
    assert (project / "moved/part1.h5").stat().st_size == size
    assert name(source="moved") != before


def test_a_checksum_is_computed_once_for_files_that_stay(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_identity, "SETTLED_SECONDS", 0.0)
    before, read = name(), []
    monkeypatch.setattr(source_identity, "file_sha256", read.append)
    assert name() == before
    assert not read


def test_a_reader_of_the_user_depends_on_all_files_of_the_source_and_of_its_arguments(project: Path) -> None:
    before = own_name()
    (project / "files/.hidden").touch()
    assert own_name() == before
    (project / "files/new.txt").touch()
    assert own_name() != before
    (project / "files/new.txt").unlink()
    (project / "labels.txt").write_text("a b")
    with_labels = own_name(labels="labels.txt")
    (project / "labels.txt").write_text("a c")
    assert own_name(labels="labels.txt") != with_labels
    append(project / "own.py")
    assert own_name() != before


def test_results_in_the_working_directory_are_no_source(project: Path) -> None:
    before = own_name(".")
    for place in ("results", "logs", "data/mine/raw", "data/mine/hdf5-0123456789ab"):
        (project / place).mkdir(parents=True)
        (project / place / "new").touch()
    assert own_name(".") == before
    (project / "data/table.csv").touch()
    assert own_name(".") != before


def test_two_archives_of_one_name_have_folders_of_their_own(project: Path) -> None:
    stores = []
    for value in (3, 4):
        pack(project, value)
        stores.append(locate_store(settings(**ZIPPED)))
        assert (features_of(DataManifest.load(prepare_store(stores[-1]))) == value).all()
    assert len({store.raw for store in stores}) == 2


def test_a_job_uses_the_store_of_the_process_that_started_it(project: Path) -> None:
    store = locate_store(settings())
    write(project / "files/part1.h5", 7)
    assert locate_store(settings(), leads=False) == store
    assert locate_store(settings()).folder != store.folder
    assert locate_store(settings(), leads=False) == locate_store(settings())


def test_a_store_outlives_its_source(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With edited code, the store of the old code is not used."""
    plain, adapted = locate_store(settings()), locate_store(settings(**ADAPTED))
    for store in (plain, adapted):
        prepare_store(store)
    (project / "files").rename(project / "gone")
    assert locate_store(settings()) == plain
    assert "files not found; using the store that was converted from it" in capfd.readouterr().err
    (project / "beside.py").write_text("factor = 100\n")
    for other in (settings(shard_size=3), settings(**ADAPTED)):
        message = r"data\.source: files is neither an existing folder nor an archive"
        with pytest.raises(UserError, match=message):
            locate_store(other)


def test_a_source_that_changes_before_its_conversion_makes_no_store(project: Path) -> None:
    store = locate_store(settings())
    write(project / "files/part1.h5", 7)
    with pytest.raises(UserError, match=CHANGED):
        prepare_store(store)
    assert not store.manifest.exists()
    assert prepare_store(locate_store(settings())).exists()
    pack(project, 3)
    first = locate_store(settings(**ZIPPED))
    pack(project, 4)
    with pytest.raises(UserError, match=CHANGED):
        prepare_store(first)
    pack(project, 3)
    again = DataManifest.load(prepare_store(locate_store(settings(**ZIPPED))))
    assert (features_of(again) == 3).all()


def test_code_that_is_edited_during_the_conversion_makes_no_store(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the old nor the new key has samples of both codes, also after the edit is reverted."""
    adapted = settings(**ADAPTED, shard_size=4)
    store = locate_store(adapted)

    def editing(*arguments) -> None:
        write_shard(*arguments)
        (project / "beside.py").write_text("factor = 1000\n")

    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "write_shard", editing)
        with pytest.raises(UserError, match=CHANGED):
            prepare_store(store)
    assert not store.manifest.exists()
    (project / "beside.py").write_text("factor = 1\n")
    prepare_store(locate_store(adapted))
    assert features_of(DataManifest.load(store.manifest)).max() == 1


def test_the_official_files_of_a_data_set_are_one_store_from_any_source(project: Path) -> None:
    sources = (None, "/nowhere", "https://example.org/mnist")
    assert len({locate_store(StoreSettings("mnist", source=source)).folder for source in sources}) == 1
    assert not (project / "data").exists()


def test_a_manifest_of_other_settings_is_refused(project: Path) -> None:
    manifest = convert(Conversion(settings(), project / "files", project / "store"))
    manifest.refuse_other_settings(settings(source="elsewhere", shard_size=1))
    with pytest.raises(UserError, match=r'converted with data\.reader\.labels: its default, but .* "others"'):
        manifest.refuse_other_settings(settings(reader={"labels": "others"}))
    with pytest.raises(UserError, match=r'data\.dataset: "mine", but the experiment has "yours"'):
        manifest.refuse_other_settings(settings(dataset="yours"))


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', '{"a": {"key": "b"}}'])
def test_a_damaged_list_of_locations_is_named(project: Path, text: str) -> None:
    name()
    (project / "data/mine/stores.json").write_text(text)
    with pytest.raises(UserError, match=r"stores\.json: damaged"):
        name()


def test_the_fingerprint_of_a_manifest_is_of_its_samples(project: Path) -> None:
    path = convert(Conversion(settings(), project / "files", project / "1")).folder / "manifest.json"
    fields, whole = json.loads(path.read_text()), manifest_fingerprint(path)
    for key in fields:
        path.write_text(json.dumps(fields | {key: None}))
        assert (manifest_fingerprint(path) == whole) == (key in ("settings", "notes", "columns", "code")), key


def test_a_store_is_found_where_nothing_can_be_written(project: Path) -> None:
    before = name()
    (project / "data/mine/stores.json").unlink()
    (project / "data").rename(project / "old")
    (project / "data").write_text("a file in place of the folder")
    assert name() == before


def test_a_link_that_leads_to_a_file_of_the_same_size_and_time_is_read(project: Path) -> None:
    shutil.copytree(project / "files", project / "others")
    write(project / "others/part1.h5", 7)
    for path in (project / "files/part1.h5", project / "others/part1.h5"):
        os.utime(path, ns=(1, 1))
    (project / "now").symlink_to("files")
    before = name(source="now")
    (project / "now").unlink()
    (project / "now").symlink_to("others")
    assert name(source="now") != before


def test_an_edited_file_of_an_extracted_archive_is_extracted_again(project: Path) -> None:
    pack(project, 1)
    store = locate_store(settings(**ZIPPED))
    prepare_store(store)
    write(next(store.raw.rglob("one.h5")), 9)
    shutil.rmtree(store.folder)
    assert (features_of(DataManifest.load(prepare_store(store))) == 1).all()
