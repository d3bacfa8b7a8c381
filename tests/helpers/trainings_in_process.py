"""Trainings whose ranks are all simulated in this process: attempts are recorded as by `nnlo run`, no process is started."""

from pathlib import Path

from helpers.nnlo_command import nnlo
from helpers.training_process import StopAfter
from nnlo_lib.config import Experiment
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
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


def attempt_here(task, stop=None) -> AttemptOutcome:
    """Make one attempt at a task as `nnlo run` does, in this process; `stop` is asked before each step."""

    def launch(*_: object) -> AttemptOutcome:
        return AttemptOutcome("finished" if train_simulated(task, stop or StopFlag()) else "preempted")

    class NoSignals:
        first = ""

    return run_attempt(task, LaunchOptions(), JobContext(None, TimeLimit(None, None), NoSignals()), launch)


def train_here(experiment: Experiment, run: str, stop_after: int | None = None) -> Path:
    """Train and evaluate a run in this process, with one interruption if `stop_after` is given; return its folder."""
    task = prepare_task(experiment, run, experiment.seeds[0], None)
    if stop_after is not None:
        assert attempt_here(task, StopAfter(stop_after)).reason == "preempted"
    assert attempt_here(task).reason == "finished"
    evaluate_model(task.run, task.manifest, task.paths.model, task.paths.evaluation)
    return task.folder


def write_tables(folder: Path) -> None:
    """Write summary.csv and report.html of the workspace."""
    jobs, summary = [f"results/t/{case}/seed-0" for case in CASES], "results/t/summary.csv"
    options = ("--experiment-file", "t.yaml", "--summary", summary)
    for command in (
        ("aggregate", "--output", summary),
        ("report", "--output", "results/t/report.html", *options),
    ):
        done = nnlo("task", *command, *jobs, folder=folder)
        assert done.returncode in (None, 0), done.stderr
