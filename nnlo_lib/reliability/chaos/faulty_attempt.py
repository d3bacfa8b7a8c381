"""One attempt at a training with faults; the launcher runs in its own process, as in a batch job."""

import multiprocessing
import os
import sys
from collections.abc import Sequence

from nnlo_lib.core.errors import exit_on_user_error
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.train.fault_injection import FAULTS_ENV_VAR, FaultPlan, InjectedFault
from nnlo_lib.train.task import Task


class UnfinishedError(Exception):
    """A training did not finish; the message gives the reason."""


def run_faulty_attempt(
    task: Task, launcher: str, faults: Sequence[InjectedFault], patience: float | None
) -> int:
    """Make one attempt; return the exit status of the launcher, or minus the number of a signal that killed it.

    Args:
        task: the task to train.
        launcher: command that starts the ranks.
        faults: faults to inject.
        patience: seconds that the attempt may take; None waits without limit.

    Raises:
        UnfinishedError: if the attempt takes longer than `patience`.
    """
    task.folder.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_train, args=(task, launcher, faults))
    process.start()
    process.join(patience)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise UnfinishedError(
            f"{task.folder}: an attempt took longer than {patience:.0f} s, with {faults}; see {task.paths.chaos_log}"
        )
    return process.exitcode


def _train(task: Task, launcher: str, faults: Sequence[InjectedFault]) -> None:
    with task.paths.chaos_log.open("a") as file:
        # The file descriptors are replaced, because ranks inherit them, but not Python's sys.stdout.
        for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(file.fileno(), stream)
    # The PID is that of this process, the launcher, which `kill_launcher` and `term_all` signal.
    os.environ[FAULTS_ENV_VAR] = FaultPlan(task.folder, os.getpid(), list(faults)).json_text
    sys.exit(exit_on_user_error(lambda: train_task(task, LaunchOptions(launcher)).exit_status)())
