"""Results of a finished search: trials.csv, best.yaml, and the run that trains the best trial."""

import csv
import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml
from helpers.nnlo_command import nnlo
from helpers.synthetic_search import MadeUp

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.search.trial_tables import compare_trials
from nnlo_lib.search.best import best_run, non_default_settings, write_outcome, write_table
from nnlo_lib.search.study.storage import load_study
from nnlo_lib.search.study.trial import FoldTask, Result


def point(lr, **more):
    return {"train.optimizer.lr": lr, **more}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def search(tmp_path):
    return lambda **settings: MadeUp(tmp_path, **settings)


def result(made, trial, fold, losses):
    """Write the result of a fold with these validation losses by epoch."""
    rows = tuple({"epoch": e, "seconds": e, "val_loss": loss} for e, loss in enumerate(losses, 1))
    Result(FoldTask(trial, fold, 9), "finished", rows, started=0, ended=9).write(made.folder)


def table(made):
    with (made.folder / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_best_trial_is_trained_for_the_epochs_that_its_folds_chose(search):
    made = search(folds={"k": 2}).trial(point(0.09)).trial(point(0.01, **{"train.batch_size": 32}))
    for fold, best in ((0, 3), (1, 6)):  # lowest val_loss
        result(made, 1, fold, [0.01 * abs(epoch - best) for epoch in range(1, 10)])
    run = best_run(made.folder)
    assert run.train.epochs == 5  # mean of 3 and 6, rounded up
    assert (run.train.optimizer.lr, run.train.batch_size) == (0.01, 32)
    assert run.data.validation == 0


def test_an_objective_of_the_last_epoch_trains_all_epochs(search):
    made = search(objective={"epoch": "last"}).trial(point(0.09)).trial(point(0.01), rungs=[1, 3])
    assert best_run(made.folder).train.epochs == 9


def test_the_table_has_a_row_for_each_trial(search):
    made = search(folds={"k": 3}, objective={"metric": "val_accuracy"})
    made.trial(worth=[0.1, 0.2, 0.4]).trial(status="failed", error="boom").trial(done=False)
    write_outcome(made.folder)
    whole, failed, running = table(made)
    folds = [float(whole[f"fold_{fold}"]) for fold in range(3)]
    assert folds == sorted(folds, reverse=True)
    assert float(whole["objective"]) == pytest.approx(fmean(folds))
    assert float(whole["standard_error"]) == pytest.approx(stdev(folds) / 3**0.5)
    assert float(whole["core_hours"]) == pytest.approx(2 * float(whole["seconds"]) / 3600, abs=1e-5)
    assert (whole["status"], whole["epochs"], whole["error"]) == ("finished", "9", "")
    assert (failed["status"], failed["objective"], failed["error"]) == ("failed", "", "boom")
    assert (running["status"], running["objective"], running["fold_0"]) == ("running", "", "")


def test_the_file_of_the_best_is_an_experiment_without_default_settings(search):
    model = {"name": "simplecnn", "args": {"dropout": 0.5}}
    made = search(base={"model": model, "seeds": [4, 5], "parallel": {"ranks": 3}}, folds={"k": 2})
    made.trial({"algorithm.name": "average", "algorithm.sync_every": 5, "train.optimizer.lr": 0.02})
    write_outcome(made.folder)
    file = made.folder / "best.yaml"
    experiment = load_experiment(file)
    assert dict(experiment.variants["average"]) == dict(best_run(made.folder))
    assert (experiment.seeds, experiment.folds, experiment.search) == ((4, 5), 1, None)
    assert yaml.safe_load(file.read_text()) == {
        "name": "made-best", "data": {"validation": 0.0}, "model": model,
        "train": {"epochs": 9, "optimizer": {"name": "adam", "lr": 0.02}},
        "algorithm": {"name": "average", "sync_every": 5}, "parallel": {"ranks": 3}, "seeds": [4, 5],
    }  # fmt: skip
    comments = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert any("trial 0" in line for line in comments)
    assert {f"#   nnlo {command} {made.folder}/best.yaml" for command in ("run", "all")} <= set(comments)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"train": {"optimizer": {"name": "sgd"}}},
        {"topology": {"name": "sequence", "of": [{"name": "path"}, {"name": "star"}]}},
        {"algorithm": {"name": "downpour", "optimizer": {"name": "adam", "lr": 0.5}}, "parallel": {"ranks": 5}},
        {"data": {"normalize": {"mean": [0.5], "std": [0.2]}, "partition": {"name": "dirichlet"}}},
        {"compression": {"name": "top_k"}, "train": {"schedule": {"name": "linear", "final": 0.001}}},
        {"data": {"dataset": "jets", "source": "/x", "reader": {"name": "folder", "size": 32}}},
    ],
)  # fmt: skip
def test_what_is_written_is_read_back_the_same(settings):
    experiment = Experiment.model_validate(settings)
    assert Experiment.model_validate(non_default_settings(experiment)) == experiment


def test_a_search_of_failed_trials_names_the_most_frequent_error(search):
    made = search().trial(status="failed", error="rare")
    made.trial(status="failed", error="out of memory").trial(status="failed", error="out of memory")
    with pytest.raises(UserError, match=r"none of 3 trials has a valid result; 2 of them: out of memory"):
        write_outcome(made.folder)
    assert [row["status"] for row in table(made)] == ["failed"] * 3
    assert not (made.folder / "best.yaml").exists()


def test_a_search_without_trials_says_so(search):
    with pytest.raises(UserError, match="the search has no trials yet"):
        write_outcome(search().folder)


def test_a_failed_trial_is_not_the_best_however_good_it_looked(search):
    made = search().trial(point(0.09)).trial(point(0.01), worth=[-5.0], status="failed", error="killed")
    assert best_run(made.folder).train.optimizer.lr == 0.09


WATCHED = {
    "train": {
        "early_stopping": "val_loss,<,4", "target": "train_acc,>,0.9", "restore_best": "val_loss", "validate_every": 5,
        "evaluate_before": True, "epochs": 9,
    }
}  # fmt: skip
PLATEAU = {"train": {"schedule": {"name": "plateau"}, "early_stopping": "val_loss,<,4", "epochs": 9}}


def test_settings_that_watch_validation_are_removed_with_the_validation_samples(search):
    made = search(base=WATCHED).trial(point(0.01))
    write_outcome(made.folder)
    best = load_experiment(made.folder / "best.yaml")
    assert best.data.validation == 0
    assert best.train.watched == {"target": "train_accuracy"}
    assert (best.train.validate_every, best.train.evaluate_before) == (None, False)
    assert "are removed: train.early_stopping, train.restore_best." in (made.folder / "best.yaml").read_text()


@pytest.mark.parametrize(("validation", "held"), [(0.2, 0.2), (0, 0.5)])
def test_a_learning_rate_that_follows_validation_keeps_validation_samples(search, validation, held):
    made = search(base=PLATEAU | {"data": {"validation": validation}}, folds={"k": 2}).trial(point(0.01))
    write_outcome(made.folder)
    best = load_experiment(made.folder / "best.yaml")
    assert best.data.validation == held
    assert set(best.train.watched) == {"schedule", "early_stopping"}
    assert "the learning-rate schedule uses val_loss" in (made.folder / "best.yaml").read_text()


def test_a_trial_that_ended_by_itself_is_trained_as_long_where_the_last_epoch_counts(search):
    made = search(base=WATCHED, objective={"epoch": "last"}, folds={"k": 2}).trial(point(0.01))
    for fold, epochs in ((0, 4), (1, 6)):
        result(made, 0, fold, [1 / epoch for epoch in range(1, epochs + 1)])
    assert best_run(made.folder).train.epochs == 5
    write_outcome(made.folder)
    assert "5 epochs: mean number of epochs of its folds (4, 6)." in (made.folder / "best.yaml").read_text()


def test_a_fold_keeps_its_column_while_an_earlier_one_is_missing(search):
    made = search(folds={"k": 3}).trial(point(0.01), done=False)
    values = {0: 0.5, 2: 0.25}  # fold 1 still trains
    for fold, value in values.items():
        result(made, 0, fold, [value] * 9)
    write_table(made.folder / "trials.csv", load_study(made.folder))
    [row] = table(made)
    assert row["status"] == "running"
    assert {fold: float(row[f"fold_{fold}"]) for fold in values} == values
    assert row["fold_1"] == ""


def test_trials_are_compared_on_the_same_folds_only(search):
    made = search(folds={"k": 3}).trial(point(0.01), done=False).trial(point(0.09), done=False)
    for trial, folds in enumerate([(0, 1), (0, 2)]):
        for fold in folds:
            result(made, trial, fold, [0.1 + fold] * 9)
    assert compare_trials(StudyData(load_study(made.folder))) == []


def test_results_of_the_best_trial_are_set_aside_if_another_trial_becomes_the_best(search):
    made = search().trial(point(0.09))
    best = ExperimentPaths(made.folder.parent.name).folder / "best"

    def choose():
        nnlo("task", "search-results", "--folder", str(made.folder), "--best", folder=Path.cwd())
        config = json.loads((best / "config.json").read_text())["run"]
        summary = dict.fromkeys(("run", "seconds", "samples_per_second", "bytes_sent", "epochs"), 1)
        summary |= {"seed": 0, "ranks": 1, "config": config}
        (best / "seed-0").mkdir(exist_ok=True)
        (best / "seed-0/summary.json").write_text(json.dumps(summary))

    choose()
    before = (best / "seed-0/summary.json").read_text()
    made.trial(point(0.01))
    choose()
    assert (best / "former/1-seed-0/summary.json").read_text() == before
