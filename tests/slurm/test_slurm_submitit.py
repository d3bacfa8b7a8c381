"""`nnlo search --executor submitit` on a real Slurm: each training is a job, without Snakemake."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.killed_searches import SETTINGS, Search
from helpers.repository_copy import Checkout, environment
from helpers.slurm_cluster import Slurm
from helpers.slurm_stories import Submitted, held, preempt

pytestmark = [pytest.mark.slurm, pytest.mark.exhaustive, pytest.mark.timeout(1800)]

TWO_NODES = SETTINGS | {
    "parallel": {"ranks": 2},
    "resources": {"nodes": 2, "mem_mb": 500, "runtime": 10},
    "train": SETTINGS["train"] | {"epochs": 12},
    "search": SETTINGS["search"] | {"trials": 3},
}


@dataclass(frozen=True)
class FirstTrial(Submitted):
    """Training of trial 0."""

    @property
    def folder(self) -> Path:
        return self.checkout.folder / f"results/{self.name}/search/trials/0000/fold-0"


def test_a_search_whose_driver_is_killed_and_whose_job_is_disturbed(slurm: Slurm, tmp_path: Path) -> None:
    slurm.wait("all nodes are idle", slurm.idle)
    undisturbed = Search(tmp_path, "undisturbed", "local", TWO_NODES).prepare()
    undisturbed.run()
    search = Search(tmp_path, "queued", "submitit", TWO_NODES, environment() | slurm.environment).prepare()
    first = FirstTrial(slurm, Checkout(tmp_path), "queued")
    driver = search.start()
    try:
        with held(first) as ranks:
            driver.kill()
            driver.wait()
            driver = search.start()
            slurm.wait(
                "the next driver finds the job", lambda: f"continues as job {first.job}" in search.said
            )
            preempt(first, ranks)
        with held(first, epochs=first.epochs_done + 2):
            slurm.run("scancel", "--signal=USR2", first.job)  # the signal that warns of the time limit
        slurm.wait("the search has ended", lambda: driver.poll() is not None)
    finally:
        driver.kill()
        first.abandon()
    assert driver.returncode == 0, search.said
    assert search.trials == undisturbed.trials
    assert search.results == undisturbed.results
    assert not search.trained_twice
    assert first.reasons == ["preempted", "preempted", "finished"]
    assert len(set(first.jobs)) == 1, "first Slurm itself has queued it again, then the job"
    (log,) = (tmp_path / "results/queued/search/submitit").glob(f"*/{first.job}_*_log.out")
    assert log.read_text().count("is queued again") == 1
    jobs = slurm.run("sacct", "--noheader", "--allocations", "--format=JobID", "--name=nnlo-queued").split()
    assert len(jobs) == len(search.trials) == 3
