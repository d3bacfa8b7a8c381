"""Fold tasks as jobs of submitit: requested resources, recovery by the next driver, and jobs without a result."""

import json
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from submitit.core.utils import DelayedSubmission

from nnlo_lib.batch.job_states import PREEMPTED, Fate, JobReport
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.search_run import run_search
from nnlo_lib.executors.submitit import executor
from nnlo_lib.executors.submitit.executor import SubmititExecutor
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.slurm import SlurmTrialQueue, TransientRefusalError, refuse_without_slurm
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial, write_trial
from nnlo_lib.state.attempts import Attempt, append_attempt

LEAF = FoldTask(0, 0, 3)
RUN = Run.model_validate(
    {
        "parallel": {"ranks": 6, "threads_per_rank": 3, "gpus_per_rank": 1},
        "resources": {"nodes": 2, "runtime": 77, "mem_mb": 900, "partition": "p", "account": "a"},
    }
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install stand-ins for Slurm's commands and return their folder; `queue` has a line for each job, written by `queued`."""
    folder = tmp_path / "slurm"
    (folder / "bin").mkdir(parents=True)
    stand_in(folder, "sbatch", f'cp "$2" {folder}/script; echo Your last job 900 used 12 hours; echo 7')
    listed = f"awk -F'\\t' '{{print $1 \"|RUNNING|None\"}}' {folder}/queue"
    stand_in(folder, "squeue", f'case "$*" in *--Format=*) cat {folder}/queue ;; *) {listed} ;; esac')
    unknown = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    stand_in(folder, "scontrol", f'case "$*" in *"show job"*) {unknown} ;; *) echo Slurmctld is UP ;; esac')
    stand_in(folder, "sacct", "true")
    stand_in(folder, "srun", "true")
    (folder / "queue").touch()
    monkeypatch.setenv("PATH", f"{folder}/bin", prepend=os.pathsep)
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    path = folder / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def queued(folder: Path, *jobs: tuple[str, str, str]) -> None:
    """Put jobs of (number, comment, folder of the log) into the queue, as squeue --Format prints them."""
    rows = [
        (number, "nnlo-x", comment, str(Path.cwd()), f"{log}/%j_0_log.out", "")
        for number, comment, log in jobs
    ]
    (folder / "queue").write_text("".join("\t".join(row) + "\n" for row in rows))


@pytest.fixture
def queue(tmp_path: Path) -> SlurmTrialQueue:
    return SlurmTrialQueue(tmp_path / "search", "nnlo-x", "mpiexec")


@pytest.fixture
def job(tmp_path: Path) -> TrialJob:
    return TrialJob(tmp_path / "search", LEAF, "mpiexec", 1)


@pytest.mark.processes
def test_a_job_requests_the_resources_of_its_training(slurm, tmp_path, queue, job):
    assert queue.submit(job, RUN, 1234) == "7"
    lines = (slurm / "script").read_text().splitlines()
    asked = dict(shlex.split(line)[1][2:].partition("=")[::2] for line in lines if line.startswith("#SBATCH"))
    assert asked | {"output": ""} == {
        "nodes": "2", "ntasks": "6", "cpus-per-task": "3", "gpus": "6", "mem": "617M", "time": "77", "partition": "p",
        "account": "a", "job-name": "nnlo-x", "comment": str(LEAF.result_path(tmp_path / "search")), "requeue": "",
        "open-mode": "append", "signal": "USR2@90", "wckey": "submitit", "output": "",
    }  # fmt: skip
    assert asked["output"].startswith(f"{tmp_path}/search/submitit/")
    assert lines[-1].startswith("exec "), "no shell is between Slurm's signals and the launcher"


@pytest.mark.processes
def test_variables_of_a_job_around_the_driver_do_not_reach_its_jobs(slurm, queue, job, monkeypatch):
    stand_in(slurm, "sbatch", f"env > {slurm}/env; echo 7")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1")
    monkeypatch.setenv("SLURM_CONF", "here")
    queue.submit(job, RUN, 1)
    said = (slurm / "env").read_text()
    assert "SLURM_MEM_PER_CPU" not in said
    assert "SLURM_CONF=here" in said
    assert os.environ["SLURM_MEM_PER_CPU"] == "1"


@pytest.mark.processes
def test_a_job_whose_driver_died_is_found_by_its_comment_or_its_number(slurm, tmp_path, queue):
    search = tmp_path / "search"
    assert queue.find(LEAF) is None
    queued(
        slurm, ("4", "something else", "/"), ("5", str(LEAF.result_path(search)), "/"), ("6", "(null)", "/")
    )
    assert queue.find(LEAF) == "5"
    SearchPaths(search).job_record(LEAF.trial, LEAF.fold, LEAF.epochs).write_text('{"job": "6"}')
    assert queue.find(LEAF) == "6", "a site may use comments for something else"
    assert queue.find(FoldTask(0, 0, 9)) is None


@pytest.mark.processes
def test_a_job_whose_comment_the_site_rewrites_is_found_by_its_folder_of_logs(slurm, queue):
    other = FoldTask(0, 0, 9)
    queued(slurm, ("5", "charged to physics", str(queue.logs(LEAF))), ("6", "", str(queue.logs(other))))
    assert (queue.find(LEAF), queue.find(other), queue.find(FoldTask(1, 0, 3))) == ("5", "6", None)


@pytest.mark.processes
def test_a_slurm_that_does_not_answer_neither_ends_nor_finds_a_job(slurm, queue):
    stand_in(slurm, "squeue", "exit 1")
    assert queue.ended({"5"}) == set()
    with pytest.raises(TransientRefusalError, match="does not respond"):
        queue.find(LEAF)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("Unable to contact slurm controller", TransientRefusalError, "controller"),
        ("QOSMaxSubmitJobPerUserLimit", TransientRefusalError, "SubmitJobPerUser"),
        ("Invalid account", UserError, "set resources.account"),
        ("invalid partition specified: p", UserError, "set resources.partition"),
    ],
)
def test_a_refused_submission_is_tried_again_later_or_names_the_key_to_set(
    slurm, queue, job, said, error, words
):
    stand_in(slurm, "sbatch", f"echo 'sbatch: error: {said}' >&2; exit 1")
    with pytest.raises(error, match=words):
        queue.submit(job, RUN, 1)


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


class Place:
    """Job queue in which a test decides when a job ends."""

    launcher, poll_interval_s = "mpiexec", 0.0

    def __init__(self) -> None:
        self.memory, self.attempts, self.living = [], [], {}
        self.end = JobReport(Fate.FAILED, "FAILED")
        self.refusals = self.silences = 0

    def submit(self, job: TrialJob, run: Run, memory: int) -> str:
        if self.refusals:
            self.refusals -= 1
            raise TransientRefusalError("QOSMaxSubmitJobPerUserLimit")
        self.memory.append(memory)
        self.attempts.append(job.attempt)
        self.living[job.task] = str(len(self.memory))
        return self.living[job.task]

    def find(self, fold_task: FoldTask) -> str | None:
        if self.silences:
            self.silences -= 1
            raise TransientRefusalError("Slurm does not respond")
        return self.living.get(fold_task)

    def ended(self, jobs: Iterable[str]) -> set[str]:
        return set(jobs) - set(self.living.values())

    def report(self, job: str) -> JobReport:
        return self.end

    def logs(self, fold_task: FoldTask) -> Path:
        return Path("submitit")


class Driver(SubmititExecutor):
    """Executor of a driver with virtual time, of a search that has decided on the fold task LEAF."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder, self.place, self.now = folder, place, 0
        super().__init__(folder, "mpiexec", SimpleNamespace(first=""))

    def _clock(self) -> float:
        return self.now

    def end_job(self, *reasons: str | None) -> None:
        """End the job once for each reason of its recorded attempt (None: no attempt), and detect the end."""
        state = LEAF.run_folder(self.folder) / "state"
        for reason in reasons:
            if reason:
                state.mkdir(parents=True, exist_ok=True)
                append_attempt(state, Attempt(1, "", "", 1.0, "n1", "7", reason, reason, 0, 5, 5, 2))
            self.place.living.clear()
            self._check_jobs()
            self._check_jobs()

    def start_at(self, now: int) -> None:
        self.now = now
        self.start_due()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place()
    monkeypatch.setattr(executor, "SlurmTrialQueue", lambda *_: place)
    return place


@pytest.fixture
def driver(tmp_path: Path, place: Place) -> Driver:
    experiment = Experiment.model_validate(
        {"name": "x", "resources": {"mem_mb": 1000}, "search": {"space": {"train.optimizer.lr": [0.1, 0.2]}}}
    )
    (tmp_path / "config.json").write_text(json.dumps(experiment.model_dump(mode="json")))
    write_trial(tmp_path, Trial(0, {"train.optimizer.lr": 0.1}, (SchedulingDecision(0, LEAF, ()),)))
    return Driver(tmp_path, place)


@pytest.mark.processes  # where Slurm is installed, its commands
def test_a_fold_task_short_of_memory_gets_more_and_another_does_not(driver: Driver, place: Place) -> None:
    driver.start(LEAF)
    driver.end_job("killed", "out of memory", "time limit", "out of memory")
    assert place.memory == [1000, 1000, 1500, 1500, 2250]
    assert place.attempts == [1, 2, 3, 4, 5]


@pytest.mark.processes  # where Slurm is installed, its commands
def test_jobs_that_never_begin_to_train_end_the_search(driver: Driver, place: Place) -> None:
    driver.start(LEAF)
    driver.end_job(None, None, "killed", None, None)
    with pytest.raises(
        UserError,
        match=r"3 consecutive starts ended .* \(the log is empty or missing; see .*submitit/6_0_log\.out",
    ):
        driver.end_job(None)
    assert len(place.memory) == 6


def test_a_canceled_job_is_not_submitted_again(driver: Driver, place: Place) -> None:
    place.end = JobReport(Fate.CANCELED, "CANCELLED by 1000")
    driver.start(LEAF)
    with pytest.raises(UserError, match=r"trial 0, fold 0 .*: canceled; .*1_0_log\.out"):
        driver.end_job("preempted")
    assert len(place.memory) == 1


def test_a_cancellation_that_only_the_job_recorded_is_not_submitted_again(
    driver: Driver, place: Place
) -> None:
    driver.start(LEAF)
    place.living[LEAF] = driver._jobs[LEAF] = "7"
    with pytest.raises(UserError, match="canceled; run the same command again"):
        driver.end_job("canceled")


def test_the_next_driver_submits_nothing_twice_and_reads_the_result(driver: Driver, place: Place) -> None:
    driver.start(LEAF)
    second = Driver(driver.folder, place)
    second.start(LEAF)
    assert len(place.memory) == 1
    Result(LEAF, "finished").write(driver.folder)
    place.living.clear()
    assert second.wait()
    assert len(place.memory) == 1


def test_jobs_are_left_to_slurm_when_a_driver_stops(
    driver: Driver, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.start(LEAF)
    driver._signals.first = "SIGINT"
    assert not driver.wait()
    assert place.living
    assert (
        "Slurm jobs 1 continue; to cancel all jobs of this search, run `scancel --name=nnlo-x`"
        in capsys.readouterr().err
    )


def test_a_job_preempted_before_it_trains_counts_as_no_failed_start(driver: Driver, place: Place) -> None:
    place.end = JobReport(Fate.INTERRUPTED, PREEMPTED)
    driver.start(LEAF)
    driver.end_job(*[None] * 5)
    assert len(place.memory) == 6


def test_refused_submissions_wait_and_cost_no_start(driver: Driver, place: Place) -> None:
    place.refusals = 2
    driver.start(LEAF)
    for now in range(31):
        driver.start_at(now)
        assert len(place.memory) == (now >= 30), "10 s after the first refusal, 20 s after the second"
    assert place.attempts == [1]


def test_all_fold_tasks_wait_for_the_first_and_keep_their_order(driver: Driver, place: Place) -> None:
    tasks = [LEAF, FoldTask(0, 1, 3), FoldTask(0, 2, 3)]
    place.refusals = 1
    for task in tasks:
        driver.start(task)
    assert not place.memory
    driver.start_at(10)
    assert list(place.living) == tasks


def test_a_job_is_not_submitted_while_slurm_does_not_say_whether_there_is_one(
    driver: Driver, place: Place
) -> None:
    place.silences, place.living[LEAF] = 1, "7"
    driver.start(LEAF)
    driver.start_at(10)
    assert driver._jobs == {LEAF: "7"}
    assert not place.memory


@pytest.mark.processes
def test_a_job_accepted_with_an_error_is_canceled_once_although_it_stays_in_the_queue(
    slurm, tmp_path, queue, job
):
    stand_in(slurm, "sbatch", "echo the plugin of this site says no >&2; exit 1")
    stand_in(slurm, "scancel", f'echo "$@" >> {slurm}/canceled')
    comment = LEAF.result_path(tmp_path / "search").absolute()
    queued(slurm, ("9", str(comment), "/"), ("8", "another job", "/"))  # 9 is COMPLETING for a while
    with pytest.raises(UserError, match="the plugin of this site says no"):
        queue.submit(job, RUN, 1)
    assert (slurm / "canceled").read_text() == "9\n"
    stand_in(slurm, "sbatch", "echo Project 4711: 1200 of 5000 used")
    assert queue.submit(job, RUN, 1) == "9"  # no number: the job with this comment
