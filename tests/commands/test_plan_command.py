"""The numbers that `nnlo plan` prints equal counts made by hand."""

import json
import re
import shutil

import pytest
from helpers.synthetic_runs import Fake, change_json
from helpers.synthetic_search import MadeUp

from nnlo_lib.config import Experiment, Run
from nnlo_lib.search.cost_estimate import expected, time_left
from nnlo_lib.search.study.storage import load_study
from nnlo_lib.search.study.trial import FoldTask, Result
from nnlo_lib.state.attempts import Attempt, append_attempt
from nnlo_lib.workflow.cost_table import cost_table

SPACE = {"train.optimizer.lr": {"log_uniform": [1e-3, 1e-1]}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def experiment(search=None, **settings):
    whole = {"name": "made", **settings}
    return Experiment.model_validate(
        whole | ({"search": {"space": SPACE, **search}} if search is not None else {})
    )


def told(text, name):
    """Return the text after a label at the start of a line."""
    return next(
        re.sub(" +", " ", line).partition(" ")[2] for line in text.splitlines() if line.startswith(name)
    )


def test_runs_of_an_experiment():
    text = cost_table(experiment(seeds=[1, 2, 3], folds=2, resources={"runtime": 30}, parallel={"ranks": 4}))
    assert told(text, "allreduce") == "6 4 4 0 3 h 12 -"


def test_a_search_of_whole_trainings():
    text = cost_table(
        experiment({"trials": 10, "parallel": 5, "folds": {"k": 3}}, train={"epochs": 8}, seeds=[1, 2])
    )
    assert told(text, "jobs") == "30; each 2 ranks, 2 cores"
    assert told(text, "epochs").startswith("240: 8 per fold task")
    assert told(text, "at most") == "most 30 job hours, 6 h with 5 in parallel, 60 core hours"
    assert told(text, "then").endswith("2 seeds: at most 2 h")
    assert "allreduce" not in text
    assert "budget" not in text


def test_space_and_files_of_a_search():
    """64 x 8 + 8 + 8 x 10 + 10 = 610 parameters; 1 of 10 trials reaches epoch 9; four running folds have up to 3 checkpoints."""
    search = {"trials": 10, "parallel": 4, "folds": {"k": 3}, "fidelity": {"name": "asha", "first": 1}}
    net = {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}}
    model = 4 * 610
    most = 3 * model + (27 + 12) * 3 * model
    assert told(cost_table(experiment(search, model=net, train={"epochs": 9})), "disk:") == (
        f"about {3 * model / 1000:.3g} kB at the end, up to {most / 1000:.3g} kB before; about 720 files: 30 folds x "
        f"(model of {model / 1000:.3g} kB + checkpoint of up to {3 * model / 1000:.3g} kB)"
    )


def test_a_search_on_this_machine_trains_as_many_as_have_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    text = cost_table(experiment({"trials": 10}, parallel={"ranks": 1}))
    assert told(text, "search").endswith("4 fold tasks in parallel, 2 by `nnlo search` on this machine")
    assert "2.5 h with 4 in parallel, 5 h with 2 in parallel" in told(text, "at most")


def test_what_is_searched_may_ask_for_more_ranks():
    space = {"parallel.ranks": {"choice": [2, 8]}, "resources.runtime": {"choice": [10, 60]}}
    text = cost_table(experiment({"space": space, "trials": 3, "parallel": 3}))
    assert told(text, "jobs") == "3; each 2 to 8 ranks, 2 to 8 cores"
    assert told(text, "at most") == "most 3 job hours, 1 h with 3 in parallel, 24 core hours"


def test_halving_by_hand():
    """ASHA trains 32 trials to 1 epoch, 10 to 3, 3 to 9, 1 to 27: 32 + 10*2 + 3*6 + 1*18 epochs."""
    made = experiment({"trials": 32, "fidelity": {"name": "asha"}}, train={"epochs": 27})
    found = expected(made.train.epochs, made.search)
    assert (found.trials, found.jobs, found.epochs) == ({1: 32, 3: 10, 9: 3, 27: 1}, 46, 88)
    whole = expected(made.train.epochs, made.search, 1)
    assert (whole.jobs, whole.epochs) == (4 * 32, 27 * 32)


@pytest.mark.parametrize("fidelity", ["full", "asha", "hyperband", "median"])
@pytest.mark.parametrize("trials", [1, 7, 40])
def test_no_more_is_expected_than_all(fidelity, trials):
    made = experiment(
        {"trials": trials, "fidelity": {"name": fidelity}, "folds": {"k": 2}}, train={"epochs": 10}
    )
    likely, most = expected(made.train.epochs, made.search), expected(made.train.epochs, made.search, 1)
    assert most.epochs == trials * 2 * 10
    assert 0 < likely.epochs <= most.epochs
    assert sum(likely.trials.values()) * 2 == likely.jobs <= most.jobs
    assert fidelity in cost_table(made) or fidelity == "full"


def test_earlier_trials_tell_the_pace(tmp_path):
    made = MadeUp(tmp_path, epochs=9, folds={"k": 2})
    for _ in range(5):
        made.trial(rungs=[3, 9])  # about 12 s for 9 epochs
    line = told(cost_table(made.experiment), "measured")
    assert "from the 5 trials so far" in line
    pace = float(re.search(r"([\d.]+) s per epoch", line)[1])
    assert 0.8 * 12 / 9 < pace < 1.2 * 12 / 9


def test_the_largest_use_of_all_trials_is_one_line(tmp_path):
    for number, memory_mb in enumerate((300, 900)):
        folder = Fake(tmp_path / f"trial-{number}").job()
        used = {"memory_bytes": memory_mb * 1e6, "cpu_seconds": 30.0, "seconds": 20.0, "gpu_memory_bytes": 0}
        change_json(folder / "summary.json", used=used)
        shutil.move(folder, tmp_path / f"results/made/search/trials/{number:04d}/fold-0")
    assert told(cost_table(experiment({"trials": 3})), "trials:").startswith("used 900 MB of ")


def short_trials(tmp_path, *, trials, epochs, startup, epoch, validation=0.0, **base):
    """Write finished fold tasks: seconds of each start, of the steps of an epoch, and of its validation."""
    made = MadeUp(tmp_path, epochs=100, trials=20, parallel=1, **base)
    for trial in range(trials):
        made.trial(rungs=epochs)
        below = 0
        for rung in epochs:
            task = FoldTask(trial, 0, rung)
            rows = tuple({"epoch": e, "val_loss": 1.0, "seconds": epoch * e} for e in range(1, rung + 1))
            seconds = startup + (epoch + validation) * (rung - below)
            Result(task, "finished", rows, started=1000.0, ended=1000.0 + seconds).write(made.folder)
            below = rung
    return made.experiment


def test_the_time_left_follows_from_the_epochs_that_a_search_trained_since_its_start(tmp_path):
    """Of 20 trials of 100 epochs, 5 were there before; 60 s for the next 3 give 12 * 20 s for the others."""
    for name, trials in (("before", 5), ("known", 8)):
        short_trials(tmp_path / name, trials=trials, epochs=[100], startup=0, epoch=1)
    before, known = (load_study(tmp_path / name / "results/made/search") for name in ("before", "known"))
    assert time_left(known.snapshot, before.snapshot, 60.0) == pytest.approx(12 * 20)
    assert time_left(before.snapshot, before.snapshot, 60.0) == 0


def test_start_up_of_short_trials_is_not_taken_for_epochs(tmp_path):
    """One epoch takes 0.1 s, a start 8 s: 20 trials of 100 epochs take 20 * 8 + 2000 * 0.1 s, and not 16,200 s."""
    text = cost_table(short_trials(tmp_path, trials=3, epochs=[1], startup=8.0, epoch=0.1))
    assert told(text, "measured").startswith("360 s of jobs, 360 s with 1 in parallel, from the 3 trials")
    assert told(text, "measured").endswith("0.1 s per epoch and 8 s per start")


@pytest.mark.parametrize("transport", ["mpi", "simulated"])
def test_validations_and_virtual_clocks_are_separated_from_start_up_by_rungs(tmp_path, transport):
    """Rungs of different length tell what an epoch takes, also if the history has virtual seconds."""
    base = {"parallel": {"transport": transport}}
    made = short_trials(
        tmp_path, trials=3, epochs=[1, 3, 9], startup=8.0, epoch=0.1, validation=0.4, base=base
    )
    assert told(cost_table(made), "measured").endswith("0.5 s per epoch and 8 s per start")


def test_a_budget_is_told():
    text = cost_table(experiment({"budget": {"core_hours": 7}, "objective": {"target": 0.01}}))
    assert told(text, "budget") == "no new fold task after 7 core hours or a trial with val_loss 0.01"


def test_a_finite_space_has_no_more_trials_than_points():
    """A search has at most as many trials as points: two batch sizes, one with three decays, are 1 + 3 points.

    In a grid, the levels of a range make the number of points finite.
    """
    decay = {"choice": [0.0, 0.5, 0.9], "when": {"train.batch_size": 16}}
    finite = {"train.batch_size": [8, 16], "train.optimizer.beta1": decay}
    text = cost_table(experiment({"space": finite, "trials": 20}))
    assert told(text, "search").startswith("4 trials (all points of the space) by auto")
    assert told(text, "jobs").startswith("4; ")
    text = cost_table(experiment({"space": SPACE, "method": {"name": "grid", "levels": 3}, "trials": 20}))
    assert told(text, "jobs").startswith("3; ")
    exact = told(cost_table(experiment({"space": finite, "trials": 4})), "search")
    assert exact.startswith("4 trials (all points of the space) by auto")
    cut = experiment({"space": SPACE, "method": {"name": "grid"}, "trials": 4})
    assert told(cost_table(cut), "search").startswith("4 trials of the 5 points of the grid by grid")


def finished(folder, transport, total, startup, seconds):
    """Write a finished training of 2 epochs; `seconds`: wall time of its only attempt."""
    folder.mkdir(parents=True)
    run = Run.model_validate({"parallel": {"transport": transport}})
    summary = {
        "run": "allreduce", "seed": 0, "config": run.model_dump(mode="json"), "samples_per_second": 100.0,
        "seconds": {"total": total, "startup": startup}, "bytes_sent": {}, "ranks": 2, "epochs": 2,
        "training_seconds": total - startup,
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "state").mkdir()
    moment = "2026-01-01T00:00:00+00:00"
    append_attempt(
        folder / "state", Attempt(1, moment, moment, seconds, "here", None, "finished", None, 0, 9, 9, 2)
    )


def test_start_up_is_counted_per_job_and_not_per_epoch(tmp_path):
    """10 s of start-up and 30 s per epoch: three jobs of 4 epochs take 3 * 10 + 12 * 30 s."""
    finished(tmp_path / "results/made/allreduce/seed-0", "mpi", 70.0, 10.0, 75.0)
    text = cost_table(experiment(seeds=[1, 2, 3], train={"epochs": 4}))
    assert told(text, "allreduce").endswith(" 390 s")


def test_virtual_seconds_are_not_called_measured(tmp_path):
    """The cost of a simulated training is the wall time of its attempts: 40 s per epoch."""
    folder = tmp_path / "results/made/allreduce/seed-0"
    finished(folder, "simulated", 0.05, 0.01, 80.0)
    made = experiment(seeds=[1, 2], train={"epochs": 3}, parallel={"transport": "simulated"})
    assert told(cost_table(made), "allreduce").endswith(" 240 s")
    (folder / "state/attempts.jsonl").unlink()
    assert told(cost_table(made), "allreduce").endswith(" -")
