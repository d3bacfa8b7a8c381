"""Ranks that never start are launched twice in all by a command, a job of Snakemake and a fold task of each executor."""

import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedSlurm
from helpers.store_folder import store_folder
from helpers.synthetic_store import handmade

from nnlo_lib.batch import BatchJob
from nnlo_lib.config import Experiment
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt, train_task
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.search.study.storage import search_folder, write_config
from nnlo_lib.search.study.trial import FoldTask, SchedulingDecision, Trial, read_result, write_trial
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.workflow.single_run import job_task

pytestmark = pytest.mark.processes

FOLD_TASK = FoldTask(0, 0, 10)
LIMIT_S = 2000  # virtual seconds


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """Return a launcher that starts no rank, in a folder with a store; each launch adds a line to `launches`."""
    monkeypatch.chdir(tmp_path)
    images = np.zeros((20, 1, 8, 8), np.uint8), np.arange(20, dtype=np.int64) % 10
    handmade(tmp_path / store_folder(), {"train": images})
    path = tmp_path / "launcher"
    path.write_text("#!/bin/sh\necho launch >> launches\nexit 1\n")
    path.chmod(0o755)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    yield str(path)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def experiment(**changes: object) -> Experiment:
    common = {"name": "t", "model": {"name": "simplecnn"}, "parallel": {"ranks": 2}}
    return Experiment.model_validate(common | changes)


def command(launcher: str) -> Path:
    """Train as `nnlo run`; return the folder of the training."""
    task = job_task(experiment(runs={"r": {}}), "r", 0, None)
    outcome = train_task(task, LaunchOptions(launcher))
    assert (outcome.reason, outcome.exit_status) == ("killed", 1)
    assert "no rank started" in outcome.error
    return task.folder


def snakemake_job(launcher: str) -> Path:
    """Train as a job of Slurm, which Snakemake may try four times; return the folder of the training."""
    task = job_task(experiment(runs={"r": {}}), "r", 0, None)
    slurm = ScriptedSlurm({"r": LIMIT_S})
    job = ScriptedTask("r", (str(task.folder / "model.safetensors"),), resources={"on_preemption": "exit"})

    def train(number: str) -> None:
        context = JobContext(BatchJob("slurm", number), TimeLimit(None, None), SimpleNamespace(first=""))
        run_attempt(task, LaunchOptions(launcher, attempt_number=job.attempt), context)
        slurm.end(number, "FAILED")

    def train_next() -> None:
        for number in [number for number, each in slurm.jobs.items() if each.state == "RUNNING"]:
            train(number)

    for now in range(10, LIMIT_S, 10):
        slurm.at(now, train_next)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([job], LIMIT_S)
    assert (executor.failed, len(slurm.jobs)) == (["r"], 1), executor.lines
    assert any("failed twice at step 0" in line for line in executor.lines)
    return task.folder


def _search() -> tuple[Experiment, Path]:
    found = experiment(search={"space": {"train.batch_size": [8]}})
    write_config(found)
    write_trial(
        search_folder(found), Trial(0, {"train.batch_size": 8}, (SchedulingDecision(0, FOLD_TASK, ()),))
    )
    return found, search_folder(found)


def local_fold_task(launcher: str) -> Path:
    """Train a fold task as a process of `--executor local` does; return the folder of its training."""
    found, folder = _search()
    assert train_fold_task(found, folder, FOLD_TASK, LaunchOptions(launcher, wait_for_lease=True)) == 0
    return _failed(folder)


def submitit_fold_task(launcher: str) -> Path:
    """Train a fold task as a job of submitit; return the folder of its training."""
    _, folder = _search()
    assert TrialJob(folder.absolute(), FOLD_TASK, launcher, 1)() == 0
    return _failed(folder)


def _failed(search: Path) -> Path:
    result = read_result(search, FOLD_TASK)
    assert (result.status, "no rank started" in result.error) == ("failed", True)  # no driver starts it again
    return FOLD_TASK.run_folder(search)


@pytest.mark.parametrize("train", [command, snakemake_job, local_fold_task, submitit_fold_task])
def test_ranks_that_never_start_are_launched_twice(train, launcher, tmp_path):
    folder = train(launcher)
    launches = (tmp_path / "launches").read_text().splitlines()
    attempts = read_attempts(folder / "state")
    assert len(launches) == len(attempts) == 2
    assert {(each.reason, each.reached) for each in attempts} == {("killed", 0)}
