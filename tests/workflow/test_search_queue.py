"""The queue of a search gives Snakemake the files to make, the time of the next query, and each job's resources."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import experiment_from_settings
from nnlo_lib.search.study.trial import FoldTask, Result, read_trials
from nnlo_lib.state.lease import Lease
from nnlo_lib.workflow.plan import Plan
from nnlo_lib.workflow.search_plan import SearchPlan, TrialQueue

SETTINGS = {
    "name": "dag",
    "seeds": [3, 4],
    "resources": {"mem_mb": 700, "runtime": 9},
    "parallel": {"ranks": 2},
    "search": {
        "space": {"parallel.ranks": [1, 2, 6]},
        "method": {"name": "grid"},
        "parallel": 2,
        "folds": {"k": 2},
    },
}
FOLDER = Path("results/dag/search")


@pytest.fixture(autouse=True)
def _somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def experiment(**search):
    return Experiment.model_validate(SETTINGS | {"search": SETTINGS["search"] | search})


class Snakemake:
    """Stand-in for Snakemake with the parts that a TrialQueue uses."""

    def __init__(self, **search):
        self.executes, self.pretends = False, False
        self.agenda = TrialQueue(experiment(**search), FOLDER, lambda: self.executes, lambda: self.pretends)

    def ask(self):
        assert not self.agenda.finished
        return self.agenda.consume(None)


def end(*fold_tasks, loss=1.0):
    for fold_task in fold_tasks:
        Result(fold_task, "finished", ({"epoch": 1, "val_loss": loss, "seconds": 1.0},)).write(FOLDER)


def paths(*fold_tasks):
    return [str(fold_task.result_path(FOLDER)) for fold_task in fold_tasks]


def test_the_queue_gives_the_files_after_each_result_and_ends_with_the_configuration():
    snakemake, epochs = Snakemake(trials=2), experiment().train.epochs
    first, second = [[FoldTask(trial, fold, epochs) for fold in (0, 1)] for trial in (0, 1)]
    assert snakemake.ask() == []
    assert not FOLDER.exists()
    snakemake.executes = True
    assert snakemake.ask() == paths(*first)
    assert snakemake.agenda.finished, "nothing has come: Snakemake waits for its jobs"
    end(first[1])
    assert snakemake.ask() == paths(*first, second[0])
    end(first[0], second[0])
    assert snakemake.ask() == paths(*first, *second)
    end(second[1])
    assert snakemake.ask() == [*paths(*first, *second), str(FOLDER / "config.json")]
    assert snakemake.agenda.finished


def test_a_dry_run_decides_nothing_and_lists_the_fold_tasks_that_were_begun():
    begun = Snakemake()
    begun.executes = True
    fold_tasks = begun.ask()
    files = [path.read_bytes() for path in sorted(FOLDER.rglob("*.json")) if "state" not in path.parts]
    dry = Snakemake()
    dry.executes = dry.pretends = True
    assert dry.agenda.finished
    assert dry.agenda.consume(None) == fold_tasks
    assert [
        path.read_bytes() for path in sorted(FOLDER.rglob("*.json")) if "state" not in path.parts
    ] == files


def shared(**search):
    """Return a search whose jobs train up to three of six fold tasks, and a function that starts a Snakemake of it."""
    settings = {
        "tasks_per_job": 3, "parallel": 6, "trials": 8, "folds": {"k": 1}, "method": {"name": "sobol"},
        "space": {"train.optimizer.lr": {"log_uniform": [1e-3, 1.0]}},
    } | search  # fmt: skip

    def start():
        snakemake = Snakemake(**settings)
        snakemake.executes = True
        return snakemake

    return experiment(**settings), start


def tasks_of(plan, path):
    """Return the trials of a job, and its time limit in minutes."""
    trial, fold, epochs = Path(path).parts[-3], Path(path).parts[-2][5:], Path(path).stem[7:]
    wildcards = SimpleNamespace(trial=trial, fold=fold, epochs=epochs)
    return [task.trial for task in plan.job_tasks(wildcards)], plan.job_resources["runtime"](wildcards)


def test_fold_tasks_share_jobs_and_wait_until_one_is_full(monkeypatch):
    settings, start = shared()
    plan, snakemake, epochs = SearchPlan.of(settings, True), start(), settings.train.epochs
    each = [FoldTask(trial, 0, epochs) for trial in range(8)]
    jobs = snakemake.ask()
    assert jobs == paths(each[2], each[5])
    assert [tasks_of(plan, job) for job in jobs] == [([0, 1, 2], 27), ([3, 4, 5], 27)]
    end(each[0], each[3])
    assert snakemake.ask() == jobs, "trials 6 and 7 wait for a third one"
    dry = start()
    dry.pretends = True
    assert dry.agenda.consume(None) == [*jobs, *paths(each[6], each[7])]
    before = start()
    before.executes = False
    assert before.agenda.consume(None) == jobs, "before its jobs run, the next Snakemake knows these"
    snakemake.agenda._lease.release()
    snakemake = start()
    assert snakemake.ask() == jobs, "the next Snakemake starts the same jobs"
    assert [tasks_of(plan, job)[0] for job in jobs] == [[0, 1, 2], [3, 4, 5]]
    end(each[1])
    assert snakemake.ask() == [*jobs, *paths(each[7])], "no trial is left that could fill the job"
    assert tasks_of(plan, paths(each[7])[0]) == ([6, 7], 18)
    end(each[2], each[4], each[5], each[6], each[7])
    assert snakemake.ask()[-1] == str(FOLDER / "config.json")


def test_a_damaged_list_of_the_fold_tasks_of_a_job_is_named():
    settings, start = shared()
    (job, *_) = start().ask()
    record = SearchPaths(FOLDER).job_tasks(2, 0, settings.train.epochs)
    assert record.exists()
    record.write_text("[[0")
    with pytest.raises(UserError, match=f"{record} is damaged .*; delete the file"):
        tasks_of(SearchPlan.of(settings, True), job)


def test_decisions_do_not_depend_on_the_fold_tasks_of_a_job(tmp_path, monkeypatch):
    found = []
    for number in (1, 3, "auto"):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        snakemake = shared(tasks_per_job=number, order="fixed", method={"name": "auto", "initial": 2})[1]()
        while not snakemake.agenda.finished:
            snakemake.ask()
            decided = [decision.task for trial in read_trials(FOLDER) for decision in trial.decisions]
            end(*(task for task in decided if not task.result_path(FOLDER).exists()))
        found.append([path.read_bytes() for path in sorted((FOLDER / "trials").glob("*.json"))])
        assert len(found[-1]) == 8
    assert found[0] == found[1] == found[2]


def test_fold_tasks_of_different_resources_share_no_job():
    settings, start = shared(
        space={"parallel.ranks": [1, 2]}, trials=None, parallel=2, method={"name": "grid"}
    )
    jobs = start().ask()
    assert len(jobs) == 2
    assert sorted(tasks_of(SearchPlan.of(settings, True), job)[0] for job in jobs) == [[0], [1]]


def test_jobs_of_auto_take_five_minutes_as_measured():
    settings, start = shared(tasks_per_job="auto", trials=30, parallel=8)
    plan, snakemake, epochs = SearchPlan.of(settings, True), start(), settings.train.epochs
    each = [FoldTask(trial, 0, epochs) for trial in range(30)]
    assert snakemake.ask() == paths(*each[:8]), "nothing is measured yet"
    for task in each[:8]:
        row = {"epoch": 1, "val_loss": 1.0, "seconds": 1.0}
        Result(task, "finished", (row,), started=0.0, ended=99.0).write(FOLDER)
    jobs = snakemake.ask()[8:]
    assert jobs == paths(each[10], each[13], each[15])
    # The limit of one training and five minutes for the others.
    assert [tasks_of(plan, job) for job in jobs] == [([8, 9, 10], 14), ([11, 12, 13], 14), ([14, 15], 14)]


def test_a_second_queue_continues_what_the_first_began_and_only_one_decides(capsys, monkeypatch):
    monkeypatch.setattr("nnlo_lib.workflow.search_plan.Lease", partial(Lease, beat=0.1))
    first, second = Snakemake(), Snakemake()
    first.executes = second.executes = True
    begun = first.ask()
    with pytest.raises(SystemExit, match="2"):
        _ = second.agenda.finished
    assert "is being written by" in capsys.readouterr().err
    second.executes = False
    assert second.ask() == begun


def test_a_search_has_ended_only_for_the_settings_it_ended_with():
    snakemake = Snakemake(trials=1)
    snakemake.executes = True
    snakemake.ask()
    assert not SearchPlan.of(experiment(trials=1), True).has_ended
    end(*(decision.task for trial in read_trials(FOLDER) for decision in trial.decisions))
    snakemake.ask()
    (FOLDER / "ended.json").write_bytes((FOLDER / "config.json").read_bytes())
    assert SearchPlan.of(experiment(trials=1), True).has_ended
    assert not SearchPlan.of(experiment(trials=1), False).has_ended, "a job asks nothing"
    assert not SearchPlan.of(experiment(trials=2), True).has_ended
    FoldTask(0, 1, experiment().train.epochs).result_path(FOLDER).unlink()
    assert not SearchPlan.of(experiment(trials=1), True).has_ended
    with pytest.raises(UserError, match="other settings"):
        SearchPlan.of(experiment(trials=1, space={"parallel.ranks": [1, 2]}), True)


def test_each_trial_requests_the_resources_of_its_own_run():
    wide = {"constant": 2, "when": {"parallel.ranks": [6]}}
    search = {"parallel": 6, "space": {"parallel.ranks": [1, 2, 6], "resources.nodes": wide}}
    snakemake = Snakemake(**search)
    snakemake.executes = True
    snakemake.ask()
    needs = SearchPlan.of(experiment(**search), True).trial_resources
    asked = []
    for trial in read_trials(FOLDER):
        wildcards = SimpleNamespace(trial=f"{trial.number:04d}", fold="1", epochs="5")
        get = {name: wish for name, wish in needs.resources.items() if name not in ("mem_mb", "attempt")}
        values = {name: wish(wildcards) for name, wish in get.items()}
        assert values["runtime"] == 9
        assert needs.resources["mem_mb"](wildcards, 1) == 700
        ranks = trial.point["parallel.ranks"]
        asked.append((ranks, values["tasks"], values["nodes"], needs.threads(wildcards)))
    assert sorted(asked) == [(1, 1, 1, 1), (2, 2, 1, 2), (6, 6, 2, 6)]


def test_the_best_is_not_known_before_its_configuration_is():
    plan = SearchPlan.of(experiment(), True)
    wildcards = SimpleNamespace(seed="3")
    assert plan.retraining_resources.threads(wildcards) == 1
    with pytest.raises(FileNotFoundError) as error:
        plan.retraining_resources.resources["tasks"](wildcards)
    assert error.value.filename == "results/dag/best/config.json", (
        "by this name Snakemake tells that it must wait"
    )


def test_a_search_adds_its_best_to_the_named_runs():
    assert Plan.of(experiment()).folders == ["best/seed-3", "best/seed-4"]
    named = Experiment.model_validate(SETTINGS | {"runs": {"a": {}}})
    assert Plan.of(named).folders == ["a/seed-3", "a/seed-4", "best/seed-3", "best/seed-4"]
    with pytest.raises(UserError, match=r"runs\.best: this name is reserved for the search"):
        experiment_from_settings(SETTINGS | {"runs": {"best": {}}})


def test_every_file_that_some_trial_reads_is_an_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert SearchPlan.of(experiment(), True).input_files == []
    for name in ("a.safetensors", "b.pt", "net.json"):
        (tmp_path / name).touch()
    space = {"model.weights": ["a.safetensors", "b.pt"], "model.name": {"constant": "net.json"}}
    plan = SearchPlan.of(experiment(space=space), True)
    assert plan.input_files == ["a.safetensors", "b.pt", "net.json"]
