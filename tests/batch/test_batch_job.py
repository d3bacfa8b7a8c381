"""Batch jobs, with scripts in place of the commands of Slurm and LSF: time left, why a job ends, requeues."""

import shutil

import pytest

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.batch_job import ListedJob, list_own_jobs
from nnlo_lib.batch.job_states import Fate
from nnlo_lib.batch.scheduler_query import StopDecision

pytestmark = pytest.mark.processes

JOB, LSF_JOB = BatchJob("slurm", "7"), BatchJob("lsf", "7")
END = "EndTime=2026-11-23T07:52:52"
# As Slurm 22.05 prints a job: shortened.
LINE = (
    "JobId=7 JobName=my JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts={restarts}"
    " BatchFlag=1 {end} PreemptTime={preempted} Comment=x StdErr=/logs/my job/7.log StdIn=/dev/null"
    " StdOut=/logs/my job/7.log Power="
)


def line(state, preempted="None", end=END, reason="None", restarts=0):
    return LINE.format(state=state, preempted=preempted, end=end, reason=reason, restarts=restarts)


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Return a function that replaces a scheduler command by a script with given output and exit status."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def answer(name, *lines, status=0, script=""):
        text = script or "".join(f"echo '{line}'\n" for line in lines) + f"exit {status}"
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    for name in ("scontrol", "sacct", "squeue", "bjobs"):  # commands of this machine must not answer
        answer(name, status=1)
    return answer


@pytest.mark.parametrize(
    ("job", "command", "output", "minutes"),
    [
        (JOB, "squeue", "7|1-02:30:00", 1590),
        (JOB, "squeue", "7|2:00:30", 120.5),
        (
            JOB,
            "squeue",
            "8|1:00\n9|5:00\n7|9:30",
            9.5,
        ),  # the last task of an array has the number of the array
        (JOB, "squeue", "7|UNLIMITED", None),
        (JOB, "squeue", "7|INVALID", None),
        (JOB, "squeue", "", None),
        (LSF_JOB, "bjobs", "1:30 L", 90),
        (LSF_JOB, "bjobs", "0:05 L", 5),
        (LSF_JOB, "bjobs", "-", None),
    ],
)
def test_the_time_that_a_scheduler_leaves(answers, job, command, output, minutes):
    answers(command, output)
    assert job.minutes_left() == minutes


@pytest.mark.parametrize(
    ("job", "command", "output", "reason"),
    [
        (JOB, "sacct", ["OUT_OF_MEMORY"], "out of memory"),
        (JOB, "sacct", ["NODE_FAIL", "RUNNING"], "node failure"),
        (JOB, "sacct", ["PREEMPTED", "TIMEOUT"], "time limit"),
        (JOB, "sacct", ["PREEMPTED", "CANCELLED by 0"], "canceled"),
        (JOB, "sacct", ["CANCELLED", "COMPLETED"], "killed"),
        (JOB, "sacct", ["PREEMPTED", "FAILED"], "killed"),
        (JOB, "sacct", [], "killed"),
        (LSF_JOB, "bjobs", ["TERM_MEMLIMIT: job killed after ..."], "out of memory"),
        (LSF_JOB, "bjobs", ["TERM_OWNER: job killed by owner"], "canceled"),
        (LSF_JOB, "bjobs", ["-"], "killed"),
    ],
)
def test_why_a_scheduler_ended_a_job(answers, job, command, output, reason):
    states = [f"7|7|{state}" for state in output] + ["7_1|8|TIMEOUT"]  # another task of the array
    answers(command, *(states if command == "sacct" else output))
    assert job.exit_reason() == reason


def test_the_reason_of_a_refused_requeue_is_returned(answers):
    answers("scontrol", status=0)
    assert JOB.requeue() == ""
    answers("scontrol", script="echo 'Access denied' >&2; exit 1")
    assert JOB.requeue() == "Access denied"


def test_a_task_of_an_array_is_requeued_alone(answers, tmp_path):
    records = [
        line("RUNNING").replace("JobId=7", f"JobId={job} ArrayJobId=7 ArrayTaskId={task}")
        for job, task in ((8, 1), (7, 2))
    ]
    shown = "; ".join(f"echo '{record}'" for record in records)
    answers("scontrol", script=f'case "$*" in *requeue*) echo "$*" > {tmp_path}/asked ;; *) {shown} ;; esac')
    assert JOB.requeue() == ""
    assert (tmp_path / "asked").read_text() == "requeue 7_2\n"


def test_an_absent_scheduler_knows_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (JOB.minutes_left(), JOB.exit_reason()) == (None, "killed")
    assert "scontrol" in JOB.requeue()


@pytest.mark.parametrize(
    ("variables", "job"),
    [({}, None), ({"SLURM_JOB_ID": "7"}, JOB), ({"LSB_JOBID": "7"}, LSF_JOB)],
)
def test_the_job_of_this_process(monkeypatch, variables, job):
    for name in ("SLURM_JOB_ID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert BatchJob.current() == job


SELECTED = "2026-11-23T07:52:50"


@pytest.mark.parametrize(
    ("record", "accounted", "decision"),
    [
        # Grace time of a preemption: slurmctld has not ended the job.
        (line("RUNNING", SELECTED), "RUNNING", StopDecision("preempted", True)),
        # `scancel --signal=TERM`.
        (line("RUNNING"), "RUNNING", StopDecision("canceled")),
        # Preempted with PreemptMode=REQUEUE, or `scontrol requeue`: a queued job has no end.
        (line("COMPLETING", end="EndTime=Unknown", restarts=1), "PREEMPTED", StopDecision("preempted")),
        (line("COMPLETING", end="EndTime=Unknown", restarts=1), None, StopDecision("preempted")),
        # Backfill has planned the next start.
        (line("COMPLETING", end="EndTime=2999-01-01T00:00:00", restarts=1), None, StopDecision("preempted")),
        (line("PENDING", end="EndTime=Unknown", restarts=1), None, StopDecision("preempted")),
        (line("REQUEUED"), None, StopDecision("preempted")),
        # Preempted with PreemptMode=CANCEL, or without permission to be queued again.
        (line("COMPLETING", SELECTED), "PREEMPTED", StopDecision("preempted")),
        (line("COMPLETING", SELECTED), None, StopDecision("preempted")),
        (line("PREEMPTED", SELECTED), None, StopDecision("preempted")),
        # `scancel`, also in the grace time of a preemption.
        (line("COMPLETING"), "CANCELLED by 0", StopDecision("canceled")),
        (line("COMPLETING"), None, StopDecision("canceled")),
        (line("CANCELLED"), None, StopDecision("canceled")),
        (line("COMPLETING", SELECTED), "CANCELLED by 0", StopDecision("canceled")),
        (line("COMPLETING", reason="TimeLimit"), "TIMEOUT", StopDecision("time limit")),
        # A node of a job that may not be queued again.
        (line("COMPLETING", reason="NodeDown"), "NODE_FAIL", StopDecision("preempted")),
        (line("COMPLETING", reason="NodeDown"), None, StopDecision("preempted")),
        (line("TIMEOUT"), None, StopDecision("time limit")),
        (line("NODE_FAIL"), None, StopDecision("preempted")),
        # slurmctld does not respond.
        (None, "CANCELLED by 0", StopDecision("preempted")),
    ],
)
def test_why_slurm_stops_a_job_that_runs(answers, record, accounted, decision):
    answers("scontrol", *([record] if record else []), status=0 if record else 1)
    if accounted:
        answers("sacct", f"7|7|{accounted}")
    assert JOB.stop_decision() == decision


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (line("CANCELLED"), "canceled"),
        (line("PREEMPTED", SELECTED), "preempted"),
        (line("NODE_FAIL"), "node failure"),
        (line("OUT_OF_MEMORY"), "out of memory"),
        (line("TIMEOUT"), "time limit"),
        (line("FAILED"), "killed"),
        # The job runs again, or waits: Slurm has ended an earlier run of it.
        (line("RUNNING", restarts=1), "preempted"),
        (line("PENDING", end="EndTime=Unknown", restarts=2), "preempted"),
        (line("COMPLETING", end="EndTime=Unknown", restarts=1), "preempted"),
        (line("COMPLETING", reason="NodeDown"), "node failure"),
        (line("COMPLETING", reason="OutOfMemory"), "out of memory"),
        (line("COMPLETING", SELECTED), "preempted"),
        (line("COMPLETING"), "killed"),
        (line("RUNNING"), "killed"),
        (None, "killed"),
    ],
)
def test_why_slurm_ended_a_job_without_accounting(answers, record, reason):
    answers("scontrol", *([record] if record else []), status=0 if record else 1)
    assert JOB.exit_reason() == reason


@pytest.mark.parametrize(
    ("record", "ended"),
    [
        (line("RUNNING"), False),
        (line("COMPLETING"), False),
        (line("PENDING", end="EndTime=Unknown"), False),
        (line("FAILED"), True),
        (line("CANCELLED"), True),
        (None, False),
    ],
)
def test_whether_a_job_has_ended(answers, record, ended):
    answers("scontrol", *([record] if record else []), status=0 if record else 1)
    assert JOB.has_ended() == ended


def test_the_name_of_a_log_may_have_spaces(answers):
    answers("scontrol", line("RUNNING"))
    assert str(JOB.output_file()) == "/logs/my job/7.log"
    # squeue prints the pattern, and scontrol may do so.
    answers("scontrol", line("RUNNING").replace("7.log", "%j.log"))
    assert str(JOB.output_file()) == "/logs/my job/7.log"
    assert LSF_JOB.output_file() is None


def test_the_batch_system_is_found_by_its_commands(answers, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert BatchJob.of_this_site("7") == JOB
    (tmp_path / "scontrol").unlink()
    assert BatchJob.of_this_site("7") == LSF_JOB
    (tmp_path / "bjobs").unlink()
    assert BatchJob.of_this_site("7") is None


def test_the_list_of_own_jobs(answers):
    answers(
        "squeue", "12|PENDING|Resources|2026-11-26T06:25:29|10:00", "13|PENDING|Priority|N/A|10:00",
        "14|PENDING|job requeued in held state|N/A|10:00",
        "8|RUNNING|None|2026-11-26T06:15:36|9:24", "9|COMPLETING|None|2026-11-26T06:15:36|UNLIMITED",
    )  # fmt: skip
    found = list_own_jobs()
    assert found == {
        "12": ListedJob(Fate.PENDING, "Resources", "2026-11-26T06:25:29", None),
        "14": ListedJob(Fate.PENDING, "job requeued in held state", "", None, "`scontrol release 14`"),
        "13": ListedJob(Fate.PENDING, "Priority", "", None),
        "8": ListedJob(Fate.RUNNING, "", "", 9.4),
        "9": ListedJob(Fate.RUNNING, "", "", None),
    }
    answers("squeue", status=1)
    assert list_own_jobs() is None
    answers("squeue")
    assert list_own_jobs() == {}


def test_the_list_of_own_jobs_of_lsf(answers, tmp_path, monkeypatch):
    (tmp_path / "scontrol").unlink()
    monkeypatch.setenv(
        "PATH", f"{tmp_path}:/bin" if not shutil.which("scontrol", path="/bin") else str(tmp_path)
    )
    answers("bjobs", script="printf '7|PEND|Job slot limit reached;|-|-\\n8|RUN|-|-|1:30 L\\n'")
    assert list_own_jobs() == {
        "7": ListedJob(Fate.PENDING, "Job slot limit reached", "", None),
        "8": ListedJob(Fate.RUNNING, "", "", 90.0),
    }
    answers("bjobs", script="echo 'No unfinished job found' >&2; exit 255")
    assert list_own_jobs() == {}
