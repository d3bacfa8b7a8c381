"""Trainings on simulated ranks with injected faults, each attempt in a process forked from a preloaded one."""

import gc
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch._dynamo  # imported here because the first optimizer of each process would import it, in a second

from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.train.fault_injection import FAULTS_ENV_VAR, FaultPlan, InjectedFault, reached_failpoints
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import Task

PATIENCE = 60  # seconds for one attempt


class Forge:
    """Client of the process that forks each attempt; that process has imported torch and never used it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def attempt(self, task: Task, *faults: InjectedFault) -> int:
        """Train with the given faults; return the exit status, negative for a signal."""
        task.folder.mkdir(parents=True, exist_ok=True)
        self._connection.send((task, FaultPlan(task.folder, os.getpid(), list(faults))))
        assert self._connection.poll(PATIENCE), f"{task.folder} hangs under {faults}"
        return self._connection.recv()

    def record(self, task: Task) -> Counter[str]:
        """Train without faults; return how often each failpoint was reached."""
        assert self.attempt(task) == 0, said(task)
        return reached_failpoints(task.folder, 0)


def said(task: Task) -> str:
    """Return the last 2000 characters of the attempts' output."""
    return (task.folder / "said").read_text()[-2000:]


@contextmanager
def forge() -> Iterator[Forge]:
    """Start the process that forks attempts; end it on exit."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    yield Forge(ours)
    ours.close()
    process.join(10)


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)  # as ranks do: with more threads, small layers wait for busy cores
    gc.freeze()  # a collection would write to, and so copy, all memory that the processes share
    while True:
        try:
            task, orders = connection.recv()
        except EOFError:
            return
        child = os.fork()
        if not child:
            _train(task, orders)
        connection.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _train(task: Task, orders: FaultPlan) -> None:
    _redirect(task.folder / "said")
    os.environ[FAULTS_ENV_VAR] = orders.json_text
    status = 1
    try:
        status = 0 if train_simulated(task, StopFlag().install_handlers()) else EXIT_PREEMPTED
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def _redirect(path: Path) -> None:
    with path.open("a") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
