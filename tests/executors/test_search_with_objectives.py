"""A search for accuracy and few parameters, with real trainings in this process."""

import csv
import os

import pytest
from helpers.training_here import attempt_here, digits, share_store

from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.experiment.load import experiment_from_settings, load_experiment
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.report.page import report_outcome
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.study.storage import freeze_or_verify_settings, write_config
from nnlo_lib.search.study.study import Study, replay, run_study

SETTINGS = {
    "name": "t", "model": {"name": "simplemlp", "args": {"layers": 1}}, "parallel": {"transport": "simulated"},
    "train": {"epochs": 2, "batch_size": 128, "optimizer": {"name": "adam", "lr": 0.01}},
    "search": {
        "space": {"model.args.hidden": [2, 4, 64]}, "method": {"name": "grid"},
        "objective": [{"metric": "val_accuracy"}, {"metric": "parameters"}],
    },
}  # fmt: skip


@pytest.mark.long("trains three small networks")
def test_a_search_for_accuracy_and_few_parameters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    share_store(tmp_path)
    assert digits().exists()
    experiment = experiment_from_settings(SETTINGS)
    folder = ExperimentPaths("t").search.folder
    write_config(experiment)
    freeze_or_verify_settings(folder, experiment)

    class Here:
        def start(self, fold_task):
            train_fold_task(
                experiment, folder, fold_task, LaunchOptions(), lambda task, _: attempt_here(task)
            )

        def wait(self):
            return True

    assert run_study(Study.of(folder, experiment), Here())
    assert replay(folder, experiment.search, 2, build_sampler(experiment.search)) == []
    assert report_outcome(folder) == 0
    assert "trials.csv): with the best val_accuracy (search.choose: first)" in capsys.readouterr().out
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    # Weights and biases of 64 -> hidden -> 10.
    hidden = {row["trial"]: int(row["model.args.hidden"]) for row in rows}
    sizes = {row["trial"]: float(row["objective_parameters"]) for row in rows}
    assert sizes == {trial: 65 * each + 10 * each + 10 for trial, each in hidden.items()}
    best = max(rows, key=lambda row: float(row["objective"]))
    front = {row["trial"] for row in rows if row["front"]}
    assert front >= {best["trial"], min(sizes, key=sizes.get)}
    assert load_experiment(folder / "best.yaml").model.args["hidden"] == hidden[best["trial"]]
    page = (folder / "report.html").read_text()
    assert "val_accuracy against parameters" in page
    assert os.fspath(folder) in page
