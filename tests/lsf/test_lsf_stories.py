"""`snakemake --profile lsf` on a cluster that preempts, forgets, refuses and does not answer: each job ends, none is lost."""

from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import pytest
from helpers.lsf_cluster import TIMEOUT_S, Lsf
from helpers.repository_copy import REPOSITORY
from helpers.training_process import wait

pytestmark = [pytest.mark.exhaustive, pytest.mark.snakemake, pytest.mark.timeout(3 * TIMEOUT_S)]

SNAKEFILE = Path(__file__).parent / "stories" / "Snakefile"
LIMIT = "User <me>: Pending job threshold reached. Retrying in 60 seconds...\nPending job threshold reached. Job not submitted."
# Rule, states and exit reasons of its jobs, and words on the terminal.
STORIES = [
    ("preempted", [("EXIT", "TERM_PREEMPT"), ("DONE", "")], "(preempted): preempted; submitted again"),
    ("saved", [("EXIT", ""), ("DONE", "")], "(saved): stopped and saved; submitted again"),
    ("requeued", [("DONE", "")], ""),
    ("vanished", [("EXIT", ""), ("DONE", "")], "ended as unknown to the batch system"),
    ("canceled", [("EXIT", "TERM_OWNER")], "canceled; run the same command again to resume"),
    ("stopped", [("DONE", "")], ""),
    ("limited", [("DONE", "")], "submissions wait 10 s or until a job ends, limited first: User <me>: Pending job threshold"),
    ("misdirected", [], "set resources.partition or LSB_DEFAULTQUEUE (nowhere: No such queue. Job not submitted; known: normal)"),
]  # fmt: skip


@dataclass(frozen=True)
class Stories:
    """A workflow that has ended, and its output."""

    lsf: Lsf
    folder: Path
    output: str


@pytest.fixture(scope="module")
def stories(lsf: Lsf, tmp_path_factory: pytest.TempPathFactory) -> Stories:
    """Run all stories side by side to the end of the workflow."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("profiles", "lsf"):
        (folder / name).symlink_to(REPOSITORY / name)
    lsf.refuse("rule_limited", LIMIT)
    lsf.fail_query()
    lsf.fail_query()
    process = lsf.start_snakemake(folder, "--snakefile", SNAKEFILE)
    try:
        resume_after_looks(lsf, process)
    finally:
        lsf.finish(process)
    return Stories(lsf, folder, (folder / "snakemake.log").read_text())


def resume_after_looks(lsf: Lsf, process: "Popen[bytes]") -> None:
    """Let the executor see the stopped job twice, then resume the job."""

    def has_ended() -> bool:
        return process.poll() is not None

    def is_stopped() -> bool:
        return [job.state for job in lsf.jobs("rule_stopped")] == ["USUSP"]

    wait("the stop", lambda: has_ended() or is_stopped(), TIMEOUT_S)
    seen = lsf.queries + 2
    wait("two looks", lambda: has_ended() or lsf.queries >= seen, TIMEOUT_S)
    for job in lsf.jobs("rule_stopped"):
        lsf.run("bresume", job.number)


@pytest.mark.parametrize(("rule", "states", "words"), STORIES)
def test_each_job_reaches_its_end(
    stories: Stories, rule: str, states: list[tuple[str, str]], words: str
) -> None:
    jobs = stories.lsf.jobs(f"rule_{rule}__")
    assert [(job.state, job.exit_reason.partition(":")[0]) for job in jobs] == states, stories.output
    assert (stories.folder / rule).exists() == (("DONE", "") in states)
    assert words in stories.output


def test_a_refused_job_is_submitted_once_more_and_a_wrong_queue_is_not(stories: Stories) -> None:
    assert stories.lsf.submissions("rule_limited") == 2
    assert stories.lsf.submissions("rule_misdirected") == 1
    assert stories.output.count("No such queue") == stories.output.count(STORIES[-1][-1]) >= 1


def test_a_purged_job_is_judged_by_its_status_file(stories: Stories) -> None:
    (job,) = stories.lsf.jobs("rule_limited")
    assert job.is_purged
