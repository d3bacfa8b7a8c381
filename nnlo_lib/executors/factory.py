"""Executors of fold tasks, by name."""

from collections.abc import Callable
from pathlib import Path

from nnlo_lib.launch.signals import SignalRecorder
from nnlo_lib.search.study.loop import Executor

Make = Callable[[Path, str, SignalRecorder], Executor]


def _local(folder: Path, launcher: str, signals: SignalRecorder) -> Executor:
    from nnlo_lib.executors.gpu_slots import warn_if_gpus_are_few
    from nnlo_lib.executors.local import LocalExecutor
    from nnlo_lib.search.study.storage import read_config

    warn_if_gpus_are_few(read_config(folder))
    return LocalExecutor(folder, launcher, signals)


def _submitit(folder: Path, launcher: str, signals: SignalRecorder) -> Executor:
    from nnlo_lib.executors.submitit.executor import SubmititExecutor

    return SubmititExecutor(folder, launcher, signals)


EXECUTORS: dict[str, Make] = {"local": _local, "submitit": _submitit}
