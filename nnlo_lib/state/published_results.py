"""Comparison of the published results of a training with the present settings, data and code."""

from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.edit_effects import EditEffect, keys_with
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import manifest_fingerprint
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import changed_files, input_checksums

STEPS_KEY = "train.steps_per_epoch"


def is_complete(folder: Path, run: Run, manifest: Path) -> bool:
    """Return True if a folder has all outputs of a training with these settings, data and code.

    Args:
        folder: folder of the training.
        run: the run with its present settings.
        manifest: manifest of the run's data.
    """
    finished = FinishedRun(folder)
    if not finished.paths.summary.exists() or is_outdated(folder, run, manifest):
        return False
    try:
        settings, outputs = finished.config.result_settings, finished.summary.get("outputs", {})
    except UserError:
        return False
    return settings == run.result_settings and all((folder / name).exists() for name in outputs)


def is_outdated(folder: Path, run: Run, manifest: Path) -> bool:
    """Return True if the results of a finished training have other settings, data or code than a run.

    Return False for results that are missing or cannot be read: the training itself decides.

    Args:
        folder: folder of the training.
        run: the run with its present settings.
        manifest: manifest of the run's data.
    """
    finished = FinishedRun(folder)
    if not finished.paths.summary.exists():
        return False
    try:
        settings, summary = finished.config.result_settings, finished.summary
    except UserError:
        return False
    recorded = summary.get("input_files")
    changed = changed_files(recorded, input_checksums(run)) if recorded is not None else []
    return (
        settings != run.result_settings or not _has_data(summary.get("data", {}), manifest) or bool(changed)
    )


def _has_data(recorded: dict[str, str], manifest: Path) -> bool:
    """Return True if a summary records the data of a manifest; older versions did not record the fingerprint."""
    same_content = not manifest.exists() or recorded.get("fingerprint", "") in (
        "",
        manifest_fingerprint(manifest),
    )
    return recorded.get("manifest") == str(manifest) and same_content


def refuse_fewer_epochs(folder: Path, run: Run) -> None:
    """Raise UserError if a folder has results of the same run with more epochs or steps than the run now has.

    With other settings too, the results are outdated anyway and are replaced.
    """
    finished = FinishedRun(folder)
    if not finished.paths.summary.exists():
        return
    try:
        epochs, steps, recorded = finished.epochs, int(finished.summary.get("steps", 0)), finished.config
    except UserError:
        return  # Damaged results need no protection.
    if _other_settings(recorded) != _other_settings(run):
        return
    if epochs > run.train.epochs and recorded.train.steps_per_epoch == run.train.steps_per_epoch:
        raise UserError(
            f"train.epochs: {folder} has the results of {epochs} epochs, which a training of {run.train.epochs} would "
            f"replace; set {epochs} or more, set another `name:`, or delete the folder"
        )
    if (fewer := _limited_steps(run)) < steps and recorded.train.steps_per_epoch != run.train.steps_per_epoch:
        raise UserError(
            f"{STEPS_KEY}: {folder} has the results of {steps} steps, which a training of {fewer:g} would replace; "
            f"set train.epochs times {STEPS_KEY} to {steps} or more, set another `name:`, or delete the folder"
        )


def _limited_steps(run: Run) -> float:
    """Return the largest number of steps that the settings allow; infinite if the data determine it."""
    return run.train.epochs * (run.train.steps_per_epoch or float("inf"))


def _other_settings(run: Run) -> str:
    return run.with_defaults_for(*keys_with(Run, EditEffect.RESUME), STEPS_KEY).result_settings
