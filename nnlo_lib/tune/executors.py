"""Who trains the leaves of a search, by name."""

from collections.abc import Callable
from pathlib import Path

from nnlo_lib.launch.signals import Signals
from nnlo_lib.search.drive import Executor

Make = Callable[[Path, str, Signals], Executor]


def _local(folder: Path, launcher: str, signals: Signals) -> Executor:
    from nnlo_lib.tune.config_file import read_config
    from nnlo_lib.tune.local import Local
    from nnlo_lib.tune.seats import tell_who_waits

    tell_who_waits(read_config(folder))
    return Local(folder, launcher, signals)


def _submitit(folder: Path, launcher: str, signals: Signals) -> Executor:
    from nnlo_lib.tune.submit import Submitit

    return Submitit(folder, launcher, signals)


EXECUTORS: dict[str, Make] = {"local": _local, "submitit": _submitit}
