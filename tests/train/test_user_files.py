"""The code that trains is the code in the files: an edit of any file of the user trains again, and the log names the file."""

import json
import shutil
from pathlib import Path

import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.training_here import run_here, share_store
from helpers.trial_results import write_result
from helpers.user_project import EDITS, FILES, RUNS, Edit, edit, search_settings, write_project

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.storage import freeze_or_verify_settings
from nnlo_lib.train.task import Task

edits = pytest.mark.parametrize("change", EDITS, ids=[change.file for change in EDITS])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a project in which each run was trained and evaluated."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    share_store(folder)
    for run in RUNS:
        train(folder, run)
    return folder


@pytest.fixture
def project(trained, tmp_path):
    """Return a copy of the trained project."""
    return Path(shutil.copytree(trained, tmp_path / "moved", symlinks=True))


def train(folder: Path, run: str, *arguments: str) -> str:
    done = run_here("mine.yaml", "--run", run, *arguments, folder=folder)
    assert not done.returncode, done.stderr
    return done.stderr


def evaluate(folder: Path, run: str):
    return nnlo("evaluate", str(job(Path(), run)), "--trust", "--output", "again.json", folder=folder)


def job(folder: Path, run: str) -> Path:
    return folder / "results/mine" / run / "seed-0"


def test_every_kind_of_file_is_recorded_and_its_code_is_kept(trained):
    for run in RUNS:
        files = {change.file for change in EDITS if change.run == run}
        recorded = json.loads((job(trained, run) / "summary.json").read_text())["input_files"]
        assert set(recorded) == files
        kept = {path.name: path.read_text() for path in (job(trained, run) / "code").iterdir()}
        assert kept == {file: FILES[file] for file in files if file in FILES}


@edits
def test_an_edit_is_refused_by_the_evaluation_noted_by_verify_and_trained_again(project, change):
    history = (job(project, change.run) / "history.csv").read_text()
    edit(project, change.file)
    verified = nnlo("verify", str(job(project, change.run)), folder=project)
    assert f"code: {change.file} differs from the file that this training used" in verified.stdout
    again = evaluate(project, change.run)
    if change.file == "first.pt":  # the published weights replace the initial ones
        assert not again.returncode
    else:
        assert f"{change.file}: the file differs" in refused(again)
        assert f"kept as results/mine/{change.run}/seed-0/code/{change.file}" in refused(again)
    said = train(project, change.run)
    assert f"has the results of other files than the present {change.file}; set aside in" in said
    assert "resumed at" not in said
    assert (job(project, change.run) / "history.csv").read_text() != history
    assert not nnlo("verify", "results", folder=project).returncode


def test_a_moved_project_is_not_trained_again(project):
    weights = (job(project, "network") / "model.safetensors").read_bytes()
    said = train(project, "network")
    assert "already finished: mine/network seed 0" in said
    assert "changed" not in said
    assert (job(project, "network") / "model.safetensors").read_bytes() == weights
    assert not evaluate(project, "network").returncode


def test_more_epochs_after_an_edit_are_no_mixture(project):
    edit(project, "layers.py")
    said = train(project, "network", "--set", "train.epochs=2")
    assert "train.epochs was 1 and is 2; files changed: layers.py; set aside in" in said
    assert "resumed at" not in said
    for name in ("layers.py", "my_model.py"):
        assert (job(project, "network") / "code" / name).read_text() == (project / name).read_text()


def test_a_modified_copy_fails_verify(project):
    (job(project, "algorithm") / "code/loss.py").write_text("")
    (job(project, "algorithm") / "code/algorithm.py").unlink()
    verified = nnlo("verify", str(job(project, "algorithm")), folder=project)
    assert verified.returncode == 1
    assert "code/loss.py is damaged or was modified: its checksum differs" in verified.stdout
    assert "code/algorithm.py is missing" in verified.stdout


@edits
def test_a_search_refuses_to_go_on_after_an_edit(trained, tmp_path, monkeypatch, change):
    project = Path(shutil.copytree(trained, tmp_path / "project", ignore=shutil.ignore_patterns("results")))
    monkeypatch.chdir(project)
    experiment = Experiment.model_validate(search_settings(change.run))
    freeze_or_verify_settings(tmp_path, experiment)
    write_result(tmp_path)
    edit(project, change.file)
    with pytest.raises(UserError, match=rf'files\.{change.file} was "\w+" and is "\w+"'):
        freeze_or_verify_settings(tmp_path, experiment)


@pytest.mark.parametrize("change", [Edit("layers.py", "network"), Edit("problem.py", "problem")], ids=str)
def test_a_missing_file_is_refused_with_the_place_of_its_copy(project, monkeypatch, change):
    import nnlo_lib

    monkeypatch.chdir(project)
    (project / change.file).unlink()
    run = nnlo_lib.load_run(job(Path(), change.run))
    with pytest.raises(UserError, match=rf"{change.file}: the file is missing.*code/{change.file}"):
        run.model()


def test_contents_that_two_files_exchange_are_an_edit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    run, keys = Experiment.model_validate(search_settings("network")), []
    texts = [
        FILES[name] + "\n\ndef {}(outputs, targets):\n    pass\n" for name in ("output_loss.py", "metric.py")
    ]
    texts = [text.format(name) for text, name in zip(texts, ("share", "loss"), strict=True)]
    for order in (1, -1):
        for name, text in zip(("output_loss.py", "metric.py"), texts[::order], strict=True):
            (tmp_path / name).write_text(text)
        keys.append(Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint)
    assert keys[0] != keys[1]
