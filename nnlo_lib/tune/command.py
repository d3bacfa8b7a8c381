"""`nnlo search`: a whole search without Snakemake."""

from pathlib import Path
from threading import Event

from nnlo_lib.config import Experiment
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import manifest_of
from nnlo_lib.launch.signals import Signals
from nnlo_lib.search.drive import Executor, drive
from nnlo_lib.search.proposers.build import proposer
from nnlo_lib.search.record import read_record
from nnlo_lib.search.replay import replay
from nnlo_lib.search.settings import NAME as SETTINGS
from nnlo_lib.search.settings import agree
from nnlo_lib.search.study import Study
from nnlo_lib.search.trial import in_order, read_trials
from nnlo_lib.single import prepare
from nnlo_lib.state.lease import Lease
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.speech import say
from nnlo_lib.tune.config_file import folder_of, write_config
from nnlo_lib.tune.ending import tell_outcome
from nnlo_lib.tune.executors import EXECUTORS
from nnlo_lib.tune.progress import Told


def search(experiment: Experiment, launcher: str, executor: str = "local", ranks: int | None = None) -> int:
    """Search to the end; return 0, or 75 if it was asked to stop: the same command goes on. Raises UserError.

    ranks: of the allocation of the executor `mpi`.
    """
    if experiment.search is None:
        raise UserError("the experiment has no `search:`; docs/search.md says what to write there")
    folder, signals = folder_of(experiment), Signals()
    lease = Lease(folder / "state")
    lease.acquire(False, lambda: bool(signals.first))
    try:
        experiment = agree(folder, experiment)
        _prepare(experiment)
        write_config(experiment)
        if executor == "mpi":
            status = _in_blocks(experiment, folder, launcher, ranks, signals, lease.lost)
        else:
            status = _search(experiment, folder, EXECUTORS[executor](folder, launcher, signals), lease.lost)
        return _told(folder, status)
    finally:
        lease.release()


def replay_search(experiment: Experiment) -> int:
    """Make each decision of a search again from what it knew; return 1 and say so if one comes out otherwise."""
    if experiment.search is None:
        raise UserError("the experiment has no `search:`; docs/search.md says what to write there")
    folder = folder_of(experiment)
    if not (folder / SETTINGS).exists():
        raise UserError(f"{folder}: no search has begun there")
    settings = agree(folder, experiment).search
    assert settings is not None
    found = replay(folder, settings, experiment.train.epochs, proposer(settings))
    count = len(in_order(read_trials(folder)))
    print("\n".join(found) if found else f"{folder}: all {count} decisions come out as they were")
    return int(bool(found))


def _search(experiment: Experiment, folder: Path, executor: Executor, lost: Event) -> int:
    assert experiment.search is not None
    study = Study(
        folder, experiment.search, experiment.train.epochs, proposer(experiment.search), experiment.search.parallel
    )  # fmt: skip
    done = drive(study, Told(executor, read_record(folder)), lost)
    return 0 if done else EXIT_PREEMPTED


def _in_blocks(
    experiment: Experiment, folder: Path, launcher: str, ranks: int | None, signals: Signals, lost: Event
) -> int:
    from nnlo_lib.tune.blocks.launcher import ranks_of, search_in_blocks

    count = ranks_of(experiment, ranks)
    return search_in_blocks(experiment, folder, launcher, count, signals, lost)


def _told(folder: Path, status: int) -> int:
    if status == EXIT_PREEMPTED:
        say(f"{folder}: stopped; the same command goes on from there")
    elif not status:
        tell_outcome(folder)
    return status


def _prepare(experiment: Experiment) -> None:
    manifest = Path(manifest_of(experiment))
    if not manifest.exists():
        prepare(experiment.data, manifest.parent)
