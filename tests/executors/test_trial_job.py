"""Result of a fold task before training: the model cannot be built, is too large, or its data are missing; jobs of several fold tasks."""

import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
from helpers.store_folder import store_folder
from helpers.synthetic_store import handmade

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import timestamp
from nnlo_lib.executors import trial_job
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import LaunchOptions, ended_attempt
from nnlo_lib.launch.attempt_recovery import record_attempt
from nnlo_lib.search.study.trial import FoldTask, SchedulingDecision, Trial, read_result, write_trial
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.attempts import read_attempts

LEAF = FoldTask(0, 0, 10)
BUILDERS = {
    "fails": ("raise ValueError('unlucky')", "failed", "ValueError: unlucky"),
    "reads a number": ("torch.linspace(0, 1, 3)[1].item()", "finished", ""),
    "reads a number, too large": ("torch.ones(1).item(); hidden = 1000", "unwanted", "10,010 parameters"),
}


@pytest.fixture
def fold_task(tmp_path, monkeypatch):
    """Return a function that runs a fold task with a stand-in for the training and returns its status and result."""
    monkeypatch.chdir(tmp_path)

    def done(line, store=True, make_attempt=lambda *_: AttemptOutcome("finished", ""), size=8):
        source = f"import torch\ndef build(shape, classes):\n    hidden = 4\n    {line}\n    return torch.nn.Linear(hidden, classes)\n"
        (tmp_path / "net.py").write_text(source)
        experiment = Experiment.model_validate(
            {
                "model": {"name": "net.py:build"},
                "search": {"space": {"train.batch_size": [8]}, "objective": {"max_parameters": 100}},
            }
        )
        if store:
            images = np.zeros((20, 1, 8, 8), np.uint8), np.arange(20, dtype=np.int64) % 10
            handmade(tmp_path / store_folder(), {"train": images})
        write_trial(tmp_path, Trial(0, {"train.batch_size": size}, (SchedulingDecision(0, LEAF, ()),)))
        status = train_fold_task(experiment, tmp_path, LEAF, LaunchOptions(), make_attempt)
        return status, read_result(tmp_path, LEAF)

    return done


@pytest.mark.parametrize(("line", "ends", "words"), BUILDERS.values(), ids=BUILDERS)
def test_a_model_is_counted_where_it_can_be_built(fold_task, line, ends, words):
    status, result = fold_task(line)
    assert (status, result.status) == (0, ends)
    assert words in result.error


def test_a_point_that_gives_no_valid_run_fails_its_trial(fold_task):
    status, result = fold_task("pass", size=0)
    assert (status, result.status) == (0, "failed")
    assert "batch_size" in result.error


def test_a_store_that_is_not_there_is_no_points_fault(fold_task):
    with pytest.raises(UserError, match="data set not found"):
        fold_task("pass", store=False)


def test_a_failure_within_one_second_costs_its_time_once(fold_task):
    """The failed attempt itself is not counted as an earlier, interrupted attempt."""

    def fail_quickly(task, _):
        outcome, began, started = AttemptOutcome("code error", "ValueError: width"), time.time(), timestamp()
        while time.time() < began + 0.005:
            pass
        task.state.mkdir(parents=True, exist_ok=True)
        record_attempt(task.state, [], ended_attempt(task, 1, outcome, None, started, 0.005))
        return outcome

    _, result = fold_task("pass", make_attempt=fail_quickly)
    assert (result.status, result.interrupted, result.earlier) == ("failed", 0.0, ())
    assert result.seconds == result.ended - result.started


@pytest.mark.parametrize(
    "steps",
    [
        [(10, 5), (20, 15), (30, 25), (40, 35), (40, 35)],
        [(10, 5), (11, 5), (12, 5)],
        [(0, 0), (0, 0)],
    ],
    ids=["until it gets no further", "without a newer checkpoint", "twice at one step"],
)
def test_a_fold_task_that_is_killed_is_tried_again_as_long_as_it_gets_further(fold_task, steps):
    attempts = iter(steps)

    def is_killed(task, _):
        reached, saved = next(attempts)
        known, outcome = read_attempts(task.state), AttemptOutcome("killed", "rank 1 was killed")
        task.state.mkdir(parents=True, exist_ok=True)
        ended = ended_attempt(task, len(known) + 1, outcome, None, timestamp(), 0.1)
        record_attempt(task.state, known, replace(ended, reached=reached, saved=saved))
        return outcome

    status, result = fold_task("pass", make_attempt=is_killed)
    assert (status, result.status) == (0, "failed")
    assert next(attempts, None) is None


def test_a_fold_task_whose_attempts_cannot_be_recorded_is_not_tried_for_ever(fold_task):
    made = []

    def is_killed(task, _):
        made.append(task)
        return AttemptOutcome("killed", "rank 1 was killed")

    _, result = fold_task("pass", make_attempt=is_killed)
    assert (result.status, len(made)) == ("failed", 1)


JOB = [FoldTask(trial, 0, 10) for trial in range(3)]


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return a function that runs a job of three fold tasks whose ends are given, and returns its status and the trained tasks.

    An end is the exit status, an exception, or the signal that arrives as the training ends.
    """
    monkeypatch.setenv("NNLO_NO_FORK", "1")
    experiment = Experiment.model_validate({"search": {"space": {"train.batch_size": [8]}}})
    (tmp_path / "config.json").write_text(experiment.model_dump_json())
    for each in JOB:
        write_trial(
            tmp_path,
            Trial(each.trial, {"train.batch_size": 8}, (SchedulingDecision(each.trial, each, ()),)),
        )

    def done(*ends, minutes=None):
        trained, limits = [], []

        def train(folder, fold_task, options, make_attempt):
            trained.append(fold_task.trial)
            limits.append(options.time_limit_minutes)
            os.write(1, f"output of {fold_task.trial}\n".encode())
            end = ends[fold_task.trial]
            if isinstance(end, Exception):
                raise end
            signaled = end if isinstance(end, str) else ""
            monkeypatch.setattr(trial_job, "train_task", lambda *_: AttemptOutcome("finished", "", signaled))
            make_attempt(None, options)
            return 0 if signaled else end

        monkeypatch.setattr(trial_job, "train_trial", train)
        options = LaunchOptions(time_limit_minutes=minutes)
        return trial_job.train_trials(tmp_path, JOB, options), trained, limits

    return done


@pytest.mark.parametrize(
    ("ends", "status", "trained"),
    [
        ((0, 0, 0), 0, [0, 1, 2]),
        # The last one, whose result ends the job for Snakemake, waits for the one that can be tried again.
        ((0, 1, 0), 1, [0, 1]),
        ((UserError("no disk"), 0, 0), 2, [0, 1]),
        ((0, 75, 0), 75, [0, 1]),
        ((1, 75, 0), 75, [0, 1]),
        (("SIGTERM", 0, 0), 75, [0]),
        ((0, 0, "SIGTERM"), 0, [0, 1, 2]),
    ],
)
def test_a_job_trains_its_last_fold_task_after_the_results_of_all_others(job, ends, status, trained):
    before = signal.getsignal(signal.SIGTERM)
    assert job(*ends)[:2] == (status, trained)
    assert signal.getsignal(signal.SIGTERM) is before


def test_each_fold_task_of_a_job_has_its_log_and_the_time_that_is_left(job, tmp_path, monkeypatch):
    seconds = iter([0.0, 60.0, 300.0, 1000.0])
    monkeypatch.setattr(trial_job.time, "monotonic", lambda: next(seconds))
    assert job(0, 0, 0, minutes=10.0)[2] == [9.0, 5.0, 1.0]
    for each in JOB:
        assert (each.run_folder(tmp_path) / "trial.log").read_text() == f"output of {each.trial}\n"
