"""Batch jobs, with scripts in place of the commands of Slurm and LSF: time left, why a job ends, requeues."""

import shutil

import pytest

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.batch_job import list_own_jobs
from nnlo_lib.batch.job_states import Fate, JobReport
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


def bjobs(state="RUN", exit_reason="-", reason="-", start="-", left="-"):
    return f"7|{state}|{exit_reason}|{reason}|{start}|{left}|my job"


@pytest.mark.parametrize(
    ("limit", "used", "minutes"),
    [
        ("1-03:00:00", "00:30:00", 1590),
        ("02:00:30", "00:00:00", 120.5),
        ("UNLIMITED", "00:30:00", None),
        ("INVALID", "00:30:00", None),
    ],
)
def test_the_time_that_slurm_leaves(answers, limit, used, minutes):
    shown = line("RUNNING").replace("Dependency", f"RunTime={used} TimeLimit={limit} Dependency")
    # The last task of an array has the number of the array.
    other = shown.replace("JobId=7", "JobId=8").replace(limit, "00:01:00")
    answers("scontrol", other, shown)
    assert JOB.minutes_left() == minutes


@pytest.mark.parametrize(("left", "minutes"), [("1:30 L", 90), ("0:05 L", 5), ("-", None)])
def test_the_time_that_lsf_leaves(answers, left, minutes):
    answers("bjobs", bjobs(left=left))
    assert LSF_JOB.minutes_left() == minutes


@pytest.mark.parametrize(
    ("job", "output", "reason"),
    [
        (JOB, ["OUT_OF_MEMORY"], "out of memory"),
        (JOB, ["NODE_FAIL", "RUNNING"], "node failure"),
        (JOB, ["PREEMPTED", "TIMEOUT"], "time limit"),
        (JOB, ["PREEMPTED", "CANCELLED by 0"], "canceled"),
        (JOB, ["CANCELLED", "COMPLETED"], "killed"),
        (JOB, ["PREEMPTED", "FAILED"], "killed"),
        (JOB, [], "killed"),
        (LSF_JOB, [bjobs("EXIT", "TERM_MEMLIMIT: job killed after ...")], "out of memory"),
        (LSF_JOB, [bjobs("EXIT", "TERM_OWNER: job killed by owner")], "canceled"),
        (LSF_JOB, [bjobs("EXIT")], "killed"),
    ],
)
def test_why_a_scheduler_ended_a_job(answers, job, output, reason):
    states = [f"7|7|{state}" for state in output] + ["7_1|8|TIMEOUT"]  # another task of the array
    answers("sacct", *states)
    answers("bjobs", *output)
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
        # Rows of tests/cluster/test_slurm_endings.py, and what follows them later.
        (line("RUNNING", SELECTED), "RUNNING", StopDecision("preempted", True)),
        (line("RUNNING"), "RUNNING", StopDecision("canceled")),
        (line("COMPLETING", end="EndTime=Unknown", restarts=1), None, StopDecision("preempted")),
        # Backfill has planned the next start.
        (line("COMPLETING", end="EndTime=2999-01-01T00:00:00", restarts=1), None, StopDecision("preempted")),
        (line("PENDING", end="EndTime=Unknown", restarts=1), None, StopDecision("preempted")),
        (line("REQUEUED"), None, StopDecision("preempted")),
        (line("PREEMPTED", SELECTED), None, StopDecision("preempted")),
        (line("CANCELLED"), None, StopDecision("canceled")),
        (line("COMPLETING", SELECTED), "CANCELLED by 0", StopDecision("canceled")),
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
        "squeue", "12|PENDING|Resources|2026-11-26T06:25:29|10:00|12", "13_4|PENDING|Priority|N/A|10:00|14",
        "8|RUNNING|None|2026-11-26T06:15:36|9:24|8", "9|COMPLETING|None|2026-11-26T06:15:36|UNLIMITED|9",
        "10|COMPLETED|None|2026-11-26T06:15:36|1:00|10",
    )  # fmt: skip
    task = JobReport(Fate.PENDING, "PENDING", "Priority")
    assert list_own_jobs() == {
        "12": JobReport(Fate.PENDING, "PENDING", "Resources", "2026-11-26T06:25:29"),
        "13_4": task,
        "14": task,
        "8": JobReport(Fate.RUNNING, "RUNNING", minutes_left=9.4),
        "9": JobReport(Fate.RUNNING, "COMPLETING"),
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
    answers("bjobs", bjobs("PEND", reason="Job slot limit reached;"), bjobs(left="1:30 L").replace("7", "8"))
    assert list_own_jobs() == {
        "7": JobReport(Fate.PENDING, "PEND", "Job slot limit reached"),
        "8": JobReport(Fate.RUNNING, "RUN", minutes_left=90.0),
    }
    answers("bjobs", script="echo 'No unfinished job found' >&2; exit 255")
    assert list_own_jobs() == {}
