"""What Snakemake takes for a queue of files: the leaves of a search, each decided on when Snakemake asks."""

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
    """End Snakemake, and the jobs it runs here, with the sentence of a UserError instead of a stack of calls."""

    @wraps(answer)
    def answered(*asked: Any) -> Answer:
        try:
            return answer(*asked)
        except UserError as error:
            get_logger(__name__).error(error)
            raise SystemExit(EXIT_USER_ERROR) from error

    return answered


class TrialQueue:
    """Feed an input of `from_queue` in the process that runs the DAG.

    executing: whether jobs are run by now; pretending: whether none will be. There is neither thread nor polling:
    Snakemake asks again when a job has ended, as `finished` is false then.
    """

    last_checked: float | None = None  # of Snakemake's QueueInfo

    def __init__(self, experiment: Experiment, folder: Path, executing: Asked, pretending: Asked) -> None:
        self._experiment, self._folder = experiment, folder
        self._executing, self._pretending = executing, pretending
        self._lease = Lease(SearchPaths(folder).state.folder)
        self._leaves: dict[FoldTask, str] = {}
        self._known = -1
        self._ended = False

    @property
    @_exit_on_user_error
    def finished(self) -> bool:
        """Whether it would be in vain to ask now: no result has come since, or nothing is left to decide."""
        if self._pretending() or not self._executing():
            return self._pretending()
        self._study.refresh()
        return self._ended or len(self._study.results) == self._known

    @_exit_on_user_error
    def consume(self, wildcards: Any) -> list[str]:
        """Return the files of all leaves that this process has begun, and of a last one when the search has ended."""
        decides = self._executing() and not self._pretending()
        for leaf in self._next() if decides else self._begun_before():
            self._leaves.setdefault(leaf, str(leaf.result_path(self._folder)))
        last = (
            [str(SearchPaths(self._folder).config)] if self._ended else []
        )  # Snakemake looks up only at a new file
        return [*self._leaves.values(), *last]

    def _next(self) -> list[FoldTask]:
        """Decide on all that can be decided now; return what is to be trained."""
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
        """The search, which nobody else drives until this process ends. Raises UserError if somebody does."""
        from nnlo_lib.search.samplers.factory import build_sampler

        self._lease.acquire(False, lambda: False)
        atexit.register(self._lease.release)
        experiment = freeze_or_verify_settings(self._folder, self._experiment)
        write_config(experiment)
        search = experiment.search
        assert search is not None
        return Study(self._folder, search, experiment.train.epochs, build_sampler(search), search.parallel)
