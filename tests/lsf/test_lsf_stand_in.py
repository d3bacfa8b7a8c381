"""The stand-in treats jobs as IBM's manual of LSF describes; the jobs are small scripts."""

import signal
import time

import pytest
from helpers.lsf_cluster import Lsf
from helpers.training_process import wait
from job import Job, is_running

pytestmark = pytest.mark.processes

HEARS = (
    "import os, signal, sys, time\n"
    "def say(number, _): print(signal.Signals(number).name, flush=True)\n"
    "for number in (signal.SIGURG, signal.SIGUSR2, signal.SIGINT, signal.SIGTERM): signal.signal(number, say)\n"
    "print('ready', os.environ['LSB_JOBID'], flush=True)\n"
    "while True: time.sleep(0.01)\n"
)


def said(lsf: Lsf) -> list[str]:
    path = lsf.folder / "out.txt"
    return path.read_text().split() if path.exists() else []


@pytest.fixture
def hearing(lsf: Lsf) -> Job:
    """Run a job that prints each received signal, with a limit of one hour and a warning two minutes before it."""
    (lsf.folder / "hears.py").write_text(HEARS)
    (lsf.folder / "out.txt").unlink(missing_ok=True)
    job = lsf.submit("python3 hears.py", "-n", "1", "-r", "-W", "1:00", "-wa", "URG", "-wt", "2")
    wait("the job is ready", lambda: said(lsf) == ["ready", job.number] and job.state == "RUN")
    yield job
    lose_for_good(job)


def lose_for_good(job: Job) -> None:
    job.send(signal.SIGKILL)
    wait("the job's end", lambda: job.state in ("EXIT", "DONE"))


def test_a_job_is_warned_then_signalled_at_its_limit_then_ended(lsf: Lsf, hearing: Job) -> None:
    for minutes, heard in ((58, "SIGURG"), (2, "SIGUSR2"), (10, "SIGINT"), (0.17, "SIGTERM")):
        assert heard not in said(lsf)
        hearing.pass_minutes(minutes)
        wait(heard, lambda heard=heard: said(lsf)[-1] == heard)
        assert hearing.state == "RUN"
    hearing.pass_minutes(0.17)
    wait("the job is killed", lambda: hearing.state == "EXIT")


def test_a_suspended_job_stands_still_and_so_does_its_clock(lsf: Lsf, hearing: Job) -> None:
    hearing.pass_minutes(58 - 1 / 60)
    lsf.run("bstop", hearing.number)
    assert f"{hearing.number} USUSP" in lsf.run("bjobs")
    assert not any(is_running(pid) for pid in hearing.processes())
    end = time.monotonic() + 1.5
    wait("more than the second that is left", lambda: time.monotonic() > end)
    lsf.run("bresume", hearing.number)
    assert hearing.state == "RUN"
    assert "SIGURG" not in said(lsf)
    wait("the warning", lambda: said(lsf)[-1] == "SIGURG")


def test_bkill_sends_the_signal_that_it_is_told(lsf: Lsf, hearing: Job) -> None:
    lsf.run("bkill", "-s", "USR2", hearing.number)
    wait("the signal", lambda: said(lsf)[-1] == "SIGUSR2")
    assert hearing.state == "RUN"


def test_a_job_whose_host_died_runs_again_under_its_number(lsf: Lsf, hearing: Job) -> None:
    hearing.lose_host()
    wait("it runs again", lambda: said(lsf) == ["ready", hearing.number] * 2 and hearing.state == "RUN")


def test_a_job_that_is_not_rerunnable_ends_with_its_host(lsf: Lsf) -> None:
    job = lsf.submit("sleep 100", "-n", "1")
    wait("it runs", lambda: job.state == "RUN")
    job.lose_host()
    wait("its end", lambda: job.state == "EXIT")


def test_bkill_ends_a_job_even_if_suspended(lsf: Lsf) -> None:
    job = lsf.submit("sleep 100", "-n", "1")
    wait("it runs", lambda: job.state == "RUN")
    job.suspend()
    assert job.state == "SSUSP"
    lsf.run("bkill", job.number)
    wait("its end", lambda: job.state == "EXIT")


def refused(lsf: Lsf, *options: str) -> str:
    """Submit a job that bsub refuses, and return what bsub printed."""
    with pytest.raises(AssertionError) as error:
        lsf.submit("true", "-n", "1", *options)
    return str(error.value)


def test_brequeue_runs_a_job_again_under_its_number(lsf: Lsf, hearing: Job) -> None:
    lsf.run("brequeue", hearing.number)
    wait("it runs again", lambda: said(lsf) == ["ready", hearing.number] * 2 and hearing.state == "RUN")
    assert hearing.exit_reason == ""


def test_bjobs_prints_the_fields_that_it_is_asked_for(lsf: Lsf, hearing: Job) -> None:
    lsf.run("end_job", hearing.number, "TERM_PREEMPT: job killed after preemption")
    wait("its end", lambda: hearing.state == "EXIT")
    fields = "jobid stat exit_reason pend_reason delimiter='|'"
    line = lsf.run("bjobs", "-a", "-noheader", "-o", fields, hearing.number)
    assert line == f"{hearing.number}|EXIT|TERM_PREEMPT: job killed after preemption|-\n"


def test_a_purged_job_is_not_found(lsf: Lsf, hearing: Job) -> None:
    hearing.purge()
    assert hearing.number in lsf.run("bjobs", hearing.number)
    lsf.run("end_job", hearing.number, "")
    wait("its end", lambda: hearing.state == "EXIT")
    with pytest.raises(AssertionError, match=f"Job <{hearing.number}> is not found"):
        lsf.run("bjobs", hearing.number)


def test_bjobs_fails_as_often_as_planned(lsf: Lsf) -> None:
    lsf.fail_queries(1)
    with pytest.raises(AssertionError, match="Connection reset by peer"):
        lsf.run("bjobs")
    lsf.run("bjobs")


def test_bsub_refuses_as_planned_and_a_wrong_queue_always(lsf: Lsf) -> None:
    lsf.refuse("limited", 1, "Pending job threshold reached. Job not submitted.")
    assert "Pending job threshold reached" in refused(lsf, "-J", "limited")
    lsf.submit("true", "-n", "1", "-J", "limited")
    assert lsf.submissions("limited") == 2
    assert "nowhere: No such queue" in refused(lsf, "-q", "nowhere")
