"""What the folder of a training has of its results, for each state that a user meets."""

import json
import shutil
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers.observed_training import watched
from helpers.training_here import simulate

from nnlo_lib.config import Experiment, JobSpec
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.errors import StopRequestedError, UserError
from nnlo_lib.launch.attempt import LaunchOptions, complete_task
from nnlo_lib.train.evaluation import evaluate
from nnlo_lib.train.freshness import is_evaluated, status
from nnlo_lib.workflow.outcome import outdated_outputs, task_of
from nnlo_lib.workflow.plan import Plan

EDITS = {
    "nothing": ({}, "finished", ""),
    "resources": ({"resources": {"runtime": 7}}, "finished", ""),
    "setting": ({"train": {"batch_size": 32}}, "outdated", "train.batch_size was 20 and is 32"),
    "more epochs": ({"train": {"epochs": 4}}, "outdated", "train.epochs was 3 and is 4"),
    "fewer epochs": ({"train": {"epochs": 2}}, "longer", "results of 3 epochs, which a training of 2 would"),
    "fewer epochs of another run": (
        {"train": {"epochs": 2, "batch_size": 32}},
        "outdated",
        "batch_size was 20 and is 32",
    ),
    "fewer steps": ({"train": {"steps_per_epoch": 1}}, "longer", "a training of 3 would replace"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, small_store):
    """Return a finished task."""
    return simulate(watched(tmp_path_factory.mktemp("trained") / "job", small_store, {}))


@pytest.fixture
def task(trained, tmp_path):
    """Return a copy of the finished task, with a manifest of its own."""
    shutil.copytree(trained.folder, tmp_path / "job")
    return replace(trained, folder=tmp_path / "job")


@pytest.mark.parametrize("edit", EDITS)
def test_results_after_an_edit_of_the_experiment(trained, edit):
    changes, kind, reason = EDITS[edit]
    found = status(watched(trained.folder, trained.manifest, {}, **changes))
    assert found.kind == kind
    assert reason in found.reason


def test_an_interrupted_training_is_resumable_and_a_longer_one_does_not_hide_finished_results(task):
    shorter = replace(task, run=watched(task.folder, task.manifest, {}, train={"epochs": 1}).run)
    assert status(shorter).kind == "longer"
    results = task.folder.with_name("results")
    simulate(replace(shorter, folder=results))
    task.paths.summary.unlink()
    assert status(task).kind == "resumable"
    assert "has an unfinished training beyond epoch 1" in status(shorter).reason
    for path in results.iterdir():
        if path.is_file():
            shutil.copy2(path, task.folder)
    assert status(shorter).kind == "finished", "nothing is trained that could replace the longer training"
    shutil.rmtree(task.state)
    task.paths.summary.unlink()
    assert status(task).kind == "missing"


@pytest.mark.parametrize("name", ["model.safetensors", "summary.json"])
def test_results_that_are_lost_or_damaged_are_published_again(task, name):
    (task.folder / name).write_text("{") if name == "summary.json" else (task.folder / name).unlink()
    assert status(task).kind == "resumable"


@pytest.mark.parametrize("metrics", [["accuracy"], ["top2_accuracy"]])
def test_what_a_failed_evaluation_and_an_edit_of_metrics_leave_to_do(task, monkeypatch, metrics):
    """No rank starts, because the launcher does not exist; training and state keep their bytes."""
    edited = replace(task, run=watched(task.folder, task.manifest, {}, metrics=metrics).run)
    before = {path: path.read_bytes() for path in task.folder.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "evaluate_model", Mock(side_effect=StopRequestedError("preempted")))
        with pytest.raises(StopRequestedError):
            complete_task(edited, LaunchOptions("no-such-launcher"))
    assert status(edited).kind == "finished"
    assert not is_evaluated(edited)
    assert complete_task(edited, LaunchOptions("no-such-launcher")).reason == "finished"
    assert is_evaluated(edited)
    assert metrics[0] in json.loads(task.paths.evaluation.read_text())
    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.setattr(evaluate, "evaluate_model", Mock(side_effect=AssertionError("evaluated twice")))
    complete_task(edited, LaunchOptions("no-such-launcher"))
    assert not is_evaluated(replace(edited, run=watched(task.folder, task.manifest, {}, metrics=["nll"]).run))


def test_snakemake_trains_the_best_of_a_search_again_if_its_model_was_deleted(task, tmp_path):
    with chdir(tmp_path):
        search = {"space": {"train.batch_size": [8, 16]}}
        plan = Plan.of(Experiment.model_validate({"name": "t", "search": search}))
        [job] = plan.evaluated_jobs
        paths = ExperimentPaths("t")
        evaluation = str(paths.job(job).evaluation)
        assert evaluation not in outdated_outputs(plan, "t.yaml")
        shutil.copytree(task.manifest.parent, Path(plan.base_manifest).parent)
        shutil.copytree(task.folder, paths.job(job).folder)
        paths.run_config(job.run).write_text(json.dumps({"run": task.run.model_dump(mode="json")}))
        summary = json.loads(paths.job(job).summary.read_text())
        summary["data"]["manifest"] = plan.base_manifest
        paths.job(job).summary.write_text(json.dumps(summary))
        complete_task(task_of(plan, job), LaunchOptions())
        assert evaluation not in outdated_outputs(plan, "t.yaml")
        paths.job(job).model.unlink()
        assert evaluation in outdated_outputs(plan, "t.yaml")


def test_an_evaluation_of_another_model_is_written_again(task):
    complete_task(task, LaunchOptions())
    report = json.loads(task.paths.evaluation.read_text())
    task.paths.evaluation.write_text(json.dumps(report | {"model_sha256": "0"}))
    assert not is_evaluated(task)
    complete_task(task, LaunchOptions())
    assert json.loads(task.paths.evaluation.read_text()) == report


def test_results_of_other_data_are_outdated(task, tmp_path):
    assert "not " + str(tmp_path) in status(replace(task, manifest=tmp_path / "manifest.json")).reason
    summary = json.loads(task.paths.summary.read_text())
    summary["data"]["fingerprint"] = "0"
    task.paths.summary.write_text(json.dumps(summary))
    assert "of other samples" in status(task).reason


def test_snakemake_trains_outdated_results_again_and_refuses_to_replace_a_longer_training(task, tmp_path):
    """Snakemake has no record of results of `nnlo run`, and deletes what it trains again."""
    with chdir(tmp_path):
        experiment = Experiment.model_validate({"name": "t", "runs": {"t": task.run.model_dump(mode="json")}})
        job = JobSpec(run="t", seed=0)
        plan = Plan.of(experiment)
        here = plan.task(job)
        shutil.copytree(task.folder, here.folder)
        shutil.copytree(task.manifest.parent, here.manifest.parent)
        summary = json.loads(here.paths.summary.read_text())
        summary["data"]["manifest"] = str(here.manifest)
        here.paths.summary.write_text(json.dumps(summary))
        complete_task(here, LaunchOptions())
        for train, outdated in (({}, False), ({"batch_size": 32}, True), ({}, False)):
            edited = experiment.model_copy(update={"runs": {"t": merged(task, train)}})
            assert (str(here.paths.evaluation) in outdated_outputs(Plan.of(edited), "t.yaml")) == outdated
        with pytest.raises(UserError, match="results of 3 epochs"):
            outdated_outputs(
                Plan.of(experiment.model_copy(update={"runs": {"t": merged(task, {"epochs": 2})}})), "t.yaml"
            )


def merged(task, train):
    settings = task.run.model_dump(mode="json")
    return settings | {"train": settings["train"] | train}
