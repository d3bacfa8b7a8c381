"""All that looks at a training while it goes on, as `observe` wishes; without wishes nothing is there."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from nnlo_lib.train.observe.monitor import Monitor
from nnlo_lib.train.observe.profile import Profiler
from nnlo_lib.train.observe.tensorboard import TensorBoard
from nnlo_lib.train.observe.tracing import trace_steps
from nnlo_lib.train.training import Training


def observers(training: Training) -> ExitStack:
    """Attach what this rank wishes for; closing it leaves all that was seen on disk."""
    closing, comm, task = ExitStack(), training.comm, training.task
    wish, first = task.run.observe, comm.rank == 0
    closing.callback(training.stopwatch.trace.close)
    if wish.trace:
        trace_steps(training)
    if wish.profile and wish.profile.rank == comm.rank:
        closing.callback(Profiler(training, wish.profile).close)
    if wish.tensorboard and first:
        closing.callback(_draw(training).close)
    if wish.monitor and (first or task.run.parallel.transport == "mpi"):  # simulated ranks are one process
        monitor = Monitor(task.observed, comm.rank, str(training.device), wish.monitor)
        monitor.start()
        closing.callback(monitor.stop)
    return closing


def _draw(training: Training) -> TensorBoard:
    board, books = TensorBoard(training.task.folder / "tensorboard"), training.books
    _afterwards(books, "rewind", lambda: board.rewrite(books.validated))
    _afterwards(books, "record", lambda: board.add(books.history.rows[-1]))
    _afterwards(books, "note", lambda: board.add(books.validations.rows[-1]))
    return board


def _afterwards(owner: object, name: str, then: Callable[[], None]) -> None:
    call = getattr(owner, name)

    @wraps(call)
    def both(*given: Any, **named: Any) -> None:
        call(*given, **named)
        then()

    setattr(owner, name, both)
