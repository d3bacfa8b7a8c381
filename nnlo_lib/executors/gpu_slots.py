"""Seats on the GPUs of a machine: trainings at the same time take different GPUs, or wait for one."""

import fcntl
import hashlib
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.resources import RunResources
from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.launch.signals import LAUNCHER_STOP_SIGNALS, SignalRecorder, SignalSource

logger = get_logger(__name__)

LOCK_POLL_INTERVAL_S = 0.1  # seconds between two looks


def warn_if_gpus_are_few(experiment: Experiment) -> None:
    """Tell a person if the GPUs of this machine are too few for all trainings at a time."""
    resources, search = RunResources(experiment), experiment.search
    if not resources.gpus or search is None:
        return
    from nnlo_lib.train.replica.device import visible_gpus

    shown = len(visible_gpus())
    fit = shown // resources.gpus * resources.trainings_per_gpu
    if 0 < fit < search.parallel:
        logger.info(
            f"{shown} GPUs are visible, enough for {fit} of {search.parallel} trainings at a time (search.parallel): "
            "the others wait; parallel.ranks_per_gpu lets several share one"
        )


def choose_gpus(taken: Mapping[int, int], shown: Sequence[int], wanted: int, seats: int) -> list[int] | None:
    """Return so many GPUs that have a seat left, the emptiest first taken; None if there are too few."""
    free = sorted((gpu for gpu in shown if taken[gpu] < seats), key=lambda gpu: taken[gpu])
    return sorted(free[:wanted]) if len(free) >= wanted else None


@contextmanager
def reserve_gpus(run: Run) -> Iterator[bool]:
    """Leave a training that this process starts GPUs that no other has; wait until there are. Yield False if signalled.

    Who wants as many as are visible, or more, takes all; its ranks say what they miss, or are on other hosts, too.
    Raises UserError if there is no place for locks.
    """
    resources = RunResources(run)
    if not resources.gpus:
        yield True
        return
    from nnlo_lib.train.replica.device import GPU_SUBSET, visible_gpus

    shown = visible_gpus()
    wanted = min(resources.gpus, len(shown))
    with ExitStack() as stack:
        with _recorded_signals() as signals:
            taken = _wait(stack, _names(shown), wanted, resources.trainings_per_gpu, signals)
        if taken and taken != shown:
            stack.enter_context(_variable(GPU_SUBSET, ",".join(map(str, taken))))
        yield taken is not None


def _wait(
    stack: ExitStack, names: Mapping[int, str], wanted: int, seats: int, signals: SignalSource
) -> list[int] | None:
    """Take seats, all at once; one process at a time waits for them, so that no large training waits for ever."""
    line, told = hashlib.sha256("-".join(names.values()).encode()).hexdigest(), False
    with ExitStack() as turn:
        is_first = False
        while not signals.first:
            is_first = is_first or _lock(turn, line)
            if is_first and (taken := _take(stack, names, wanted, seats)) is not None:
                return taken
            told = told or _tell(wanted, len(names))
            time.sleep(LOCK_POLL_INTERVAL_S)
    return None


def _tell(wanted: int, shown: int) -> bool:
    logger.info(
        f"waiting for {wanted} of {shown} GPUs, on which others train; parallel.ranks_per_gpu lets more share one"
    )
    return True


def _take(stack: ExitStack, names: Mapping[int, str], wanted: int, seats: int) -> list[int] | None:
    """Hold a seat on each of so many GPUs, or none."""
    with ExitStack() as tried:
        free = {gpu: [seat for seat in range(seats) if _lock(tried, f"{names[gpu]}.{seat}")] for gpu in names}
    taken = Counter({gpu: seats - len(left) for gpu, left in free.items()})
    chosen = choose_gpus(taken, list(names), wanted, seats)
    with ExitStack() as mine:
        if not all(_lock(mine, f"{names[gpu]}.{free[gpu][0]}") for gpu in chosen or ()):
            return None
        stack.push(mine.pop_all())
    return chosen


def _names(shown: Sequence[int]) -> dict[int, str]:
    """Name GPUs as all processes of this machine do, for CUDA_VISIBLE_DEVICES numbers them anew."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace("/", "_").replace(" ", "").split(",")
    return {gpu: words[gpu] if gpu < len(words) and words[gpu] else str(gpu) for gpu in shown}


def _lock(stack: ExitStack, name: str) -> bool:
    """Hold a lock as long as the stack, or this process, lives, if nobody does."""
    path = _folder() / name
    try:
        path.parent.mkdir(exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; set TMPDIR to a folder of this machine") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    stack.enter_context(file)
    return True


def _folder() -> Path:
    """Return the folder of locks: a job of a scheduler has its own, as it has GPUs of its own."""
    job = BatchJob.current()
    return Path(tempfile.gettempdir(), f"nnlo-gpus-{os.getuid()}{f'-{job.job_id}' if job else ''}")


@contextmanager
def _recorded_signals() -> Iterator[SignalRecorder]:
    """Remember signals for as long as somebody looks; later ones do what they did before."""
    before = {number: signal.getsignal(number) for number in LAUNCHER_STOP_SIGNALS}
    try:
        yield SignalRecorder()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        os.environ.update({} if before is None else {name: before})
