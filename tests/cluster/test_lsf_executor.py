"""The executor `nnlo-lsf` around a scripted bsub: what a refusal, a lost answer and an interrupted Snakemake lead to."""

from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_executor_plugin_lsf import Executor as LsfExecutor
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from nnlo_lib.batch.lsf_queue import LsfQueue
from nnlo_lib.cluster.job_watch import SubmissionRecord
from snakemake_executor_plugin_nnlo_lsf import Executor

JOB_NAME = "Snakemake_rule_train:run=a___b,seed=1___(uuid)"


class Submissions:
    """Upstream's bsub: it raises `error`; lists what the executor reports and delays."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, **answers: tuple[int, str, str]
    ) -> None:
        self.errors, self.delays, self.submitted, self.commands, self._answers = [], [], [], [], answers
        executor = Executor.__new__(Executor)
        executor.run_uuid, executor._say, executor._recorded = "uuid", lambda line: None, lambda job: []
        executor._form_line(LsfQueue(self.run))
        executor._after = lambda seconds, *_: self.delays.append(seconds)
        executor.report_job_error = lambda info, msg: self.errors.append(msg)
        executor.report_job_submission = lambda info: self.submitted.append(info.external_jobid)
        self.executor = executor

        def refuse(*_: object) -> None:
            raise error

        monkeypatch.setattr(LsfExecutor, "run_job", refuse)

    def run(self, *command: str) -> "CompletedProcess[str] | None":
        self.commands.append(command)
        answer = self._answers.get(command[0])
        return CompletedProcess(command, *answer) if answer else None


class HashableJob(SimpleNamespace):
    """A job of Snakemake with three retries; it may be a key, as Snakemake's jobs are."""

    name, rule, jobid, attempt, restart_times = "train", SimpleNamespace(name="train"), 7, 1, 3
    wildcards, wildcards_dict = ["a/b", "1"], {"run": "a/b", "seed": "1"}
    __hash__ = object.__hash__

    def is_group(self) -> bool:
        return False


def refused(text: str) -> WorkflowError:
    return WorkflowError(f"LSF job submission failed. The error message was {text}")


def submit(submissions: Submissions) -> Any:
    submissions.executor.run_job(task := HashableJob())
    return task


@pytest.mark.parametrize(("project", "option"), [("mine", " -P mine"), ("a $(b)", " -P 'a $(b)'"), ("", "")])
def test_the_project_is_quoted(project: str, option: str) -> None:
    executor = Executor.__new__(Executor)
    executor._fallback_project_arg = ""
    asking = SimpleNamespace(resources=SimpleNamespace(get={"lsf_project": project}.get, lsf_project=project))
    assert executor.get_project_arg(asking) == option


class JobResources(dict):
    """Resources of a job of Snakemake, which are keys and attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def request(**resources: Any) -> str:
    """Return bsub's options for queue, GPUs and span of a job of four ranks with two slots each."""
    executor = Executor.__new__(Executor)
    asked = {"lsf_queue": "a b", "mpi": "mpiexec", "ptile": 32, "tasks": 4, "cpus_per_task": 8} | resources
    each = SimpleNamespace(threads=8, resources=JobResources(asked))
    return f"{executor.get_queue_arg(each)} {executor.get_span(each)}"


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        ({}, " ptile=32"),
        ({"gpu": 0, "nodes": 1}, " ptile=32"),
        ({"gpu": 4, "nodes": 1}, " -gpu num=4:j_exclusive=yes ptile=32"),
        ({"gpu": 4, "nodes": 2}, " -gpu num=2:j_exclusive=yes ptile=4"),
        ({"gpu": 4, "nodes": 3}, " -gpu num=2:j_exclusive=yes ptile=4"),
        ({"gpu": 4, "ptile": 2}, " -gpu num=1:j_exclusive=yes ptile=2"),
        ({"gpu": 4, "nodes": 2, "span": "hosts=1"}, " -gpu num=4:j_exclusive=yes hosts=1"),
        ({"gpu": 1, "mpi": "", "nodes": 2}, " -gpu num=1:j_exclusive=yes hosts=1"),
        ({"gpu": 4, "lsf_gpu": "gmodel=$(V)"}, " -gpu 'num=4:gmodel=$(V)' ptile=32"),
        ({"gpu": 4, "lsf_extra": "-r -gpu num=1"}, " ptile=32"),
    ],
)
def test_nodes_and_gpus_reach_bsub(resources: dict[str, Any], options: str) -> None:
    assert request(**resources) == f" -q 'a b'{options}"


def test_a_limit_delays_the_job_and_costs_no_try(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = Submissions(
        monkeypatch, refused("User <me>: Pending job threshold reached. Job not submitted.")
    )
    assert submit(limited).attempt == 1
    assert (limited.delays, limited.errors) == ([10.0], [])


def test_a_mistake_ends_the_job_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = (0, "QUEUE_NAME PRIO\nnormal 30\n", "")
    mistaken = Submissions(monkeypatch, refused("nowhere: No such queue. Job not submitted."), bqueues=queues)
    assert submit(mistaken).attempt > 3
    (sentence,) = mistaken.errors
    assert "set resources.partition or LSB_DEFAULTQUEUE" in sentence
    assert "known: normal" in sentence
    assert not mistaken.delays


LOST = refused("Failed in sending/receiving a message: Connection reset by peer. Job not submitted.")
NO_NUMBER = TypeError("'NoneType' object is not subscriptable")


@pytest.mark.parametrize("error", [LOST, NO_NUMBER], ids=["lost answer", "no number"])
def test_a_job_that_was_submitted_nevertheless_is_adopted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    monkeypatch.chdir(tmp_path)
    lost = Submissions(monkeypatch, error)
    SubmissionRecord("", "", "").write("4")  # an earlier submission of the same job

    def bjobs(*command: str) -> "CompletedProcess[str]":
        return CompletedProcess(command, 0, "".join(f"{n}|PEND|-|-|-|-|{JOB_NAME}\n" for n in (4, 5)), "")

    lost.executor._queue = LsfQueue(bjobs)
    submit(lost)
    assert lost.submitted == ["5"]
    assert not lost.delays


def test_another_error_of_the_plugin_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        submit(Submissions(monkeypatch, TypeError("unexpected keyword argument")))


def test_an_interrupted_snakemake_cancels_all_jobs_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    submissions = Submissions(monkeypatch, LOST, bkill=(255, "", "Job <5>: Job has already finished"))
    submissions.executor.cancel_jobs([])
    submissions.executor.cancel_jobs([SubmittedJobInfo(None, "5"), SubmittedJobInfo(None, "6")])
    assert submissions.commands == [("bkill", "5", "6")]
