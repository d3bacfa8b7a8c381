"""`snakemake --profile lsf` on a cluster that preempts, stops and forgets jobs and does not answer: each job ends, none is lost."""

from pathlib import Path

import pytest
from helpers.lsf_cluster import TIMEOUT_S, Lsf
from helpers.repository_copy import REPOSITORY
from helpers.training_process import wait

SNAKEFILE = Path(__file__).parent / "stories" / "Snakefile"
# States and exit reasons of the jobs of each rule, and words on the terminal.
STORIES = {
    "preempted": ([("EXIT", "TERM_PREEMPT"), ("DONE", "")], "(preempted): preempted; submitted again"),
    "requeued": ([("DONE", "")], ""),
    "vanished": ([("EXIT", ""), ("DONE", "")], "ended as unknown to the batch system"),
    "stopped": ([("DONE", "")], ""),  # then purged, and judged by its status file
}


@pytest.mark.exhaustive
@pytest.mark.snakemake
@pytest.mark.timeout(3 * TIMEOUT_S)
def test_each_job_reaches_its_end(lsf: Lsf, tmp_path: Path) -> None:
    for name in ("profiles", "lsf"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    lsf.fail_query()
    lsf.fail_query()
    process = lsf.start_snakemake(tmp_path, "--snakefile", SNAKEFILE)

    def is_stopped() -> bool:
        return [job.state for job in lsf.jobs("rule_stopped")] == ["USUSP"]

    try:
        wait("the stop", lambda: process.poll() is not None or is_stopped(), TIMEOUT_S)
        seen = lsf.queries + 2
        wait("two looks", lambda: process.poll() is not None or lsf.queries >= seen, TIMEOUT_S)
        (stopped,) = lsf.jobs("rule_stopped")
        stopped.resume()
    finally:
        status = lsf.finish(process)
    output = (tmp_path / "snakemake.log").read_text()
    assert status == 0, output
    for rule, (states, words) in STORIES.items():
        jobs = lsf.jobs(f"rule_{rule}__")
        assert [(job.state, job.exit_reason.partition(":")[0]) for job in jobs] == states, output
        assert words in output
    assert stopped.is_purged
