"""What the folder of a training has of its results, for each state that a user meets.

Results that an edit would replace are set aside, found again when the settings return, and at no moment lost.
"""

import json
import shutil
from contextlib import chdir, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from helpers.observed_training import watched
from helpers.training_here import simulate, training_here

from nnlo_lib.config import Experiment, JobSpec
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.errors import StopRequestedError, UserError
from nnlo_lib.launch.attempt import LaunchOptions, complete_task, train_task
from nnlo_lib.launch.former_results import exchange_results, set_aside
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.lease import Lease, LeaseOwner
from nnlo_lib.train.evaluation import evaluate
from nnlo_lib.train.freshness import is_evaluated, status
from nnlo_lib.workflow.outcome import examine, outdated_outputs, prepare_trainings, task_of
from nnlo_lib.workflow.plan import Plan

SMALL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}
EDITS = {
    "nothing": ({}, "finished", ""),
    "resources": ({"resources": {"runtime": 7}}, "finished", ""),
    "setting": ({"train": {"batch_size": 32}}, "outdated", "train.batch_size was 20 and is 32"),
    "more epochs": ({"train": {"epochs": 4}}, "outdated", "train.epochs was 3 and is 4"),
    "fewer epochs": ({"train": {"epochs": 2}}, "longer", "results of 3 epochs, which a training of 2 would"),
    "fewer epochs of another run": ({"train": {"epochs": 2, "batch_size": 32}}, "outdated", "batch_size was 20 and is 32"),
    "fewer steps": ({"train": {"steps_per_epoch": 1}}, "longer", "a training of 3 would replace"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory, small_store):
    """Return a finished task."""
    return simulate(watched(tmp_path_factory.mktemp("trained") / "seed-0", small_store, {}))


@pytest.fixture
def task(trained, tmp_path):
    """Return a copy of the finished task, beside which a fold of the same seed has results."""
    shutil.copytree(trained.folder, tmp_path / "seed-0")
    (tmp_path / "seed-0/fold-0").mkdir()
    (tmp_path / "seed-0/fold-0/summary.json").write_text("of the fold")
    return replace(trained, folder=tmp_path / "seed-0")


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


# Results set aside


class Killed(BaseException):
    """The process ends here."""


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def edited(task, **train):
    return replace(
        watched(task.folder, task.manifest, {}, train=train or {"batch_size": 32}), folder=task.folder
    )


def test_an_edit_and_its_way_back_train_once_each(tmp_path):
    """`nnlo run`: the summary has the times of the training, so that equal bytes are no repetition."""
    results, said = [], []
    for rate in (0.1, 0.5, 0.1, 0.5):
        optimizer = {"name": "sgd", "lr": rate}
        run = training_here(
            tmp_path, model=SMALL, train={"epochs": 1, "batch_size": 64, "optimizer": optimizer}
        )
        said.append(run.finish())
        results.append({name: data for name, data in contents(run.job).items() if "evaluation" not in name})
    assert results[0] == results[2] != results[1] == results[3]
    assert (
        "train.optimizer.lr was 0.1 and is 0.5; set aside in results/t/allreduce/former/1-seed-0" in said[1]
    )
    assert "moved back from results/t/allreduce/former/1-seed-0" in said[2]


def test_an_unfinished_training_resumes_when_its_settings_return(task):
    task.paths.summary.unlink()
    before = contents(task.state / "checkpoints")
    assert exchange_results(edited(task)).kind == "missing"
    assert not list((task.state / "checkpoints").glob("*"))
    assert exchange_results(task).kind == "resumable"
    assert contents(task.state / "checkpoints") == before


@pytest.mark.parametrize("train", [{"epochs": 4}, {"epochs": 2}])
def test_a_training_that_continues_or_is_refused_sets_nothing_aside(task, train):
    before = contents(task.folder)
    assert exchange_results(edited(task, **train)).kind == ("outdated" if train["epochs"] == 4 else "longer")
    assert contents(task.folder) == before


def kill_at_rename(number):
    """Return a patch with which the process ends before the rename `number`, from 0."""
    calls, rename = iter(range(10**6)), Path.rename

    def renamed(self, target):
        if next(calls) == number:
            raise Killed
        return rename(self, target)

    return patch.object(Path, "rename", renamed)


def test_a_process_killed_at_any_moment_loses_nothing(task):
    """Both directions; the lease and the folds of the seed stay where they are."""
    (task.state / "lease.json").write_text("held")
    former, other, before = task.paths.former / "1-seed-0", edited(task), contents(task.folder)
    stays = {"fold-0/summary.json": b"of the fold", "state/lease.json": b"held"}
    for number in range(len(before) + 2):
        with kill_at_rename(number), suppress(Killed):
            exchange_results(other)
        assert exchange_results(other).kind == "missing"
        assert (contents(task.folder), contents(former) | stays) == (stays, before)
        with kill_at_rename(number), suppress(Killed):
            exchange_results(task)
        assert exchange_results(task).kind == "finished"
        assert (contents(task.folder), list(task.paths.former.iterdir())) == (before, [])


def test_snakemake_sets_aside_what_it_is_about_to_delete(task):
    """Results that a killed process had begun to move back are complete after the start of Snakemake."""
    other, before = edited(task), contents(task.folder)
    for number in (1, 3):
        assert status(replace(task, folder=set_aside(other))).kind == "finished"
        assert set_aside(other) is None
        with kill_at_rename(number), suppress(Killed):
            exchange_results(task)
        set_aside(task)
        assert contents(task.folder) == before


def test_results_of_a_folder_that_another_process_writes_are_not_moved(task):
    lease = Lease(task.state, beat=0.01)
    lease.acquire(False, lambda: False)
    try:
        with pytest.raises(UserError, match="is being written by"):
            set_aside(edited(task))
    finally:
        lease.release()
    assert status(task).kind == "finished"


@pytest.mark.parametrize(
    ("train", "place"), [({"epochs": 4}, "seed-0"), ({"batch_size": 32}, "former/1-seed-0")], ids=["extended", "edited"]
)  # fmt: skip
def test_a_killed_attempt_is_recorded_by_whoever_takes_over_its_lease(task, train, place):
    """Snakemake sets results aside, and so takes the lease, before the launcher of the next attempt."""
    replace(LeaseOwner.for_this_process(), started=1).write(task.state / "lease.json")
    set_aside(edited(task, **train))
    attempts = read_attempts(task.folder.parent / place / "state")
    assert [each.reason for each in attempts][-1:] == ["killed"]
    assert not task.paths.state.lease.exists()


def test_an_attempt_that_was_killed_in_its_evaluation_is_recorded_as_finished(task):
    """Rank 0 publishes the results and leaves its note before it evaluates."""
    replace(LeaseOwner.for_this_process(), started=1).write(task.state / "lease.json")
    task.paths.state.done.mkdir()
    (task.paths.state.done / "0").write_text("{}")
    before = len(read_attempts(task.state))
    for _ in range(2):
        assert train_task(task, LaunchOptions()).reason == "finished"
    (ended,) = read_attempts(task.state)[before:]
    assert (ended.reason, ended.error, ended.is_finished) == ("finished", None, True)


def test_the_workflow_names_what_it_sets_aside_and_moves_back(task, tmp_path, capsys):
    with chdir(tmp_path):
        experiment = Experiment.model_validate({"name": "t", "runs": {"t": task.run.model_dump(mode="json")}})
        other = experiment.model_copy(update={"runs": {"t": edited(task).run.model_dump(mode="json")}})
        plans, job = [Plan.of(experiment), Plan.of(other)], JobSpec(run="t", seed=0)
        here = plans[0].task(job)
        shutil.copytree(task.folder, here.folder)
        summary = here.paths.summary.read_text()
        here.paths.summary.write_text(summary.replace(str(task.manifest), str(here.manifest)))
        examine(plans[0])
        assert capsys.readouterr().err == "nnlo: trainings to evaluate, not to train again: 1\n"
        before = contents(here.folder)
        examine(plans[1])
        said = capsys.readouterr().err
        assert "trainings to set aside: 1, " in said
        assert (
            "core hours (results/t/t/seed-0 has the results of other settings: train.batch_size was 20 and is 32)"
            in said
        )
        assert contents(here.folder) == before, "a dry run moves nothing"
        started = {str(here.paths.evaluation)}
        prepare_trainings(plans[1], (), ())
        assert contents(here.folder) == before, "jobs that do not start keep their results"
        prepare_trainings(plans[1], started, ())
        examine(plans[0])
        assert capsys.readouterr().err == (
            "nnlo: trainings to move back from results/t/*/former/, not to train again: 1\n"
        )
