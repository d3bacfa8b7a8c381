"""Looks at LSF through scripted commands: what bjobs, bhist and bacct print, and what they do not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nnlo_lib.cluster.fate import Fate
from nnlo_lib.cluster.job_watch import JobWatch
from nnlo_lib.cluster.lsf.lsf_queue import LsfQueue
from nnlo_lib.cluster.submission.job_files import StatusFile

# bhist(1) and bacct(1) break lines at a fixed width, also inside words.
BHIST = """
Job <7>, Job Name <x>, User <me>, Project <default>, Command <sleep 300>
Fri Oct  5 17:49:35: Submitted from host <a>, to Queue <normal>, CWD <$HOME>;
Fri Oct  5 17:50:35: Dispatched 1 Task(s) on Host(s) <a3191>;
Fri Oct  5 17:51:30: Exited with exit code 130. The CPU time used is 0.0 sec
                     onds;
Fri Oct  5 17:51:30: Completed <exit>; TERM_PREE
                     MPT: job killed after preemption;
------------------------------------------------------------------------------

Job <8>, Job Name <y>, User <me>, Project <default>, Command <sleep 300>
Fri Oct  5 17:51:30: Completed <exit>; TERM_REQUEUE_OWNER: job killed and reque
                     ued by owner;
Fri Oct  5 17:52:30: Done success
                     fully. The CPU time used is 0.0 seconds;
"""
BACCT = """
Accounting information about jobs that are:
  - submitted by all users.
------------------------------------------------------------------------------
Job <9>, User <me>, Project <default>, Status <EXIT>, Queue <pub.1h>,
                     Command <sleep 300>
Fri Oct  5 17:51:30: Completed <exit>; TERM_OWNER: job killed by owner.
"""


class Lsf:
    """Scripted LSF: `answers` has status, stdout and stderr of a command; a missing command does not answer."""

    def __init__(self, **answers: tuple[int, str, str]) -> None:
        self.answers, self.calls = answers, []

    def __call__(self, *command: str) -> "CompletedProcess[str] | None":
        self.calls.append(command)
        found = self.answers.get(command[0])
        return CompletedProcess(command, *found) if found else None

    @property
    def commands(self) -> Sequence[str]:
        return [call[0] for call in self.calls]


def test_one_bjobs_for_all_jobs() -> None:
    lsf = Lsf(
        bjobs=(
            0,
            "5|RUN|-|-\n6|PEND|-|Not enough slots: 2 hosts;Closed: 1 host;\n7|EXIT|TERM_OWNER: job killed by owner|-\n",
            "",
        )
    )
    report = LsfQueue(lsf).look(["7", "5", "6"])
    assert report.is_complete
    assert {number: job.fate for number, job in report.jobs.items()} == {
        "5": Fate.RUNNING,
        "6": Fate.PENDING,
        "7": Fate.CANCELED,
    }
    assert report.jobs["6"].reason == "Not enough slots: 2 hosts;Closed: 1 host"
    (call,) = lsf.calls
    assert call[-3:] == ("5", "6", "7")


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"bjobs": (255, "", "LSF is down. Please wait ...")},
        {"bjobs": (0, "", "batch system daemon not responding ... still trying")},
    ],
    ids=["time-out", "error", "status 0 without jobs"],
)
def test_a_bjobs_that_fails_knows_nothing(answers: dict[str, tuple[int, str, str]]) -> None:
    lsf = Lsf(**answers)
    report = LsfQueue(lsf).look(["5"])
    assert not report.jobs
    assert not report.is_complete
    assert lsf.commands == ["bjobs"]


def test_a_bjobs_that_ends_early_tells_nothing_about_the_rest() -> None:
    report = LsfQueue(Lsf(bjobs=(255, "5|RUN|-|-\n", "Connection reset by peer"))).look(["5", "6"])
    assert set(report.jobs) == {"5"}
    assert not report.is_complete


@pytest.mark.parametrize("said", ["Job <7> is not found", "No unfinished job found", "No matching job found", "No job found"])  # fmt: skip
@pytest.mark.parametrize("history", [None, (255, "", "No matching job found"), (0, "", "")])
def test_a_purged_job_without_history_is_unknown(said: str, history: tuple[int, str, str] | None) -> None:
    answers = {"bhist": history, "bacct": history} if history else {}
    report = LsfQueue(Lsf(bjobs=(255, "", said), **answers)).look(["7"])
    assert not report.jobs
    assert report.is_complete


def test_purged_jobs_are_looked_up_in_the_event_and_accounting_files() -> None:
    missing = "".join(f"Job <{number}> is not found\n" for number in (7, 8, 9))
    lsf = Lsf(bjobs=(255, "5|RUN|-|-\n", missing), bhist=(0, BHIST, ""), bacct=(0, BACCT, ""))
    report = LsfQueue(lsf).look(["5", "7", "8", "9"])
    assert {number: job.fate for number, job in report.jobs.items()} == {
        "5": Fate.RUNNING,
        "7": Fate.INTERRUPTED,
        "8": Fate.DONE,
        "9": Fate.CANCELED,
    }
    assert report.jobs["7"].state == "PREEMPTED"
    assert lsf.calls[1:] == [("bhist", "-l", "7", "8", "9"), ("bacct", "-l", "9")]


def test_jobs_are_canceled_in_one_call() -> None:
    lsf = Lsf(bkill=(0, "Job <5> is being terminated", ""))
    assert LsfQueue(lsf).cancel("5", "6")
    assert lsf.calls == [("bkill", "5", "6")]


@pytest.mark.parametrize(
    ("answer", "canceled"),
    [
        ((255, "", "Job <5>: Job has already finished"), True),
        ((255, "", "Job <5>: No matching job found"), True),
        ((255, "", "LSF is down. Please wait ..."), False),
        (None, False),
    ],
)
def test_a_job_that_may_still_run_is_not_canceled(
    answer: tuple[int, str, str] | None, canceled: bool
) -> None:
    assert LsfQueue(Lsf(**({"bkill": answer} if answer else {}))).cancel("5") is canceled


def test_a_job_is_found_by_its_name() -> None:
    lsf = Lsf(bjobs=(0, "5|x\n6|x___(run)\n7|x___(run)|\n", ""))
    assert LsfQueue(lsf).find_submitted("x___(run)") == ["6"]
    assert LsfQueue(Lsf()).find_submitted("x") == []


def test_known_queues_are_named() -> None:
    queues = "QUEUE_NAME      PRIO STATUS\nnormal   30  Open:Active\nidle  20  Open:Active\n"
    assert LsfQueue(Lsf(bqueues=(0, queues, ""))).known_queues() == "known: idle, normal"
    assert LsfQueue(Lsf()).known_queues() == ""


class Clock:
    """Virtual time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def seconds_until_end(lsf: Lsf, file: StatusFile, change: Callable[[float], None]) -> tuple[float, Fate]:
    """Watch job 5 in virtual time until it has ended; return when and how.

    Args:
        lsf: scripted LSF.
        file: status file of the job.
        change: changes LSF before the look at a time.
    """
    clock = Clock()
    watch = JobWatch(LsfQueue(lsf), clock, warn=lambda line: None)
    for clock.now in range(0, 3600, 2):
        change(clock.now)
        report = watch.judge({"5": file})["5"]
        if not report.fate.is_active:
            return clock.now, report.fate
    raise AssertionError("the job has not ended within an hour")


def test_a_job_that_vanished_during_an_outage_ends(tmp_path: Path) -> None:
    lsf = Lsf(bjobs=(0, "5|RUN|-|-\n", ""))

    def change(now: float) -> None:
        lsf.answers = {} if now < 600 else {"bjobs": (255, "", "Job <5> is not found")}

    seconds, fate = seconds_until_end(lsf, StatusFile(tmp_path / "x.status"), change)
    assert fate is Fate.INTERRUPTED
    assert 600 < seconds < 600 + 3 * 60 + 2


@pytest.mark.parametrize(("written", "expected"), [("done", Fate.DONE), ("failed", Fate.FAILED)])
def test_the_status_file_judges_a_purged_job(tmp_path: Path, written: str, expected: Fate) -> None:
    lsf = Lsf(bjobs=(255, "", "Job <5> is not found"))
    file = StatusFile(tmp_path / "x.status")
    file.path.write_text(written)
    seconds, fate = seconds_until_end(lsf, file, lambda now: None)
    assert fate is expected
    assert seconds <= 60


@pytest.mark.parametrize("state", ["UNKWN", "ZOMBI", "USUSP", "PSUSP", "SSUSP"])
def test_a_job_without_contact_or_on_hold_waits(tmp_path: Path, state: str) -> None:
    lsf = Lsf(bjobs=(0, f"5|{state}|-|-\n", ""))

    def change(now: float) -> None:
        if now >= 3000:
            lsf.answers = {"bjobs": (0, "5|DONE|-|-\n", "")}

    seconds, fate = seconds_until_end(lsf, StatusFile(tmp_path / "x.status"), change)
    assert fate is Fate.DONE
    assert seconds >= 3000
