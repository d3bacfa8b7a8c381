"""A new Snakemake and the jobs that an earlier Snakemake left (scripted Slurm)."""

from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedSlurm

LIMIT = 4000


def submitted(slurm: ScriptedSlurm, **changes: object) -> None:
    """Submit a task's job as a Snakemake that is then killed."""
    ScriptedExecutor(slurm).run_job(ScriptedTask("a", ("a/out",), **changes))
    slurm.advance(20)


def test_a_job_that_does_the_same_is_watched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 100.0})
    submitted(slurm)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask("a", ("a/out",))], LIMIT)
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)
    assert any(
        "job 1 (a) of an earlier Snakemake still runs and is watched" in line for line in executor.lines
    )


def test_a_job_with_other_parameters_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 100.0})
    submitted(slurm, params=("lr=0.1",))
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask("a", ("a/out",), params=("lr=0.2",))], LIMIT)
    assert (executor.done, len(slurm.jobs)) == (["a"], 2)


def test_a_job_that_has_ended_is_submitted_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 100.0})
    submitted(slurm)
    slurm.end("1", "CANCELLED by 1000")
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask("a", ("a/out",))], LIMIT)
    assert (executor.done, len(slurm.jobs)) == (["a"], 2)


def test_without_an_answer_nothing_is_submitted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 1000.0})
    submitted(slurm)
    slurm.failing_squeues = 3
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask("a", ("a/out",))], LIMIT)
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)


def test_after_a_refusal_only_one_job_is_tried_at_a_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({str(n): 10.0 for n in range(20)}, refusing_until=1000)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask(str(n), (f"{n}/out",), restart_times=0) for n in range(20)], LIMIT)
    assert len(executor.done) == 20
    assert len([line for line in executor.lines if "submissions wait" in line]) <= 10
