"""No sequence of preemptions, failing queries and refusals lets a workflow hang, or loses or doubles a job (scripted Slurm)."""

import random

import pytest
from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedSlurm

TASKS = ("a", "b", "c")
HORIZON = 1200  # seconds in which events happen
LIMIT = 8000  # seconds after which a workflow counts as hanging


def script(slurm: ScriptedSlurm, draw: random.Random) -> None:
    """Schedule random events."""

    def any_job() -> str:
        return draw.choice(sorted(slurm.jobs) or ["0"])

    events = {
        "preempt": lambda: slurm.end(any_job(), "PREEMPTED"),
        "late requeue": lambda: slurm.requeue_late(any_job(), draw.randint(1, 60)),
        "node loss": lambda: slurm.end(any_job(), "NODE_FAIL"),
        "squeue fails": lambda: setattr(slurm, "failing_squeues", draw.randint(1, 5)),
        "slurmctld down": lambda: setattr(slurm, "down_until", slurm.now + draw.randint(10, 600)),
        "submit refused": lambda: setattr(slurm, "refusing_until", slurm.now + draw.randint(10, 900)),
        "accounting fails": lambda: setattr(slurm, "accounting", False),
    }
    for _ in range(draw.randint(1, 12)):
        slurm.at(draw.uniform(0, HORIZON), events[draw.choice(sorted(events))])


@pytest.mark.parametrize("seed", range(200))
def test_each_task_ends_once(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = random.Random(seed)
    slurm = ScriptedSlurm(
        {task: draw.randint(20, 600) for task in TASKS}, accounting=draw.random() < 0.5,
        min_job_age=draw.choice([5, 30, 300]), requeues=draw.random() < 0.5, queue_time=draw.choice([0, 5, 120]),
    )  # fmt: skip
    script(slurm, draw)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask(task, (f"{task}/out",), restart_times=20) for task in TASKS], LIMIT)
    assert sorted(executor.done) == list(TASKS), executor.lines
    assert not executor.failed
    assert slurm.most_at_once <= 1, "two jobs of one task ran at once"
    assert all(work <= 0 for work in slurm.work.values())
    assert not [job for job in slurm.jobs.values() if job.state in ("PENDING", "RUNNING")], (
        "a job is left behind"
    )


@pytest.mark.parametrize("accounting", [True, False])
@pytest.mark.parametrize("requeues", [True, False])
def test_a_canceled_job_stays_canceled(accounting, requeues, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 500.0, "b": 100.0}, accounting=accounting, requeues=requeues)
    slurm.at(60, lambda: slurm.end("1", "CANCELLED by 1000"))
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([ScriptedTask(task, (f"{task}/out",)) for task in "ab"], LIMIT)
    assert (executor.done, executor.failed) == (["b"], ["a"])
    assert len(slurm.jobs) == 2
    assert any(
        "job 1 ended as CANCELLED by 1000: canceled; run the same command" in line for line in executor.lines
    )


def test_preemptions_cost_no_try(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 500.0})
    for number in range(1, 6):
        slurm.at(80 * number, lambda number=number: slurm.end(str(number), "PREEMPTED"))
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([task := ScriptedTask("a", ("a/out",), restart_times=0)], LIMIT)
    assert executor.done == ["a"]
    assert (task.attempt, len(slurm.jobs)) == (1, 6)


def test_submit_limit_waits_and_costs_no_try(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm = ScriptedSlurm({"a": 10.0}, refusing_until=3000)
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([task := ScriptedTask("a", ("a/out",), restart_times=0)], LIMIT)
    assert executor.done == ["a"]
    assert task.attempt == 1
    refusals = [line for line in executor.lines if "QOSMaxSubmitJobPerUserLimit" in line]
    assert 5 <= len(refusals) <= 15, "every five minutes at most, after the first"
