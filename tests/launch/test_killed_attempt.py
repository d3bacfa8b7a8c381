"""An attempt that was recorded as killed is corrected when the scheduler reports an out-of-memory kill."""

from dataclasses import replace

import pytest

from nnlo_lib.batch import BatchJob
from nnlo_lib.launch.attempt_recovery import all_attempts, correct_last_attempt, record_lost_attempt
from nnlo_lib.state.attempt_outcome import memory_for_next_attempt
from nnlo_lib.state.attempts import Attempt, append_attempt, read_attempts
from nnlo_lib.state.lease import Lease, LeaseOwner

JOB = BatchJob("slurm", "12")
LIMIT = "slurmstepd-n1: error: StepId=12.0 exceeded memory limit (1234567 > 1024000), being killed\n"


def attempt(reason="killed", number=1, job="12"):
    times = "2026-01-01T00:00:00+00:00", "2026-01-01T00:01:00+00:00"
    return Attempt(number, *times, 60.0, "n1", job, reason, "rank 1 was killed", 0, 10, 5, 2)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Make the test's folder the working directory of Snakemake, on a host without Slurm's commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BatchJob, "exit_reason", lambda job: "killed")
    monkeypatch.setattr(BatchJob, "output_file", lambda job: None)
    monkeypatch.setattr(BatchJob, "of_this_site", lambda number: BatchJob.from_id("slurm", number))


def write_log(folder, text, job="12"):
    log = folder / f".snakemake/slurm_logs/rule_train/two_seed-0/{job}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)


def record(folder, *attempts):
    for each in attempts:
        append_attempt(folder, each)


def corrected(folder):
    """Correct the last attempt, as the holder of the lease does; return the record."""
    correct_last_attempt(folder, attempts := read_attempts(folder))
    assert attempts == read_attempts(folder)
    return attempts


def test_memory_is_raised_although_the_attempt_is_recorded_as_killed(tmp_path):
    record(tmp_path, attempt())
    assert memory_for_next_attempt(1000, all_attempts(tmp_path, 2, ended=True)) == 1000
    write_log(tmp_path, LIMIT)
    assert memory_for_next_attempt(1000, all_attempts(tmp_path, 2, ended=True)) == 1500
    assert read_attempts(tmp_path) == [attempt()], "only the holder of the lease may write"


@pytest.mark.parametrize("reason", ["killed", "peer lost"])
def test_the_record_is_corrected_when_the_next_attempt_starts(tmp_path, reason):
    write_log(tmp_path, LIMIT)
    record(tmp_path, attempt("killed", job="11"), attempt(reason, 2))
    torn = '{"attempt": 3, "sta'
    with (file := tmp_path / "attempts.jsonl").open("a") as lines:
        lines.write(torn)
    first, second = corrected(tmp_path)
    assert (first.reason, second.reason) == ("killed", "out of memory")
    assert second.error == "job 12 exceeded its memory"
    assert corrected(tmp_path) == [first, second]
    assert file.read_text().splitlines()[2] == torn, "a half-written line is kept"


@pytest.mark.parametrize("before", [attempt("finished"), attempt("preempted"), attempt(job=None)])
def test_other_attempts_are_not_asked_for(tmp_path, before):
    write_log(tmp_path, LIMIT)
    record(tmp_path, before)
    assert corrected(tmp_path) == [before]


def test_lsf_gives_its_reason_after_the_end(tmp_path, monkeypatch):
    record(tmp_path, attempt("preempted"))
    monkeypatch.setattr(BatchJob, "exit_reason", lambda job: "out of memory")
    assert [each.reason for each in all_attempts(tmp_path, 2, ended=True)] == ["preempted"]
    monkeypatch.setattr(BatchJob, "of_this_site", lambda number: BatchJob("lsf", number))
    assert [each.reason for each in all_attempts(tmp_path, 2, ended=True)] == ["out of memory"]


def test_a_job_that_ended_before_its_first_line_is_recorded(tmp_path):
    state = tmp_path / "results/e/r/seed-0/state"
    assert record_lost_attempt(state, JOB, "out of memory", ranks=2)
    (lost,) = read_attempts(state)
    assert (lost.attempt, lost.job, lost.reason, lost.start, lost.reached) == (1, "12", "out of memory", 0, 0)
    assert lost.error == "out of memory: slurm job 12 ended before its first line"
    assert memory_for_next_attempt(1000, read_attempts(state)) == 1500
    assert not (state / "lease.json").exists()
    assert not record_lost_attempt(state, JOB, "out of memory", ranks=2), "a job is recorded once"
    assert record_lost_attempt(state, replace(JOB, job_id="13"), "killed", ranks=2, error="gone")
    assert [each.attempt for each in read_attempts(state)] == [1, 2]


def test_a_running_owner_of_the_lease_is_not_disturbed(tmp_path):
    own = Lease(tmp_path)
    own.acquire(False, lambda: False)
    assert not record_lost_attempt(tmp_path, JOB, "killed", ranks=2)
    assert read_attempts(tmp_path) == []
    own.release()
    replace(LeaseOwner.for_this_process(), host="elsewhere").write(tmp_path / "lease.json")
    assert not record_lost_attempt(tmp_path, JOB, "killed", ranks=2)
    assert (tmp_path / "lease.json").exists()


@pytest.mark.parametrize(
    ("job", "recorded"), [("11", [("11", "killed"), ("12", "out of memory")]), ("12", [("12", "killed")])]
)
def test_an_attempt_that_left_its_lease_is_recorded_before(tmp_path, job, recorded):
    dead = replace(LeaseOwner.for_this_process(), started=1, scheduler="slurm", job=job)
    dead.write(tmp_path / "lease.json")
    assert record_lost_attempt(tmp_path, JOB, "out of memory", ranks=2) == (job != JOB.job_id)
    assert [(each.job, each.reason) for each in read_attempts(tmp_path)] == recorded


@pytest.mark.parametrize(("later", "expected"), [(True, ["12"]), (False, ["12", "12"])])
def test_a_launcher_may_die_between_the_record_of_its_attempt_and_the_release(tmp_path, later, expected):
    dead = replace(LeaseOwner.for_this_process(), started=1, scheduler="slurm", job="12")
    dead.write(tmp_path / "lease.json")
    started = dead.since if later else "2026-01-01T00:00:00+00:00"
    append_attempt(tmp_path, replace(attempt("finished"), host=dead.host, started=started))
    assert [each.job for each in all_attempts(tmp_path, 2, ended=True)] == expected
    record_lost_attempt(tmp_path, JOB, "out of memory", ranks=2)
    assert [each.job for each in read_attempts(tmp_path)] == expected
