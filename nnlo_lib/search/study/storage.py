"""A search as it is stored on disk: the experiment, its trials and their results."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import ExperimentPaths, SearchPaths
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import read_result, read_trials
from nnlo_lib.search.study.trial_summary import TrialSummary, summarize_trial


@dataclass(frozen=True)
class StoredStudy:
    """A search as read from its folder."""

    folder: Path
    experiment: Experiment
    snapshot: StudySnapshot

    @property
    def search(self) -> SearchConfig:
        """Return the settings of the search."""
        return self.snapshot.search

    def refreshed(self) -> "StoredStudy":
        """Return the study with the trials and results that were written after it was read."""
        # A result never changes, so each file is read only once.
        results = dict(self.snapshot.results)
        trials = read_trials(self.folder)
        for task in (decision.task for trial in trials for decision in trial.decisions):
            if task not in results and (result := read_result(self.folder, task)):
                results[task] = result
        return replace(self, snapshot=replace(self.snapshot, trials=trials, results=results))

    @property
    def trial_summaries(self) -> list[TrialSummary]:
        """Return a summary of each trial."""
        return [summarize_trial(self.snapshot, trial.number) for trial in self.snapshot.trials]


def load_study(folder: Path) -> StoredStudy:
    """Read the folder of a search. Raises UserError if it contains no valid search."""
    try:
        experiment = Experiment.model_validate(load_json(SearchPaths(folder).config.read_text()))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not the folder of a search: config.json is missing") from error
    except ValueError as error:
        raise UserError(f"{folder}/config.json is not valid for this version of nnlo_lib: {error}") from error
    if experiment.search is None:
        raise UserError(f"{folder}/config.json has no `search` section")
    record = StoredStudy(
        folder, experiment, StudySnapshot(experiment.search, experiment.train.epochs, (), {})
    )
    return record.refreshed()


def search_folder(experiment: Experiment) -> Path:
    """Return the folder of an experiment's search."""
    return ExperimentPaths(experiment.name).search.folder


def write_config(experiment: Experiment) -> None:
    """Write the resolved experiment atomically."""
    with atomic_write(ExperimentPaths(experiment.name).search.config) as part:
        part.write_text(config_text(experiment))


def config_text(experiment: Experiment) -> str:
    """Return the resolved experiment as JSON."""
    # Read back, defaults of the problem would count as settings of the user, in trials with another problem, too.
    return json.dumps(experiment.model_dump(mode="json", exclude=experiment.problem_default_keys), indent=1)


def read_config(folder: Path) -> Experiment:
    """Return the experiment of the search in a folder."""
    return Experiment.model_validate(load_json(SearchPaths(folder).config.read_text()))
