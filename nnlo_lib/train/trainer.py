"""Training loop, common to all algorithms and transports, and its progress bar for terminals."""

import os
import sys
from collections.abc import Iterator

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.checkpoint.checkpointer import Checkpointer
from nnlo_lib.core.errors import CheckpointNotSavedError
from nnlo_lib.core.failpoints import failpoint
from nnlo_lib.core.installation import code_version
from nnlo_lib.core.logging_setup import progress_bar
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.state.training_records import StepMarker
from nnlo_lib.train.evaluation.early_stopping import BestWeights
from nnlo_lib.train.evaluation.evaluator import Evaluator
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.optimizers.schedules import LearningRateSchedule
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.replica.gradients import DeferredSums
from nnlo_lib.train.resume import TrainingSaver
from nnlo_lib.train.training_state import RunPosition, TrainingState

# A launcher at a terminal sets this variable: its ranks write to a pipe, so isatty() is False for them.
TERMINAL = "NNLO_TERMINAL"


class Trainer:
    """Trains on one rank; resumable at any step."""

    def __init__(self, context: RankContext, stop: StopFlag) -> None:
        task, comm, run = context.task, context.comm, context.task.run
        self.context, self.stop = context, stop
        self.callbacks = context.replica.callbacks
        # The version of the code comes from a git process, which one rank starts for all.
        code = code_version() if comm.rank == 0 else ""
        self.recorder = Recorder(task, comm, context.data)
        self.journal = self.recorder.journal
        self.checkpointer = Checkpointer(
            task.paths.state.checkpoints, task.fingerprint, code, run.checkpoint, comm, self.journal,
            run.parallel.peer_timeout,
        )  # fmt: skip
        self.algorithm = build_algorithm(run, comm, task.stream_seed)
        # A class of a user may read the gradient in any method.
        is_own = type(self.algorithm).__module__.startswith("nnlo_lib.")
        if comm.is_virtual and is_own and not (self.algorithm.keeps_gradient or context.stack):
            context.replica.share_gradient(comm.shared("gradients", list))
        self.lr_schedule = LearningRateSchedule(
            run.worker_train, context.workers, self.algorithm.steps_per_round
        )
        self.published_metrics: dict[str, float] = {}  # of the mean of different replicas, after `run`
        self._is_training = False
        self.best_weights = BestWeights(run.train.best_rule)
        self.state = TrainingState(context, self.algorithm, self.best_weights, self.recorder)
        self._saver = TrainingSaver(context, self.state, self.recorder, self.checkpointer, stop)
        self._evaluator = Evaluator(context, self.state, self.recorder, self.lr_schedule, self._must_stop_now)

    @property
    def position(self) -> RunPosition:
        """Position of this rank in the run."""
        return self.state.position

    @property
    def is_finished(self) -> bool:
        """True if the run's last epoch is done or it ended early; a task may end before that."""
        return self.position.epoch == self.context.task.run.train.epochs or bool(self.position.over)

    def run(self) -> bool:
        """Train; return True if the task is done, False if the ranks agreed to stop and have saved."""
        self.callbacks.begin("run")
        done = self._run()
        self.callbacks.end("run")
        return done

    def close(self) -> None:
        """Close the callbacks and the trace; called after errors, too."""
        try:
            self.callbacks.close()
        finally:
            self.context.phase_timer.trace.close()

    def _run(self) -> bool:
        self._resume()
        # A repeated publication of a finished training has the figures of the first one.
        if self._has_ended and self._saver.continues_finished:
            self.context.phase_timer.discard_start()
        else:
            self.context.phase_timer.end_startup()
        self.state.restore_machine()
        position, comm = self.position, self.context.comm
        # A restart repeats nothing: every checkpoint is written after this validation and counts its row.
        if self.context.task.run.train.evaluate_before and not position.steps and not position.restarts:
            self._evaluator.validate()
        self._is_training = True
        while not self._has_ended:
            self._train()
            # Signals and clocks differ between ranks, so all ranks decide by the requests of all.
            requests = comm.gather([self.stop(), self._saver.is_due_after_pause()])
            stop, due = map(any, zip(*requests, strict=True))
            # Also at the end, before `_finish` replaces the weights: a later run with more epochs resumes
            # from this checkpoint.
            if stop or due or self._has_ended:
                self._saver.save()
            if stop and not self._has_ended:
                self._require(self.checkpointer.wait_until_saved(), "stopped in")
                self.journal.write(
                    f"stopped at epoch {position.epoch}, step {position.index}: checkpoint saved"
                )
                return False
        with self.context.phase_timer.phase("checkpoint"):
            saved = self.checkpointer.wait_until_saved()
        if self.is_finished:
            self._finish()
        # A finished run publishes its results; a task that pauses before the last epoch is continued from
        # this checkpoint only.
        else:
            self._require(saved, "paused before")
        failpoint("training.finish")
        return True

    def _resume(self) -> None:
        self._saver.resume()
        self.callbacks.on("rewound")
        self._saver.begin_segment()
        self.lr_schedule.log_scaling(self.journal)
        self.lr_schedule.update_plateau(self.context.comm, self.recorder.history.rows)
        if self.context.is_lr_scheduled:
            self.context.replica.lr = self._learning_rate(self.position.index)
        # The time that the start took does not bring the next checkpoint closer.
        self._saver.count_from_here()
        self._step_marker = StepMarker(
            self.context.task.state, self.state.run_step, leads=self.context.is_first_worker
        )
        failpoint("training.resumed")

    @property
    def _has_ended(self) -> bool:
        return self.is_finished or self.position.epoch >= self.context.task.ends_at

    def _finish(self) -> None:
        """Give all ranks the model to publish."""
        replica = self.context.replica
        if self.best_weights.step is not None:
            self.algorithm.weight = self.best_weights.restore(replica)
            self.journal.write(f"publishing the weights of step {self.best_weights.step:,}")
        else:
            self.context.averaged_weights.exchange()
        # Restored weights of equal replicas are already common; different ones still have to be averaged.
        if self.algorithm.replicas_differ or self.best_weights.step is None:
            self.algorithm.on_finish(replica)
        if self.algorithm.replicas_differ:
            self.published_metrics = self._evaluator.measure_shared_model()
            values = [f"{name} {value:.4g}" for name, value in self.published_metrics.items()]
            self.journal.write("  ".join(["publishing the mean of the replicas", *values]))
        if self.position.over:
            self.journal.write(f"ended early: {self.position.over}")

    def _train(self) -> None:
        """Train until the epoch ends, or a stop, a checkpoint or a validation is due; evaluate if due."""
        context, position = self.context, self.position
        context.batch_source.start_at(position.index)
        with context.phase_timer.training():
            if context.is_worker:
                self._train_epoch()
            else:
                self.callbacks.begin("serve")
                self.algorithm.serve(context.replica, self._should_pause)
                self.callbacks.end("serve")
            context.gradients.finish()
            # Messages in flight are in no rank's state: a checkpoint would lose them.
            self.callbacks.around(self.algorithm.quiesce, context.replica)
        failpoint("training.pause")
        position.index = context.batch_source.synced_index(position.index)
        # Servers count no steps.
        is_complete = position.index == context.loader.steps_per_epoch or not context.is_worker
        if all(context.comm.gather(is_complete)):
            self._evaluator.end_epoch()
        elif any(context.comm.gather(self._evaluator.is_due())):
            self._evaluator.validate()
            if position.over:
                self._evaluator.end_epoch(cut=True)

    def _must_stop_now(self) -> bool:
        # The validation before the first step is part of each checkpoint, and the last one of the publication.
        return self._is_training and self.stop() and not self._has_ended

    def _should_pause(self) -> bool:
        return self.stop() or self._saver.is_due()

    def _require(self, saved: bool, how: str) -> None:
        if not saved:
            raise CheckpointNotSavedError(
                f"{how} {self.position.where}, but the checkpoint could not be written; see the warning above"
            )

    def _train_epoch(self) -> None:
        context, position = self.context, self.position
        if self._evaluator.is_due():  # a stop request has interrupted this validation
            return
        context.replica.module.train()
        visible = context.is_first_worker and (sys.stderr.isatty() or TERMINAL in os.environ)
        samples, steps = context.loader.samples, context.loader.steps_per_epoch
        done = samples * position.index // steps
        with progress_bar(f"epoch {position.epoch + 1}", samples, "samples", done, visible) as show:
            source = context.batch_source.batches(position.epoch, position.index)
            batches = context.phase_timer.timed_batches(source)
            batch = next(batches, None)
            while batch is not None:
                self.callbacks.begin("step")
                batch = self._step(batch, batches)
                self.callbacks.end("step")
                show(samples * position.index // steps, self._means_text)
                if self._evaluator.is_due() or (
                    self.algorithm.should_stop(self._should_pause()) and context.batch_source.stop_early()
                ):
                    break

    def _means_text(self) -> str:
        means = self.context.problem.means(self.state.metric_sums)
        return "  ".join(f"{name} {value:.4f}" for name, value in means.items())

    def _step(self, batch: Batch, batches: Iterator[Batch]) -> Batch | None:
        """Train on `batch`; return the next batch, loaded while gradients may be exchanged."""
        context, position, replica = self.context, self.position, self.context.replica
        batch = batch.without_samples() if self.algorithm.rests else batch
        share = SampleShare(batch.count, batch.global_count)
        self.callbacks.around(self.algorithm.on_batch, replica, share)
        measured = self._gradient(batch)
        self.callbacks.around(self.algorithm.on_gradient, replica, share)
        # The next batch is read, and the metrics are computed, while the answer of a server may be on its way;
        # `on_parameters` waits for it.
        following = next(batches, None)
        if measured is not None:
            self.state.add_sums(measured())
        # After the exchange: all ranks see the same overflow and skip the same steps.
        moves = context.precision.unscale(replica.grad, self._where_of(batch))
        if not self.algorithm.owns_step:
            replica.lr = self._learning_rate(batch.index)
            if moves and not self._is_idle(batch):
                replica.step()
        replica.release_gradient()
        self.callbacks.around(self.algorithm.on_parameters, replica)
        context.averaged_weights.update()
        # With dynamic dealing, the batches of a worker do not have consecutive numbers.
        position.index = batch.index + 1
        position.steps += 1
        self.recorder.sample_counts.mark(batch.ids)
        self._step_marker.write(self.state.run_step)
        failpoint("training.step")
        return following

    def _is_idle(self, batch: Batch) -> bool:
        """Return True if neither this rank nor, through the algorithm, another one has a gradient for the step.

        Momentum, moments and weight decay of an optimizer would move a rank without samples.
        """
        # Ranks that share a gradient take the same steps, even if the gradient is zero.
        shares = self.context.task.run.algorithm.capabilities.shares_gradient
        return not (batch.count or shares or self.context.replica.grad.any())

    def _gradient(self, batch: Batch) -> DeferredSums | None:
        """Compute the gradient; dropout uses a random stream that depends on seed, rank, epoch and step."""
        context, epoch = self.context, self.position.epoch
        seed = derive_seed(context.task.stream_seed, "dropout", context.comm.rank, epoch, batch.index)
        self.callbacks.on("gradient")
        return context.gradients(batch, seed, self._where_of(batch), self.position.steps)

    def _where_of(self, batch: Batch) -> str:
        return f"in epoch {self.position.epoch + 1}, step {batch.index + 1}, on rank {self.context.comm.rank}"

    def _learning_rate(self, index: int) -> float:
        """Return the learning rate of step `index` of the running epoch."""
        steps_per_epoch, position = self.context.loader.steps_per_epoch, self.position
        step = position.epoch * steps_per_epoch + index
        return self.lr_schedule(step, steps_per_epoch, self.state.worker_steps(step + position.shift))
