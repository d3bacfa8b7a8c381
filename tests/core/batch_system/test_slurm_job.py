"""Tables of states: why Slurm ends a job, with and without accounting; scripts stand in for scontrol and sacct."""

import pytest

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.batch_system.stop_decision import StopDecision

pytestmark = pytest.mark.processes

JOB = BatchJob("slurm", "7")
END = "EndTime=2026-11-23T07:52:52"
# As Slurm 22.05 prints a job: shortened.
LINE = (
    "JobId=7 JobName=my JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts={restarts}"
    " BatchFlag=1 {end} PreemptTime={preempted} Comment=x StdErr=/logs/my job/7.log StdIn=/dev/null"
    " StdOut=/logs/my job/7.log Power="
)


def line(state, preempted="None", end=END, reason="None", restarts=0):
    return LINE.format(state=state, preempted=preempted, end=end, reason=reason, restarts=restarts)


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
        (line("TIMEOUT"), None, StopDecision("time limit")),
        (line("NODE_FAIL"), None, StopDecision("preempted")),
        # slurmctld does not respond.
        (None, "CANCELLED by 0", StopDecision("preempted")),
    ],
)
def test_why_slurm_stops_a_job_that_runs(answers, record, accounted, decision):
    answers("scontrol", *([record] if record else []), status=0 if record else 1)
    if accounted:
        answers("sacct", accounted)
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
        (line("RUNNING"), "killed"),
        (None, "killed"),
    ],
)
def test_why_slurm_ended_a_job_without_accounting(answers, record, reason):
    answers("scontrol", *([record] if record else []), status=0 if record else 1)
    assert JOB.exit_reason() == reason
    assert JOB.was_cancelled() == (reason == "canceled")


STEPS = """case "$*" in
*-X*) echo FAILED ;;
*) {rows} ;;
esac
"""


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        # Slurm's own killer with jobacct_gather: FAILED with signal 9.
        (["FAILED|0:9|0:0|1000M||1", "FAILED|0:9||||1", "COMPLETED|0:0|||970M|1"], "out of memory"),
        # The task was killed, and the command of the job exited with status 1.
        (["FAILED|1:0|0:9|2000M||2", "FAILED|0:9|||999000K|2"], "out of memory"),
        (["FAILED|1:0|0:0|1000Mn||2", "FAILED|0:9|||990000K|2"], "out of memory"),
        # The control group of a step was exceeded.
        (["FAILED|1:0|0:0|1000M||1", "OUT_OF_MEMORY|0:125|||100K|1"], "out of memory"),
        # A person has killed a rank with `kill -9`.
        (["FAILED|1:0|0:9|1000M||1", "FAILED|0:9|||300000K|1"], "killed"),
        # An error of the code that needed much memory.
        (["FAILED|1:0|1:0|1000M||1", "FAILED|1:0|||1000000K|1"], "killed"),
        (["FAILED|0:9|0:0|?||1"], "killed"),
        ([], "killed"),
    ],
)
def test_a_kill_for_memory_is_told_from_another_one(tmp_path, answers, rows, reason):
    answers("sacct")
    echo = "; ".join(f"echo '{row}'" for row in rows) or "true"
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n{STEPS.format(rows=echo)}")
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


def test_the_log_of_a_job_may_have_a_name_with_spaces(answers):
    answers("scontrol", line("RUNNING"))
    assert str(JOB.output_file()) == "/logs/my job/7.log"
    assert BatchJob("lsf", "7").output_file() is None


def test_the_batch_system_is_found_by_its_commands(answers, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert BatchJob.of_this_site("7") == JOB
    (tmp_path / "scontrol").unlink()
    assert BatchJob.of_this_site("7") == BatchJob("lsf", "7")
    (tmp_path / "bjobs").unlink()
    assert BatchJob.of_this_site("7") is None
