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


def test_an_ended_job_frees_the_place_of_a_waiting_job_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 200.0, "b": 10.0}, max_submitted=1)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask(name, (f"{name}/out",), restart_times=0) for name in "ab"], LIMIT)
    assert executor.done == ["a", "b"]
    # After a failed try at 150 s, the next try would be at 310 s.
    first, second = slurm.jobs.values()
    assert second.starts - slurm.queue_time - first.ended <= 5


def test_each_waiting_job_is_submitted_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [str(number) for number in range(12)]
    slurm = ScriptedSlurm({name: 10.0 * (1 + int(name) % 3) for name in names}, max_submitted=3)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask(name, (f"{name}/out",), restart_times=0) for name in names], LIMIT)
    assert sorted(job.task for job in slurm.jobs.values()) == sorted(names)


def test_a_waiting_job_whose_submission_cannot_write_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 10.0}, refusing_until=5)
    executor = ScriptedExecutor(slurm)
    monkeypatch.setattr(executor, "report_job_submission", _disk_is_full)
    executor.run_until_done([ScriptedTask("a", ("a/out",), restart_times=0)], LIMIT)
    assert executor.failed == ["a"]
    assert "a was not submitted: [Errno 28] No space left on device. " in executor.lines


def _disk_is_full(*_: object) -> None:
    raise OSError(28, "No space left on device")
