"""One attempt at a training, as a scheduler makes it: a launcher in a process of its own, under faults."""

import multiprocessing
import os
import sys
from collections.abc import Sequence

from nnlo_lib.errors import reported
from nnlo_lib.launch.attempt import Wishes
from nnlo_lib.launch.command import train
from nnlo_lib.train.faults import VARIABLE, Fault, Orders
from nnlo_lib.train.task import Task

SAID = "said.txt"  # in the training's folder: what all attempts printed


class UnfinishedError(Exception):
    """A training did not come to its end; the message says why."""


def attempt(task: Task, launcher: str, faults: Sequence[Fault], patience: float | None) -> int:
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
            f"an attempt did not end within {patience:.0f} s, under {faults}; see {task.folder / SAID}"
        )
    return process.exitcode


def _train(task: Task, launcher: str, faults: Sequence[Fault]) -> None:
    with (task.folder / SAID).open("a") as file:
        for stream in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(file.fileno(), stream)
    os.environ[VARIABLE] = Orders(task.folder, os.getpid(), list(faults)).text
    sys.exit(reported(lambda: train(task, Wishes(launcher)))())
