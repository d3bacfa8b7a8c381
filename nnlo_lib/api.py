"""The functions that `import nnlo_lib` offers: load an experiment, train or simulate a run, search."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.search_run import run_search
from nnlo_lib.experiment import load
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.search.best import best_trial_summary
from nnlo_lib.search.study.storage import load_study, search_folder
from nnlo_lib.workflow.single_run import simulated, train_and_evaluate
from nnlo_lib.workflow.trained_run import TrainedRun

if TYPE_CHECKING:
    import pandas as pd


def load_experiment(
    source: str | Path | Mapping[str, Any] | Experiment, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """Return the checked experiment of a YAML file, of a mapping with the same keys, or of another experiment.

    Args:
        source: path of the file, the settings, or the experiment to change.
        changes: settings to override by dotted key, for example `{"train.epochs": 3}`, as by `--set`.

    Raises:
        UserError: lists every mistake with its key, and the line of the file.
    """
    overrides = [f"{key}={json.dumps(value)}" for key, value in (changes or {}).items()]
    if isinstance(source, Experiment):
        # Without defaults: a default that is written out would count as set by the user, for example in the
        # check of unused settings.
        source = source.model_dump(mode="json", exclude_unset=True)
    if isinstance(source, Mapping):
        return load.experiment_from_settings(source, overrides)
    return load.load_experiment(source, overrides)


def train(
    experiment: Experiment,
    run: str | None = None,
    seed: int | None = None,
    fold: int | None = None,
    launcher: str = "mpiexec",
) -> TrainedRun:
    """Train and evaluate one run, as `nnlo run` does, and return the result.

    An interrupted training resumes from its last checkpoint; a finished one is not repeated. Files are written
    below `data/` and `results/` of the working directory.

    Args:
        experiment: from `load_experiment`.
        run: name of the run; by default the first.
        seed: random seed; by default the first of the experiment.
        fold: fold that is held out; by default 0 if the experiment has folds.
        launcher: command that starts the MPI ranks, which takes `-n N`.

    Raises:
        UserError: if the experiment cannot run or has no run of this name, or if the training fails or is
            interrupted; the message gives the reason.
    """
    check_experiment(experiment)
    seed = experiment.seeds[0] if seed is None else seed
    task, outcome = train_and_evaluate(experiment, _chosen_run(experiment, run), seed, fold, launcher)
    if outcome.exit_status:
        raise UserError(outcome.error or f"{task.folder}: the training ended with reason {outcome.reason}")
    return TrainedRun(task.folder)


def simulate(experiment: Experiment, run: str | None = None, seed: int | None = None) -> TrainedRun:
    """Train one run on the virtual machine of `parallel.simulation`, and return the result.

    All ranks run in one process, and the seconds of the result are virtual. Files are written below
    `results/<experiment>-simulated/`.

    Args:
        experiment: from `load_experiment`.
        run: name of the run; by default the first.
        seed: random seed; by default the first of the experiment.

    Raises:
        UserError: if the experiment has no run of this name, or the training fails or is interrupted.
    """
    return train(simulated(experiment), run, seed)


def _chosen_run(experiment: Experiment, run: str | None) -> str:
    """Return `run`, or by default the name of the first run. Raises UserError if there is no such run."""
    names = list(experiment.variants)
    if run is not None and run not in names:
        raise UserError(f"run: {experiment.name} has no run {run!r}; choose one of: {', '.join(names)}")
    return run or names[0]


@dataclass(frozen=True)
class SearchResult:
    """The trials of a search in `folder`."""

    folder: Path

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """One row per trial: status, objective, cost and searched settings (trials.csv)."""
        import pandas as pd

        return pd.read_csv(SearchPaths(self.folder).table)

    @property
    def best_point(self) -> dict[str, Any]:
        """Searched settings of the best trial, by dotted key."""
        return dict(best_trial_summary(load_study(self.folder)).point)

    @property
    def best_experiment(self) -> Experiment:
        """The experiment that retrains the best trial (best.yaml)."""
        return load_experiment(SearchPaths(self.folder).best)


def search(
    experiment: Experiment,
    executor: Literal["local", "mpi", "submitit"] = "local",
    launcher: str = "mpiexec",
    ranks: int | None = None,
) -> SearchResult:
    """Run the search of an experiment to its end, as `nnlo search` does; an interrupted search resumes.

    Args:
        experiment: from `load_experiment`, with a section `search`.
        executor: `local` (processes on this machine), `mpi` (rank groups of one allocation) or `submitit`
            (Slurm jobs).
        launcher: command that starts MPI ranks.
        ranks: number of ranks of the allocation, for `mpi`.

    Raises:
        UserError: if the experiment has no `search`, or the search cannot continue or was stopped.
    """
    check_experiment(experiment)
    folder = search_folder(experiment)
    # 75: stopped on request; 1: the coordinator of the executor `mpi` failed.
    if status := run_search(experiment, launcher, executor, ranks):
        raise UserError(f"{folder}: the search ended with status {status}; call search again to resume it")
    return SearchResult(folder)
