"""The training that a point stands for."""

from pathlib import Path

from pydantic import ValidationError

from nnlo_lib.config import Experiment, Run, merge
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import manifest_of
from nnlo_lib.search.nested import nested
from nnlo_lib.search.trial import Leaf, Point, read_trial
from nnlo_lib.train.task import Task


def trial_run(experiment: Experiment, point: Point) -> Run:
    """Return the base run changed by a point. Raises UserError if they do not go together."""
    base = experiment.settings
    try:
        return Run.model_validate(merge(base, nested(point)))
    except ValidationError as error:
        what = "; ".join(
            str(detail.get("ctx", {}).get("message", detail["msg"])) for detail in error.errors()
        )
        raise UserError(f"{what}: so search.space makes no training at {{{shown(point)}}}") from error


def leaf_run(experiment: Experiment, folder: Path, leaf: Leaf) -> Run:
    """Return the training of a leaf; of a point that makes none, as its job will find out, the base's."""
    try:
        return trial_run(experiment, read_trial(folder, leaf.trial).point)
    except UserError:
        return trial_run(experiment, {})


def shown(point: Point) -> str:
    """Write a point for a person."""
    return ", ".join(f"{key} = {value}" for key, value in point.items())


def task_of(experiment: Experiment, folder: Path, leaf: Leaf, point: Point) -> Task:
    """Return the training of a leaf; folder: of the search."""
    assert experiment.search is not None, "only a search has leaves"
    folds = experiment.search.folds.k
    run = trial_run(experiment, point)
    return Task(
        experiment.name, f"trial {leaf.trial}", run, experiment.seeds[0], leaf.fold if folds > 1 else None, folds,
        Path(manifest_of(run)), leaf.folder(folder), leaf.epochs,
    )  # fmt: skip
