"""One attempt at a training, as a scheduler makes it: a launcher in a process of its own, under faults."""

import multiprocessing
import os
import sys
from collections.abc import Sequence

from nnlo_lib.core.errors import exit_on_user_error
from nnlo_lib.launch.attempt import LaunchOptions, train_task
from nnlo_lib.train.fault_injection import FAULTS_ENV_VAR, FaultPlan, InjectedFault
from nnlo_lib.train.task import Task


class UnfinishedError(Exception):
    """A training did not come to its end; the message says why."""


def run_faulty_attempt(
    task: Task, launcher: str, faults: Sequence[InjectedFault], patience: float | None
) -> int:
    """Train until it ends or a fault ends it; return the exit status, negative for a signal.

    Raises UnfinishedError if that takes longer than `patience` seconds; None waits for any time.
    """
    task.folder.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_train, args=(task, launcher, faults))
    process.start()
    process.join(patience)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise UnfinishedError(
            f"an attempt did not end within {patience:.0f} s, under {faults}; see {task.paths.chaos_log}"
        )
    return process.exitcode


def _train(task: Task, launcher: str, faults: Sequence[InjectedFault]) -> None:
    with task.paths.chaos_log.open("a") as file:
        for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(file.fileno(), stream)
    os.environ[FAULTS_ENV_VAR] = FaultPlan(task.folder, os.getpid(), list(faults)).json_text
    sys.exit(exit_on_user_error(lambda: train_task(task, LaunchOptions(launcher)).exit_status)())
