"""The executor of `snakemake --profile slurm` on a Slurm in virtual time: no job is lost, doubled, or tried without hope."""

import random

import pytest
from helpers.scripted_executor import ScriptedExecutor, ScriptedTask
from helpers.scripted_slurm import ScriptedSlurm

from nnlo_lib.batch.job_states import JOB_STATES, Fate, fate_of_state

# The state codes of squeue(1) and sacct(1). `again`: submitted again without a try; `try`: a try is counted.
ENDS = {
    "PREEMPTED": "again", "NODE_FAIL": "try", "BOOT_FAIL": "try", "LAUNCH_FAILED": "try", "RECONFIG_FAIL": "try",
    "REVOKED": "try", "FAILED": "try", "TIMEOUT": "try", "DEADLINE": "try", "OUT_OF_MEMORY": "try",
    "CANCELLED": "never", "CANCELLED by 1000": "never",
}  # fmt: skip
ACTIVE = [
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "REQUEUED", "REQUEUE_HOLD",
    "REQUEUE_FED", "SPECIAL_EXIT", "SIGNALING", "STAGE_OUT", "RESV_DEL_HOLD", "POWER_UP_NODE", "EXPEDITING", "UPDATE_DB",
]  # fmt: skip
LIMIT_S = 8000  # virtual seconds after which a workflow counts as hanging


@pytest.fixture(autouse=True)
def _working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def task(name: str = "a", **changes: object) -> ScriptedTask:
    return ScriptedTask(name, (f"{name}/out",), **changes)


def run(slurm: ScriptedSlurm, *tasks: ScriptedTask) -> ScriptedExecutor:
    """Run tasks to their ends; return the executor."""
    executor = ScriptedExecutor(slurm)
    executor.run_until_done(list(tasks), LIMIT_S)
    return executor


def test_the_table_has_every_state():
    assert {state.split()[0] for state in ENDS} | set(ACTIVE) | {"COMPLETED"} <= set(JOB_STATES)
    assert all(fate_of_state(state).is_active for state in [*ACTIVE, "A_STATE_OF_A_NEWER_SLURM"])
    assert fate_of_state("CANCELLED+") is fate_of_state("CANCELLED by 0") is Fate.CANCELED


@pytest.mark.parametrize("accounting", [True, False])
@pytest.mark.parametrize("min_job_age", [300, 1])
@pytest.mark.parametrize("state", ENDS)
def test_a_job_that_ends_early(state, min_job_age, accounting):
    slurm = ScriptedSlurm({"a": 100.0}, accounting=accounting, min_job_age=min_job_age)
    slurm.at(30, lambda: slurm.end("1", state))
    executor = run(slurm, one := task())
    is_known = accounting or min_job_age == 300
    expected = ENDS[state] if is_known else "try"  # without a trace, the cause is unknown
    assert executor.done == ([] if expected == "never" else ["a"])
    assert len(slurm.jobs) == (1 if expected == "never" else 2)
    assert expected == "never" or one.attempt == (1 if expected == "again" else 2)


def schedule_events(slurm: ScriptedSlurm, draw: random.Random) -> None:
    """Schedule up to twelve random events in the first twenty minutes."""

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
        slurm.at(draw.uniform(0, 1200), events[draw.choice(sorted(events))])


FEW, MORE = range(40), range(40, 400)


@pytest.mark.parametrize(
    "seeds", [FEW, pytest.param(MORE, marks=pytest.mark.exhaustive)], ids=["few", "more"]
)
def test_each_task_ends_once_under_random_events(seeds, tmp_path, monkeypatch):
    for seed in seeds:
        (tmp_path / str(seed)).mkdir()
        monkeypatch.chdir(tmp_path / str(seed))
        draw = random.Random(seed)
        slurm = ScriptedSlurm(
            {name: draw.randint(20, 600) for name in "abc"}, accounting=draw.random() < 0.5,
            min_job_age=draw.choice([5, 30, 300]), requeues=draw.random() < 0.5, queue_time=draw.choice([0, 5, 120]),
        )  # fmt: skip
        schedule_events(slurm, draw)
        executor = run(slurm, *(task(name, restart_times=20) for name in "abc"))
        assert (sorted(executor.done), executor.failed) == (["a", "b", "c"], []), (seed, executor.lines)
        assert slurm.most_at_once <= 1, f"two jobs of one task ran at once (seed {seed})"
        assert all(work <= 0 for work in slurm.work.values()), seed
        left = [job for job in slurm.jobs.values() if job.state in ("PENDING", "RUNNING")]
        assert not left, f"a job is left behind (seed {seed})"


def test_preemptions_cost_no_try():
    slurm = ScriptedSlurm({"a": 500.0})
    for number in range(1, 6):
        slurm.at(80 * number, lambda number=number: slurm.end(str(number), "PREEMPTED"))
    assert run(slurm, one := task(restart_times=0)).done == ["a"]
    assert (one.attempt, len(slurm.jobs)) == (1, 6)


def test_a_submit_limit_costs_no_try():
    executor = run(ScriptedSlurm({"a": 10.0}, refusing_until=3000), one := task(restart_times=0))
    assert (executor.done, one.attempt) == (["a"], 1)
    refusals = [line for line in executor.lines if "QOSMaxSubmitJobPerUserLimit" in line]
    assert 5 <= len(refusals) <= 15, "every five minutes at most, after the first"


def test_after_a_refusal_only_one_job_is_tried_at_a_time():
    slurm = ScriptedSlurm({str(n): 10.0 for n in range(20)}, refusing_until=1000)
    executor = run(slurm, *(task(str(n), restart_times=0) for n in range(20)))
    assert len(executor.done) == 20
    assert len([line for line in executor.lines if "submissions wait" in line]) <= 10


def test_an_ended_job_frees_the_place_of_a_waiting_job_at_once():
    slurm = ScriptedSlurm({"a": 200.0, "b": 10.0}, max_submitted=1)
    assert run(slurm, *(task(name, restart_times=0) for name in "ab")).done == ["a", "b"]
    # After a failed try at 150 s, the next try would be at 310 s.
    first, second = slurm.jobs.values()
    assert second.starts - slurm.queue_time - first.ended <= 5


def test_a_waiting_job_whose_submission_cannot_write_is_an_error(monkeypatch):
    def disk_is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    executor = ScriptedExecutor(ScriptedSlurm({"a": 10.0}, refusing_until=5))
    monkeypatch.setattr(executor, "report_job_submission", disk_is_full)
    executor.run_until_done([task(restart_times=0)], LIMIT_S)
    assert executor.failed == ["a"]
    assert "a was not submitted: [Errno 28] No space left on device. " in executor.lines


def submit_and_die(slurm: ScriptedSlurm, **changes: object) -> ScriptedSlurm:
    """Submit a task's job as a Snakemake that is then killed."""
    ScriptedExecutor(slurm).run_job(task(**changes))
    slurm.advance(20)
    return slurm


def test_a_job_of_an_earlier_snakemake_that_does_the_same_is_watched():
    slurm = submit_and_die(ScriptedSlurm({"a": 100.0}))
    executor = run(slurm, task())
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)
    sentence = "job 1 (a) of an earlier Snakemake still runs and is watched"
    assert any(sentence in line for line in executor.lines)


def test_a_job_of_an_earlier_snakemake_with_other_parameters_is_not_watched():
    slurm = submit_and_die(ScriptedSlurm({"a": 100.0}), params=("lr=0.1",))
    assert (run(slurm, task(params=("lr=0.2",))).done, len(slurm.jobs)) == (["a"], 2)


def test_a_job_of_an_earlier_snakemake_that_was_canceled_is_submitted_again():
    slurm = submit_and_die(ScriptedSlurm({"a": 100.0}))
    slurm.end("1", "CANCELLED by 1000")
    assert (run(slurm, task()).done, len(slurm.jobs)) == (["a"], 2)


def test_nothing_is_submitted_while_slurm_does_not_tell_whether_an_earlier_job_runs():
    slurm = submit_and_die(ScriptedSlurm({"a": 1000.0}))
    slurm.failing_squeues = 3
    assert (run(slurm, task()).done, len(slurm.jobs)) == (["a"], 1)


REWRITES = {
    "its own": None,
    "the site's comment": ("uuid", "physics"),
    "the site's name": ("x", "rule_a"),
    "neither": ("x", ""),
}


@pytest.mark.parametrize("rewrites", REWRITES.values(), ids=REWRITES)
@pytest.mark.parametrize("silent", [0, 100], ids=["answers at once", "silent for 100 s"])
@pytest.mark.parametrize("lost", [1, 5])
def test_a_job_in_the_queue_whose_answer_was_lost_is_watched_and_not_submitted_again(lost, silent, rewrites):
    slurm = ScriptedSlurm({"a": 500.0}, lost_answers=lost, silent_after_lost_answer=silent, rewrites=rewrites)
    executor = run(slurm, task())
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)
    assert not any("was not submitted" in line for line in executor.lines)
    sentence = "job 1 (a) was submitted, although the answer did not say so"
    assert any(sentence in line for line in executor.lines)


def test_a_job_of_an_earlier_snakemake_with_the_same_log_folder_is_not_mistaken_for_the_lost_one():
    slurm = submit_and_die(ScriptedSlurm({"a": 300.0}, rewrites=("x", "")), params=("lr=0.1",))
    slurm.lost_answers = 1
    executor = run(slurm, task(params=("lr=0.2",)))
    assert (executor.done, len(slurm.jobs)) == (["a"], 2)
    assert any("job 2 (a) was submitted, although" in line for line in executor.lines)


HOLDS = [
    ("job requeued in held state", "PENDING"),
    ("job requeued in special exit state", "SPECIAL_EXIT"),
    ("None", "SPECIAL_EXIT"),
    ("JobHoldMaxRequeue", "PENDING"),
    ("JobHeldUser", "PENDING"),
]


@pytest.mark.parametrize(("reason", "state"), HOLDS)
def test_a_held_job_is_named_within_a_minute_and_goes_on_when_it_is_released(reason, state):
    slurm, executor = ScriptedSlurm({"a": 500.0}), None
    slurm.at(200, lambda: slurm.hold("1", reason, state))
    seen = []
    slurm.at(265, lambda: seen.extend(line for line in executor.lines if "does not start" in line))
    slurm.at(900, lambda: slurm.release("1"))
    executor = ScriptedExecutor(slurm)
    executor.run_until_done([task(restart_times=0)], LIMIT_S)
    assert (executor.done, len(slurm.jobs)) == (["a"], 1)
    named = state if reason == "None" else reason
    (line,) = seen
    assert line.startswith(f"nnlo: job 1 (a) does not start: {named}; ")
    assert "`scontrol release 1`" in line
    assert [each for each in executor.lines if "does not start" in each] == seen


def test_an_unknown_refusal_ends_after_three_submissions(monkeypatch):
    slurm, submissions = ScriptedSlurm({"a": 500.0}), []

    def refuse(task, status, marks):
        submissions.append(slurm.now)
        raise ConnectionError("sbatch: error: the plugin of this site says no")

    monkeypatch.setattr(slurm, "submit", refuse)
    assert run(slurm, task()).failed == ["a"]
    first, second, third = submissions
    assert second >= first + 10
    assert third >= second + 20
