"""Jobs of a search in a scripted Slurm and virtual time: how each end is judged, and when."""

from pathlib import Path

import pytest
from helpers.scripted_slurm import ScriptedSlurm

from nnlo_lib.batch.job_states import Fate
from nnlo_lib.executors.submitit.slurm import SlurmTrialQueue

JOB = "1"
STEP = 10
LIMIT = 3600


class Watched:
    """Job 1, which needs ten minutes, and the queue through which a driver watches it."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.slurm = ScriptedSlurm({"trial": 600}, **options)
        self.slurm.submit("trial", folder / "unused.status")
        self.queue = SlurmTrialQueue(folder, "nnlo-x", "mpiexec", self.slurm.run, lambda: self.slurm.now)

    def ended_at(self) -> float:
        """Let time pass until the queue reports the end of the job; return the time."""
        while not self.queue.ended([JOB]):
            self.slurm.advance(STEP)
            assert self.slurm.now < LIMIT, self.slurm.jobs
        return self.slurm.now


@pytest.fixture(params=[True, False], ids=["accounting", "no accounting"])
def accounting(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_a_job_that_completes_has_ended_within_a_minute(tmp_path: Path, accounting: bool) -> None:
    watched = Watched(tmp_path, accounting=accounting)
    assert 600 < watched.ended_at() < 600 + 60 + 2 * STEP
    assert watched.queue.report(JOB).state == "COMPLETED"


def test_scancel_is_known(tmp_path: Path, accounting: bool) -> None:
    watched = Watched(tmp_path, accounting=accounting)
    watched.slurm.at(100, lambda: watched.slurm.end("1", "CANCELLED by 1000"))
    assert 100 <= watched.ended_at() < 170
    assert watched.queue.report(JOB).fate is Fate.CANCELED


def test_a_job_that_slurm_would_revive_late_is_canceled_before_its_successor_starts(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.slurm.at(100, lambda: watched.slurm.requeue_late("1", 200))
    watched.ended_at()
    watched.slurm.advance(600)
    assert watched.slurm.jobs["1"].state == "CANCELLED by 1000"


def test_an_end_stays_one_while_slurm_is_silent(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.ended_at()
    watched.slurm.down_until = LIMIT
    assert watched.queue.ended([JOB]) == {JOB}
