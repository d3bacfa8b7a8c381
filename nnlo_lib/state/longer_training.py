"""Protection of the results of a training against an edit that lowers `train.epochs`."""

from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.edit_effects import EditEffect, keys_with
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun


def refuse_fewer_epochs(folder: Path, run: Run) -> None:
    """Raise UserError if a folder has results of the same run with more epochs than the run now has.

    With other settings too, the results are outdated anyway and are replaced.
    """
    finished = FinishedRun(folder)
    if not finished.paths.summary.exists():
        return
    try:
        epochs, recorded = finished.epochs, finished.config
    except UserError:
        return  # Damaged results need no protection.
    if epochs > run.train.epochs and _other_settings(recorded) == _other_settings(run):
        raise UserError(
            f"train.epochs: {folder} has the results of {epochs} epochs, which a training of {run.train.epochs} would "
            f"replace; set {epochs} or more, set another `name:`, or delete the folder"
        )


def _other_settings(run: Run) -> str:
    return run.with_defaults_for(*keys_with(EditEffect.RESUME)).result_settings
