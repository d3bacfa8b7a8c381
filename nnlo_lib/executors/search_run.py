"""A whole search with one driver process, without Snakemake: decide, train, report."""

import os
import sys

from nnlo_lib.config import Experiment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import SearchPaths, store_of
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import refuse_unwritable
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.gpu_slots import warn_if_gpus_are_few
from nnlo_lib.executors.local import LocalExecutor
from nnlo_lib.executors.progress import ProgressLogger, interrupted_fold_tasks
from nnlo_lib.launch.attempt import notify
from nnlo_lib.launch.fork_server import can_fork, start_fork_server
from nnlo_lib.launch.stop_request import SignalRecorder
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.report.page import print_outcome, report_outcome
from nnlo_lib.search.cost_estimate import local_parallel
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.space.space import base_point, first_points
from nnlo_lib.search.space.validate import search_warnings
from nnlo_lib.search.study.storage import (
    freeze_or_verify_settings,
    search_folder,
    verify_settings,
    write_config,
)
from nnlo_lib.search.study.study import Executor, Study, replay, run_study
from nnlo_lib.search.study.trial import decisions_in_order, read_trials
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED
from nnlo_lib.state.lease import Lease
from nnlo_lib.train.freshness import search_status
from nnlo_lib.train.task import prepare_store

logger = get_logger(__name__)

NO_SEARCH = "the experiment has no `search:` section; add one as described in docs/guides/search.md"


def run_search(
    experiment: Experiment, launcher: str, executor: str = "local", ranks: int | None = None
) -> int:
    """Run a search to its end, unless it has ended with these settings; return 0, or 75 if it was asked to stop (the same command resumes it).

    Return 1 if trials were lost, or if the coordinator of the executor `mpi`, which uses `ranks` ranks, failed. Raises UserError if
    the experiment has no search, or if the search cannot continue.
    """
    if experiment.search is None:
        raise UserError(NO_SEARCH)
    if executor == "submitit":
        from nnlo_lib.executors.submitit.slurm import refuse_without_slurm

        refuse_without_slurm()
    folder, store = search_folder(experiment), store_of(experiment, leads=True)
    has_started = SearchPaths(folder).settings.exists()
    if has_started and search_status(folder, verify_settings(folder, experiment)).kind == "finished":
        logger.info(
            f"already finished: {folder}; to continue the search, raise search.trials; to search again, delete this "
            "folder or use another `name:`"
        )
        return print_outcome(folder)
    refuse_unwritable(folder)
    for warning in search_warnings(experiment):
        logger.warning(warning)
    if not has_started and base_point(experiment) is None:
        logger.info(
            f"the settings of {experiment.name} are not the first trial, because search.space does not contain them: a searched key is not "
            "written, as an argument of model.args, or has a value outside of its space"
        )
    if executor == "local":
        warn_if_gpus_are_few(experiment)
    signals = SignalRecorder()
    lease = Lease(SearchPaths(folder).state.folder)
    lease.acquire(False, lambda: bool(signals.first))
    try:
        most = experiment.search.parallel
        experiment = freeze_or_verify_settings(folder, experiment)
        if not store.manifest.exists():
            prepare_store(store)
            # Again, because shapes and numbers of samples may be unknown before the conversion.
            check_experiment(experiment)
        # Executors and their processes read this file, so it must exist before they are built.
        write_config(experiment)
        if executor == "mpi":
            from nnlo_lib.executors.mpi_pool.pool_launcher import allocation_size, search_in_pool

            count = allocation_size(experiment, ranks)
            status = search_in_pool(experiment, folder, launcher, count, signals, lease.lost)
        else:
            trains: Executor
            parallel = None
            if executor == "submitit":
                from nnlo_lib.executors.submitit.executor import SubmititExecutor

                trains = SubmititExecutor(folder, launcher, signals)
            else:
                python = str(start_fork_server() / "python") if can_fork(experiment) else sys.executable
                trains = LocalExecutor(folder, launcher, signals, python)
                parallel = local_parallel(experiment)
                if parallel < most:
                    logger.info(
                        f"search.parallel: {parallel} in place of {most}, because a training has "
                        f"{RunResources(experiment).cores} ranks and threads and this machine {len(os.sched_getaffinity(0))} cores; a number "
                        "in the experiment file is kept"
                    )
            study = Study.of(folder, experiment, parallel)
            progress = ProgressLogger(trains, study)
            done = run_study(study, progress, lease.lost)
            progress.log()
            status = 0 if done else EXIT_PREEMPTED
        if status == EXIT_PREEMPTED:
            # Jobs in Slurm continue; their executor names them.
            lost = "" if executor == "submitit" else interrupted_fold_tasks(folder)
            logger.info(f"{folder}: stopped; {lost}run the same command again to resume")
        elif not status:
            status = report_outcome(folder)
        event = {0: "finished", EXIT_PREEMPTED: "preempted"}.get(status, "failed")
        notify(experiment.observe.notify, event, f"search {experiment.name}: {event}", folder)
        return status
    finally:
        lease.release()


def replay_search(experiment: Experiment) -> int:
    """Recompute each decision of a search; print the decisions that differ, and return 1 if there are any."""
    if experiment.search is None:
        raise UserError(NO_SEARCH)
    folder = search_folder(experiment)
    if not SearchPaths(folder).settings.exists():
        raise UserError(f"{folder}: no search was started; start it with `nnlo search` without --replay")
    settings = verify_settings(folder, experiment).search
    assert settings is not None
    differences = replay(
        folder, settings, experiment.train.epochs, build_sampler(settings), first_points(experiment)
    )
    count = len(decisions_in_order(read_trials(folder)))
    print("\n".join(differences) if differences else f"{folder}: all {count} decisions are reproduced")
    return int(bool(differences))
