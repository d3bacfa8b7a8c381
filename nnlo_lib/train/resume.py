"""Saving of a training's state to checkpoints, and the resume from them."""

import shutil
from pathlib import Path

from nnlo_lib.checkpoint.checkpoint_manifest import checkpoint_folders
from nnlo_lib.checkpoint.checkpointer import Checkpointer, CheckpointPosition, SavedCheckpoint
from nnlo_lib.checkpoint.commit import SaveInterval
from nnlo_lib.checkpoint.rank_file import SavedTables
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.installation import code_version
from nnlo_lib.core.text_format import plural
from nnlo_lib.state import attempts
from nnlo_lib.state.published_results import changed_files, keep_input_record, read_input_record
from nnlo_lib.train.algorithm_checks import AttributeGuard
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.training_state import TrainingSegment, TrainingState


class TrainingSaver:
    """Saves a rank's state to checkpoints and restores it. All ranks call each method except `is_due`."""

    def __init__(
        self, context: RankContext, state: TrainingState, recorder: Recorder, checkpointer: Checkpointer, stop: StopFlag
    ) -> None:  # fmt: skip
        self._context, self._state, self._recorder = context, state, recorder
        self._checkpointer, self._stop = checkpointer, stop
        self.continues_finished = False  # True if it resumed from a checkpoint of a finished training
        run = context.task.run
        # A pause within an epoch changes the messages of simulated ranks that do not wait for each other.
        self._pauses_freely = not (context.comm.is_virtual and run.algorithm.is_asynchronous)
        self._interval = SaveInterval(
            run.checkpoint, watches=not context.comm.is_virtual, within=self._pauses_freely
        )

    def is_due(self) -> bool:
        """Return True if this rank has reached its next checkpoint within an epoch."""
        return self._interval.is_due(self._state.position.steps)

    def is_due_after_pause(self) -> bool:
        """Return True if a checkpoint is due after a pause of the ranks, which may be the end of an epoch."""
        position = self._state.position
        return self.is_due() or (
            position.index == 0 and self._interval.is_due_after_epoch(position.epoch, position.steps)
        )

    def save(self) -> None:
        """Save a checkpoint; the checkpointer may finish writing it while the ranks continue training."""
        context, position, recorder = self._context, self._state.position, self._recorder
        # A checkpoint of simulated ranks changes neither clocks nor messages.
        with context.comm.outside_of_time():
            if not self._pauses_freely:
                position.paused_within |= any(context.comm.gather(position.index > 0))
            state = self._state.capture()
            if unsaved := self._guard.unsaved(state.tensors, context.replica):
                recorder.journal.warn(unsaved)
            with context.phase_timer.phase("checkpoint"):
                error = recorder.flush_tables()
                # Only a checkpoint at the end of an epoch has metrics, by which `checkpoint.best` chooses.
                rows = recorder.history.rows if position.index == 0 else []
                step = max(context.comm.gather(self._state.run_step))
                moment = CheckpointPosition(position.epoch, step, rows[-1] if rows else {})
                # Lists that later rows do not change.
                tables = {name: list(table.rows) for name, table in recorder.tables.items()}
                self._checkpointer.save(state, moment, tables, error)
        self.count_from_here()
        self._stop.reserve_save_time(self._checkpointer.last_save_seconds)

    def count_from_here(self) -> None:
        """Start counting toward the next checkpoint at the current position."""
        self._interval.mark_saved(self._state.position.steps, self._state.position.epoch)

    def resume(self) -> None:
        """Resume from the newest complete checkpoint, if any; take the tables back to its rows."""
        context = self._context
        saved = self._load()
        # `start` allocates the vectors into which `restore` copies; the checkpoint overwrites the parameters
        # that it broadcasts.
        self._state.algorithm.start(context.replica)
        self._guard = AttributeGuard(self._state.algorithm)
        tables: SavedTables = {}
        task, journal = context.task, self._recorder.journal
        is_copied = saved is not None and saved.folder == task.start
        if saved is not None:
            self._state.restore(saved)
            if context.comm.rank == 0:
                tables = saved.read_tables()
            position, text = self._state.position, f" of {saved.folder}" if is_copied else ""
            # All ranks use the answer of rank 0, as in `_load`.
            self.continues_finished = context.comm.gather(_has_finished(task.state))[0]
            # Simulated ranks that leave or return are no restart of the training.
            is_planned = (
                context.comm.size != saved.ranks
                and position.epoch + 1 in task.run.parallel.simulation.elastic
            )
            if not (is_copied or self.continues_finished or is_planned):
                position.restarts += 1
                text = f" (restart {position.restarts})"
            journal.write(f"resumed at epoch {position.epoch}, step {position.index}{text}")
        elif context.comm.rank == 0:
            recorded = read_input_record(task.paths.state)
            if recorded and (changed := changed_files(recorded, task.input_checksums)):
                journal.write(
                    f"{', '.join(changed)} changed since the earlier training in {task.folder}: the training starts at step 0"
                )
            # Before `restore_tables`, which would delete the rows of the earlier training.
            if former := archive_unfinished(task.state):
                journal.warn(
                    f"the training starts at step 0; the earlier training state was moved to {former}. To resume the "
                    f"earlier training, undo the change of the experiment and replace the files in {former.parent} by "
                    f"the files in {former}; otherwise delete {former}"
                )
        if context.comm.rank == 0:
            keep_input_record(task.paths.state, task.input_checksums, context.data.manifest.code)
        self._recorder.restore_tables(tables, may_lack_rows=is_copied)

    def _load(self) -> SavedCheckpoint | None:
        """Return the checkpoint to resume from, if any."""
        context, epochs = self._context, self._context.task.run.train.epochs
        saved = self._checkpointer.load(epochs, context.task.start)
        if saved is None or saved.ranks == context.comm.size or saved.epoch < epochs:
            return saved
        # These ranks would publish the results of the earlier ranks as their own. All ranks use the answer of
        # rank 0, because its launcher may add an attempt.
        before = attempts.read_attempts(context.task.state)
        finished = [each for each in before if each.reason == "finished"]
        has_ended = any(each.ranks == saved.ranks and each.reached == saved.step for each in finished)
        if not context.comm.gather(has_ended)[0]:
            return saved
        self._recorder.journal.warn(
            f"{saved.folder} ends a training with {plural(saved.ranks, 'rank')}; the training with {plural(context.comm.size, 'rank')} starts "
            "at step 0"
        )
        return None

    def begin_segment(self) -> None:
        """Record the step from which these ranks and this version of the code train."""
        comm = self._context.comm
        code = code_version() if comm.rank == 0 else ""
        steps, codes = zip(*comm.gather([self._state.run_step, code]), strict=True)
        segment = TrainingSegment(step=max(steps), ranks=comm.size, code=codes[0])
        position = self._state.position
        # A restart with the same ranks and code continues the last one.
        if not position.legs or position.legs[-1] | {"step": segment["step"]} != segment:
            position.legs = [*position.legs, segment]


def archive_unfinished(state: Path) -> Path | None:
    """Move the resumable state of an unfinished training to a new folder; return the folder, or None.

    The checkpoints of a finished training are removed instead: its results are published, and its checkpoints do
    not belong to the tables of the next training.
    """
    paths = StatePaths(state)
    checkpoints = checkpoint_folders(paths.checkpoints)
    if not checkpoints:
        return None
    if _has_finished(state):
        for folder in checkpoints:
            shutil.rmtree(folder)
        return None
    former = paths.next_archive
    former.mkdir()
    for path in paths.resumable:
        if path.exists():
            path.rename(former / path.name)
    paths.checkpoints.mkdir()
    return former


def _has_finished(state: Path) -> bool:
    before = attempts.read_attempts(state)
    return bool(before) and before[-1].reason == "finished"
