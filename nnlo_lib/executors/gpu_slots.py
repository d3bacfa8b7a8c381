"""Slots on the GPUs of a machine: simultaneous trainings reserve different GPUs, or wait for a free one."""

import hashlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nnlo_lib.batch import BatchJob
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import UntrustedPathError, open_for_append, private_folder, try_lock
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import GPU_SUBSET, visible_gpus
from nnlo_lib.launch.stop_request import SignalRecorder, SignalSource

logger = get_logger(__name__)

LOCK_POLL_INTERVAL_S = 0.1  # between two attempts to lock a slot


@contextmanager
def reserve_gpus(run: Run) -> Iterator[bool]:
    """Reserve GPUs for one training; wait until enough are free. Yield False if a stop signal arrives first.

    A training that needs at least as many GPUs as are visible reserves all of them: its ranks report a shortage themselves and may also
    run on other hosts. Raises UserError if the lock files cannot be created.
    """
    resources = RunResources(run)
    if not resources.gpus:
        yield True
        return
    shown = visible_gpus()
    wanted = min(resources.gpus, len(shown))
    with ExitStack() as stack:
        signals = SignalRecorder()
        try:
            taken = _wait(stack, _names(shown), wanted, resources.trainings_per_gpu, signals)
        finally:
            signals.restore()
        # A training on all visible GPUs is not restricted: its ranks may also run on hosts with other GPUs.
        if taken and taken != shown:
            before = {GPU_SUBSET: os.environ[GPU_SUBSET]} if GPU_SUBSET in os.environ else {}
            stack.callback(os.environ.update, before)
            stack.callback(os.environ.pop, GPU_SUBSET, None)
            os.environ[GPU_SUBSET] = ",".join(map(str, taken))
        yield taken is not None


def _wait(
    stack: ExitStack, names: Mapping[int, str], wanted: int, slots: int, signals: SignalSource
) -> list[int] | None:
    """Wait until `slots` of `wanted` GPUs can be locked in the stack; return the GPUs, or None after a stop signal.

    Only the process that holds the queue lock tries to reserve slots; the other processes wait for this lock.
    Otherwise, small trainings could overtake a large training for ever. `names`: machine-wide name of each visible GPU.
    """
    # One queue per set of visible GPUs; a hash, because a list of GPU UUIDs is too long for a file name.
    queue_lock, logged = hashlib.sha256("-".join(names.values()).encode()).hexdigest(), False
    with ExitStack() as turn:
        is_first = False
        while not signals.first:
            is_first = is_first or _lock(turn, queue_lock)
            if is_first and (taken := _take(stack, names, wanted, slots)) is not None:
                return taken
            if not logged:
                logger.info(
                    f"waiting for {wanted} of {len(names)} GPUs, which other trainings use; raise parallel.ranks_per_gpu to "
                    "share GPUs"
                )
                logged = True
            time.sleep(LOCK_POLL_INTERVAL_S)
    return None


def _take(stack: ExitStack, names: Mapping[int, str], wanted: int, slots: int) -> list[int] | None:
    """Lock one slot on each of `wanted` GPUs; return None and hold no lock if too few GPUs are free."""
    # The owners of a lock cannot be listed: a slot is free if it can be locked for a moment.
    with ExitStack() as tried:
        free = {gpu: [slot for slot in range(slots) if _lock(tried, f"{names[gpu]}.{slot}")] for gpu in names}
    taken = Counter({gpu: slots - len(left) for gpu, left in free.items()})
    chosen = choose_gpus(taken, list(names), wanted, slots)
    with ExitStack() as mine:
        # A process with other visible GPUs waits in another queue and may have locked a slot in between.
        if not all(_lock(mine, f"{names[gpu]}.{free[gpu][0]}") for gpu in chosen or ()):
            return None
        stack.push(mine.pop_all())
    return chosen


def _names(shown: Sequence[int]) -> dict[int, str]:
    """Return machine-wide names of the GPUs, because CUDA_VISIBLE_DEVICES renumbers them per process."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace("/", "_").replace(" ", "").split(",")
    return {gpu: words[gpu] if gpu < len(words) and words[gpu] else str(gpu) for gpu in shown}


def _lock(stack: ExitStack, name: str) -> bool:
    """Acquire a lock until the stack is closed or this process ends; return False if it is already held."""
    try:
        # Each batch job has its own locks, because it has its own GPUs.
        job = BatchJob.current()
        folder = private_folder(Path(tempfile.gettempdir())) / f"gpus{f'-{job.job_id}' if job else ''}"
        folder.mkdir(exist_ok=True)
        file = open_for_append(folder / name)
    except (OSError, UntrustedPathError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"cannot create locks of GPUs below {tempfile.gettempdir()}/: {cause}; set TMPDIR to a folder of this machine that is yours"
        ) from error
    if not try_lock(file, folder / name):
        file.close()
        return False
    stack.enter_context(file)
    return True


def choose_gpus(taken: Mapping[int, int], shown: Sequence[int], wanted: int, slots: int) -> list[int] | None:
    """Return `wanted` of the visible GPUs with a free slot of `slots`, least used GPUs first; None if there are too few."""
    free = sorted((gpu for gpu in shown if taken[gpu] < slots), key=lambda gpu: taken[gpu])
    return sorted(free[:wanted]) if len(free) >= wanted else None


def warn_if_gpus_are_few(experiment: Experiment) -> None:
    """Log a message if this machine has too few GPUs for `search.parallel` simultaneous trainings."""
    resources, search = RunResources(experiment), experiment.search
    if not resources.gpus or search is None:
        return
    shown = len(visible_gpus())
    fit = shown // resources.gpus * resources.trainings_per_gpu
    if 0 < fit < search.parallel:
        logger.info(
            f"{shown} GPUs are visible, enough for {fit} of {search.parallel} simultaneous trainings (search.parallel); "
            "the other trainings wait for a free GPU. Raise parallel.ranks_per_gpu to let trainings share a GPU"
        )
