"""Trainings that start no process: `nnlo run` with simulated ranks in this process, and tasks on the pool of MPI ranks."""

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from threading import Event
from unittest.mock import patch

from helpers.nnlo_command import nnlo
from helpers.run_on_ranks import on_ranks
from helpers.store_folder import store_folder
from helpers.training_process import StopAfter, Training, training
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Experiment
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.launch.diagnosis import ExitFacts, diagnose_exit
from nnlo_lib.launch.stop_request import SignalSource, TimeLimit
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_rank, train_simulated
from nnlo_lib.train.rank_process import StopFlag, report_end, report_failure
from nnlo_lib.train.task import Task, prepare_dataset
from nnlo_lib.workflow.single_run import prepare_task

CASES = {
    "allreduce": {"train": {"validate_every": 5, "evaluate_before": True}},
    "dsgd": {
        "algorithm": {"name": "dsgd"}, "topology": {"name": "path"}, "data": {"partition": {"name": "by_class"}},
        "train": {"validate_every": 5},
    },
    "downpour": {"algorithm": {"name": "downpour"}, "train": {"dealing": "dynamic"}},
    "short": {"train": {"steps_per_epoch": 3}},
    "short-parts": {"train": {"steps_per_epoch": 3}, "data": {"partition": {"name": "by_class"}}},
    "streamed": {"data": {"partition": {"name": "contiguous"}, "stream": {"window": 100, "mode": "sliding"}}},
    "short-dynamic": {"algorithm": {"name": "downpour"}, "train": {"steps_per_epoch": 3, "dealing": "dynamic"}},
}  # fmt: skip
EXPERIMENT = {
    "name": "t",
    "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}},
    "train": {"epochs": 2, "batch_size": 50},
    "data": {"validation": 0.2},
    "parallel": {"ranks": 3, "transport": "simulated"},
    "runs": CASES,
}


@functools.cache
def digits() -> Path:
    """Convert the embedded digits, once per test process; return the manifest of the store."""
    folder = Path(tempfile.mkdtemp(prefix="nnlo-digits-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prepare_dataset(Experiment().data, folder / store_folder())
    return folder / store_folder() / "manifest.json"


@dataclass(frozen=True)
class TrainingHere(Training):
    """`nnlo run` of an experiment in this process; the launcher calls the training instead of starting it."""

    def finish(self, *options: str, expect: int = 0, calls: int | None = None) -> str:
        """Run the command as `run_here` does; return its output. `expect`: the exit status."""
        done = run_here("t.yaml", *options, folder=self.folder, calls=calls)
        said = done.stdout + done.stderr
        assert (done.returncode or 0) == expect, said
        return said


def run_here(*arguments: str, folder: Path, calls: int | None = None) -> "CompletedProcess[str]":
    """Run `nnlo run` with simulated ranks in this process; `calls`: of the stop flag, summed over ranks."""
    with patch.object(run_attempt, "__defaults__", (launcher_here(stop_flag(calls)),)):
        return nnlo("run", *arguments, folder=folder)


def launcher_here(stop: StopFlag) -> Callable[..., AttemptOutcome]:
    """Return a launcher that trains in this process until the end or until `stop` requests it."""

    def launch(task: Task, _: str, limit: TimeLimit, signals: SignalSource, lost: Event) -> AttemptOutcome:
        for status_folder in task.paths.state.rank_status:
            shutil.rmtree(status_folder, ignore_errors=True)
        try:
            done = train_simulated(task, stop)
            status = report_end(task.state, 0, done, None if done else "SIGTERM")
        except BaseException as error:
            status = report_failure(task.state, 0, error)
        return diagnose_exit(task, ExitFacts(status, limit))

    return launch


def attempt_here(task: Task, stop: StopFlag | None = None) -> AttemptOutcome:
    """Make one attempt at a task as `nnlo run` does, in this process; `stop` is asked before each step."""

    class NoSignals:
        first = ""

    job = JobContext(None, TimeLimit(None, None), NoSignals())
    return run_attempt(task, LaunchOptions(), job, launcher_here(stop or StopFlag()))


def training_here(
    folder: Path, algorithm: str | dict = "allreduce", ranks: int = 2, **changes: object
) -> TrainingHere:
    """Write the experiment of one training on simulated ranks, beside a store that other trainings share."""
    parallel = {"transport": "simulated", **changes.pop("parallel", {})}
    run = training(folder, algorithm, ranks, parallel=parallel, **changes)
    share_store(folder)
    return TrainingHere(folder, run.run)


def share_store(folder: Path) -> None:
    """Link `data` in a folder to the converted digits that all trainings of this test process share."""
    if not (folder / "data").exists():
        (folder / "data").symlink_to(digits().parents[len(store_folder().parts) - 1])


def simulate(task: Task, *stops: int) -> Task:
    """Train on simulated ranks in this process, and return the task; `stops`: calls of the stop flag, summed over ranks."""
    for calls in stops:
        assert not train_simulated(task, StopAfter(calls))
    assert train_simulated(task, StopFlag())
    return task


def stop_flag(calls: int | None) -> StopFlag:
    """Return a flag that requests a stop after some calls, or never."""
    return StopFlag() if calls is None else StopAfter(calls)


def train_with_mpi(task: Task, calls: int | None = None) -> bool:
    """Train on MPI ranks of the pool; return True if done, False if stopped and saved; `calls`: of the stop flag of each rank."""
    return all(on_ranks(train_on_rank, "mpi", task.run.parallel.ranks, task.text, calls))


def train_on_rank(comm: Communicator, text: str, calls: int | None) -> bool:
    """Train a task on this rank of the pool."""
    return train_rank(Task.parse(text), comm, stop_flag(calls))


def train_here(experiment: Experiment, run: str, stop_after: int | None = None) -> Path:
    """Train and evaluate a run in this process, with one interruption if `stop_after` is given; return its folder."""
    task = prepare_task(experiment, run, experiment.seeds[0], None)
    if stop_after is not None:
        assert attempt_here(task, StopAfter(stop_after)).reason == "preempted"
    assert attempt_here(task).reason == "finished"
    evaluate_model(task.run, task.manifest, task.paths.model, task.paths.evaluation)
    return task.folder
