"""State of each training below a folder of results, from its files and one query of the batch system a minute.

Nothing is written, and torch is not imported.
"""

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nnlo_lib.batch.batch_job import list_own_jobs
from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.batch.pending_reasons import remedy_of
from nnlo_lib.config.paths import (
    RESULTS_FOLDER,
    SEARCH_FOLDER,
    SUBMITTED_JOBS_FOLDER,
    ExperimentPaths,
    RunPaths,
    SearchPaths,
    StatePaths,
    training_folders,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import duration_text
from nnlo_lib.state.attempts import Attempt, attempts_of_result, read_attempts
from nnlo_lib.state.lease import HEARTBEAT_INTERVAL_S
from nnlo_lib.workflow.live_files import LeaseView, LiveFiles

State = Literal[
    "running", "starting", "pending", "requeued", "preempted", "time limit", "hung", "killed", "copied folder",
    "failed", "canceled", "not started", "finished",
]  # fmt: skip
BAD_STATES = ("hung", "killed", "failed", "canceled")
ACTIVE_STATES = ("running", "starting", "pending", "requeued", "hung")
QUEUE_INTERVAL_S = 60.0  # a query a minute does not burden the batch system
STEP_ALARM_S = 300.0  # without a step, although the launcher sends its heartbeat
STOPPED: dict[str, State] = {"preempted": "preempted", "time limit": "time limit", "canceled": "canceled"}
Jobs = dict[str, JobReport]


@dataclass(frozen=True)
class LiveJob:
    """A training as its files and the batch system show it."""

    folder: str
    experiment: str
    run: str
    job: str  # seed and fold, or trial and fold
    state: State
    note: str  # reason of the state: of the batch system, of the end, or of a danger
    is_driven: bool  # whether Snakemake or the search runs, which starts trainings again
    heartbeat_s: float | None  # seconds since the last heartbeat of the launcher; None without a lease
    restarts: int
    left_s: float | None  # seconds that the batch job may still run
    epoch: float | None = None  # trained epochs, with the part of the running one; None if no epoch has ended
    epochs: int | None = None
    eta_s: float | None = None  # seconds to the end, from the pace of this attempt
    metric: str = ""
    values: tuple[float, ...] = ()  # the metric after each epoch
    samples_per_second: float | None = None
    # share of the time in which a rank waited for others; of a running training: rank 0, at the last checkpoint
    wait: float | None = None
    gpu_percent: float | None = None


class LiveJobs:
    """The trainings below a folder, in repeated looks.

    Args:
        folder: results/, results/<experiment>/, or a folder below.
        list_jobs: returns the jobs of the user, or None without an answer.
        files: reader of the files.

    Raises UserError if the folder does not exist.
    """

    def __init__(
        self,
        folder: Path,
        list_jobs: Callable[[], Jobs | None] = list_own_jobs,
        files: LiveFiles | None = None,
    ) -> None:
        if not folder.is_dir():
            raise UserError(
                f"{folder}: no such folder; pass results/<experiment>, or call the command where the training was started"
            )
        self.folder, self._list_jobs, self._files = folder.absolute(), list_jobs, files or LiveFiles()
        self._jobs: Jobs | None = None
        self._ended = dict[Path, tuple[Any, LiveJob]]()  # with the content of the trial's file
        self._asker, self._asked_at = ThreadPoolExecutor(1), -float("inf")
        self._answer: Future[Jobs | None] | None = None

    def look(self) -> list[LiveJob]:
        """Return all trainings that were started or are planned, in the order of their folders."""
        self._ask_batch_system()
        submitted = self._submitted()
        drivers: dict[Path, bool] = {}
        return [self._job(folder, submitted.get(folder), drivers) for folder in self._folders()]

    def settled_look(self, sleep: Callable[[float], None] = time.sleep) -> list[LiveJob]:
        """Look; if a launcher is silent, look again after a heartbeat, because the clocks of two hosts may differ."""
        jobs = self.look()
        if any(job.state in ("hung", "copied folder") for job in jobs):
            sleep(1.4 * HEARTBEAT_INTERVAL_S)
            jobs = self.look()
        return jobs

    def _ask_batch_system(self) -> None:
        """Query the batch system in a thread; only the first look waits, because a busy scheduler answers late."""
        now, is_first = time.monotonic(), self._asked_at < 0
        if self._answer is None and now - self._asked_at >= QUEUE_INTERVAL_S:
            self._answer, self._asked_at = self._asker.submit(self._list_jobs), now
        if self._answer is not None and (is_first or self._answer.done()):
            self._jobs, self._answer = self._answer.result(), None

    def _submitted(self) -> dict[Path, str]:
        """Return the number of the newest listed job of each folder, for jobs that Snakemake has submitted."""
        above = (self.folder, *self.folder.parents)
        root = next((each.parent for each in above if each.name == RESULTS_FOLDER.name), Path.cwd())
        found = {}
        for number in sorted(self._jobs or (), key=lambda number: (len(number), number)):
            record = self._files.read_json(root / SUBMITTED_JOBS_FOLDER / f"{number}.json") or {}
            if record.get("output"):
                found[root / Path(record["output"]).parent] = number
        return found

    def _folders(self) -> list[Path]:
        found = set(training_folders(self.folder))
        planned = ExperimentPaths("").planned.relative_to(RESULTS_FOLDER)
        trials = f"{SEARCH_FOLDER}/{SearchPaths.trials.name}"
        for pattern in ("", "*/"):
            for file in self.folder.glob(f"{pattern}{planned}"):
                found |= {file.parents[1] / job for job in self._files.read_json(file) or ()}
            for file in self.folder.glob(f"{pattern}{trials}/*.json"):
                decisions = (self._files.read_json(file) or {}).get("decisions", ())
                found |= {file.with_suffix("") / f"fold-{each['fold']}" for each in decisions}
        parts = re.compile(r"(\d*)(\D*)").findall
        return sorted(found, key=lambda each: [(int(part or 0), text) for part, text in parts(str(each))])

    def _job(self, folder: Path, submitted: str | None, drivers: dict[Path, bool]) -> LiveJob:
        trial = self._files.read_json(folder.parent.with_suffix(".json"))
        if (known := self._ended.get(folder)) and known[0] is trial:
            return known[1]
        paths, search, files = RunPaths(folder), SearchPaths.around(folder), self._files
        depth = 2 if folder.name.startswith("fold-") else 1
        run = search.folder if search else folder.parents[depth - 1]
        attempts = files.read(paths.state.attempts, lambda path: read_attempts(path.parent)) or []
        lease = files.heartbeat(paths.state)
        driver = search.state if search else StatePaths(run.parent / ".workflow")
        if driver.folder not in drivers:
            beat = files.heartbeat(driver)
            drivers[driver.folder] = beat is not None and beat.is_alive
        numbers = (submitted, lease and lease.owner.job, attempts[-1].job if attempts else None)
        if lease and lease.is_of_copy:
            numbers = (submitted, None, None)
        number = next((each for each in numbers if each and each in (self._jobs or ())), None)
        listed = self._jobs[number] if self._jobs and number else None
        config = files.read_json(run / SearchPaths.config.name) or {}
        settings = config if search else config.get("run", {})
        epochs, ended = self._trial_end(folder, trial or {}) if search else (None, _published_end(paths))
        state, note = (
            ended
            if ended and not (lease and lease.is_alive)
            else (self._judge(paths.state, lease, attempts, (number, listed), drivers[driver.folder]))
        )
        history = files.history(paths.state, settings)
        epochs = epochs or settings.get("train", {}).get("epochs")
        job = LiveJob(
            str(folder), run.parent.name, "search" if search else run.name,
            f"trial {int(folder.parent.name)} {folder.name}" if search else "/".join(folder.parts[-depth:]),
            state, note, drivers[driver.folder], lease.silence_s if lease else None,
            sum(not each.is_finished for each in attempts_of_result(attempts)),
            listed.minutes_left * 60 if listed and listed.minutes_left is not None else None,
            epochs=epochs, metric=history.metric, values=tuple(history.values),
            samples_per_second=history.last.get("samples_per_second"),
            **(
                self._running(paths.state, lease, history.last, epochs)
                if state == "running" and lease
                else {"epoch": history.last.get("epoch"), **files.summary_shares(paths)}
            ),
        )  # fmt: skip
        if search and ended and lease is None:
            self._ended[folder] = trial, job
        return job

    def _running(
        self, state: StatePaths, lease: LeaseView, last: dict[str, Any], epochs: int | None
    ) -> dict[str, Any]:
        """Return progress, expected end, waiting and GPU use of a training that runs; `last` is its last row."""
        pace = self._files.pace(state, lease.owner.since)
        found = {"wait": self._files.waiting(state), "gpu_percent": self._files.gpu_percent(state)}
        if not last.get("epoch"):
            return found
        steps, trained = last["step"], last["epoch"]
        length = steps / trained
        epoch = max(trained, pace.step / length)
        eta = pace.seconds and epochs and max(0.0, (epochs - epoch) * length * pace.seconds)
        return found | {"epoch": epoch, "eta_s": eta}

    def _judge(
        self,
        state: StatePaths,
        lease: LeaseView | None,
        attempts: Sequence[Attempt],
        job: tuple[str | None, JobReport | None],
        is_driven: bool,
    ) -> tuple[State, str]:
        """Return state and reason of a training without results.

        Args:
            job: number and report of its job in the list of the batch system; None if it is not in the list.
            is_driven: whether Snakemake or the search runs.
        """
        (number, listed), last = job, attempts[-1] if attempts else None
        if lease is not None:
            if lease.is_alive:
                return "running", self._danger(state, lease)
            if lease.is_of_copy:
                return (
                    "copied folder",
                    f"the lease is of {lease.owner.folder or 'another folder'}, by {lease.owner}",
                )
            own = (self._jobs or {}).get(lease.owner.job or "")
            if (own and own.fate is not Fate.PENDING) or not listed:
                return self._silent(lease, own)
        if listed and listed.fate is Fate.PENDING:
            hints = remedy_of(listed, str(number)), listed.start and f"expected start {listed.start}"
            again = number in (last and last.job, lease and lease.owner.job)
            words = [f"job {number}: {listed.reason or 'no reason'}", *filter(None, hints)]
            return "requeued" if again else "pending", "; ".join(words)
        if listed:
            return "starting", f"job {number}"
        if last is None:
            return ("pending", "waits for its turn") if is_driven else ("not started", "")
        note = last.error or ""
        if last.reason in STOPPED:
            follows = "is started again" if is_driven else "the same command resumes"
            return STOPPED[last.reason], note or f"saved at step {last.saved}; {follows}"
        if last.is_finished:
            return "finished", ""
        return "failed", f"{last.reason}: {note}" if note else last.reason

    def _silent(self, lease: LeaseView, listed: JobReport | None) -> tuple[State, str]:
        """Return the state of a training whose launcher has sent no heartbeat for long, or has ended."""
        owner = lease.owner
        if owner.is_dead:
            return "killed", f"{owner} has ended without a record"
        silence = f"no heartbeat for {duration_text(round(lease.silence_s))}"
        if listed:
            return "hung", f"{silence}, although job {owner.job} runs on {owner.host}"
        if owner.job and self._jobs is not None:
            return "killed", f"{silence}; job {owner.job} is not in the list of {owner.scheduler}"
        return "hung", f"{silence}; {owner}"

    def _danger(self, state: StatePaths, lease: LeaseView) -> str:
        silence = self._files.pace(state, lease.owner.since).silence_s or 0.0
        return f"no step for {duration_text(round(silence))}" if silence > STEP_ALARM_S else ""

    def _trial_end(self, folder: Path, trial: dict[str, Any]) -> tuple[int | None, tuple[State, str] | None]:
        """Return the epochs to which the fold of a trial is to be trained, and its end, None if it has not ended."""
        decided = [each for each in trial.get("decisions", ()) if f"fold-{each['fold']}" == folder.name]
        epochs = max((each["epochs"] for each in decided), default=None)
        result = self._files.read_json(folder / f"epochs-{epochs}.json") or {}
        if not result:
            return epochs, None
        is_good = result.get("status") == "finished"
        return epochs, ("finished" if is_good else "failed", str(result.get("error", "")))


def _published_end(paths: RunPaths) -> tuple[State, str] | None:
    """Return the end of a training whose results exist, else None."""
    if not paths.summary.exists():
        return None
    return "finished", "" if paths.evaluation.exists() else "not evaluated"
