"""Training state that checkpoints save and restore bit-exactly."""

from typing import Any

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.algorithms.factory import roles
from nnlo_lib.checkpoint.checkpointer import SavedCheckpoint
from nnlo_lib.checkpoint.rank_file import RankState
from nnlo_lib.train.elastic import load_rank_state
from nnlo_lib.train.evaluation.best_weights import BestWeights
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.observe.measured.loss_average import LossAverage
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.replica.batch_norm_check import ResumedStep
from nnlo_lib.train.run_position import RunPosition

# Value of `used_before_resize` if the number of ranks has not changed in the running epoch.
NO_SAMPLES_USED = torch.empty(0, dtype=torch.bool)


class TrainingState:
    """A rank's state between two steps.

    Attributes:
        position: position in the run.
        metric_sums: sums of samples, loss and metrics in the running epoch, (sums,) of float64.
        loss_average: moving average of this rank's loss, if requested.
        used_before_resize: mask of the running epoch's samples used before the number of ranks changed,
            (samples,) of bool; empty if the number has not changed in this epoch.

    Args:
        context: data, replica and communicator of the rank.
        algorithm: this rank's instance of the algorithm.
        best_weights: copy of the best weights so far.
        recorder: tables of the run and the sample counts of the rank.
    """

    def __init__(
        self, context: RankContext, algorithm: Algorithm, best_weights: BestWeights, recorder: Recorder
    ) -> None:
        self._context, self._recorder = context, recorder
        self.algorithm, self.best_weights = algorithm, best_weights
        self.position = RunPosition()
        self.metric_sums = torch.zeros(context.problem.sums_size, dtype=torch.float64)
        self.loss_average = LossAverage(context.task.run.observe.loss_average)
        self.used_before_resize = NO_SAMPLES_USED
        self._machine: dict[str, Any] = {}

    @property
    def schedule_step(self) -> int:
        """Step implied by the position with the current number of ranks."""
        return self.position.schedule_step(self._context.loader.steps_per_epoch)

    @property
    def run_step(self) -> int:
        """Global step of the run, including steps done with other numbers of ranks."""
        return self.position.run_step(self._context.loader.steps_per_epoch)

    def worker_steps(self, run_step: int) -> int:
        """Return the number of steps of a worker before a global step; with dynamic dealing, the mean."""
        run = self._context.task.run
        # A global step is a batch of one worker with dynamic dealing, otherwise a step of every worker.
        if run.train.dealing == "static":
            return run_step
        return self.position.worker_steps(run_step, lambda ranks: roles(run, ranks).count("worker"))

    def add_sums(self, sums: Tensor) -> None:
        """Add the sums of a mini-batch (see Problem)."""
        self.metric_sums += sums
        if self.loss_average.is_requested:
            self.loss_average.add(self._context.problem.means(sums).get("loss"))

    def end_epoch(self) -> None:
        """Advance to the start of the next epoch."""
        self.position.epoch, self.position.index = self.position.epoch + 1, 0
        self.used_before_resize = NO_SAMPLES_USED
        self.metric_sums.zero_()

    def capture(self) -> RankState:
        """Return the state for a checkpoint; tensors are not copied."""
        context, recorder = self._context, self._recorder
        progress = self.position.to_dict()
        # Nothing reads the numbers of rows, which are part of the checkpoint format.
        progress |= {"stopwatches": [context.phase_timer.state()], "rows": recorder.row_counts()}
        progress |= {"machine": context.comm.machine_state()}
        tensors: dict[str, Tensor] = {
            **context.replica.state(), **self.algorithm.state(), **self.best_weights.state(),
            **context.precision.state(), **self.loss_average.state(),
            "sums": self.metric_sums,
            "ledger": from_numpy(recorder.sample_counts.counts), "before": self.used_before_resize,
        }  # fmt: skip
        return RankState(tensors, progress)

    def restore(self, saved: SavedCheckpoint) -> None:
        """Restore the state from a checkpoint."""
        context, resized = self._context, saved.ranks != self._context.comm.size
        if resized:
            self._recorder.journal.write(
                f"resuming with {context.comm.size} ranks; the checkpoint was written by {saved.ranks} ranks"
            )
        tensors, progress = load_rank_state(saved, context.task.run, context.comm, self.algorithm)
        self._restore_tensors(tensors)
        self.position = RunPosition.from_dict(progress)
        for state in progress["stopwatches"]:
            context.phase_timer.load_state(state)
        # Other ranks have another machine.
        self._machine = {} if resized else progress["machine"]
        # The mask also applies to a second restart in an epoch in which the number of ranks has changed.
        if resized or tensors["before"].numel():
            self._skip_used_samples(tensors["before"], resized)
        if resized:
            self._shift_step_count(saved.step)

    def restore_machine(self) -> None:
        """Continue the virtual machine of the checkpoint; called once the communication of the start has ended."""
        comm, (machine, self._machine) = self._context.comm, (self._machine, {})
        before = comm.now()
        with comm.outside_of_time():
            is_saved = all(comm.gather(bool(machine)))
        if is_saved:
            comm.load_machine_state(machine)
            self._context.phase_timer.skip(comm.now() - before)

    def _restore_tensors(self, tensors: dict[str, Tensor]) -> None:
        self._context.replica.load_state(tensors)
        self.algorithm.load_state(tensors)
        self.best_weights.load_state(tensors)
        self._context.precision.load_state(tensors)
        self.loss_average.load_state(tensors)
        self.metric_sums.copy_(tensors["sums"])
        self._recorder.sample_counts.restore(tensors["ledger"].numpy())

    def _skip_used_samples(self, used: Tensor, resized: bool) -> None:
        """Exclude the samples used before the number of ranks changed from the rest of the epoch."""
        self.used_before_resize = used
        step = self._context.loader.resume(self.position.epoch, used.numpy())
        self._context.check_batch_norm(ResumedStep(self.position.epoch, step))
        if resized and self._context.is_worker:
            self.position.index = step

    def _shift_step_count(self, done: int) -> None:
        """Set `shift` so that the global step continues at `done` after a change of the number of ranks."""
        # A new number of ranks changes the steps per epoch, so epoch and index imply another step than the
        # run has done.
        self.position.shift = done - max(self._context.comm.gather(self.schedule_step))
