"""`snakemake --profile lsf` on a cluster that preempts, forgets, refuses and does not answer: each job ends, none is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.lsf_cluster import Lsf
from helpers.training_process import wait

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
STORIES = Path(__file__).parent / "stories" / "Snakefile"
THRESHOLD = "User <me>: Pending job threshold reached. Retrying in 60 seconds...\nPending job threshold reached. Job not submitted."
SUCCEEDING = ("preempted", "requeued", "saved", "vanished", "stopped", "limited")


@dataclass(frozen=True)
class Stories:
    """A workflow that has ended."""

    lsf: Lsf
    folder: Path
    said: str

    def states(self, rule: str) -> list[tuple[str, str]]:
        """Return state and exit reason of the jobs of a rule."""
        return [(job.state, job.exit_reason.partition(":")[0]) for job in self.lsf.jobs(f"rule_{rule}__")]


@pytest.fixture(scope="module")
def stories(lsf: Lsf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    """Run all stories side by side to the end of the workflow."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("profiles", "lsf"):
        (folder / name).symlink_to(ROOT / name)
    lsf.refuse("rule_limited", 1, THRESHOLD)
    lsf.fail_queries(2)
    command = [Path(sys.executable).with_name("snakemake"), "--snakefile", STORIES, "--profile", "lsf"]
    with (folder / "said").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=lsf.environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        resume_after_looks(lsf, process)
        wait("Snakemake has ended", lambda: process.poll() is not None, seconds=400)
        yield Stories(lsf, folder, (folder / "said").read_text())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        for job in lsf.jobs("rule_"):
            if job.state not in ("DONE", "EXIT"):
                lsf.run("bkill", job.number)


def resume_after_looks(lsf: Lsf, process: "subprocess.Popen[bytes]") -> None:
    """Let the executor see the stopped job twice, then resume the job."""

    def has_ended() -> bool:
        return process.poll() is not None

    wait("the stop", lambda: has_ended() or [job.state for job in lsf.jobs("rule_stopped")] == ["USUSP"])
    seen = lsf.queries + 2
    wait("two looks", lambda: has_ended() or lsf.queries >= seen, seconds=200)
    for job in lsf.jobs("rule_stopped"):
        lsf.run("bresume", job.number)


def test_jobs_that_are_not_to_blame_reach_their_ends(stories: Stories) -> None:
    assert [name for name in SUCCEEDING if not (stories.folder / name).exists()] == [], stories.said


def test_a_preempted_job_is_submitted_again_without_a_try(stories: Stories) -> None:
    assert stories.states("preempted") == [("EXIT", "TERM_PREEMPT"), ("DONE", "")]
    assert "(preempted): preempted; submitted again" in stories.said


def test_a_saved_job_is_submitted_again_without_a_try(stories: Stories) -> None:
    assert stories.states("saved") == [("EXIT", ""), ("DONE", "")]
    assert "(saved): stopped and saved; submitted again" in stories.said


def test_lsf_itself_queues_a_job_again(stories: Stories) -> None:
    assert stories.states("requeued") == [("DONE", "")]


def test_a_job_that_lsf_forgot_without_a_trace_is_retried(stories: Stories) -> None:
    assert stories.states("vanished") == [("EXIT", ""), ("DONE", "")]
    assert "ended as unknown to the batch system" in stories.said


def test_a_canceled_job_is_not_submitted_again(stories: Stories) -> None:
    assert stories.states("canceled") == [("EXIT", "TERM_OWNER")]
    assert "canceled; run the same command again to resume" in stories.said


def test_a_stopped_job_is_no_failure(stories: Stories) -> None:
    assert stories.states("stopped") == [("DONE", "")]


def test_a_submit_limit_delays_a_job(stories: Stories) -> None:
    assert stories.lsf.submissions("rule_limited") == 2
    assert (
        "submissions wait 10 s or until a job ends, limited first: User <me>: Pending job threshold"
        in stories.said
    )


def test_a_purged_job_is_judged_by_its_status_file(stories: Stories) -> None:
    (job,) = stories.lsf.jobs("rule_limited")
    assert job.is_purged


def test_a_wrong_queue_costs_one_submission_and_one_sentence(stories: Stories) -> None:
    assert stories.lsf.submissions("rule_misdirected") == 1
    sentence = "set resources.partition or LSB_DEFAULTQUEUE (nowhere: No such queue. Job not submitted; known: normal)"
    assert stories.said.count("No such queue") == stories.said.count(sentence) >= 1
