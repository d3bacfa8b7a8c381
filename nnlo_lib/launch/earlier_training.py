"""Earlier training in the folder of a task: finished with the same settings, or longer than the task."""

from nnlo_lib.checkpoint.checkpoint_folder import checkpoint_folders
from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.published_results import is_complete, refuse_fewer_epochs
from nnlo_lib.train.task import Task


def is_finished(task: Task) -> bool:
    """Return True if the task's folder has all outputs of a training with its settings, data and code."""
    return is_complete(task.folder, task.run, task.manifest)


def needs_training(task: Task) -> bool:
    """Return False if the task is finished. Raises UserError as `refuse_shorter_training` does."""
    refuse_shorter_training(task)
    return not is_finished(task)


def finished_note(task: Task) -> str:
    """Return the line that tells a user that a finished training is not repeated."""
    fold = "" if task.fold is None else f" fold {task.fold}"
    return (
        f"already finished: {task.experiment}/{task.name} seed {task.seed}{fold}; results in {task.folder}/; "
        f"to train again, delete this folder or use another `name:`"
    )


def refuse_shorter_training(task: Task) -> None:
    """Raise UserError if the task would replace results or checkpoints of a longer training.

    Checkpoints with another key are set aside by the training itself.
    """
    refuse_fewer_epochs(task.folder, task.run)
    epochs = task.run.train.epochs
    if not task.manifest.exists():
        return  # Without its data, the key of the task is unknown; its launcher checks again.
    for folder in reversed(checkpoint_folders(task.paths.state.checkpoints)):
        try:
            found = CheckpointManifest.read(folder)
        except (OSError, ValueError, UserError):
            continue  # The training reports unusable checkpoints.
        if found.is_beyond(epochs) and found.key == task.fingerprint:
            raise UserError(
                f"train.epochs: {task.folder} has an unfinished training beyond epoch {epochs} ({folder.name}, step "
                f"{found.step}); set train.epochs to more than {found.epoch} to resume it, or delete {task.state} "
                "to start again"
            )
