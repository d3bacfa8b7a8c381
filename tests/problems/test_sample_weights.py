"""Weights of samples from a column of a table: a sample of weight 2 is the sample twice, in trainings, validations and evaluations."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers.nnlo_command import nnlo, refused
from helpers.training_here import run_here
from safetensors.torch import load_file
from sklearn import metrics as scikit_learn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.set_metrics import FALSE_POSITIVE_RATES, roc_curve
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_dataset

CLASSES = [
    "accuracy", "balanced_accuracy", "top2_accuracy", "f1", "roc_auc", "average_precision", "calibration_error",
]  # fmt: skip
CASES = {
    "classes": {"metrics": CLASSES, "problem": {"class_weights": {"1": 4}}},
    "numbers": {"metrics": ["mae", "r2"], "problem": "regression", "loss": "mse"},
}


def table(rows, seed):
    draw = np.random.default_rng(seed)
    found = pd.DataFrame(draw.normal(size=(rows, 3)), columns=["a", "b", "c"])
    found["y"] = np.arange(rows) % 7 % 3
    # Half of the numbers of copies: only ratios count.
    return found.assign(w=draw.integers(0, 4, rows) / 2)


def trained(folder, tables, kind, weight, ranks, compute="exact", placement="host"):
    """Train on all rows in each step, validate on the test rows; return weights, history and evaluation."""
    folder.mkdir()
    for name, rows in tables.items():
        rows.to_csv(folder / f"{name}.csv", index=False)
    reader = {"name": "table", "train": "train.csv", "test": "test.csv", "label": "y", "target": kind}
    reader |= {"weight": "w"} if weight else {"exclude": "w"}
    data = {"dataset": "mine", "source": str(folder), "reader": reader, "validation": "test"}
    settings = CASES[kind] | {
        "data": data | {"normalize": "unit", "placement": placement},
        "model": {"name": "simplemlp", "args": {"hidden": 5, "layers": 1}},
        "parallel": {"ranks": ranks, "transport": "simulated", "simulation": {"compute": compute}},
        "train": {"epochs": 3, "batch_size": -(-len(tables["train"]) // ranks), "precision": "float64"},
    }
    run, manifest = Run.model_validate(settings), folder / "store" / "manifest.json"
    prepare_dataset(run.data, manifest.parent)
    assert train_simulated(Task("t", "run", run, 0, None, 1, manifest, folder / "job"), StopFlag())
    evaluate_model(run, manifest, folder / "job/model.safetensors", folder / "job/evaluation.json")
    measured = json.loads((folder / "job/evaluation.json").read_text())
    evaluated = {key: measured[key] for key in ("loss", *CASES[kind]["metrics"])}
    rows = read_rows(folder / "job/state/history.jsonl")
    history = [{key: row[key] for key in row if key.startswith(("train_", "val_"))} for row in rows]
    return load_file(folder / "job/model.safetensors"), history, evaluated


@pytest.mark.parametrize(("kind", "ranks", "options"), [
    ("classes", 3, {"placement": "device"}), ("classes", 3, {"compute": "batched"}), ("numbers", 2, {}),
])  # fmt: skip
def test_a_weight_is_the_number_of_copies_of_a_sample(tmp_path, kind, ranks, options):
    tables = {"train": table(50, 1), "test": table(41, 2)}
    copies = {name: rows.loc[rows.index.repeat((2 * rows["w"]).astype(int))] for name, rows in tables.items()}
    found = trained(tmp_path / "weighted", tables, kind, True, ranks, **options)
    expected = trained(tmp_path / "copied", copies, kind, False, 1)
    for name, values in found[0].items():
        np.testing.assert_allclose(values, expected[0][name], rtol=1e-10, atol=1e-12)
    for one, other in zip(found[1], expected[1], strict=True):
        assert one == pytest.approx(other, rel=1e-9)
    # Outputs are saved as float32.
    assert found[2] == pytest.approx(expected[2], rel=1e-6)


@pytest.mark.parametrize("fold", [None, 0, 2])
def test_training_and_held_out_samples_have_the_mean_weight_1(tmp_path, fold):
    rows = table(30, 3).assign(w=lambda found: np.where(found.index < 18, found["w"] + 1e-3, 0))
    rows.to_csv(tmp_path / "a.csv", index=False)
    reader = {"name": "table", "label": "y", "weight": "w", "test_fraction": 0}
    source = {"dataset": "mine", "source": str(tmp_path / "a.csv"), "reader": reader, "validation": 0.2}
    run = Run.model_validate({"data": source, "parallel": {"ranks": 2}, "model": {"name": "simplemlp"}})
    prepare_dataset(run.data, tmp_path / "store")
    data = TrainingData(Task("t", "r", run, 7, fold, 3, tmp_path / "store/manifest.json", tmp_path), 2)
    held_out, samples = data.validation_set
    for split, used in ((data.split, np.concatenate(data.worker_samples)), (held_out, samples)):
        (inputs,), targets = split.take(used)
        weights = rows["w"].to_numpy()[used]
        np.testing.assert_allclose(targets.imag, weights / weights.mean(), rtol=1e-14)
        np.testing.assert_array_equal(targets.real, rows["y"].to_numpy()[used])
        np.testing.assert_array_equal(inputs, rows[["a", "b", "c"]].to_numpy(np.float32)[used])
    message = "weight: the 12 samples of a training or an evaluation all have weight 0"
    with pytest.raises(UserError, match=message):
        data.split.weighted(np.arange(18, 30))


def test_a_weighted_curve_is_that_of_scikit_learn():
    draw = np.random.default_rng(4)
    targets, scores, weights = draw.integers(0, 2, 80), draw.random(80), draw.exponential(size=80)
    outputs = np.stack([1 - scores, scores], axis=1)
    false, true, _ = scikit_learn.roc_curve(targets, scores, sample_weight=weights)
    np.testing.assert_allclose(
        roc_curve(outputs, targets, weights)[1:], np.interp(FALSE_POSITIVE_RATES[1:], false, true)
    )


def test_a_model_evaluates_and_predicts_rows_without_the_column(tmp_path):
    table(60, 5).to_csv(tmp_path / "a.csv", index=False)
    table(30, 6).drop(columns="w").to_csv(tmp_path / "b.csv", index=False)
    reader = "{name: table, label: y, weight: w}"
    data = f"data: {{dataset: a, source: a.csv, reader: {reader}}}"
    text = "name: t\nmodel: simplemlp\nmetrics: [accuracy]\ntrain: {epochs: 1}\nparallel: {transport: simulated}\n"
    (tmp_path / "t.yaml").write_text(text + data)
    assert not run_here("t.yaml", folder=tmp_path).returncode
    model, other = str(next(tmp_path.glob("results/t/*/seed-*")).relative_to(tmp_path)), "data.source=b.csv"
    done = nnlo("predict", model, "b.csv", "--output", "p.csv", folder=tmp_path)
    assert not done.returncode, done.stderr
    predicted = pd.read_csv(tmp_path / "p.csv")
    message = refused(nnlo("evaluate", model, "--set", other, folder=tmp_path))
    assert "data.reader.weight: no column w; the columns are a, b, c, y" in message
    keys = other, "data.reader.weight=null", "data.reader.test_fraction=0"
    changes = [part for key in keys for part in ("--set", key)]
    done = nnlo("evaluate", model, *changes, "--split", "train", "--output", "e.json", folder=tmp_path)
    assert not done.returncode, done.stderr
    right = (predicted["predicted"] == predicted["y"]).mean()
    assert json.loads((tmp_path / "e.json").read_text())["accuracy"] == pytest.approx(right)
