"""Fold tasks as jobs of submitit: requested resources, recovery by the next driver, and jobs without a result.

The driver runs in virtual time on a scripted Slurm; stand-ins for Slurm's commands show what submitit itself does.
"""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.scripted_slurm import ScriptedSlurm
from submitit.core.utils import DelayedSubmission

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.search_run import run_search
from nnlo_lib.executors.submitit import executor
from nnlo_lib.executors.submitit.executor import SubmititExecutor
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.slurm import TrialSubmission, refuse_without_slurm, request
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial, write_trial
from nnlo_lib.state.attempts import Attempt, append_attempt

LEAF, NEXT = FoldTask(0, 0, 3), FoldTask(0, 1, 3)
RUN = Run.model_validate(
    {
        "parallel": {"ranks": 6, "threads_per_rank": 3, "gpus_per_rank": 1},
        "resources": {"nodes": 2, "runtime": 77, "mem_mb": 900, "partition": "p", "account": "a"},
    }
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install stand-ins for Slurm's commands and return their folder; `queue` has what squeue prints of each job."""
    folder = tmp_path / "slurm"
    (folder / "bin").mkdir(parents=True)
    stand_in(folder, "sbatch", f'cp "$2" {folder}/script; echo Your last job 900 used 12 hours; echo 7')
    listed = f"awk -F'\\t' '{{print $1 \"|RUNNING|None\"}}' {folder}/queue"
    stand_in(folder, "squeue", f'case "$*" in *--Format=*) cat {folder}/queue ;; *) {listed} ;; esac')
    stand_in(folder, "scontrol", "echo Slurmctld is UP")
    for name in ("sacct", "scancel", "srun"):
        stand_in(folder, name, "true")
    (folder / "queue").touch()
    monkeypatch.setenv("PATH", f"{folder}/bin", prepend=os.pathsep)
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def job(tmp_path: Path) -> TrialJob:
    return TrialJob(tmp_path / "search", LEAF, "mpiexec", 1)


@pytest.mark.processes
def test_a_job_requests_the_resources_of_its_training(slurm, tmp_path, job):
    submission = TrialSubmission(tmp_path / "logs", **request(RUN, 1234), job_name="nnlo-x", comment="a | b")
    assert submission.send(job) == "7"
    lines = (slurm / "script").read_text().splitlines()
    asked = dict(shlex.split(line)[1][2:].partition("=")[::2] for line in lines if line.startswith("#SBATCH"))
    assert asked.pop("output").startswith(f"{tmp_path}/logs/")
    assert asked == {
        "nodes": "2", "ntasks": "6", "cpus-per-task": "3", "gpus": "6", "mem": "617M", "time": "77", "partition": "p",
        "account": "a", "job-name": "nnlo-x", "comment": "a | b", "requeue": "",
        "open-mode": "append", "signal": "USR2@90", "wckey": "submitit",
    }  # fmt: skip
    assert lines[-1].startswith("exec "), "no shell is between Slurm's signals and the launcher"


@pytest.mark.processes
def test_variables_of_a_job_around_the_driver_do_not_reach_its_jobs(slurm, tmp_path, job, monkeypatch):
    stand_in(slurm, "sbatch", f"env > {slurm}/env; echo 7")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1")
    monkeypatch.setenv("SLURM_CONF", "here")
    TrialSubmission(tmp_path / "logs", **request(RUN, 1)).send(job)
    said = (slurm / "env").read_text()
    assert "SLURM_MEM_PER_CPU" not in said
    assert "SLURM_CONF=here" in said
    assert os.environ["SLURM_MEM_PER_CPU"] == "1"


@pytest.mark.processes
def test_a_search_without_slurm_is_refused_before_it_begins(slurm: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    refuse_without_slurm()
    stand_in(slurm, "scontrol", "echo 'Slurmctld(primary) at x is DOWN'; exit 1")
    refuse_without_slurm()
    stand_in(slurm, "scontrol", "echo 'fatal: Could not establish a configuration source' >&2; exit 1")
    experiment = Experiment.model_validate(
        {"name": "x", "search": {"space": {"train.optimizer.lr": [0.1, 0.2]}}}
    )
    with pytest.raises(UserError, match=r"has no Slurm .*; use --executor local"):
        run_search(experiment, "mpiexec", "submitit")
    assert not (tmp_path / "results").exists()


def test_a_requeued_job_loads_the_pickle_of_its_submission_again(tmp_path, job):
    DelayedSubmission(job).dump(tmp_path / "pickle")
    for _ in range(2):
        loaded = DelayedSubmission.load(tmp_path / "pickle")
        assert (loaded.function, loaded.args, loaded.kwargs) == (job, (), {})


class Driver(SubmititExecutor):
    """Executor of a driver in virtual time, of a search that has decided on the fold task LEAF."""

    def __init__(self, folder: Path, slurm: ScriptedSlurm) -> None:
        self.folder, self.slurm, self.lines = folder, slurm, list[str]()
        self.memory, self.attempts = list[str](), list[int]()
        super().__init__(folder, "mpiexec", SimpleNamespace(first=""), slurm.run)

    def _clock(self) -> float:
        return self.slurm.now

    def _say(self, line: str) -> None:
        self.lines.append(line)

    def submission(self, folder: Path, **asked: Any) -> SimpleNamespace:
        """Return a stand-in for submitit."""

        def send(job: TrialJob) -> str:
            try:
                marks = asked["job_name"], asked["comment"], str(folder)
                number = self.slurm.submit(str(job.task), folder / "unused", marks)
            except ConnectionError as error:
                raise RuntimeError(str(error)) from error
            self.memory.append(asked["mem"])
            self.attempts.append(job.attempt)
            return number

        folder.mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(send=send)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a look each ten seconds."""
        for _ in range(round(seconds / 10)):
            self.slurm.advance(10)
            self._check_jobs()
            self.start_due()

    def end_job(self, reason: str | None, state: str = "FAILED") -> None:
        """End the job of LEAF, which has recorded an attempt with this reason (None: no attempt), and detect the end."""
        if reason:
            folder = LEAF.run_folder(self.folder) / "state"
            folder.mkdir(parents=True, exist_ok=True)
            append_attempt(folder, Attempt(1, "", "", 1.0, "n1", "7", reason, reason, 0, 5, 5, 2))
        self.slurm.end(self._jobs[LEAF], state)
        self.pass_time(180)


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Driver]:
    """Return a function that starts a driver, on the Slurm of an earlier one or on one with these options."""
    experiment = Experiment.model_validate(
        {"name": "x", "resources": {"mem_mb": 1000}, "search": {"space": {"train.optimizer.lr": [0.1, 0.2]}}}
    )
    (tmp_path / "config.json").write_text(json.dumps(experiment.model_dump(mode="json")))
    decisions = (SchedulingDecision(0, LEAF, ()), SchedulingDecision(1, NEXT, ()))
    write_trial(tmp_path, Trial(0, {"train.optimizer.lr": 0.1}, decisions))

    class Submission:
        complete = staticmethod(lambda folder, number: None)

        def __new__(cls, folder: Path, **asked: Any) -> SimpleNamespace:
            return drivers[-1].submission(folder, **asked)

    drivers: list[Driver] = []
    monkeypatch.setattr(executor, "TrialSubmission", Submission)

    def start(slurm: ScriptedSlurm | None = None, **options: Any) -> Driver:
        work = {str(LEAF): 1e5, str(NEXT): 1e5}
        drivers.append(Driver(tmp_path, slurm or ScriptedSlurm(work, **options)))
        return drivers[-1]

    return start


@pytest.mark.processes  # where Slurm is installed, its commands
def test_a_fold_task_short_of_memory_gets_more_and_another_does_not(begin) -> None:
    (driver := begin()).start(LEAF)
    for reason in ("killed", "out of memory", "time limit", "out of memory"):
        driver.end_job(reason)
    assert driver.memory == ["1000M", "1000M", "1500M", "1500M", "2250M"]
    assert driver.attempts == [1, 2, 3, 4, 5]


@pytest.mark.processes  # where Slurm is installed, its commands
@pytest.mark.parametrize("accounting", [True, False])
def test_jobs_that_never_begin_to_train_end_the_search(begin, accounting: bool) -> None:
    (driver := begin(accounting=accounting)).start(LEAF)
    for reason in (None, None, "killed", None, None):
        driver.end_job(reason)
    message = r"3 consecutive starts ended .* \(the log is empty or missing; see .*submitit/.*6_0_log\.out"
    with pytest.raises(UserError, match=message):
        driver.end_job(None)
    assert len(driver.memory) == 6


@pytest.mark.parametrize(
    ("reason", "state"),
    [("preempted", "CANCELLED by 1000"), ("canceled", "FAILED")],
    ids=["Slurm", "the job recorded it"],
)
def test_a_canceled_job_is_not_submitted_again(begin, reason: str, state: str) -> None:
    (driver := begin()).start(LEAF)
    with pytest.raises(UserError, match=r"trial 0, fold 0 .*: canceled; run the same command .*1_0_log\.out"):
        driver.end_job(reason, state)
    assert len(driver.memory) == 1


def test_a_job_preempted_before_it_trains_counts_as_no_failed_start(begin) -> None:
    (driver := begin()).start(LEAF)
    for _ in range(5):
        driver.end_job(None, "PREEMPTED")
    assert len(driver.memory) == 6


def test_a_job_that_slurm_would_revive_late_is_canceled_before_its_successor_starts(begin) -> None:
    (driver := begin()).start(LEAF)
    driver.pass_time(60)
    driver.slurm.requeue_late("1", 200)
    driver.pass_time(600)
    assert driver.slurm.jobs["1"].state == "CANCELLED by 1000"
    assert driver.slurm.most_at_once == 1


def test_a_result_that_becomes_visible_late_is_taken_and_nothing_is_submitted_while_slurm_is_silent(
    begin,
) -> None:
    (driver := begin()).start(LEAF)
    driver.slurm.end("1", "COMPLETED")
    driver.slurm.advance(10)
    driver._check_jobs()
    driver.slurm.down_until = 1e9
    Result(LEAF, "finished").write(driver.folder)
    driver.pass_time(60)
    assert driver.wait()
    assert len(driver.memory) == 1


@pytest.mark.parametrize("rewrites", [None, ("x", "charged to physics")], ids=["comment", "folder of logs"])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_the_next_driver_submits_nothing_twice_and_reads_the_result(
    begin, rewrites: Any, is_recorded: bool
) -> None:
    (driver := begin(rewrites=rewrites)).start(LEAF)
    driver.start(NEXT)
    if not is_recorded:  # the driver was killed too early
        SearchPaths(driver.folder).job_record(LEAF.trial, LEAF.fold, LEAF.epochs).unlink()
    (second := begin(driver.slurm)).start(LEAF)
    assert (second.memory, second._jobs) == ([], {LEAF: "1"})
    Result(LEAF, "finished").write(driver.folder)
    assert second.wait()
    assert not second._jobs


def test_jobs_are_left_to_slurm_when_a_driver_stops(begin, capsys: pytest.CaptureFixture[str]) -> None:
    (driver := begin()).start(LEAF)
    driver._signals.first = "SIGINT"
    assert not driver.wait()
    assert driver.slurm.jobs["1"].state == "PENDING"
    assert (
        "Slurm jobs 1 continue; to cancel all jobs of this search, run `scancel --name=nnlo-x`"
        in capsys.readouterr().err
    )


def test_refused_submissions_wait_in_their_order_and_cost_no_start(begin) -> None:
    driver = begin(refusing_until=15)
    driver.start(LEAF)
    driver.start(NEXT)
    driver.pass_time(20)
    assert not driver.memory, "10 s after the first refusal, 20 s after the second"
    driver.pass_time(10)
    assert list(driver._jobs) == [LEAF, NEXT]
    assert driver.attempts == [1, 1]
    assert driver.lines[0].startswith(
        "submissions wait 10 s or until a job ends, trial 0, fold 0 first: QOSMax"
    )


@pytest.mark.parametrize("silent", [0, 100])
def test_a_job_whose_answer_was_lost_is_watched(begin, silent: int) -> None:
    (driver := begin(lost_answers=1, silent_after_lost_answer=silent)).start(LEAF)
    driver.pass_time(300)
    assert (driver._jobs, len(driver.slurm.jobs)) == ({LEAF: "1"}, 1)


@pytest.mark.processes
def test_a_job_without_a_number_in_the_answer_gets_the_pickle_that_it_reads(slurm, tmp_path, job):
    stand_in(slurm, "sbatch", "echo Project 4711: 1200 of 5000 used")
    with pytest.raises(RuntimeError, match="no line with only the number"):
        TrialSubmission(folder := tmp_path / "logs", **request(RUN, 1)).send(job)
    TrialSubmission.complete(folder, "9")
    assert DelayedSubmission.load(folder / "9_submitted.pkl").function == job
    TrialSubmission.complete(folder, "9")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Invalid account", "set resources.account"),
        ("invalid partition specified: p", "set resources.partition"),
    ],
)
def test_a_mistake_ends_the_search_and_names_the_key_to_set(
    begin, monkeypatch, said: str, words: str
) -> None:
    driver = begin()

    def refuse(*_: Any) -> None:
        raise ConnectionError(f"sbatch: error: {said}")

    monkeypatch.setattr(driver.slurm, "submit", refuse)
    with pytest.raises(UserError, match=f"Slurm refused the job of trial 0: .*{words}"):
        driver.start(LEAF)
