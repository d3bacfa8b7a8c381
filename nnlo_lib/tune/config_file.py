"""The experiment of a search, beside its trials, for those that train them: config.json."""

import json
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.data.atomic import replacing

NAME = "config.json"


def folder_of(experiment: Experiment) -> Path:
    """Return the folder of an experiment's search."""
    return Path("results", experiment.name, "search")


def write_config(experiment: Experiment) -> None:
    """Write the resolved experiment, in one move."""
    with replacing(folder_of(experiment) / NAME) as part:
        part.write_text(json.dumps(experiment.model_dump(mode="json", exclude=experiment.filled), indent=1))


def read_config(folder: Path) -> Experiment:
    """Return the experiment of the search in a folder."""
    return Experiment.model_validate(json.loads((folder / NAME).read_text()))
