"""What Snakemake takes for a queue of files: the leaves of a search, each decided on when Snakemake asks."""

import atexit
import sys
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

from nnlo_lib.config import Experiment
from nnlo_lib.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.search.settings import agree
from nnlo_lib.search.study import Study
from nnlo_lib.search.trial import Leaf, in_order, read_result, read_trials
from nnlo_lib.state.lease import Lease
from nnlo_lib.tune.config_file import NAME, write_config

Asked = Callable[[], bool]
Answer = TypeVar("Answer")


def _in_a_sentence(answer: Callable[..., Answer]) -> Callable[..., Answer]:
    """End Snakemake, and the jobs it runs here, with the sentence of a UserError instead of a stack of calls."""

    @wraps(answer)
    def answered(*asked: Any) -> Answer:
        try:
            return answer(*asked)
        except UserError as error:
            print(f"nnlo: error: {error}", file=sys.stderr)
            raise SystemExit(EXIT_USER_ERROR) from error

    return answered


class Agenda:
    """Feed an input of `from_queue` in the process that runs the DAG.

    executing: whether jobs are run by now; pretending: whether none will be. There is neither thread nor polling:
    Snakemake asks again when a job has ended, as `finished` is false then.
    """

    last_checked: float | None = None  # of Snakemake's QueueInfo

    def __init__(self, experiment: Experiment, folder: Path, executing: Asked, pretending: Asked) -> None:
        self._experiment, self._folder = experiment, folder
        self._executing, self._pretending = executing, pretending
        self._lease = Lease(folder / "state")
        self._leaves: dict[Leaf, str] = {}
        self._known = -1
        self._ended = False

    @property
    @_in_a_sentence
    def finished(self) -> bool:
        """Whether it would be in vain to ask now: no result has come since, or nothing is left to decide."""
        if self._pretending() or not self._executing():
            return self._pretending()
        self._study.refresh()
        return self._ended or len(self._study.results) == self._known

    @_in_a_sentence
    def consume(self, wildcards: Any) -> list[str]:
        """Return the files of all leaves that this process has begun, and of a last one when the search has ended."""
        decides = self._executing() and not self._pretending()
        for leaf in self._next() if decides else self._begun_before():
            self._leaves.setdefault(leaf, str(leaf.path(self._folder)))
        last = [str(self._folder / NAME)] if self._ended else []  # Snakemake looks up only at a new file
        return [*self._leaves.values(), *last]

    def _next(self) -> list[Leaf]:
        """Decide on all that can be decided now; return what is to be trained."""
        study = self._study
        if self._lease.lost.is_set():
            raise UserError(f"{self._folder}: another nnlo took the search over while this one was away")
        study.refresh()
        while study.decide():
            pass
        self._known, self._ended = len(study.results), not study.unfinished
        return [decision.leaf for decision in study.unfinished[: study.parallel]]

    def _begun_before(self) -> list[Leaf]:
        decisions = in_order(read_trials(self._folder))
        assert self._experiment.search is not None
        unfinished = [d.leaf for d in decisions if read_result(self._folder, d.leaf) is None]
        return unfinished[: self._experiment.search.parallel]

    @cached_property
    def _study(self) -> Study:
        """The search, which nobody else drives until this process ends. Raises UserError if somebody does."""
        from nnlo_lib.search.proposers.build import proposer

        self._lease.acquire(False, lambda: False)
        atexit.register(self._lease.release)
        experiment = agree(self._folder, self._experiment)
        write_config(experiment)
        search = experiment.search
        assert search is not None
        return Study(self._folder, search, experiment.train.epochs, proposer(search), search.parallel)
