"""Plan of a search for the rules of the workflow, and Snakemake's queue of its fold tasks.

The search decides on fold tasks when Snakemake requests files.
"""

import atexit
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache, cached_property, wraps
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from nnlo_lib.config import Experiment, JobSpec, Run
from nnlo_lib.config.paths import BEST_RUN, ExperimentPaths, SearchPaths
from nnlo_lib.core.atomic_file import atomic_write, load_json, write_settings
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.search.study.storage import (
    fold_task_run,
    format_point,
    freeze_or_verify_settings,
    load_study,
    may_start_again,
    search_files,
    search_folder,
    trial_run,
    verify_settings,
    write_config,
)
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import FoldTask, decisions_in_order, read_result, read_trial, read_trials
from nnlo_lib.state.lease import Lease
from nnlo_lib.train.freshness import search_status
from nnlo_lib.workflow.plan import SITE_RESOURCES, RuleResources, Wildcards, site_resources_of

JOB_MIN = 5  # of `tasks_per_job: auto`; the start of a job takes some seconds
SEARCHED_SITE_KEYS = ("parallel.gpus_per_rank", "resources.partition", "resources.account")
Predicate = Callable[[], bool]
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class SearchPlan:
    """Source of the parameters and resources of the search's rules."""

    experiment: Experiment
    has_ended: bool

    @classmethod
    def of(cls, experiment: Experiment, leads: bool) -> "SearchPlan":
        """Return the plan of a search; `leads` is True in Snakemake's main process and False in its jobs.

        Only the main process checks whether the search has ended. Raises UserError if a file of the search is
        damaged, or if the search was started with other settings.
        """
        folder = search_folder(experiment)
        if SearchPaths(folder).settings.exists():
            experiment = verify_settings(folder, experiment)
        may_have_ended = leads and SearchPaths(folder).ended.exists()
        return cls(
            experiment, may_have_ended and search_status(folder, experiment).kind in ("finished", "outdated")
        )

    @property
    def folder(self) -> Path:
        """Folder of the search."""
        return search_folder(self.experiment)

    @property
    def best(self) -> Path:
        """Folder of the run that retrains the best trial."""
        return self.folder.with_name(BEST_RUN)

    @property
    def lost_trials(self) -> list[str]:
        """Lines about trials that failed for a reason other than their point."""
        from nnlo_lib.report.page import lost_trials  # imports pandas

        return lost_trials(load_study(self.folder)) if SearchPaths(self.folder).config.exists() else []

    @property
    def end_conditions(self) -> str:
        """Settings that determine when the search ends, as JSON; the user may change them later."""
        assert self.experiment.search is not None
        return self.experiment.search.model_dump_json(
            include={"trials", "parallel", "budget", "objective", "choose"}
        )

    @property
    def trial_resources(self) -> RuleResources:
        """Resources of the jobs that train fold tasks."""
        paths = SearchPaths(self.folder)
        return RuleResources(
            lambda wildcards: self._trial_run(int(wildcards.trial)),
            lambda w: [paths.fold(each.trial, each.fold).state.folder for each in self.job_tasks(w)],
            self._site_resources,
        )

    @property
    def job_resources(self) -> dict[str, Any]:
        """Resources of a job, with the time limits of all its fold tasks; `auto`: of one, and the expected time of the others."""

        def runtime(wildcards: Wildcards) -> int:
            one, search = self._trial_run(int(wildcards.trial)).resources.runtime, self.experiment.search
            others = one * (len(self.job_tasks(wildcards)) - 1)
            return one + (min(others, JOB_MIN) if search and search.tasks_per_job == "auto" else others)

        return {**self.trial_resources.resources, "runtime": runtime}

    @property
    def retraining_resources(self) -> RuleResources:
        """Resources of the jobs that retrain the best trial, once it is known."""
        paths = ExperimentPaths(self.experiment.name)
        return RuleResources(
            self._best_run,
            lambda wildcards: [paths.job(JobSpec(run=BEST_RUN, seed=int(wildcards.seed))).state.folder],
            self._site_resources,
        )

    @property
    def _site_resources(self) -> tuple[str, ...]:
        """Names of the site resources that the experiment or a trial may set; the profile sets the others."""
        space = self.experiment.search.space if self.experiment.search else {}
        searched = any(key in space for key in SEARCHED_SITE_KEYS)
        return SITE_RESOURCES if searched else site_resources_of([self.experiment])

    @cached_property
    def input_files(self) -> list[str]:
        """User's files that any trial may use."""
        return search_files(self.experiment)

    def job_tasks(self, wildcards: Wildcards) -> list[FoldTask]:
        """Return the fold tasks of a job; the last one has its output."""
        last = FoldTask(int(wildcards.trial), int(wildcards.fold), int(wildcards.epochs))
        return recorded_jobs(self.folder, [last]).get(last, [last])

    def point(self, trial: str) -> str:
        """Return the point of a trial as readable text."""
        return format_point(read_trial(self.folder, int(trial)).point)

    def update_best(self) -> None:
        """Bring the resources and seeds of the best run up to date if the search has ended and its best is known."""
        if self.has_ended and self._best_config.exists():
            write_config(self.experiment)
            self.write_best()

    def write_best(self) -> None:
        """Write best.yaml and best/config.json. Raises UserError if no trial has a result."""
        from nnlo_lib.search.best import best_run, write_best_file

        write_best_file(self.folder)
        run = best_run(self.folder).model_dump(mode="json")
        settings = {"experiment": self.experiment.name, "name": BEST_RUN, "folds": 1, "run": run}
        write_settings(self._best_config, json.dumps(settings, indent=1))

    @property
    def _best_config(self) -> Path:
        return ExperimentPaths(self.experiment.name).run_config(BEST_RUN)

    @cached_property
    def _trial_run(self) -> Callable[[int], Run]:
        # Snakemake evaluates each resource of a job by a call of its own; the trial is read only once.
        @cache
        def run_of(trial: int) -> Run:
            try:
                return trial_run(self.experiment, read_trial(self.folder, trial).point)
            except UserError:
                return self.experiment  # the fold task reports that the point is invalid

        return run_of

    def _best_run(self, _: Wildcards) -> Run:
        # A str, because Snakemake compares the file name in the error with its own.
        with open(str(self._best_config)) as file:
            return Run.model_validate(json.load(file)["run"])


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
        self._fold_tasks: dict[FoldTask, str] = {}  # the last one of each job
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
        """Make all decisions that are possible now; return the last fold task of each job to run."""
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
        if self._ended:
            study.drop_checkpoints()
        return self._share_jobs([decision.task for decision in study.unfinished[: study.parallel]])

    def _share_jobs(self, unfinished: Sequence[FoldTask]) -> list[FoldTask]:
        """Put fold tasks without a job into jobs, with others of equal resources; return the last fold task of each job.

        A fold task waits until its job is full, unless few fold tasks are being trained, or no more are decided for now.
        """
        study, search = self._study, self._experiment.search
        assert search is not None
        jobs = recorded_jobs(self._folder, unfinished)
        in_jobs = {task for tasks in jobs.values() for task in tasks}
        waiting = [task for task in unfinished if task not in in_jobs]
        if search.tasks_per_job == 1:
            return [*jobs, *waiting]
        done = [result.seconds for result in study.results.values() if result.status == "finished"]
        # At least two jobs at a time: the results of one are known when another one starts.
        auto = min(int(60 * JOB_MIN / (median(done) + 1)), study.parallel // 2) if done else 1
        number = search.tasks_per_job if isinstance(search.tasks_per_job, int) else auto
        size = max(1, min(number, study.parallel))
        few = 2 * len(in_jobs.intersection(unfinished)) < size
        starts = few or (search.order == "as_finished" and len(study.unfinished) < study.parallel)
        alike = defaultdict[str, list[FoldTask]](list)
        for task in waiting:
            run = fold_task_run(self._experiment, self._folder, task)
            alike[f"{run.resources} {run.parallel}"].append(task)
        for tasks in alike.values():
            for job in (tasks[start : start + size] for start in range(0, len(tasks), size)):
                if starts or len(job) == size:
                    jobs[job[-1]] = job
                    # On disk before the job starts: the next Snakemake takes over a job that does the same.
                    with atomic_write(SearchPaths(self._folder).job_tasks(*astuple(job[-1]))) as part:
                        part.write_text(json.dumps([*map(astuple, job)]))
        return list(jobs)

    def _begun_before(self) -> list[FoldTask]:
        if SearchPaths(self._folder).settings.exists() and may_start_again(self._folder, self._experiment):
            return []  # These trials are archived when Snakemake runs jobs.
        decisions = decisions_in_order(read_trials(self._folder))
        assert self._experiment.search is not None
        unfinished = [d.task for d in decisions if read_result(self._folder, d.task) is None]
        jobs = recorded_jobs(self._folder, unfinished)
        in_jobs = {task for tasks in jobs.values() for task in tasks}
        # The first decisions of the next start put these into jobs, if they share jobs.
        shown = self._pretending() or self._experiment.search.tasks_per_job == 1
        begun = unfinished[: self._experiment.search.parallel]
        return [task for task in begun if task in jobs or (shown and task not in in_jobs)]

    @cached_property
    def _study(self) -> Study:
        """The search, leased until this process ends. Raises UserError if another process holds the lease."""
        self._lease.acquire(False, lambda: False)
        atexit.register(self._lease.release)
        experiment = freeze_or_verify_settings(self._folder, self._experiment)
        write_config(experiment)
        return Study.of(self._folder, experiment)


def recorded_jobs(folder: Path, tasks: Sequence[FoldTask]) -> dict[FoldTask, list[FoldTask]]:
    """Return the fold tasks of each recorded job whose last one is one of `tasks`, by this one."""
    found = {}
    for task in tasks:
        path = SearchPaths(folder).job_tasks(*astuple(task))
        try:
            found[task] = [FoldTask(*each) for each in load_json(path.read_text())]
        except FileNotFoundError:
            continue
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path} is damaged ({error}); delete the file: its fold tasks are put into jobs again"
            ) from error
    return found
