"""A search through the DAG on this machine: its end, its extension, a killed Snakemake, and errors."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.repository_copy import environment

from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.search.samplers.factory import build_sampler
from nnlo_lib.search.study.loop import run_study
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import Result

SEARCH = {
    "space": {"train.optimizer.lr": {"log_uniform": [1e-3, 1.0]}, "parallel.ranks": [1, 2]},
    "method": {"name": "sobol"},
    "trials": 3,
    "parallel": 2,
    "order": "fixed",
    "folds": {"k": 2},
}


def experiment(checkout, **search):
    checkout.experiment(runs={}, parallel={"ranks": 1}, search=SEARCH | search)


def trials(checkout):
    """Return the content of all trial files."""
    folder = checkout.folder / "results/tiny/search/trials"
    return {path.name: path.read_text() for path in sorted(folder.glob("*.json"))}


def results(checkout):
    """Return (inode, time of modification in ns) of each fold task's result file, to detect replaced files."""
    folder = checkout.folder / "results/tiny/search/trials"
    files = {str(path.relative_to(folder)): path.stat() for path in folder.glob("*/fold-*/epochs-*.json")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in files.items()}


def endings(checkout):
    """Return the reasons for the ends of the attempts at each fold."""
    paths = (checkout.folder / "results/tiny/search/trials").glob("*/fold-*/state/attempts.jsonl")
    return [[json.loads(line)["reason"] for line in path.read_text().splitlines()] for path in paths]


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def names(trials, folds=2, epochs=2):
    return {f"{trial:04d}/fold-{fold}/epochs-{epochs}.json" for trial in trials for fold in range(folds)}


@pytest.mark.slow
def test_a_search_ends_with_its_best_trained_on_all_data_and_can_be_extended(checkout):
    experiment(checkout)
    plan = checkout.snakemake("--dry-run")
    assert plan.returncode == 0, plan.stdout
    assert "search: at most 3 trials (folds per trial: 2)" in plan.stdout
    assert not (checkout.folder / "results").exists()

    first = checkout.snakemake()
    assert first.returncode == 0, first.stdout
    folder = checkout.folder / "results/tiny"
    before, asked = results(checkout), trials(checkout)
    assert set(before) == names(range(3))
    table = rows(folder / "search/trials.csv")
    assert [row["status"] for row in table] == ["finished"] * 3
    best = min(table, key=lambda row: float(row["objective"]))
    run = json.loads((folder / "best/config.json").read_text())["run"]
    assert run["train"]["optimizer"]["lr"] == float(best["train.optimizer.lr"])
    assert run["parallel"]["ranks"] == int(best["parallel.ranks"])
    assert [row["run"] for row in rows(folder / "summary.csv")] == ["best"]
    assert "<html" in (folder / "report.html").read_text()
    assert "Nothing to be done" in checkout.snakemake().stdout

    experiment(checkout, trials=5)
    second = checkout.snakemake()
    assert second.returncode == 0, second.stdout
    after = results(checkout)
    assert second.stdout.count("(Rule: fold_task)") == 4
    assert set(after) == names(range(5))
    assert {name: after[name] for name in before} == before
    assert {name: trials(checkout)[name] for name in asked} == asked
    assert len(rows(folder / "search/trials.csv")) == 5
    assert "Nothing to be done" in checkout.snakemake().stdout


@pytest.mark.slow
def test_a_killed_snakemake_goes_on_with_the_same_trials_and_trains_none_twice(checkout, tmp_path):
    target = "results/tiny/search/trials.csv"
    experiment(checkout, space={"train.optimizer.lr": {"log_uniform": [1e-3, 1.0]}})
    kill_when(checkout, target, 2)
    before = results(checkout)
    again = checkout.snakemake(target)
    assert again.returncode == 0, again.stdout
    assert set(results(checkout)) == names(range(3))
    assert {name: results(checkout)[name] for name in before} == before
    assert all(reasons.count("finished") == 1 for reasons in endings(checkout))
    assert trials(checkout) == undisturbed(tmp_path, load_experiment(checkout.folder / "tiny.yaml").search)


class AtOnce:
    """Executor that finishes each fold task at once."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, fold_task):
        Result(fold_task, "finished", ({"epoch": 1, "val_loss": 1.0, "seconds": 1.0},)).write(self.folder)

    def wait(self):
        return True


def undisturbed(folder, search):
    """Return the trial files of an undisturbed search; its method proposes points without using results."""
    assert run_study(Study(folder, search, 2, build_sampler(search), search.parallel), AtOnce(folder))
    return {path.name: path.read_text() for path in (folder / "trials").glob("*.json")}


def kill_when(checkout, target, count):
    """Kill Snakemake and all its child processes after `count` fold tasks have ended, as if the machine failed."""
    command = [sys.executable, "-m", "snakemake", target, "--profile", "profiles/local", "--cores", "2"]
    process = subprocess.Popen(
        [*command, "--configfile", "tiny.yaml"], cwd=checkout.folder, env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(results(checkout)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(100) == -signal.SIGKILL


@pytest.mark.slow
def test_a_failing_trial_is_a_result_and_one_that_cannot_be_decided_a_sentence(checkout):
    (checkout.folder / "model.py").write_text(
        "from torch import nn\n\n"
        "def build(shape, classes, hidden):\n"
        "    if hidden == 13:\n        raise RuntimeError('an unlucky number')\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    space = {"model.args.hidden": [7, 13]}
    model = {"name": "model.py:build", "args": {"hidden": 7}}
    search = SEARCH | {"space": space, "method": {"name": "grid"}, "trials": 9, "folds": {"k": 1}}
    checkout.experiment(runs={}, parallel={"ranks": 1}, model=model, search=search)
    run = checkout.snakemake("results/tiny/best/config.json")
    assert run.returncode == 0, run.stdout
    table = {
        row["model.args.hidden"]: row for row in rows(checkout.folder / "results/tiny/search/trials.csv")
    }
    assert (table["7"]["status"], table["13"]["status"]) == ("finished", "failed")
    assert "an unlucky number" in table["13"]["error"]

    space["model.args.hidden"] = [7, 13, 21]
    checkout.experiment(runs={}, parallel={"ranks": 1}, model=model, search=search)
    refused = checkout.snakemake()
    assert refused.returncode == 2
    assert "the search was started with other settings" in refused.stdout
    assert "Traceback" not in refused.stdout


@pytest.mark.slow
def test_another_driver_is_told_of_in_a_sentence(checkout):
    experiment(checkout)
    held = (
        "import sys; from pathlib import Path; from nnlo_lib.state.lease import Lease;"
        "Lease(Path('results/tiny/search/state')).acquire(False, lambda: False); print('held', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held],
        cwd=checkout.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "held\n"
        run = checkout.snakemake()
        other.kill()
    assert run.returncode == 1
    assert "results/tiny/search is being written by" in run.stdout
    assert "Traceback" not in run.stdout
    assert not list((checkout.folder / "results/tiny/search").glob("trials*"))


@pytest.mark.slow
def test_a_fold_task_that_cannot_be_trained_here_ends_snakemake_and_not_the_others(checkout):
    experiment(
        checkout, trials=2, folds={"k": 1}, space={"train.optimizer.lr": [0.1, 0.2]}, method={"name": "grid"}
    )
    blocked = checkout.folder / "results/tiny/search/trials/0000/fold-0/state"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("where the checkpoints should go")
    run = checkout.snakemake("results/tiny/search/trials.csv")
    assert run.returncode == 1
    assert "fold-0/state/lease.json, the lease that gives one launcher exclusive access" in run.stdout
    assert set(results(checkout)) == names([1], folds=1)
    blocked.unlink()
    again = checkout.snakemake("results/tiny/search/trials.csv")
    assert again.returncode == 0, again.stdout
    assert again.stdout.count("(Rule: fold_task)") == 1
