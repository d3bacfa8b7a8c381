"""Training state that checkpoints save and restore bit-exactly."""

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.checkpoint.checkpointer import SavedCheckpoint
from nnlo_lib.checkpoint.rank_file import RankState
from nnlo_lib.train.elastic import load_rank_state
from nnlo_lib.train.evaluation.best_weights import BestWeights
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.run_position import RunPosition

# Value of `used_before_resize` if the number of ranks has not changed in the running epoch.
NO_SAMPLES_USED = torch.empty(0, dtype=torch.bool)


class TrainingState:
    """A rank's state between two steps.

    Attributes:
        position: position in the run.
        metric_sums: sums of samples, loss and metrics in the running epoch, (1 + names,) of float64.
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
        self.metric_sums = torch.zeros(1 + len(context.problem.names), dtype=torch.float64)
        self.used_before_resize = NO_SAMPLES_USED

    @property
    def schedule_step(self) -> int:
        """Step implied by the position with the current number of ranks."""
        return self.position.schedule_step(self._context.loader.steps_per_epoch)

    @property
    def run_step(self) -> int:
        """Global step of the run, including steps done with other numbers of ranks."""
        return self.position.run_step(self._context.loader.steps_per_epoch)

    def end_epoch(self) -> None:
        """Advance to the start of the next epoch."""
        self.position.epoch, self.position.index = self.position.epoch + 1, 0
        self.used_before_resize = NO_SAMPLES_USED
        self.metric_sums.zero_()

    def capture(self) -> RankState:
        """Return the state for a checkpoint; tensors are not copied."""
        context, recorder = self._context, self._recorder
        progress = self.position.to_dict()
        progress |= {"stopwatches": [context.phase_timer.state()], "rows": recorder.row_counts()}
        tensors: dict[str, Tensor] = {
            **context.replica.state(), **self.algorithm.state(), **self.best_weights.state(),
            **context.precision.state(),
            "sums": self.metric_sums,
            "ledger": from_numpy(recorder.sample_counts.counts), "before": self.used_before_resize,
        }  # fmt: skip
        return RankState(tensors, progress)

    def restore(self, saved: SavedCheckpoint) -> dict[str, int]:
        """Restore the state from a checkpoint; return the number of rows of each table."""
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
        # The mask also applies to a second restart in an epoch in which the number of ranks has changed.
        if resized or tensors["before"].numel():
            self._skip_used_samples(tensors["before"], resized)
        if resized:
            self._shift_step_count(saved.step)
        rows: dict[str, int] = progress["rows"]
        return rows

    def _restore_tensors(self, tensors: dict[str, Tensor]) -> None:
        self._context.replica.load_state(tensors)
        self.algorithm.load_state(tensors)
        self.best_weights.load_state(tensors)
        self._context.precision.load_state(tensors)
        self.metric_sums.copy_(tensors["sums"])
        self._recorder.sample_counts.restore(tensors["ledger"].numpy())

    def _skip_used_samples(self, used: Tensor, resized: bool) -> None:
        """Exclude the samples used before the number of ranks changed from the rest of the epoch."""
        self.used_before_resize = used
        step = self._context.loader.resume(self.position.epoch, used.numpy())
        if resized and self._context.is_worker:
            self.position.index = step

    def _shift_step_count(self, done: int) -> None:
        """Set `shift` so that the global step continues at `done` after a change of the number of ranks."""
        # A new number of ranks changes the steps per epoch, so epoch and index imply another step than the
        # run has done.
        self.position.shift = done - max(self._context.comm.gather(self.schedule_step))
