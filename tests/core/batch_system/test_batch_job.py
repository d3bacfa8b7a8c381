"""Queries and requeues of batch jobs, with scripts in place of the commands of Slurm and LSF."""

import pytest

from nnlo_lib.core.batch_system import BatchJob

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("told", "minutes"),
    [
        ("1-02:30:00", 1590),
        ("2:00:30", 120.5),
        ("9:30", 9.5),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_the_time_that_slurm_leaves(answers, told, minutes):
    answers("squeue", told)
    assert BatchJob("slurm", "7").minutes_left() == minutes


@pytest.mark.parametrize(("told", "minutes"), [("1:30 L", 90), ("0:05 L", 5), ("-", None)])
def test_the_time_that_lsf_leaves(answers, told, minutes):
    answers("bjobs", told)
    assert BatchJob("lsf", "7").minutes_left() == minutes


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (["OUT_OF_MEMORY"], "out of memory"),
        (["NODE_FAIL", "RUNNING"], "node failure"),
        (["PREEMPTED", "TIMEOUT"], "time limit"),
        (["PREEMPTED", "CANCELLED by 0"], "canceled"),
        (["CANCELLED", "COMPLETED"], "killed"),
        (["PREEMPTED", "FAILED"], "killed"),
        ([], "killed"),
    ],
)
def test_why_slurm_ended_a_job(answers, states, reason):
    answers("sacct", *states)
    assert BatchJob("slurm", "7").exit_reason() == reason


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("TERM_MEMLIMIT: job killed after ...", "out of memory"),
        ("TERM_OWNER: job killed by owner", "canceled"),
        ("-", "killed"),
    ],
)
def test_why_lsf_ended_a_job(answers, told, reason):
    answers("bjobs", told)
    assert BatchJob("lsf", "7").exit_reason() == reason


@pytest.mark.parametrize(
    ("scheduler", "command", "told", "cancelled"),
    [
        ("slurm", "sacct", ["PREEMPTED", "CANCELLED by 0"], True),
        ("slurm", "sacct", ["CANCELLED", "COMPLETED"], False),
        ("lsf", "bjobs", ["TERM_OWNER: job killed by owner"], True),
        ("lsf", "bjobs", ["-"], False),
    ],
)
def test_whether_a_person_ended_a_job(answers, scheduler, command, told, cancelled):
    answers(command, *told)
    assert BatchJob(scheduler, "7").was_cancelled() == cancelled


def test_a_requeue_that_is_refused_says_why(answers, tmp_path):
    answers("scontrol", status=0)
    assert BatchJob("slurm", "7").requeue() == ""
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'Access denied' >&2\nexit 1\n")
    assert BatchJob("slurm", "7").requeue() == "Access denied"


def test_a_scheduler_that_is_not_there_knows_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    job = BatchJob("slurm", "7")
    assert (job.minutes_left(), job.exit_reason()) == (None, "killed")
    assert "scontrol" in job.requeue()


@pytest.mark.parametrize(
    ("variables", "job"),
    [({}, None), ({"SLURM_JOB_ID": "5"}, BatchJob("slurm", "5")), ({"LSB_JOBID": "6"}, BatchJob("lsf", "6"))],
)
def test_the_job_that_this_process_is_of(monkeypatch, variables, job):
    for name in ("SLURM_JOB_ID", "LSB_JOBID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert BatchJob.current() == job
