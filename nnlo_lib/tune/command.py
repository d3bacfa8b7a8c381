"""`nnlo search`: a whole search without Snakemake."""

from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import manifest_of
from nnlo_lib.launch.signals import Signals
from nnlo_lib.search.drive import drive
from nnlo_lib.search.proposers.build import proposer
from nnlo_lib.search.study import Study
from nnlo_lib.single import prepare
from nnlo_lib.state.lease import Lease
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.speech import say
from nnlo_lib.tune.local import Local
from nnlo_lib.tune.setting import folder_of, write_setting


def search(experiment: Experiment, launcher: str) -> int:
    """Search to the end; return 0, or 75 if it was asked to stop: the same command goes on. Raises UserError."""
    if experiment.search is None:
        raise UserError("the experiment has no `search:`; docs/search.md says what to write there")
    folder, signals = folder_of(experiment), Signals()
    lease = Lease(folder / "state")
    lease.acquire(False, lambda: bool(signals.first))
    try:
        return _search(experiment, folder, launcher, signals)
    finally:
        lease.release()


def _search(experiment: Experiment, folder: Path, launcher: str, signals: Signals) -> int:
    assert experiment.search is not None
    _prepare(experiment)
    write_setting(experiment)
    study = Study(
        folder, experiment.search, experiment.train.epochs, proposer(experiment.search), experiment.search.parallel
    )  # fmt: skip
    if not drive(study, Local(folder, launcher, signals)):
        say(f"{folder}: stopped; the same command goes on from there")
        return EXIT_PREEMPTED
    return 0


def _prepare(experiment: Experiment) -> None:
    manifest = Path(manifest_of(experiment))
    if not manifest.exists():
        prepare(experiment.data, manifest.parent)
