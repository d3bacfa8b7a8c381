"""A results folder belongs to one experiment file; names that Snakemake would refuse are refused by `nnlo check`."""

import pytest
from helpers.nnlo_command import nnlo

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.owner import record_owner, refuse_other_owner
from nnlo_lib.preflight.preflight import load_and_check

FIRST, OTHER = "name: mine\nruns: {a: {}, b: {}}\n", "name: mine\nruns: {c: {}}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.yaml").write_text(FIRST)
    (tmp_path / "other.yaml").write_text(OTHER)
    record_owner("mine", "first.yaml")
    return tmp_path


def test_a_second_file_of_the_same_name_is_refused(folder):
    message = r"results/mine has the results of first\.yaml, and other\.yaml has the same name"
    with pytest.raises(UserError, match=message):
        load_and_check("other.yaml")
    for command in ("run", "search", "plan"):
        done = nnlo(command, "other.yaml", folder=folder)
        assert done.returncode == 2
        assert "rm results/mine/.workflow/experiment.json" in done.stderr
    assert [path.name for path in (folder / "results/mine").iterdir()] == [".workflow"]


def test_two_files_without_a_name_share_the_default_name(folder):
    record_owner("experiment", "first.yaml")
    (folder / "first.yaml").write_text("seeds: [1]\n")
    (folder / "other.yaml").write_text("seeds: [2]\n")
    with pytest.raises(UserError, match=r"results/experiment has the results of first\.yaml"):
        load_and_check("other.yaml")


@pytest.mark.parametrize(
    "change", ["edited", "renamed", "copied", "other name", "damaged record", "missing record"]
)
def test_the_same_experiment_continues(folder, change):
    first, other, record = (
        folder / "first.yaml",
        folder / "other.yaml",
        folder / "results/mine/.workflow/experiment.json",
    )
    if change == "edited":
        other = first
        first.write_text(OTHER)
    elif change == "renamed":
        first.unlink()
    elif change == "copied":
        other.write_text(FIRST)
    elif change == "other name":
        first.write_text(FIRST.replace("mine", "theirs"))
    elif change == "damaged record":
        record.write_text("{")
    else:
        record.unlink()
    refuse_other_owner("mine", str(other))


def test_a_folder_that_was_copied_with_its_file_is_owned_by_the_copy(folder, tmp_path_factory, monkeypatch):
    copy = tmp_path_factory.mktemp("copy") / "all"
    folder.rename(copy)
    monkeypatch.chdir(copy)
    refuse_other_owner("mine", str(copy / "first.yaml"))
    with pytest.raises(UserError, match="first"):
        refuse_other_owner("mine", str(copy / "other.yaml"))


@pytest.mark.parametrize("name", ["r" * 120, "ab" * 20, "run_" + "0" * 20])
def test_a_name_that_snakemake_takes_for_an_endless_one_is_refused(folder, name):
    (folder / "x.yaml").write_text(f"name: x\nruns: {{{name}: {{}}}}\n")
    with pytest.raises(UserError, match="ends with 20 times the same text"):
        load_and_check("x.yaml")
