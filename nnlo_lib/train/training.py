"""The training loop: one, generic, for every algorithm and transport."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.algorithms.algorithm import Share
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loader import Batch
from nnlo_lib.errors import NotSavedError, UserError
from nnlo_lib.failpoints import failpoint
from nnlo_lib.streams import stream
from nnlo_lib.train.measure.agreement import agreement
from nnlo_lib.train.measure.stopping import reason_to_stop
from nnlo_lib.train.measure.validation import Validation
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.progress import Progress
from nnlo_lib.train.replica.gradients import Measured
from nnlo_lib.train.replica.stack import Stack
from nnlo_lib.train.resumable import NOTHING, Resumable
from nnlo_lib.train.task import Task


class Training(Resumable):
    """One rank's part of a training, resumable at any step.

    `run` returns True when the task is done, False when it was asked to stop and has saved.
    """

    def __init__(self, task: Task, comm: Communicator, stop: StopFlag, stack: Stack | None = None) -> None:
        super().__init__(task, comm, stop, stack)
        self._refuse_blindness()
        self.validation = Validation(self.data, self.tensors, self.problem, comm, self.books.nodes)

    @property
    def is_finished(self) -> bool:
        """Whether the run's last epoch is done, or what was measured has ended it; a task may end before."""
        return self.epoch == self.task.run.train.epochs or bool(self.over)

    def run(self) -> bool:
        """Train to the task's last epoch, or until all ranks agree to stop. Raises NotSavedError if a stop could not save."""
        self._resume()
        if self.task.run.train.evaluate_before and not self.steps and not self.restarts:
            self._validate()
        while not self._has_ended:
            self._train()
            stop, due = map(any, zip(*self.comm.gather([self.stop(), self._due()]), strict=True))
            if stop or due or self._has_ended:
                self._save()
            if stop and not self._has_ended:
                return self._stopped()
        saved = self.checkpoints.settle()
        if self.is_finished:
            self._finish()
        elif not saved:
            raise NotSavedError(f"paused before {self._where} and could not save: the warning above says why")
        failpoint("training.finish")
        return True

    @property
    def _has_ended(self) -> bool:
        return self.is_finished or self.epoch >= self.task.ends_at

    def _finish(self) -> None:
        """Let all ranks hold the one model to publish."""
        if self.best.step is not None:
            self.algorithm.weight = self.best.restore(self.replica)
            self.journal.write(f"publishing the weights of step {self.best.step:,}")
        if self.algorithm.apart or self.best.step is None:
            self.algorithm.on_finish(self.replica)
        if self.over:
            self.journal.write(f"ended early: {self.over}")

    def _train(self) -> None:
        """Train until the epoch ends, or a stop, a checkpoint or a validation is wished for."""
        self.dealing.begin(self.index)
        with self.stopwatch.training():
            self._train_epoch() if self.is_worker else self.algorithm.serve(self.replica, self._wishes_pause)
            self.algorithm.on_pause(self.replica)
        failpoint("training.pause")
        self.index = self.dealing.done(self.index)
        if all(self.comm.gather(self.index == self.loader.steps_per_epoch or not self.is_worker)):
            self._end_epoch()
        elif any(self.comm.gather(self._validation_is_due)):
            self._validate()
            if self.over:
                self._end_epoch(cut=True)

    def _wishes_pause(self) -> bool:
        return self.stop() or self.rhythm.due(self.steps)

    @property
    def _validation_is_due(self) -> bool:
        every = self.task.run.train.validate_every
        return every is not None and self.steps // every > self.validated_at // every

    def _due(self) -> bool:
        return self.rhythm.due(self.steps) or (self.index == 0 and self.rhythm.due_after(self.epoch))

    def _stopped(self) -> bool:
        if not self.checkpoints.settle():
            raise NotSavedError(f"stopped in {self._where} and could not save: the warning above says why")
        self.journal.write(f"stopped at epoch {self.epoch}, step {self.index}: saved")
        return False

    def _train_epoch(self) -> None:
        self.replica.module.train()
        with Progress(self.epoch, self.index, self.loader, self.problem, self._leads) as progress:
            batches = self.stopwatch.fetching(self.dealing.batches(self.epoch, self.index))
            batch = next(batches, None)
            while batch is not None:
                batch = self._step(batch, batches)
                progress.show(self.index, self.sums)
                if self._validation_is_due or (
                    self.algorithm.agreed(self._wishes_pause()) and self.dealing.leave()
                ):
                    break

    def _step(self, batch: Batch, batches: Iterator[Batch]) -> Batch | None:
        """Learn from `batch` and return the next one, made ready while a gradient may be on its way."""
        share = Share(batch.count, batch.global_count)
        self.algorithm.on_batch(self.replica, share)
        measured = self._gradient(batch)
        self.algorithm.on_gradient(self.replica, share)
        following = next(batches, None)
        if measured is not None:
            self.sums += measured()
        moves = self.precision.unscale(self.replica.grad, self._where_of(batch))
        if not self.algorithm.owns_step:
            self.replica.lr = self._learning_rate()
            if moves:
                self.replica.step()
        self.algorithm.on_parameters(self.replica)
        self.index = batch.index + 1
        self.steps += 1
        self.books.uses.mark(batch.ids)
        self.trail.reached(self._step_of_run)
        failpoint("training.step")
        return following

    def _gradient(self, batch: Batch) -> Measured | None:
        """Compute the gradient; dropout draws from the stream of this very step."""
        seed = stream(self.task.seed, "dropout", self.comm.rank, self.epoch, batch.index)
        step = self.epoch * self.loader.steps_per_epoch + batch.index
        return self.gradients(batch, seed, self._where_of(batch), step)

    def _where_of(self, batch: Batch) -> str:
        return f"in epoch {self.epoch + 1}, step {batch.index + 1}, on rank {self.comm.rank}"

    def _refuse_blindness(self) -> None:
        """Raise UserError if something that is never measured is to decide."""
        if not len(self.data.validating[1]):
            for key, metric in self.task.run.train.watched.items():
                if metric.startswith("val_"):
                    raise UserError(
                        f"train.{key} watches {metric}, but no sample validates; set data.validation"
                    )

    def _validate(self) -> None:
        """Measure within an epoch; the row goes to a table of its own."""
        with self.stopwatch.training():
            self.algorithm.on_epoch(self.replica)
        with self.stopwatch.phase("evaluate"):
            measured = self._validated()
        step = self._agreed_step()
        row = {"epoch": self.epoch, "step": step, "seconds": round(self.stopwatch.trained, 6)}
        if self.comm.rank == 0:
            self.books.note(row, measured)
        self._judge(step)
        self.algorithm.after_epoch(self.replica)

    def _judge(self, step: int) -> None:
        """Agree on whether the validation at `step` is the best one, and whether it ends the training."""
        self.validated_at, train = self.steps, self.task.run.train
        if train.early_stopping or train.target or train.restore_best:
            rows = self.books.validated
            over = reason_to_stop(train, rows) if step else ""  # an epoch at least is trained
            best, over = self.comm.gather([self.best.wants(rows), over])[0]
            if best:
                self.best.keep(self.replica, step, self.algorithm.weight)
            self.over = self.over or over

    def _end_epoch(self, cut: bool = False) -> None:
        """Agree on what to measure, measure it and write the epoch's row of the history."""
        with self.stopwatch.training():
            self.algorithm.on_epoch(self.replica)
        self.comm.allreduce(self.sums, "metrics")
        measured = {f"train_{name}": value for name, value in self.problem.means(self.sums).items()}
        self.samples += int(self.sums[0])
        with self.stopwatch.phase("evaluate"):
            failpoint("training.evaluate")
            measured |= self._validated() | agreement(self.algorithm, self.replica, self._where)
        self.books.close_ledger(self.epoch, cut)
        measured["bytes"] = sum(self.comm.gather(self._bytes_of_training()))
        step = self._agreed_step()
        if self.is_scheduled:
            self.replica.lr = self.rates(step - self.shift - 1, self.loader.steps_per_epoch)
        self.epoch, self.index, self.before = self.epoch + 1, 0, NOTHING
        self.sums.zero_()
        if self.comm.rank == 0:
            self.books.record(self._row() | {"step": step}, measured)
        self._judge(step)
        self.rates.hear(self.comm, self.books.history.rows)
        self.algorithm.after_epoch(self.replica)
        failpoint("training.epoch")

    def _bytes_of_training(self) -> int:
        counts = self.stopwatch.traffic()["bytes"]
        return sum(count for purpose, count in counts.items() if purpose not in ("metrics", "telemetry"))

    def _validated(self) -> dict[str, float]:
        if self.algorithm.apart:
            done = self.index / self.loader.steps_per_epoch
            return self.validation.each(
                self.replica, self.epoch + (done if done % 1 else int(done)), self.stack
            )
        return self.validation.together(self.replica)

    def _row(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "step": self._step_of_run,
            "samples": self.samples,
            "seconds": round(self.stopwatch.trained, 6),
            "learning_rate": self.replica.lr,
        }

    def _agreed_step(self) -> int:
        """Return the furthest step of any rank; servers count none."""
        steps: list[int] = self.comm.gather(self._step_of_run)
        return max(steps)
