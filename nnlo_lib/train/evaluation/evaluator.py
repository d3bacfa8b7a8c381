"""Evaluation during a training, at the end of each epoch and, if configured, within epochs.

It measures the common model, or each rank's, the distance of the replicas from their mean, and the algorithm's
invariant.
"""

from collections.abc import Callable
from contextlib import closing
from math import inf, isnan
from time import monotonic

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.core.errors import InvariantError, UserError
from nnlo_lib.core.failpoints import failpoint
from nnlo_lib.train.algorithm_checks import refuse_unequal_models
from nnlo_lib.train.evaluation.early_stopping import reason_to_stop
from nnlo_lib.train.evaluation.evaluate import Batches, evaluation_batches, evaluation_sums
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.optimizers.schedules import LearningRateSchedule
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.training_state import TrainingState
from nnlo_lib.train.validation_arrays import ValidationArrays

# Relative: rounding in float32 stays below this over 100,000 steps; an error in an algorithm exceeds it.
INVARIANT_TOLERANCE = 1e-3
# A stop request waits this long for the end of a validation; most end sooner, and their row is then in the checkpoint.
STOP_PATIENCE_S = 5.0
# Purposes of messages for evaluation; the history counts only the bytes of training.
UNCOUNTED_TRAFFIC = ("metrics", "telemetry")


class InterruptedValidationError(Exception):
    """All ranks ended a validation early, because one of them has to stop; it starts over after the resume."""


class Evaluator:
    """Evaluates the model, records the metrics, and decides on the best weights and on early stopping.

    Every method except `is_due` is collective: all ranks call it.
    """

    def __init__(
        self, context: RankContext, state: TrainingState, recorder: Recorder, schedule: LearningRateSchedule,
        stop: Callable[[], bool] = bool,
    ) -> None:  # fmt: skip
        """Raise UserError if an option uses a validation metric, but there are no validation samples."""
        for key, metric in context.task.run.train.watched.items():
            if metric.startswith("val_") and not len(context.data.validation_set[1]):
                raise UserError(
                    f"train.{key}: {metric} needs validation samples, but the run has none; set data.validation, for example 0.1"
                )
        self._context, self._state, self._recorder = context, state, recorder
        self._lr_schedule, self._callbacks = schedule, context.replica.callbacks
        self._stop, self._interrupted = stop, False
        self._arrays = ValidationArrays(context, state.algorithm, recorder.journal)

    def is_due(self) -> bool:
        """Return True if a validation within the epoch is due (train.validate_every)."""
        every, position = self._context.task.run.train.validate_every, self._state.position
        return every is not None and position.steps // every > position.validated_at // every

    def validate(self) -> None:
        """Validate within an epoch; write the row to a separate table, `validations`.

        A validation that a stop request interrupts leaves no trace: it is due again.
        """
        timer = self._context.phase_timer
        buffers = self._load_evaluated()
        try:
            with timer.phase("evaluate"):
                measured = self._validation_metrics()
        except InterruptedValidationError:
            self._load_trained(buffers)
            return
        step, epoch = self._global_step(), self._state.position.epoch
        self._arrays.record(step)
        if self._context.comm.rank == 0:
            row = {"epoch": epoch, "step": step, "seconds": round(timer.training_seconds, 6)}
            self._recorder.record_validation(row, measured)
            self._callbacks.on("validation recorded")
        self._update_best_and_stopping(step)
        self._load_trained()

    def end_epoch(self, cut: bool = False) -> None:
        """Evaluate at the end of an epoch and write its row of the history; `cut`: the epoch ended early.

        If a stop request interrupts the evaluation, the epoch does not end: only its steps are done.
        """
        context, state = self._context, self._state
        buffers = self._load_evaluated()
        sums, samples = state.metric_sums.clone(), state.position.samples
        try:
            measured = self._epoch_metrics()
        except InterruptedValidationError:
            state.metric_sums.copy_(sums)
            state.position.samples = samples
            self._load_trained(buffers)
            return
        self._recorder.close_epoch_ledger(state.position.epoch, cut)
        bytes_sent = context.phase_timer.traffic()["bytes"].items()
        own = sum(count for purpose, count in bytes_sent if purpose not in UNCOUNTED_TRAFFIC)
        measured["bytes"] = sum(context.comm.gather(own))
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
            row = {
                "epoch": state.position.epoch,
                "step": step,
                "samples": state.position.samples,
                "seconds": round(context.phase_timer.training_seconds, 6),
                "learning_rate": context.replica.lr,
            }
            self._recorder.record_epoch(row, measured)
            self._callbacks.on("epoch recorded")
        self._update_best_and_stopping(step)
        self._lr_schedule.update_plateau(context.comm, self._recorder.history.rows)
        self._load_trained()
        failpoint("training.epoch")
        self._callbacks.on("epoch")

    def _load_evaluated(self) -> Tensor:
        """Load the model to evaluate into the replica; return the batch-norm statistics before their mean over the workers."""
        self._context.averaged_weights.exchange()
        buffers = self._context.replica.buffers.clone()
        with self._context.phase_timer.training():
            self._callbacks.around(self._state.algorithm.before_evaluation, self._context.replica)
        return buffers

    def _load_trained(self, buffers: Tensor | None = None) -> None:
        """Undo `_load_evaluated`; `buffers`: what it returned, if the validation starts over."""
        self._callbacks.around(self._state.algorithm.after_evaluation, self._context.replica)
        if buffers is not None:
            # A second mean over the workers, of equal numbers, may differ from the first one in the last bit.
            self._context.replica.buffers.copy_(buffers)
        self._context.averaged_weights.exchange()

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
        means = context.problem.means(state.metric_sums)
        measured = {f"train_{name}": value for name, value in means.items()}
        if state.loss_decay is not None:
            average = None if isnan(state.loss_average) else state.loss_average
            with context.comm.outside_of_time():
                averages = [each for each in context.comm.gather(average) if each is not None]
            # The mean over the ranks that have one.
            measured |= {"train_loss_average": sum(averages) / len(averages)} if averages else {}
        state.position.samples += int(state.metric_sums[0])
        with context.phase_timer.phase("evaluate"):
            failpoint("training.evaluate")
            measured |= self._validation_metrics()
            where = state.position.where
            return measured | check_invariant_and_consensus(state.algorithm, context.replica, where)

    def _validation_metrics(self) -> dict[str, float]:
        context, position = self._context, self._state.position
        if self._state.algorithm.replicas_differ:
            done = position.index / context.loader.steps_per_epoch
            # An integer at the end of an epoch, so that the tables show 3 and not 3.0.
            epochs = position.epoch + (done if done % 1 else int(done))
            return self._each_model_metrics(epochs)
        return self.measure_shared_model()

    def _global_step(self) -> int:
        # Servers count no steps.
        return max(map(int, self._context.comm.gather(self._state.run_step)))

    def measure_shared_model(self) -> dict[str, float]:
        """Return validation loss and metrics of the common or published model; each rank evaluates its share of the samples.

        Raises InterruptedValidationError on all ranks if one has to stop.
        """
        comm, problem = self._context.comm, self._context.problem
        if not len(self._context.data.validation_set[1]):
            return {}
        # Sums in float64, not means: the shares of the ranks may differ in size.
        sums = self._sums(comm.rank, comm.size)
        comm.allreduce(sums, "metrics")
        return {f"val_{name}": value for name, value in problem.means(sums).items()}

    def _each_model_metrics(self, epoch: float) -> dict[str, float]:
        """Return the ranks' mean, smallest and largest loss and metrics; `epoch`: epochs so far, with the running fraction.

        Raises InterruptedValidationError on all ranks if one has to stop.
        """
        comm, stack = self._context.comm, self._context.stack
        split, samples = self._context.data.validation_set
        if not len(samples):
            return {}
        # A stack evaluates all replicas in one call, so all of them must be ready.
        comm.barrier()
        if stack is None:
            sums = self._sums(0, 1)
        else:
            sums = stack.evaluate_replicas(epoch, split, samples)[comm.rank]
        nodes = comm.gather(self._context.problem.means(torch.tensor(sums.tolist())))
        if comm.rank == 0:
            for node, means in enumerate(nodes):
                self._recorder.nodes.append({"epoch": epoch, "node": node, **means})
        table: dict[str, float] = {}
        for name in nodes[0]:
            values = [node[name] for node in nodes]
            table |= {f"val_{name}": sum(values) / len(values)}
            table |= {f"val_{name}_min": min(values), f"val_{name}_max": max(values)}
        return table

    def _sums(self, first: int, every: int) -> Tensor:
        context, (split, samples) = self._context, self._context.data.validation_set
        module = context.replica.module
        batches = evaluation_batches(module, split, samples[first::every], context.preprocessor)
        with closing(batches):
            sums = evaluation_sums(module, self._until_stop(batches), context.problem)
        # Signals reach ranks at different batches; the clocks of simulated ranks do not see this question.
        with context.comm.outside_of_time():
            if any(context.comm.gather(self._interrupted)):
                raise InterruptedValidationError
        return sums

    def _until_stop(self, batches: Batches) -> Batches:
        """Yield the batches until this rank has had to stop for STOP_PATIENCE_S."""
        since, self._interrupted = inf, False
        for batch in batches:
            if self._stop():
                since = min(since, monotonic())
            if monotonic() - since > STOP_PATIENCE_S:
                self._interrupted = True
                return
            yield batch


def check_invariant_and_consensus(algorithm: Algorithm, replica: Replica, where: str) -> dict[str, float]:
    """Return the algorithm's telemetry and, if replicas differ, their consensus errors; all ranks call it.

    Raises InvariantError on all ranks if the algorithm's invariant does not hold.
    """
    measured = algorithm.telemetry(replica)
    error = measured.get("invariant", 0.0)
    # Not `>`, which is False for NaN.
    if not error <= INVARIANT_TOLERANCE:
        raise InvariantError(
            f"{type(algorithm).__name__}: the invariant is violated in {where} (relative error {error:.2g}); the "
            "docstring of the class in nnlo_lib/algorithms defines the invariant. The cause is an error in nnlo, or "
            "faulty memory or network of a node"
        )
    refuse_unequal_models(algorithm, replica, where)
    if not algorithm.replicas_differ:
        return measured
    # Mean L2 distance of the ranks' parameters to their mean, also after scaling to norm 1.
    names, distances = ("consensus_error", "consensus_error_normalised"), []
    comm, theta = algorithm.comm, replica.theta
    for scale in (1.0, theta.norm()):
        mean = theta / scale
        comm.allreduce(mean, "telemetry")
        distances.append(float((theta / scale).sub_(mean.div_(comm.size)).norm()))
    totals = torch.tensor(distances, dtype=torch.float64)
    comm.allreduce(totals, "telemetry")
    return measured | dict(zip(names, (totals / comm.size).tolist(), strict=True))
