"""`nnlo verify` compares `final.val_*` with evaluation.json if both are of the same samples."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.trainings_in_process import EXPERIMENT, train_here

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.content_checksum import with_checksum

JOB = "results/t/dsgd/seed-0"
DATA = {"held back": {"validation": 0.25}, "validation": {"validation": "validation"}}


@pytest.fixture(scope="module", params=DATA)
def trained(request, tmp_path_factory) -> Path:
    """Return a folder with a training without a test split: the evaluation is of the validation samples.

    Nodes keep models of their own; the samples are of one split each.
    """
    folder = tmp_path_factory.mktemp("validated")
    splits = ["train", *(["validation"] if request.param == "validation" else [])]
    with contextlib.chdir(folder):
        for seed, split in enumerate(splits):
            draws = np.random.default_rng(seed)
            arrays = {"features": draws.random((120, 1, 4, 4), np.float32), "labels": np.arange(120) % 3}
            np.savez(f"{split}.npz", **arrays)
        reader = {"name": "arrays", **{split: f"{split}.npz" for split in splits}}
        data = {"dataset": "mine", "source": ".", "reader": reader, **DATA[request.param]}
        runs = {"dsgd": {"algorithm": {"name": "dsgd"}, "topology": {"name": "cycle"}}}
        job = train_here(Experiment.model_validate(EXPERIMENT | {"data": data, "runs": runs}), "dsgd")
        assert json.loads((job / "evaluation.json").read_text())["split"] == request.param
    return folder


@pytest.fixture
def job(trained, tmp_path, monkeypatch) -> RunPaths:
    """Return the training in a copy of the folder, which is the working directory."""
    shutil.copytree(trained, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return RunPaths(Path(JOB))


def edited(file: Path, *path: str, factor: float) -> None:
    """Multiply a number of a JSON file and give the file its new checksum."""
    content = place = json.loads(file.read_text())
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] *= factor
    file.write_text(json.dumps(with_checksum(content)))


def test_an_edited_number_of_the_evaluation_or_of_the_summary_is_named(job, verified):
    status, found = verified(JOB)
    assert status == 0
    agree = "2 validation metrics agree: evaluation.json, of the same samples, gives the same"
    assert any(agree in line for line in found["ok"])
    before = {file: file.read_text() for file in (job.evaluation, job.summary)}
    final, evaluated = json.loads(before[job.summary])["final"], json.loads(before[job.evaluation])
    # A smaller and a larger change; the factor of a changed number is in the finding.
    for factor in (1.01, 0.5):
        for file, path, (name, one, other) in (
            (job.evaluation, ["loss"], ("val_loss", final["val_loss"], evaluated["loss"] * factor)),
            (
                job.summary,
                ["final", "val_accuracy"],
                ("val_accuracy", final["val_accuracy"] * factor, evaluated["accuracy"]),
            ),
        ):
            edited(file, *path, factor=factor)
            status, found = verified(JOB)
            assert status == 1
            said = f"summary.json: final.{name} is {one}, but evaluation.json, of the same samples, gives {other}"
            assert any(line.startswith(said) for line in found["FAILED"])
            file.write_text(before[file])


def test_the_model_is_evaluated_again_on_the_validation_samples(job, verified):
    again = "the model, evaluated again on the validation samples,"
    status, found = verified(JOB, evaluate=True)
    assert status == 0
    assert any(f"2 validation metrics agree: {again} gives the same" in line for line in found["ok"])
    edited(job.summary, "final", "val_loss", factor=1.01)
    edited(job.evaluation, "loss", factor=1.01)
    status, found = verified(JOB, evaluate=True)
    assert status == 1
    assert any(f"but {again} gives" in line for line in found["FAILED"])
