"""What is on disk of a search, read at once: the experiment, and all that is known of its trials."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nnlo_lib.config import Experiment, Search
from nnlo_lib.errors import UserError
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.row import Row, row
from nnlo_lib.search.trial import Leaf, Trial, read_result, read_trials


@dataclass(frozen=True)
class Record:
    """A search in its folder, as it is now."""

    folder: Path
    experiment: Experiment
    known: Knowledge

    @property
    def search(self) -> Search:
        """Return what was searched."""
        return self.known.search

    def again(self) -> "Record":
        """Read what has come since."""
        results = dict(self.known.results)
        trials = read_trials(self.folder)
        for leaf in _leaves(trials):
            if leaf not in results and (result := read_result(self.folder, leaf)):
                results[leaf] = result
        return replace(self, known=replace(self.known, trials=trials, results=results))

    @property
    def rows(self) -> list[Row]:
        """Return a row for each trial."""
        return [row(self.known, trial.number) for trial in self.known.trials]


def read_record(folder: Path) -> Record:
    """Read the folder of a search. Raises UserError if there is none."""
    try:
        experiment = Experiment.model_validate(json.loads((folder / "config.json").read_text()))
    except FileNotFoundError as error:
        raise UserError(f"{folder} holds no search: it has no config.json") from error
    except ValueError as error:
        raise UserError(f"{folder}/config.json is not this version's: {error}") from error
    if experiment.search is None:
        raise UserError(f"{folder}/config.json has no `search`")
    record = Record(folder, experiment, Knowledge(experiment.search, experiment.train.epochs, (), {}))
    return record.again()


def _leaves(trials: Iterable[Trial]) -> Iterator[Leaf]:
    return (decision.leaf for trial in trials for decision in trial.decisions)
