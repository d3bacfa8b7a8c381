"""How ranks ended, from the messages of Hydra, srun and Open MPI; the texts are theirs."""

import pytest

from nnlo_lib.launch.diagnosis import ExitFacts, LauncherOutput, lost_ranks_outcome
from nnlo_lib.launch.stop_request import TimeLimit

HYDRA = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 1840 RUNNING AT vm
=   EXIT CODE: {number}
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
"""
OPEN_MPI_SIGNAL = (
    "prterun noticed that process rank 1 with PID 4711 on node vm exited on signal 11 (Segmentation fault).\n"
)
OPEN_MPI_STATUS = """prterun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-4710@1,1]
   Exit code:    3
"""
CASES = {
    "Hydra, killed": (HYDRA.format(number=9), 9, "killed", "killed by SIGKILL"),
    "Hydra, crashed": (HYDRA.format(number=11), 11, "crashed", "crashed with SIGSEGV"),
    "Hydra, mapped file": (HYDRA.format(number=7), 7, "crashed", "SIGBUS (a file that is mapped into memory"),
    "Hydra, exit status": ("", 3, "crashed", "exited with status 3"),
    "srun, killed": ("srun: error: node1: task 1: Killed\n", 137, "killed", "killed by SIGKILL"),
    "srun, crashed": ("srun: error: node1: task 1: Segmentation fault (core dumped)\n", 139, "crashed", "with SIGSEGV"),
    "srun, aborted": ("srun: error: node1: tasks 1-3: Aborted\n", 134, "crashed", "with SIGABRT"),
    "srun, exit status": ("srun: error: node1: task 1: Exited with exit code 3\n", 3, "crashed", "with status 3"),
    "srun, memory": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
        "srun: error: node1: task 1: Out Of Memory\n", 137, "out of memory", "not enough memory",
    ),
    "Slurm, memory": (
        "slurmstepd-n1: error: StepId=12.0 exceeded memory limit (1234567 > 1024000), being killed\n", 137,
        "out of memory", "not enough memory",
    ),
    "Open MPI, crashed": (OPEN_MPI_SIGNAL, 139, "crashed", "with SIGSEGV"),
    "Open MPI, exit status": (OPEN_MPI_STATUS, 3, "crashed", "with status 3"),
    "launcher killed": ("", -9, "killed", "'mpiexec' (process 7) was killed by SIGKILL"),
}  # fmt: skip


def outcome_of(text, status, ranks):
    """Return the outcome of ranks that ended after a launcher printed a text."""
    output = LauncherOutput()
    for line in text.splitlines(keepends=True):
        output.parse_line(line)
    return lost_ranks_outcome(
        ranks, ExitFacts(status, TimeLimit(None, None), output=output, launcher="'mpiexec' (process 7)")
    )


@pytest.mark.parametrize(("text", "status", "reason", "words"), CASES.values(), ids=CASES)
def test_messages_of_launchers(text, status, reason, words):
    outcome = outcome_of(text, status, ["rank 1"])
    assert outcome.reason == reason
    assert words in outcome.error
    assert ("rank 1" in outcome.error) == (status >= 0)


@pytest.mark.parametrize("created", ["job 32", "StepId=32.1"], ids=["20.11", "23.02"])
def test_srun_waits_for_a_step(created):
    output = LauncherOutput()
    for line, waits in [
        ("srun: job 32 queued", False),
        ("srun: Job 32 step creation temporarily disabled, retrying (Requested nodes are busy)", True),
        ("some other line", True),
        ("srun: Job 32 step creation still disabled, retrying (Requested nodes are busy)", True),
        (f"srun: Step created for {created}", False),
    ]:
        output.parse_line(f"{line}\n")
        assert output.waits_for_step == waits, line


@pytest.mark.parametrize(
    ("last", "words"), [("", "it printed nothing"), ("no route", "see its output above")]
)
def test_a_launcher_that_ends_without_ranks(last, words):
    outcome = outcome_of(last, 1, [])
    assert (outcome.reason, outcome.details) == ("killed", last)
    assert words in outcome.error
