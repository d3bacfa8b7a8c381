"""Snakemake's queue of a search's fold tasks, each decided on when Snakemake asks for files."""

import atexit
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.search.study.frozen_settings import freeze_or_verify_settings
from nnlo_lib.search.study.storage import write_config
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import FoldTask, decisions_in_order, read_result, read_trials
from nnlo_lib.state.lease import Lease

Asked = Callable[[], bool]
Answer = TypeVar("Answer")


def _exit_on_user_error(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """On a UserError, log its message and end Snakemake and its local jobs without a traceback."""

    @wraps(answer)
    def answered(*asked: Any) -> Answer:
        try:
            return answer(*asked)
        except UserError as error:
            get_logger(__name__).error(error)
            raise SystemExit(EXIT_USER_ERROR) from error

    return answered


class TrialQueue:
    """Queue of a `from_queue` input, in the process that runs the DAG.

    It uses neither a thread nor polling: Snakemake asks again when a job has ended, because `finished` is
    then False.

    Args:
        experiment: the experiment with the search.
        folder: the search's folder.
        executing: returns True as soon as jobs are run.
        pretending: returns True if no job will be run (dry run, touch).
    """

    last_checked: float | None = None  # attribute of Snakemake's QueueInfo

    def __init__(self, experiment: Experiment, folder: Path, executing: Asked, pretending: Asked) -> None:
        self._experiment, self._folder = experiment, folder
        self._executing, self._pretending = executing, pretending
        self._lease = Lease(SearchPaths(folder).state.folder)
        self._fold_tasks: dict[FoldTask, str] = {}
        self._known = -1
        self._ended = False

    @property
    @_exit_on_user_error
    def finished(self) -> bool:
        """True if asking now is useless: there is no new result, or nothing is left to decide."""
        if self._pretending() or not self._executing():
            return self._pretending()
        self._study.refresh()
        return self._ended or len(self._study.results) == self._known

    @_exit_on_user_error
    def consume(self, wildcards: Any) -> list[str]:
        """Return the result files of the fold tasks begun so far, and a last file if the search has ended."""
        decides = self._executing() and not self._pretending()
        for fold_task in self._next() if decides else self._begun_before():
            self._fold_tasks.setdefault(fold_task, str(fold_task.result_path(self._folder)))
        last = (
            [str(SearchPaths(self._folder).config)] if self._ended else []
        )  # Snakemake continues only if there is a new file
        return [*self._fold_tasks.values(), *last]

    def _next(self) -> list[FoldTask]:
        """Make all decisions that are possible now; return the fold tasks to train."""
        study = self._study
        if self._lease.lost.is_set():
            raise UserError(f"{self._folder}: another nnlo took the search over while this one was away")
        study.refresh()
        while study.decide():
            pass
        self._known, self._ended = len(study.results), not study.unfinished
        return [decision.task for decision in study.unfinished[: study.parallel]]

    def _begun_before(self) -> list[FoldTask]:
        decisions = decisions_in_order(read_trials(self._folder))
        assert self._experiment.search is not None
        unfinished = [d.task for d in decisions if read_result(self._folder, d.task) is None]
        return unfinished[: self._experiment.search.parallel]

    @cached_property
    def _study(self) -> Study:
        """The search, leased until this process ends. Raises UserError if another process holds the lease."""
        from nnlo_lib.search.samplers.factory import build_sampler

        self._lease.acquire(False, lambda: False)
        atexit.register(self._lease.release)
        experiment = freeze_or_verify_settings(self._folder, self._experiment)
        write_config(experiment)
        search = experiment.search
        assert search is not None
        return Study(self._folder, search, experiment.train.epochs, build_sampler(search), search.parallel)
