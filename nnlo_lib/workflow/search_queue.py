"""Snakemake's queue of a search's fold tasks; the search decides on them when Snakemake requests files."""

import atexit
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.search.study.frozen_settings import freeze_or_verify_settings, may_start_again
from nnlo_lib.search.study.storage import write_config
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import FoldTask, decisions_in_order, read_result, read_trials
from nnlo_lib.state.lease import Lease

Predicate = Callable[[], bool]
Returned = TypeVar("Returned")


def _exit_on_user_error(method: Callable[..., Returned]) -> Callable[..., Returned]:
    """Wrap a method: a UserError is logged and ends Snakemake and its local jobs without a traceback."""

    @wraps(method)
    def wrapper(*arguments: Any) -> Returned:
        try:
            return method(*arguments)
        except UserError as error:
            get_logger(__name__).error(error)
            raise SystemExit(EXIT_USER_ERROR) from error

    return wrapper


class TrialQueue:
    """Queue of a `from_queue` input, in the main process of Snakemake.

    It needs no thread and no polling: after the end of a job `finished` is False, so Snakemake calls `consume`
    again.

    Args:
        experiment: the experiment with the search.
        folder: the search's folder.
        executing: returns True once Snakemake runs jobs.
        pretending: returns True if Snakemake will run no jobs (dry run or touch).
    """

    last_checked: float | None = None  # attribute of Snakemake's QueueInfo

    def __init__(
        self, experiment: Experiment, folder: Path, executing: Predicate, pretending: Predicate
    ) -> None:
        self._experiment, self._folder = experiment, folder
        self._executing, self._pretending = executing, pretending
        self._lease = Lease(SearchPaths(folder).state.folder)
        self._fold_tasks: dict[FoldTask, str] = {}
        # No number of results equals this, so `consume` is called at least once.
        self._known = -1
        self._ended = False

    @property
    @_exit_on_user_error
    def finished(self) -> bool:
        """True if `consume` cannot return new files: no new result, the search has ended, or no jobs will run."""
        if self._pretending() or not self._executing():
            return self._pretending()
        self._study.refresh()
        return self._ended or len(self._study.results) == self._known

    @_exit_on_user_error
    def consume(self, wildcards: Any) -> list[str]:
        """Return the result files of the fold tasks decided so far, and a last file after the end of the search."""
        # While Snakemake builds its DAG or in a dry run, nothing may be decided or written.
        decides = self._executing() and not self._pretending()
        for fold_task in self._next() if decides else self._begun_before():
            self._fold_tasks.setdefault(fold_task, str(fold_task.result_path(self._folder)))
        # After the end of the search, Snakemake continues only if it receives a new file.
        last = [str(SearchPaths(self._folder).config)] if self._ended else []
        return [*self._fold_tasks.values(), *last]

    def _next(self) -> list[FoldTask]:
        """Make all decisions that are possible now; return the fold tasks to train."""
        study = self._study
        if self._lease.lost.is_set():
            raise UserError(
                f"{self._folder}: the lease of the search was lost to another nnlo process or could not be renewed; "
                "run the command again when no other process runs this search"
            )
        study.refresh()
        while study.decide():
            pass
        self._known, self._ended = len(study.results), not study.unfinished
        return [decision.task for decision in study.unfinished[: study.parallel]]

    def _begun_before(self) -> list[FoldTask]:
        if SearchPaths(self._folder).settings.exists() and may_start_again(self._folder, self._experiment):
            return []  # These trials are archived when Snakemake runs jobs.
        decisions = decisions_in_order(read_trials(self._folder))
        assert self._experiment.search is not None
        unfinished = [d.task for d in decisions if read_result(self._folder, d.task) is None]
        return unfinished[: self._experiment.search.parallel]

    @cached_property
    def _study(self) -> Study:
        """The search, leased until this process ends. Raises UserError if another process holds the lease."""
        self._lease.acquire(False, lambda: False)
        atexit.register(self._lease.release)
        experiment = freeze_or_verify_settings(self._folder, self._experiment)
        write_config(experiment)
        return Study.of(self._folder, experiment)
