"""Run a hyperparameter search, and read its result."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nnlo_lib.api.experiment import load_experiment
from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.search_run import run_search
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.search.results.best import best_trial_summary
from nnlo_lib.search.study.storage import load_study, search_folder

if TYPE_CHECKING:
    import pandas as pd


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
