"""`nnlo verify` compares `final.val_*` with evaluation.json if both are of the same samples."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.nnlo_command import nnlo

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.content_checksum import with_checksum
from nnlo_lib.reliability.verify.verify_runs import verify_runs

pytestmark = pytest.mark.processes

# Nodes keep models of their own, and the data have no test split: the evaluation is of the validation samples.
EXPERIMENT = {
    "name": "t",
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "train": {"epochs": 1, "batch_size": 20},
    "parallel": {"ranks": 3, "transport": "simulated"},
    "runs": {"dsgd": {"algorithm": {"name": "dsgd"}, "topology": {"name": "cycle"}}},
}
JOB = "results/t/dsgd/seed-0"
DATA = {
    "held back": {"validation": 0.25},
    "validation": {"validation": "validation"},
}


@pytest.fixture(params=DATA)
def job(request, tmp_path, monkeypatch) -> RunPaths:
    """Return the finished training, in the working directory; the samples are of one split each."""
    monkeypatch.chdir(tmp_path)
    files = ["train", *(["validation"] if request.param == "validation" else [])]
    for seed, split in enumerate(files):
        draws = np.random.default_rng(seed)
        arrays = {"features": draws.random((120, 1, 4, 4), np.float32), "labels": np.arange(120) % 3}
        np.savez(f"{split}.npz", **arrays)
    reader = {"name": "arrays", **{split: f"{split}.npz" for split in files}}
    data = {"dataset": "mine", "source": ".", "reader": reader, **DATA[request.param]}
    Path("t.yaml").write_text(yaml.safe_dump({**EXPERIMENT, "data": data}))
    done = nnlo("run", "t.yaml", folder=tmp_path)
    assert done.returncode in (None, 0), done.stderr
    paths = RunPaths(Path(JOB))
    assert json.loads(paths.evaluation.read_text())["split"] == request.param
    return paths


def edited(file: Path, *path: str, factor: float) -> None:
    """Multiply a number of a JSON file and give the file its new checksum."""
    content = json.loads(file.read_text())
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] *= factor
    file.write_text(json.dumps(with_checksum(content)))


def test_an_edited_number_of_the_evaluation_or_the_summary_is_named(job, capsys):
    assert verify_runs([JOB], False) == 0
    assert (
        "2 validation metrics agree: evaluation.json, of the same samples, gives the same"
        in capsys.readouterr().out
    )
    original = {file: file.read_text() for file in (job.evaluation, job.summary)}
    final = json.loads(original[job.summary])["final"]
    evaluated = json.loads(original[job.evaluation])
    # A smaller and a larger change; the factor of a changed number is in the finding.
    for factor in (1.01, 0.5):
        edited(job.evaluation, "loss", factor=factor)
        assert verify_runs([JOB], False) == 1
        assert (
            f"FAILED  summary.json: final.val_loss is {final['val_loss']}, but evaluation.json, of the same samples, "
            f"gives {evaluated['loss'] * factor}" in capsys.readouterr().out
        )
        job.evaluation.write_text(original[job.evaluation])
        edited(job.summary, "final", "val_accuracy", factor=factor)
        assert verify_runs([JOB], False) == 1
        assert (
            f"FAILED  summary.json: final.val_accuracy is {final['val_accuracy'] * factor}, but evaluation.json, of the "
            f"same samples, gives {evaluated['accuracy']}" in capsys.readouterr().out
        )
        job.summary.write_text(original[job.summary])
    assert verify_runs([JOB], False) == 0


def test_the_model_evaluated_again_on_the_validation_samples(job, capsys):
    again = "the model, evaluated again on the validation samples,"
    assert verify_runs([JOB], False, evaluate=True) == 0
    assert f"2 validation metrics agree: {again} gives the same" in capsys.readouterr().out
    edited(job.summary, "final", "val_loss", factor=1.01)
    edited(job.evaluation, "loss", factor=1.01)
    assert verify_runs([JOB], False, evaluate=True) == 1
    assert f"but {again} gives" in capsys.readouterr().out
