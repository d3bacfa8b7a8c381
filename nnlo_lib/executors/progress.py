"""Progress lines of a search, what its stop costs, and restarts of its fold tasks."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.batch.job_states import JobReport
from nnlo_lib.config.paths import RunPaths, SearchPaths
from nnlo_lib.core.errors import UserError, error_headline
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import duration_text, plural
from nnlo_lib.launch.attempt_recovery import all_attempts, newest_checkpoint, read_progress
from nnlo_lib.search.cost_estimate import time_left
from nnlo_lib.search.space.space import count_trials
from nnlo_lib.search.study.snapshot import StudySnapshot, mean_and_error
from nnlo_lib.search.study.storage import load_study
from nnlo_lib.search.study.study import Executor, Study, next_fold
from nnlo_lib.search.study.trial import FoldTask, decisions_in_order
from nnlo_lib.search.study.trial_summary import summarize_trial, with_error
from nnlo_lib.state.attempt_outcome import UNKNOWN_END, Action, EndReport, count_without_record, decide
from nnlo_lib.state.attempts import Attempt

logger = get_logger(__name__)

MAX_REASON_LENGTH = 240  # characters; three lines of a terminal
MAX_NAMED_TASKS = 8  # in the sentence on a stopped search


class ProgressLogger:
    """Executor that wraps another executor and logs each trial that has ended, after each wait."""

    def __init__(self, inner: Executor, study: Study) -> None:
        self._inner, self._study, self._begun = inner, study, time.monotonic()
        self._before = study.snapshot()
        # A resumed search does not log the trials that ended before.
        self._logged = set(finished_rungs(self._before))

    def start(self, fold_task: FoldTask) -> None:
        """Start the fold task with the inner executor."""
        self._inner.start(fold_task)

    def wait(self) -> bool:
        """Wait as the inner executor does, and log the trials that have ended."""
        continues = self._inner.wait()
        self.log()
        return continues

    def log(self) -> None:
        """Log the trials that have ended since the last call: the last one may end after the last wait."""
        self._study.refresh()
        known, seconds = self._study.snapshot(), time.monotonic() - self._begun
        finished = finished_rungs(known)
        if new := [rung for rung in finished if rung not in self._logged]:
            left = time_left(known, self._before, seconds)
            ending = f", about {duration_text(left)} left" if left else ""
            for rung in new:
                logger.info(f"{format_progress(known, *rung, seconds, finished)}{ending}")
            self._logged.update(new)


def finished_rungs(known: StudySnapshot) -> list[tuple[int, int]]:
    """Return (trial, epochs) of the rungs at which a trial has ended or waits for other trials' results."""
    return [
        (trial, epochs)
        for trial, facts in enumerate(known.facts)
        for epochs, mean in facts.means.items()
        if mean is not None
        and (not facts.may_continue or epochs < known.top(trial) or next_fold(known, trial) is None)
    ]


def format_progress(
    known: StudySnapshot, trial: int, epochs: int, seconds: float, finished: Sequence[tuple[int, int]]
) -> str:
    """Return the result of a trial at a rung, and the progress of the search after some seconds, as text."""
    value, objective = known.mean_value(trial, epochs), known.search.objective
    if value is None or math.isinf(value):
        summary = summarize_trial(known, trial)
        outcome = f" {summary.state}: {error_headline(summary.reason, MAX_REASON_LENGTH)}"
    else:
        rung = f" after epoch {epochs}" if epochs < known.epochs else ""
        folds, k = known.leading_fold_values(trial, epochs), known.search.folds.k
        mean = with_error(objective.sign * value, mean_and_error(folds)[1])
        adjusted = f" (adjusted, from {len(folds)} of {k} folds)" if len(folds) < k else ""
        outcome = f"{rung}  {objective.metric} {mean}{adjusted}"
    leader, best = "none yet", known.best_trial()
    if best is not None:
        leader = f"best {summarize_trial(known, best).objective:.5g}, trial {best}"
    done = f"{len(dict(finished))}/{max(count_trials(known.search), len(known.trials))}"
    return f"trial {trial}{outcome}  ({leader})  {done}, {duration_text(seconds)}"


def interrupted_fold_tasks(folder: Path) -> str:
    """Return the fold tasks of a stopped search without a result, and what they have to train again, as text; empty without any."""
    if not SearchPaths(folder).config.exists():
        return ""
    known, places, steps, epochs = load_study(folder).snapshot, list[str](), 0, 0
    for task in (each.task for each in decisions_in_order(known.trials) if each.task not in known.results):
        state = RunPaths(task.run_folder(folder)).state
        newest, (_, reached, saved) = newest_checkpoint(state), read_progress(state.folder)
        ended = len(state.history.read_text().splitlines()) if state.history.exists() else 0
        steps += max(0, reached - saved)
        epochs += max(0, ended - (newest.epoch if newest else 0))
        places.append(f"trial {task.trial} fold {task.fold} after epoch {ended} of {task.epochs}")
    if not places:
        return ""
    named = ", ".join(places[:MAX_NAMED_TASKS]) + " and others" * (len(places) > MAX_NAMED_TASKS)
    again = f"{plural(epochs, 'epoch')} and " * (epochs > 0) + plural(steps, "step")
    return f"{plural(len(places), 'fold task')} interrupted ({named}); trained since their last checkpoints, and lost: {again}; "


class RestartPolicy:
    """Counts the starts of fold tasks, and ends the search if another start would be useless.

    A fold task is restarted as long as its starts lead to attempts: the next start itself asks the retry policy, and
    writes the failure of a training that is given up as its result. The search fails if a start that leads to no
    attempt, or a cancellation, must not be repeated.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended_starts: Counter[FoldTask] = Counter()
        self._failed_starts: Counter[FoldTask] = Counter()
        self._attempts_before: dict[FoldTask, int] = {}

    def record_start(self, fold_task: FoldTask, is_running: bool = False) -> int:
        """Return the number of this start, from 1; `is_running`: a job of an earlier driver is still running.

        A start that leads to no job, because the queue refuses it, is recorded again.
        """
        self._attempts_before[fold_task] = len(self.attempts(fold_task, ended=not is_running))
        return self._ended_starts[fold_task] + 1

    def attempts(self, fold_task: FoldTask, ended: bool = True) -> list[Attempt]:
        """Return the attempts at the fold of a task.

        `ended`: no attempt is running; an attempt that left a lease but no record is then included.
        """
        # The number of ranks (0) is not used: only the number and the reasons of attempts matter here.
        return all_attempts(RunPaths(fold_task.run_folder(self._folder)).state.folder, 0, ended)

    def record_exit(
        self, fold_task: FoldTask, log: Path, job: JobReport = UNKNOWN_END, command_status: int | None = None
    ) -> None:
        """Record that a start ended without a result. Raises UserError if another start would be useless."""
        self._ended_starts[fold_task] += 1
        made = self.attempts(fold_task)[self._attempts_before[fold_task] :]
        failed = count_without_record(self._failed_starts[fold_task], bool(made), job)
        self._failed_starts[fold_task] = failed
        decision = decide(made, EndReport(job, command_status, tries_without_record=failed))
        if decision.action is Action.GIVE_UP and decision.reason in (None, "canceled"):
            # Without the prefix of an error message.
            lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            last = lines[-1].removeprefix("nnlo: error: ") if lines else "the log is empty or missing"
            raise UserError(
                f"trial {fold_task.trial}, fold {fold_task.fold} cannot be trained: {decision.why} ({last}; see {log})"
            )
