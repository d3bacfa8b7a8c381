"""Evidence that a training ran out of memory: Slurm's lines in the log, its accounting, and the kernel's count."""

from pathlib import Path

import pytest

from nnlo_lib.batch import BatchJob
from nnlo_lib.state.out_of_memory import is_job_out_of_memory, job_exit_reason, job_group

JOB = BatchJob("slurm", "12")
LIMIT = "slurmstepd-n1: error: StepId=12.0 exceeded memory limit (1234567 > 1024000), being killed\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Make the test's folder the working directory of Snakemake; the state of the job tells nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BatchJob, "exit_reason", lambda job: "killed")
    monkeypatch.setattr(BatchJob, "output_file", lambda job: None)


def write_log(folder, text, job="12"):
    log = folder / f".snakemake/slurm_logs/rule_train/two_seed-0/{job}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LIMIT, True),
        ("slurmstepd: error: Job 12 exceeded memory limit (2 > 1), being killed\n", True),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.batch.\n", True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch.\n", True),
        ("srun: error: n1: task 0: Out Of Memory\n", True),
        (f"epoch 1\n{LIMIT}slurmstepd-n1: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-23 ***\n", True),
        ("srun: error: n1: task 0: Killed\n", False),
        ("a line of the model: out of memory\n", False),
        # An earlier run of a requeued job, whose log is continued.
        (f"{LIMIT}slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED DUE TO JOB REQUEUE ***\nepoch 2\n", False),
    ],
)
def test_the_log_of_a_job_reports_a_kill_for_memory(tmp_path, text, found):
    write_log(tmp_path, text)
    write_log(tmp_path, LIMIT, job="112")
    assert is_job_out_of_memory(JOB, "canceled") == found
    assert not is_job_out_of_memory(BatchJob("lsf", "12"), "canceled")


@pytest.mark.parametrize(("reported", "reason"), [("killed", "out of memory"), ("canceled", "out of memory"),
                                                  ("node failure", "node failure")])  # fmt: skip
def test_slurm_cancels_what_exceeds_its_memory(tmp_path, monkeypatch, reported, reason):
    monkeypatch.setattr(BatchJob, "exit_reason", lambda job: reported)
    (tmp_path / "elsewhere").write_text(LIMIT)
    monkeypatch.setattr(BatchJob, "output_file", lambda job: tmp_path / "elsewhere")
    assert job_exit_reason(JOB) == reason


@pytest.mark.processes
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
def test_a_kill_for_memory_differs_from_other_kills(tmp_path, monkeypatch, rows, reason):
    numbers = ["12|12", "12.batch|12.batch", "12.0|12.0"]
    others = ["12_1|13|OUT_OF_MEMORY|0:125|0:0|1000M||1"]  # another task of the array
    lines = [*(f"{number}|{row}" for number, row in zip(numbers, rows, strict=False)), *others]
    echo = "; ".join(f"echo '{each}'" for each in lines)
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n{echo}\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert job_exit_reason(JOB) == reason


def test_kills_are_counted_in_all_steps_of_the_job():
    job, session = (
        Path("/sys/fs/cgroup", name) for name in ("system.slice/job_12", "user.slice/session-1.scope")
    )
    assert job_group(job / "step_batch/user/task_0") == job
    assert job_group(session) == session
