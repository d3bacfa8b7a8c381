"""Progress of a search: one log line for each trial that has ended."""

import math
import time

from nnlo_lib.core.error_headline import error_headline
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import duration_text
from nnlo_lib.search.space.space import count_trials
from nnlo_lib.search.study.folds import next_fold
from nnlo_lib.search.study.loop import Executor
from nnlo_lib.search.study.objective import mean_and_error
from nnlo_lib.search.study.plain_text import with_error
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.storage import StoredStudy
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.search.study.trial_summary import summarize_trial

logger = get_logger(__name__)

MAX_REASON_LENGTH = 240  # characters; three lines of a terminal


class ProgressLogger:
    """Executor that wraps another executor and logs each trial that has ended.

    Args:
        inner: executor that trains the fold tasks.
        record: study; it is read again from disk after each wait.
    """

    def __init__(self, inner: Executor, record: StoredStudy) -> None:
        self._inner, self._record, self._begun = inner, record, time.monotonic()
        # A resumed search does not log the trials that ended before.
        self._logged = set(finished_rungs(record.snapshot))

    def start(self, fold_task: FoldTask) -> None:
        """Start the fold task with the inner executor."""
        self._inner.start(fold_task)

    def wait(self) -> bool:
        """Wait as the inner executor does, and log the trials that have ended."""
        continues = self._inner.wait()
        self._record = self._record.refreshed()
        for rung in finished_rungs(self._record.snapshot):
            if rung not in self._logged:
                logger.info(format_progress(self._record.snapshot, *rung, time.monotonic() - self._begun))
                self._logged.add(rung)
        return continues


def finished_rungs(known: StudySnapshot) -> list[tuple[int, int]]:
    """Return (trial, epochs) of the rungs at which a trial has ended or waits for other trials' results."""
    return [
        (trial.number, epochs)
        for trial in known.trials
        for epochs in known.rungs(trial.number)
        if known.mean_value(trial.number, epochs) is not None
        and (epochs < known.rungs(trial.number)[-1] or next_fold(known, trial.number) is None)
    ]


def format_progress(known: StudySnapshot, trial: int, epochs: int, seconds: float) -> str:
    """Return the result of a trial at a rung, and the progress of the search, as text.

    Args:
        known: snapshot of the study.
        trial: number of the trial.
        epochs: epochs of the rung.
        seconds: seconds since the start of the search command.
    """
    best = known.best_trial()
    leader = (
        f"best {summarize_trial(known, best).objective:.5g}, trial {best}" if best is not None else "none yet"
    )
    done = len({number for number, _ in finished_rungs(known)})
    outcome = _outcome(known, trial, epochs)
    return (
        f"trial {trial}{outcome}  ({leader})  {done}/{count_trials(known.search)}, {duration_text(seconds)}"
    )


def _outcome(known: StudySnapshot, trial: int, epochs: int) -> str:
    value, objective = known.mean_value(trial, epochs), known.search.objective
    if value is None or math.isinf(value):
        summary = summarize_trial(known, trial)
        return f" {summary.state}: {error_headline(summary.reason, MAX_REASON_LENGTH)}"
    rung = f" after epoch {epochs}" if epochs < known.epochs else ""
    folds = known.leading_fold_values(trial, epochs)
    adjusted = (
        f" (adjusted, from {len(folds)} of {known.search.folds.k} folds)"
        if len(folds) < known.search.folds.k
        else ""
    )
    return (
        f"{rung}  {objective.metric} {with_error(objective.sign * value, mean_and_error(folds)[1])}{adjusted}"
    )
