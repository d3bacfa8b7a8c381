"""What a training goes on from, to the bit: taken from the objects that hold it, and given back to them."""

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

NO_SAMPLES_USED = torch.empty(
    0, dtype=torch.bool
)  # of the running epoch was used before the number of ranks changed


class TrainingState:
    """A rank's state between two steps.

    metric_sums: (1 + metrics,) of the running epoch; used_before_resize: (samples,) bool, what of the running epoch was
    used before the number of ranks changed.
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
        """Steps of so many epochs with as many ranks as now."""
        return self.position.schedule_step(self._context.loader.steps_per_epoch)

    @property
    def run_step(self) -> int:
        """Steps of the run, whatever the number of ranks that did them."""
        return self.position.run_step(self._context.loader.steps_per_epoch)

    def end_epoch(self) -> None:
        """Go to the begin of the next epoch."""
        self.position.epoch, self.position.index = self.position.epoch + 1, 0
        self.used_before_resize = NO_SAMPLES_USED
        self.metric_sums.zero_()

    def capture(self) -> RankState:
        """Return the state as a checkpoint keeps it; tensors are not copied."""
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
        """Go on from a checkpoint; return how many rows each table had."""
        context, resized = self._context, saved.ranks != self._context.comm.size
        if resized:
            self._recorder.journal.write(
                f"going on with {context.comm.size} ranks where {saved.ranks} were before"
            )
        tensors, progress = load_rank_state(saved, context.task.run, context.comm, self.algorithm)
        self._restore_tensors(tensors)
        self.position = RunPosition.from_dict(progress)
        self.position.restarts += 1
        for state in progress["stopwatches"]:
            context.phase_timer.load_state(state)
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
        """Leave out what was used of the epoch when the number of ranks changed."""
        self.used_before_resize = used
        step = self._context.loader.resume(self.position.epoch, used.numpy())
        if resized and self._context.is_worker:
            self.position.index = step

    def _shift_step_count(self, done: int) -> None:
        """Let the steps of other ranks than before follow those that were done."""
        self.position.shift = done - max(self._context.comm.gather(self.schedule_step))
