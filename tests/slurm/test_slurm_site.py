"""`nnlo doctor`, the list of jobs of `nnlo watch`, and why a process gets SIGTERM, on a Slurm cluster."""

import os
import sys
from pathlib import Path

import pytest
from helpers.nnlo_command import nnlo
from helpers.requires import absent
from helpers.slurm_cluster import Slurm, cluster, missing

from nnlo_lib.batch.batch_job import list_own_jobs
from nnlo_lib.batch.job_states import Fate
from nnlo_lib.batch.pending_reasons import remedy_of
from nnlo_lib.batch.slurm_queue import SlurmQueue
from nnlo_lib.launch.launcher import SharedMemoryCleanup

pytestmark = pytest.mark.slurm


@pytest.mark.real
def test_the_site_is_good_and_a_held_job_is_listed(slurm, tmp_path, monkeypatch):
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    # Slurm numbers the jobs of each throw-away cluster from 1, and MPICH names its memory by that number.
    left_behind = SharedMemoryCleanup()
    left_behind._before.clear()
    left_behind.remove_unused()
    done = nnlo("doctor", "--profile", "slurm", "--job", folder=tmp_path)
    assert done.returncode in (0, None), done.stdout
    assert "PMI: pmi2" in done.stdout
    assert "starts 2 ranks on" in done.stdout.splitlines()[-2]
    number = slurm.run("sbatch", "--parsable", "--hold", f"--chdir={tmp_path}", "--wrap=true")
    try:
        listed = list_own_jobs()[number]
        assert (listed.fate, listed.reason, listed.minutes_left) == (Fate.PENDING, "JobHeldUser", None)
    finally:
        slurm.run("scancel", number)
    assert os.listdir(tmp_path) == []


# A rank that writes Slurm's decision when it gets SIGTERM, into <number of the job>.<rank>.
RANK = """
import os, pathlib, signal, sys
from nnlo_lib.batch import BatchJob

file = pathlib.Path(os.environ["SLURM_JOB_ID"] + "." + os.environ["SLURM_PROCID"])

def stop(number, frame):
    decision = BatchJob.current().stop_decision()
    file.with_suffix(file.suffix + ".said").write_text(f"{decision.reason} {decision.in_grace_time}")
    sys.exit()

signal.signal(signal.SIGTERM, stop)
file.touch()
while True:
    signal.pause()
"""


@pytest.mark.exhaustive
def test_five_rows_of_the_table_of_endings_and_a_held_job(tmp_path_factory, tmp_path, monkeypatch):
    """Rows of tests/cluster/test_slurm_endings.py: the words in which a real Slurm tells them to a rank."""
    if programs := missing():
        absent(f"no Slurm to be had here: {', '.join(programs)} not found")
    (tmp_path / "rank.py").write_text(RANK)
    with cluster(tmp_path_factory.mktemp("endings") / "slurm") as slurm:
        stopped = Stopped(slurm, tmp_path)
        # Four CPUs a node.
        lost = stopped.submit("--no-requeue", "--nodelist=n2,n3")
        canceled, requeued, held = (stopped.submit("--requeue", "--nodelist=n1") for _ in range(3))
        failed = stopped.submit("--nodelist=n1", then="& until [ -e over ]; do sleep 0.1; done; exit 3")
        slurm.run("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=silent")
        slurm.run("scancel", canceled)
        slurm.run("scontrol", "requeue", requeued)
        (tmp_path / "over").touch()
        assert stopped.said(lost) == "preempted False"
        assert stopped.said(canceled) == "canceled False"
        assert stopped.said(requeued) == "preempted False"
        assert stopped.said(failed) == "killed False"
        preempted = stopped.submit("--no-requeue", "--nodelist=n2", "--partition=graceful")
        urgent = ("--partition=high", "--exclusive", "--nodelist=n2", "--output=/dev/null", "--wrap=true")
        slurm.run("sbatch", *urgent)
        assert stopped.said(preempted) == "preempted True"
        slurm.run("scontrol", "requeuehold", "State=SpecialExit", held)
        assert stopped.said(held) == "preempted False"
        for name, value in slurm.environment.items():
            monkeypatch.setenv(name, value)
        slurm.wait("the job is held", lambda: list_own_jobs()[held].fate is Fate.PENDING)
        assert remedy_of(list_own_jobs()[held], held) == f"`scontrol release {held}`"
        # A job whose submission gave no answer: by its comment, or by the folder of its log.
        monkeypatch.chdir(tmp_path)
        told = slurm.run(
            "sbatch", "--parsable", "--hold", "--comment=a | b", "--output=logs of it/%j.log", "--wrap=true"
        )
        queue = SlurmQueue()
        assert (
            queue.find_submitted("", "a | b", Path("nowhere"))
            == queue.find_submitted("wrap", "a | b", Path("x"))
            == [told]
        )
        assert queue.find_submitted("other", "a | b", Path("logs of it")) == [told]
        assert queue.find_submitted("other", "a | b", tmp_path / "no logs") == []


class Stopped:
    """Jobs of ranks that write why they are stopped."""

    def __init__(self, slurm: Slurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder

    def submit(self, *options: str, then: str = "") -> str:
        """Submit a job; return its number when its first rank waits for signals."""
        ranks = f"exec srun --mem=50 {sys.executable} rank.py {then}"
        command = ["sbatch", "--parsable", "--mem=100", "--time=9", f"--chdir={self.folder}", *options]
        number = self.slurm.run(*command, f"--wrap={ranks if not then else ranks.replace('exec ', '')}")
        self.slurm.wait("the rank waits", (self.folder / f"{number}.0").exists)
        return number

    def said(self, number: str) -> str:
        """Return what the first rank of a job wrote when it was stopped."""
        file = self.folder / f"{number}.0.said"
        self.slurm.wait(f"job {number} is stopped", lambda: file.exists() and bool(file.read_text()))
        return file.read_text()
