"""The run of a point: the experiment's base run with the values of the point."""

from pathlib import Path

from pydantic import ValidationError

from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space.space import nested
from nnlo_lib.search.study.trial import FoldTask, SearchPoint, read_trial


def trial_run(experiment: Experiment, point: SearchPoint) -> Run:
    """Return the base run changed by a point. Raises UserError if the result is not a valid run."""
    base = experiment.settings
    try:
        return Run.model_validate(merge_settings(base, nested(point)))
    except ValidationError as error:
        what = "; ".join(
            str(detail.get("ctx", {}).get("message", detail["msg"])) for detail in error.errors()
        )
        raise UserError(f"{what}: search.space gives no valid run at {{{format_point(point)}}}") from error


def fold_task_run(experiment: Experiment, folder: Path, fold_task: FoldTask) -> Run:
    """Return the run of a fold task, or the base run if its point gives no valid run (the job reports it).

    Args:
        experiment: experiment of the search.
        folder: folder of the search.
        fold_task: fold task.
    """
    try:
        return trial_run(experiment, read_trial(folder, fold_task.trial).point)
    except UserError:
        return trial_run(experiment, {})


def format_point(point: SearchPoint) -> str:
    """Return a point as one line of text."""
    return ", ".join(f"{key} = {value}" for key, value in point.items())
