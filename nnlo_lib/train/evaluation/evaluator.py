"""Evaluation during a training: at the end of each epoch and, if configured, within epochs."""

from collections.abc import Callable
from math import isnan
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.failpoints import failpoint
from nnlo_lib.train.algorithm_hooks import AlgorithmHooks
from nnlo_lib.train.callback import Callbacks
from nnlo_lib.train.evaluation.consensus import check_invariant_and_consensus
from nnlo_lib.train.evaluation.early_stopping import reason_to_stop
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.evaluation.validation import InterruptedValidationError, Validation
from nnlo_lib.train.observe.measured.loss_average import mean_of_averages
from nnlo_lib.train.observe.measured.validation_arrays import ValidationArrays
from nnlo_lib.train.optimizers.learning_rate import LearningRateSchedule
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.task import Task
from nnlo_lib.train.training_state import TrainingState

# Purposes of messages for evaluation; the history counts only the bytes of training.
UNCOUNTED_TRAFFIC = ("metrics", "telemetry")


class Evaluator:
    """Evaluates the model, records the metrics, and decides on the best weights and on early stopping.

    Every method except `is_due` is collective: all ranks call it.

    Args:
        context: data, replica and communicator of the rank.
        state: position and sums of the running epoch.
        recorder: tables and log of the run.
        lr_schedule: schedule, which may depend on the history (plateau).
        callbacks: observers of new rows and of the end of epochs.
        stop: returns True if this rank has to stop.
    """

    def __init__(
        self,
        context: RankContext,
        state: TrainingState,
        recorder: Recorder,
        lr_schedule: LearningRateSchedule,
        callbacks: Callbacks,
        stop: Callable[[], bool] = bool,
    ) -> None:
        self._context, self._state, self._recorder = context, state, recorder
        self._lr_schedule, self._callbacks = lr_schedule, callbacks
        self._call = AlgorithmHooks(context.replica, callbacks)
        self._validation = Validation(
            context.data, context.preprocessor, context.problem, context.comm, recorder.nodes, stop
        )
        self._arrays = ValidationArrays(context, state.algorithm, recorder.journal)

    def is_due(self) -> bool:
        """Return True if a validation within the epoch is due (train.validate_every)."""
        every, position = self._context.task.run.train.validate_every, self._state.position
        return every is not None and position.steps // every > position.validated_at // every

    def validate(self) -> None:
        """Validate within an epoch; write the row to a separate table, `validations`.

        A validation that a stop request interrupts leaves no trace: it is due again.
        """
        timer, algorithm = self._context.phase_timer, self._state.algorithm
        with timer.training():
            self._call(algorithm.before_evaluation)
        try:
            with timer.phase("evaluate"):
                measured = self._validation_metrics()
        except InterruptedValidationError:
            self._call(algorithm.after_evaluation)
            return
        step, epoch = self._global_step(), self._state.position.epoch
        self._arrays.record(step)
        if self._context.comm.rank == 0:
            row = {"epoch": epoch, "step": step, "seconds": round(timer.training_seconds, 6)}
            self._recorder.record_validation(row, measured)
            for callback in self._callbacks:
                callback.on_validation_recorded()
        self._update_best_and_stopping(step)
        self._call(algorithm.after_evaluation)

    def end_epoch(self, cut: bool = False) -> None:
        """Evaluate at the end of an epoch and write its row of the history; `cut`: the epoch ended early.

        If a stop request interrupts the evaluation, the epoch does not end: only its steps are done.
        """
        context, state = self._context, self._state
        with context.phase_timer.training():
            self._call(state.algorithm.before_evaluation)
        sums, samples = state.metric_sums.clone(), state.position.samples
        try:
            measured = self._epoch_metrics()
        except InterruptedValidationError:
            state.metric_sums.copy_(sums)
            state.position.samples = samples
            self._call(state.algorithm.after_evaluation)
            return
        self._recorder.close_epoch_ledger(state.position.epoch, cut)
        measured["bytes"] = sum(context.comm.gather(self._bytes_of_training()))
        step = self._global_step()
        self._arrays.record(step)
        if context.is_lr_scheduled:
            # The row shows the rate of the epoch's last step. A rank that did not make this step, for
            # example a server, has another one.
            last, steps = step - state.position.shift - 1, context.loader.steps_per_epoch
            context.replica.lr = self._lr_schedule(last, steps, state.worker_steps(step - 1))
        # The ledger and the bytes above belong to the epoch that ends; the row below counts it as completed.
        state.end_epoch()
        if context.comm.rank == 0:
            self._recorder.record_epoch(self._row() | {"step": step}, measured)
            for callback in self._callbacks:
                callback.on_epoch_recorded()
        self._update_best_and_stopping(step)
        self._lr_schedule.update_plateau(context.comm, self._recorder.history.rows)
        self._call(state.algorithm.after_evaluation)
        failpoint("training.epoch")
        for callback in self._callbacks:
            callback.on_epoch_end()

    def published_metrics(self) -> dict[str, float]:
        """Return the validation metrics of the model to publish, which all ranks have loaded."""
        return self._validation.measure_shared_model(self._context.replica)

    def _update_best_and_stopping(self, step: int) -> None:
        """Copy the weights if the validation at `step` is the best; set `over` if it ends the training."""
        context, state, train = self._context, self._state, self._context.task.run.train
        state.position.validated_at = state.position.steps
        if train.early_stopping or train.target or train.restore_best:
            rows = self._recorder.validation_rows
            # A validation before the first step (train.evaluate_before) never ends the training.
            over = reason_to_stop(train, rows) if step else ""
            # Only rank 0 has all rows; its decision holds for all ranks.
            best, over = context.comm.gather([state.best_weights.is_improvement(rows), over])[0]
            if best:
                state.best_weights.snapshot(context.replica, step, state.algorithm.weight)
            state.position.over = state.position.over or over

    def _epoch_metrics(self) -> dict[str, float]:
        """Return the epoch's training and validation metrics and telemetry, the same on all ranks."""
        context, state = self._context, self._state
        context.comm.allreduce(state.metric_sums, "metrics")
        measured = {
            f"train_{name}": value for name, value in context.problem.means(state.metric_sums).items()
        }
        measured |= self._loss_average()
        state.position.samples += int(state.metric_sums[0])
        with context.phase_timer.phase("evaluate"):
            failpoint("training.evaluate")
            return (
                measured
                | self._validation_metrics()
                | check_invariant_and_consensus(state.algorithm, context.replica, state.position.where)
            )

    def _loss_average(self) -> dict[str, float]:
        """Return the column of the moving average of the loss; empty if it is not requested."""
        average, comm = self._state.loss_average, self._context.comm
        if not average.is_requested:
            return {}
        with comm.outside_of_time():
            return mean_of_averages(comm.gather(None if isnan(average.value) else average.value))

    def _validation_metrics(self) -> dict[str, float]:
        context, position = self._context, self._state.position
        if self._state.algorithm.replicas_differ:
            done = position.index / context.loader.steps_per_epoch
            # An integer at the end of an epoch, so that the tables show 3 and not 3.0.
            epochs = position.epoch + (done if done % 1 else int(done))
            return self._validation.measure_each_model(context.replica, epochs, context.stack)
        return self._validation.measure_shared_model(context.replica)

    def _bytes_of_training(self) -> int:
        counts = self._context.phase_timer.traffic()["bytes"]
        return sum(count for purpose, count in counts.items() if purpose not in UNCOUNTED_TRAFFIC)

    def _row(self) -> dict[str, Any]:
        return {
            "epoch": self._state.position.epoch,
            "step": self._state.run_step,
            "samples": self._state.position.samples,
            "seconds": round(self._context.phase_timer.training_seconds, 6),
            "learning_rate": self._context.replica.lr,
        }

    def _global_step(self) -> int:
        """Return the largest step of any rank, because servers count no steps."""
        steps: list[int] = self._context.comm.gather(self._state.run_step)
        return max(steps)


def check_watched_metrics(task: Task, samples: int) -> None:
    """Raise UserError if an option uses a validation metric, but there are 0 validation `samples`."""
    for key, metric in task.run.train.watched.items():
        if metric.startswith("val_") and not samples:
            raise UserError(
                f"train.{key}: {metric} needs validation samples, but the run has none; "
                "set data.validation, for example 0.1"
            )
