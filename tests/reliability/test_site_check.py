"""`nnlo doctor`: findings on a machine and on Slurm, with the output of Slurm 22.05 as its commands print it."""

import sys
from subprocess import CompletedProcess

import pytest
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.reliability import site_check
from nnlo_lib.reliability.site_check import check_folder, check_mpi, check_packages, check_slurm, run_test_job

CONFIG = """Configuration data as of 2026-11-26T05:26:36
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = nnlo
JobRequeue              = 1
PreemptType             = preempt/partition_prio
SLURM_VERSION           = 22.05.8
"""
REFUSED = CompletedProcess([], 1, "", "sbatch: error: invalid partition specified: nowhere\n")
ANSWERS = {
    "scontrol show": CONFIG,
    "srun --mpi=list": "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n",
    "sh -c": "",
}


def findings(changes=None, environment=None):
    answers = ANSWERS | (changes or {})

    def run(*words):
        answer = answers[" ".join(words[:2])]
        return CompletedProcess(words, 0, answer, "") if isinstance(answer, str) else answer

    return list(check_slurm(run, environment or {}))


def said(found, status):
    return [each.message for each in found if each.status == status]


def test_a_good_slurm():
    found = findings()
    assert said(found, "FAILED") == []
    assert said(found, "ok")[:2] == ["Slurm 22.05.8, cluster nnlo", "accounting: accounting_storage/slurmdbd"]
    assert said(found, "ok")[-2:] == ["Slurm accepts a job with two ranks", "Slurm accepts a job with a GPU"]
    assert said(found, "note") == []


@pytest.mark.parametrize(
    ("changes", "environment", "status", "message"),
    [
        ({"scontrol show": None}, {}, "FAILED", "log in to a host of the cluster"),
        ({"scontrol show": CONFIG.replace("slurmdbd", "none")}, {}, "note", "accounting: none"),
        ({"scontrol show": CONFIG.replace("Requeue              = 1", "Requeue = 0")}, {}, "note", "nnlo-slurm-requeue: true"),
        ({"srun --mpi=list": "\tnone\n\tpmix\n"}, {}, "FAILED", '"srun --mpi=pmix --kill-on-bad-exit=1"'),
        ({"sh -c": REFUSED}, {}, "FAILED", "a job with two ranks: the partition does not exist or is closed to you: set resources.partition"),
        ({"sh -c": REFUSED}, {}, "note", "a job with a GPU: the partition"),
        ({"sh -c": None}, {}, "note", "whether Slurm would accept all jobs is unknown"),
        ({}, {"SBATCH_GRES": "gpu:1", "SBATCH_PARTITION": "p"}, "note", "change each job: SBATCH_GRES=gpu:1, SBATCH_PARTITION=p;"),
    ],
)  # fmt: skip
def test_a_slurm_that_lacks_something(changes, environment, status, message):
    assert any(message in each for each in said(findings(changes, environment), status))


def test_the_file_system_of_the_working_directory(tmp_path, monkeypatch):
    (good,) = check_folder(tmp_path, is_shared=False)
    assert good.status == "ok"
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(site_check, "try_lock", lambda *_: True)
    monkeypatch.setattr(site_check.time, "time", lambda: 0.0)
    monkeypatch.setattr(site_check, "file_system_type", lambda _: "ext4")
    found = list(check_folder(tmp_path, is_shared=True))
    assert [each.split(": ", 1)[1][:13] for each in said(found, "FAILED")] == ["two processes"]
    assert "ahead of this host" in said(found, "note")[0]
    assert "compute nodes do not see" in said(found, "note")[1]
    (missing,) = check_folder(tmp_path / "missing", is_shared=False)
    assert (missing.status, "work in another folder" in missing.message) == ("FAILED", True)


def test_a_package_that_is_missing(monkeypatch):
    class Distribution:
        requires = ("torch>=1", "no-such-package>=2", "torch>=999", "other>=1; extra == 'x'")

    monkeypatch.setattr(site_check, "distribution", lambda _: Distribution)
    found = list(check_packages())
    assert [each.split(",")[0] for each in said(found, "FAILED")] == [
        "package no-such-package: missing", f"package torch: {site_check.version('torch')}",
    ]  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('2 ranks on n1, n2 | MPICH 5')", "starts 2 ranks on n1, n2 (MPICH 5)"),
        ("print('1 ranks on n1 | A'); print('1 ranks on n1 | A')", "is of another MPI"),
        ("import sys; print('noise'); sys.exit('Fatal error in PMPI_Init')", "status 1: Fatal error in PMPI_Init"),
    ],
)  # fmt: skip
def test_a_launcher(tmp_path, program, message):
    launcher = tmp_path / "launcher"
    launcher.write_text(f"#!{sys.executable}\n{program}\n")
    launcher.chmod(0o755)
    assert message in check_mpi(str(launcher)).message
    assert "cannot be started" in check_mpi(str(tmp_path / "none")).message


def test_a_job_that_is_refused_or_waits_too_long(tmp_path):
    def refuse(*_):
        return CompletedProcess((), 1, "", "sbatch: error: Invalid account\n")

    assert "sbatch refused it: sbatch: error: Invalid account" in run_test_job(tmp_path, refuse).message
    canceled = []

    def pend(program, *words):
        canceled.extend(words if program == "scancel" else ())
        answers = {"sbatch": "5\n", "squeue": "5|PENDING|Priority\n"}
        return CompletedProcess((), 0, answers.get(program, ""), "")

    waiting = run_test_job(tmp_path, pend, lambda _: None)
    assert (waiting.status, canceled) == ("note", ["5"])
    assert "PENDING (Priority)" in waiting.message


def test_the_command_fails_if_something_prevents_trainings(tmp_path, monkeypatch):
    monkeypatch.setattr(site_check, "check_site", lambda *_: iter([site_check.failed("MPI: none")]))
    done = nnlo("doctor", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "  FAILED  MPI: none\n1 of these prevent trainings\n")
    assert "add --profile slurm" in refused(nnlo("doctor", "--job", folder=tmp_path))
