"""Results of an experiment, predictions of new rows and exported programs: numbers by pandas and numpy, and refusals."""

import csv
import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.nnlo_command import nnlo, refused
from safetensors.numpy import load_file

import nnlo_lib
from nnlo_lib.config import Experiment
from nnlo_lib.data.store_location import locate_store
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_store
from nnlo_lib.workflow import model_export

READER = {"name": "table", "label": "kind", "missing": "median", "categorical": ["zip"], "exclude": ["id"]}
ONE_EPOCH = {"train": {"epochs": 1}}
SETTINGS = {
    "data": {"dataset": "people", "source": "people.csv", "normalize": "standard", "reader": READER},
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "train": {"epochs": 12, "batch_size": 20, "optimizer": {"name": "adam", "lr": 0.01}},
    "parallel": {"ranks": 1, "transport": "simulated"},
    "runs": {"long": {}, "short": ONE_EPOCH},
}
CLASSES = ["high", "low", "mid"]
ONNX = ("onnx", "onnxscript", "onnxruntime")


def train(settings, folder="results/people"):
    """Train and evaluate all runs with the seeds 0 and 1 in the working directory."""
    for name, run in Experiment.model_validate(settings).variants.items():
        store = locate_store(run.data.store_settings)
        prepare_store(store)
        for seed in (0, 1):
            task = Task(
                "people", name, run, seed, None, 1, store.manifest, Path(f"{folder}/{name}/seed-{seed}")
            )
            assert train_simulated(task, StopFlag())
            evaluate_model(run, store.manifest, task.paths.model, task.paths.evaluation)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a folder with a table and the four trainings of an experiment; the table is gone."""
    folder = tmp_path_factory.mktemp("people")
    draw = np.random.default_rng(0)
    age, city = draw.normal(40, 10, 200).round(1), draw.choice(["bern", "oslo", "rome"], 200)
    table = pd.DataFrame({"age": age, "city": city, "zip": draw.choice(["0123", "0456", "A12"], 200)})
    table["kind"] = np.array(["low", "mid", "high"])[(age > 40).astype(int) + (city == "rome")]
    table.loc[7, "age"] = np.nan
    table["id"] = np.arange(200)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        table.to_csv("people.csv", index=False)
        train(SETTINGS)
        train_on_arrays()
    (folder / "people.csv").rename(folder / "gone.csv")
    return folder


def train_on_arrays():
    """Train a regression on arrays of two columns."""
    x = np.random.default_rng(1).normal(size=(60, 2)).astype(np.float32)
    Path("numbers").mkdir()
    np.savez("numbers/all.npz", x=x, y=x.sum(1))
    reader = {"name": "arrays", "train": "all.npz", "features": "x", "labels": "y", "one_hot": False}
    data = {"dataset": "numbers", "source": "numbers", "reader": reader, "validation": 0.2}
    settings = {**SETTINGS, "data": data, "problem": {"name": "regression"}, "runs": {"r": ONE_EPOCH}}
    train(settings, "results/numbers")


def new_rows(project):
    """Return rows of the table in reverse order and without labels; one has no age and one a city of no training row."""
    rows = pd.read_csv(project / "gone.csv", dtype={"zip": str}).drop(columns="kind")[["city", "zip", "age"]][
        :20
    ][::-1]
    rows.iloc[3, 0] = "lima"
    return rows.reset_index(drop=True)


def expected_scores(project, rows, run="long/seed-0"):
    """Return the scores of a published network, by numpy."""
    folder = project / "results/people" / run
    trained = nnlo_lib.load_run(folder)
    weights, moments = load_file(folder / "model.safetensors"), trained.summary["data"]["normalization"][0]
    (manifest,) = project.glob("data/people/*/manifest.json")
    median = float(re.search(r"age: missing values \(1\) are ([\d.]+), the median", manifest.read_text())[1])
    places = {"city": ["bern", "oslo", "rome"], "zip": ["0123", "0456", "A12"]}
    encoded = [rows["age"].fillna(median)] + [rows[name] == each for name in places for each in places[name]]
    inputs = (np.array(encoded, np.float64).T - moments["mean"]) / moments["std"]
    hidden = np.maximum(inputs @ weights["1.0.weight"].T + weights["1.0.bias"], 0)
    return hidden @ weights["2.weight"].T + weights["2.bias"]


def test_predictions_of_a_file_and_of_a_data_frame(project):
    rows = new_rows(project)
    ids = [f"{number:03d}" for number in range(20)]
    rows.assign(id=ids).to_csv(project / "new.csv", index=False)
    done = nnlo("predict", "results/people/long/seed-0", "new.csv", "--output", "out.csv", folder=project)
    assert done.stdout == "out.csv: 20 rows of new.csv, predicted by results/people/long/seed-0\n"
    assert "new.csv: columns that the model does not use: id" in done.stderr
    assert "city: rows with a value that no training row has: 1" in done.stderr
    written, scores = pd.read_csv(project / "out.csv", dtype={"id": str}), expected_scores(project, rows)
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert list(written) == ["row", "id", "predicted", *(f"probability_{name}" for name in CLASSES)]
    assert written["id"].tolist() == ids
    assert written["predicted"].tolist() == [CLASSES[k] for k in scores.argmax(1)]
    np.testing.assert_allclose(written.iloc[:, 3:], shares, atol=1e-5)
    run = nnlo_lib.load_run(project / "results/people/long/seed-0")
    assert run.classes == CLASSES
    np.testing.assert_allclose(run.predict(rows), scores, atol=1e-4)


REFUSED_ROWS = {
    "a column of another name": ({"age": "agee"}, None, r"no column 'age'; rename 'agee' if it is meant"),
    "infinity": ({}, "inf", "row 3, column age: inf is infinite"),
    "a text": ({}, "old", "row 3, column age: 'old' is no number; the training rows have numbers"),
}


@pytest.mark.parametrize("case", REFUSED_ROWS)
def test_rows_that_do_not_fit_are_refused_with_row_and_column(project, case):
    names, cell, message = REFUSED_ROWS[case]
    rows = new_rows(project).rename(columns=names).astype(object)
    if cell:
        rows.loc[2, "age"] = cell
    rows.to_csv(project / "bad.csv", index=False)
    done = nnlo("predict", "results/people/long/seed-0", "bad.csv", "--output", "bad-out.csv", folder=project)
    assert done.returncode == 2
    assert f"bad.csv: {message}" in done.stderr
    assert not (project / "bad-out.csv").exists()


def test_arrays_are_predicted_and_nan_is_refused_with_row_and_column(project):
    x = np.random.default_rng(2).normal(size=(5, 2)).astype(np.float32)
    np.save(project / "x.npy", x)
    done = nnlo("predict", "results/numbers/r/seed-1", "x.npy", "--output", "y.csv", folder=project)
    assert done.stdout.startswith("y.csv: 5 rows of x.npy")
    weights = load_file(project / "results/numbers/r/seed-1/model.safetensors")
    hidden = np.maximum(x @ weights["1.0.weight"].T + weights["1.0.bias"], 0)
    expected = (hidden @ weights["2.weight"].T + weights["2.bias"])[:, 0]
    np.testing.assert_allclose(pd.read_csv(project / "y.csv")["predicted"], expected, atol=1e-5)
    x[3, 1] = np.nan
    np.savez(project / "x.npz", x=x)
    arguments = ("predict", "results/numbers/r/seed-1", "x.npz", "--output", "y2.csv")
    assert "x.npz: x: row 4, column 2 is nan" in refused(nnlo(*arguments, folder=project))
    with pytest.raises(nnlo_lib.UserError, match="predict: x: row 4, column 2 is nan"):
        nnlo_lib.load_run(project / "results/numbers/r/seed-1").predict(x)


def test_the_best_run_has_the_best_mean_of_validations_and_is_its_best_seed(project):
    results = nnlo_lib.load_results(project / "results/people")
    tested = [{f"test_{name}": run.evaluation[name] for name in ("loss", "accuracy")} for run in results.runs]
    rows = [
        {
            "run": run.run,
            "seed": run.summary["seed"],
            "loss": final["val_loss"],
            "accuracy": final["val_accuracy"],
            **test,
        }
        for run, test in zip(results.runs, tested, strict=True)
        for final in [run.summary["final"]]
    ]
    table = pd.DataFrame(rows)
    for metric, best in (
        ("loss", "min"),
        ("accuracy", "max"),
        ("test_loss", "min"),
        ("test_accuracy", "max"),
    ):
        means = table.groupby("run")[metric].mean()
        rows = table[table["run"] == getattr(means, f"idx{best}")()].set_index("seed")[metric]
        found = results.best(metric)
        assert found.key[:2] == (getattr(means, f"idx{best}")(), getattr(rows, f"idx{best}")())
    assert results.best().key == results.best("accuracy").key
    assert results.best("val_loss").key == results.best("loss").key
    np.testing.assert_array_equal(results.table["loss"], table["test_loss"])
    message = "no metric 'acuracy' ranks the runs; did you mean 'accuracy'"
    with pytest.raises(nnlo_lib.UserError, match=message):
        results.best("acuracy")


def test_a_folder_above_the_runs_lists_them(project):
    message = "4 are below it: long/seed-0, long/seed-1, short/seed-0, short/seed-1"
    with pytest.raises(nnlo_lib.UserError, match=message):
        nnlo_lib.load_run(project / "results/people")
    with pytest.raises(nnlo_lib.UserError, match="no finished and evaluated training below it"):
        nnlo_lib.load_results(project / "data")
    best = project / "searched/search/best.yaml"
    best.parent.mkdir(parents=True)
    best.touch()
    with pytest.raises(nnlo_lib.UserError, match=r"nnlo run \S+/best.yaml\) and name \S+/searched-best"):
        nnlo_lib.load_results(project / "searched")


def exported(project, file):
    done = nnlo("export", "results/people", file, folder=project)
    best = nnlo_lib.load_results(project / "results/people").best().folder.relative_to(project)
    assert f"{file}: program of {best} with the normalization, inputs features float32 (n, 7)" in done.stdout
    return "/".join(best.parts[-2:])


def encoded_by(description, file):
    """Return the inputs of raw rows as someone without NNLO makes them of the description beside a program, by the csv module."""
    with open(file, newline="") as lines:
        rows = [{name: cell.strip() for name, cell in row.items()} for row in csv.DictReader(lines)]
    columns = []
    for column in description["columns"]:
        cells = [row[column["name"]] for row in rows]
        cells = [column["missing"] if cell in description["missing"] else cell for cell in cells]
        if column["encoding"] == "number":
            columns.append([float(str(cell).replace(description["decimal"], ".")) for cell in cells])
        else:
            assert (column["encoding"], column["unknown"]) == ("one_hot", "zeros")
            columns += [[float(cell == value) for cell in cells] for value in column["values"]]
    return np.array(columns, description["inputs"][0]["dtype"]).T


def check_program(project, file, description, run):
    """Compare the outputs of a program for raw rows with `nnlo predict` and with numpy; `run` calls it with its inputs."""
    rows = new_rows(project)
    rows.loc[5, "zip"] = "N/A"
    rows.to_csv(project / "raw.csv", index=False)
    best = exported(project, file)
    beside = json.loads((project / f"{file}.json").read_text())
    assert beside == json.loads(description())
    scores = run(encoded_by(beside, project / "raw.csv"))
    most = pd.read_csv(project / "gone.csv", dtype=str)["zip"].mode()[0]
    expected = expected_scores(project, rows.replace({"zip": {"N/A": most}}), best)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    nnlo("predict", "results/people", "raw.csv", "--output", "by_nnlo.csv", folder=project)
    predicted = pd.read_csv(project / "by_nnlo.csv")
    assert beside["outputs"]["probabilities"] == "softmax"
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(
        predicted[[f"probability_{name}" for name in beside["classes"]]], shares, atol=1e-5
    )
    assert predicted["predicted"].tolist() == [beside["classes"][k] for k in scores.argmax(1)]


def test_a_torch_program_and_its_description_predict_raw_rows_without_nnlo(project):
    def description():
        content = {"nnlo.json": ""}
        torch.export.load(project / "m.pt2", extra_files=content)
        return content["nnlo.json"]

    def run(inputs):
        return torch.export.load(project / "m.pt2").module()(torch.from_numpy(inputs)).detach().numpy()

    check_program(project, "m.pt2", description, run)


@pytest.mark.exhaustive
@pytest.mark.skipif(not all(map(find_spec, ONNX)), reason=f"{', '.join(ONNX)} are not all installed")
def test_an_onnx_program_and_its_description_predict_raw_rows_without_nnlo(project):
    import onnxruntime

    def session():
        return onnxruntime.InferenceSession(str(project / "m.onnx"))

    def run(inputs):
        return session().run(None, {session().get_inputs()[0].name: inputs})[0]

    check_program(project, "m.onnx", lambda: session().get_modelmeta().custom_metadata_map["nnlo"], run)


def test_files_of_a_training_and_the_samples_are_not_overwritten(project):
    new_rows(project).to_csv(project / "same.csv", index=False)
    folder = "results/people/long/seed-0"
    for command in (
        ("export", folder, f"{folder}/partition.npz"),
        ("predict", folder, "same.csv", "--output", f"{folder}/history.csv"),
    ):
        assert "exists in the folder of a training" in nnlo(*command, folder=project).stderr
    done = nnlo("predict", folder, "same.csv", "--output", "same.csv", folder=project)
    assert "same.csv is the file of the samples" in refused(done)


def test_a_program_with_other_outputs_is_not_written(project, monkeypatch):
    forward = model_export.NormalizedModel.forward
    monkeypatch.setattr(
        model_export.NormalizedModel, "forward", lambda self, *inputs: forward(self, *inputs) + 0.01
    )
    done = nnlo("export", "results/people/long/seed-0", "wrong.pt2", folder=project)
    assert "wrong.pt2: not written, because the program's outputs differ" in refused(done)
    assert not (project / "wrong.pt2").exists()


@pytest.mark.skipif(all(map(find_spec, ONNX)), reason="the packages of ONNX are installed")
def test_onnx_without_its_packages_names_the_command(project):
    done = nnlo("export", "results/people/long/seed-0", "m.onnx", folder=project)
    assert "pip install 'nnlo[onnx]'" in refused(done)


def test_images_for_a_model_of_arrays_are_refused_with_what_it_reads(project):
    (project / "photos").mkdir(exist_ok=True)
    np.save(project / "one.npy", np.zeros((1, 3), np.float32))
    done = nnlo("predict", "results/numbers/r/seed-1", "photos", "--output", "y.csv", folder=project)
    assert "photos: a folder, but the model was trained with the reader arrays; name a file" in refused(done)
    done = nnlo(
        "predict", "results/numbers/r/seed-1", "one.npy", "people.csv", "--output", "y.csv", folder=project
    )
    assert "people.csv: no such file" in refused(done)
