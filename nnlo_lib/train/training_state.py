"""State of a rank between two steps, which checkpoints save and restore bit-exactly.

If the number of ranks changes, each new rank resumes from the combined states of the old ranks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, TypedDict

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.base import Algorithm, Role
from nnlo_lib.algorithms.factory import roles
from nnlo_lib.checkpoint.checkpointer import SavedCheckpoint
from nnlo_lib.checkpoint.rank_file import RankState
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.config.rules.combinations import reason_not_elastic
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.train.evaluation.early_stopping import BestWeights
from nnlo_lib.train.evaluation.recorder import Recorder
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.replica.gradients import ResumedStep

# Tensors of counts, which must not be averaged: each old rank's counts go to exactly one new rank.
SUMMED_STATE = ("sums", "ledger")
# Value of `used_before_resize` if the number of ranks has not changed in the running epoch.
NO_SAMPLES_USED = torch.empty(0, dtype=torch.bool)
MIN_COMMON_BYTES = 1 << 20  # of a tensor; a smaller one is not worth a comparison
NO_LOSS = math.nan  # value of an average before the first loss


class TrainingSegment(TypedDict):
    """Part of a training with constant number of ranks and code; `step`: steps done before it."""

    step: int
    ranks: int
    code: str


@dataclass
class RunPosition:
    """Position of a rank in its run. The names of the fields are keys of a checkpoint.

    Attributes:
        index: progress within the running epoch, in steps of this rank (with dynamic dealing: batches of all
            workers).
        validated_at: `steps` at the last validation.
        over: why the training ends before its last epoch; else an empty string.
        shift: global step minus the step implied by `epoch` and today's steps per epoch; non-zero only after
            a change of the number of ranks.
        paused_within: True if simulated ranks that do not wait for each other paused within an epoch, which
            changed their messages in flight.
    """

    epoch: int = 0
    index: int = 0
    steps: int = 0
    samples: int = 0
    restarts: int = 0
    validated_at: int = 0
    over: str = ""
    shift: int = 0
    legs: list[TrainingSegment] = field(default_factory=list)
    paused_within: bool = False

    @property
    def where(self) -> str:
        """Text that names the position in messages."""
        return f"epoch {self.epoch + 1}, step {self.index}"

    def schedule_step(self, steps_per_epoch: int) -> int:
        """Return the step implied by `epoch` and `index` with the current number of ranks."""
        return self.epoch * steps_per_epoch + self.index

    def run_step(self, steps_per_epoch: int) -> int:
        """Return the global step of the run, including steps done with other numbers of ranks."""
        return self.schedule_step(steps_per_epoch) + self.shift

    def worker_steps(self, run_step: int, batches_per_step: Callable[[int], int]) -> int:
        """Return the number of steps of a worker, the mean over workers, before a global step.

        Args:
            run_step: global step of the run.
            batches_per_step: number of global steps in which each worker makes one, by the number of ranks.
        """
        ends = [*(leg["step"] for leg in self.legs[1:]), run_step]
        # Fractions, so that a segment that begins between two steps of the workers loses nothing.
        return int(
            sum(
                Fraction(end - leg["step"], batches_per_step(leg["ranks"]))
                for leg, end in zip(self.legs, ends, strict=True)
            )
        )

    def begin_segment(self, segment: TrainingSegment) -> None:
        """Append a segment, unless its ranks and code equal the last segment's."""
        if not self.legs or self.legs[-1] | {"step": segment["step"]} != segment:
            self.legs = [*self.legs, segment]


class LossAverage:
    """Exponential moving average of the mean losses of a rank's mini-batches; it starts with the first loss.

    Attributes:
        decay: weight of the earlier losses, below 1; None if no average is requested.
        value: the average; NaN before the first loss.
    """

    def __init__(self, decay: float | None) -> None:
        self.decay, self.value = decay, NO_LOSS

    @property
    def is_requested(self) -> bool:
        """Whether the run has an average."""
        return self.decay is not None

    def add(self, loss: float | None) -> None:
        """Add the mean loss of a mini-batch; a batch without samples has none."""
        if self.decay is None or loss is None:
            return
        self.value = loss if math.isnan(self.value) else self.decay * self.value + (1 - self.decay) * loss

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint; empty if no average is requested."""
        return {"loss_average": torch.tensor([self.value], dtype=torch.float64)} if self.is_requested else {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state; without one, as in a checkpoint without the request, the average starts with the next loss."""
        saved = tensors.get("loss_average")
        self.value = NO_LOSS if saved is None else float(saved)


class TrainingState:
    """A rank's state between two steps.

    Attributes:
        metric_sums: sums of samples, loss and metrics in the running epoch, (sums,) of float64.
        used_before_resize: mask of the running epoch's samples used before the number of ranks changed,
            (samples,) of bool; empty if the number has not changed in this epoch.
    """

    def __init__(
        self, context: RankContext, algorithm: Algorithm, best_weights: BestWeights, recorder: Recorder
    ) -> None:
        self._context, self._recorder = context, recorder
        self.algorithm, self.best_weights = algorithm, best_weights
        self.position = RunPosition()
        # On the GPU of the replica, if it has one: a step must not wait for its own sums.
        device = context.replica.theta.device
        self.metric_sums = torch.zeros(context.problem.sums_size, dtype=torch.float64, device=device)
        self.loss_average = LossAverage(context.task.run.observe.loss_average)
        self.used_before_resize = NO_SAMPLES_USED
        self._machine: dict[str, Any] = {}

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
        self.metric_sums += sums.to(self.metric_sums.device)
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
        progress = {each.name: getattr(self.position, each.name) for each in fields(RunPosition)}
        # Nothing reads the numbers of rows, which are part of the checkpoint format.
        progress |= {"stopwatches": [context.phase_timer.state()], "rows": recorder.row_counts()}
        progress |= {"machine": context.comm.machine_state()}
        tensors: dict[str, Tensor] = {
            **context.replica.state(), **self.algorithm.state(), **self.best_weights.state(),
            **context.precision.state(), **self.loss_average.state(),
            "sums": self.metric_sums,
            "ledger": from_numpy(recorder.sample_counts.counts), "before": self.used_before_resize,
        }  # fmt: skip
        return RankState(tensors, progress, self._common(tensors))

    def _common(self, tensors: dict[str, Tensor]) -> tuple[str, ...]:
        """Return the names of large tensors that have the same bits on all ranks, which add the same gradients in one order."""
        algorithm = self._context.task.run.algorithm
        if not (algorithm.capabilities.shares_gradient and algorithm.sums_in_rank_order):
            return ()
        names = ("theta", "best.theta", *(name for name in tensors if name.startswith("optimizer.")))
        return tuple(name for name in names if name in tensors and tensors[name].nbytes >= MIN_COMMON_BYTES)

    def restore(self, saved: SavedCheckpoint) -> None:
        """Restore the state from a checkpoint."""
        context, resized = self._context, saved.ranks != self._context.comm.size
        if resized:
            self._recorder.journal.write(
                f"resuming with {plural(context.comm.size, 'rank')}; the checkpoint was written by {plural(saved.ranks, 'rank')}"
            )
        tensors, progress, _ = load_rank_state(saved, context.task.run, context.comm, self.algorithm)
        self._restore_tensors(tensors)
        # `progress` has other keys, too.
        self.position = RunPosition(**{each.name: progress[each.name] for each in fields(RunPosition)})
        for state in progress["stopwatches"]:
            context.phase_timer.load_state(state)
        # Other ranks have another machine.
        self._machine = {} if resized else progress["machine"]
        # The mask also applies to a second restart in an epoch in which the number of ranks has changed.
        if resized or tensors["before"].numel():
            self._skip_used_samples(tensors["before"], resized)
        if resized:
            # The new number of ranks changes the steps per epoch, so epoch and index imply another step than done.
            implied = self.position.schedule_step(context.loader.steps_per_epoch)
            self.position.shift = saved.step - max(context.comm.gather(implied))

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
        replica = self._context.replica
        replica.load_state(tensors)
        # A checkpoint is read into main memory; an algorithm computes where the parameters are.
        self.algorithm.load_state({name: each.to(replica.theta.device) for name, each in tensors.items()})
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


def load_rank_state(saved: SavedCheckpoint, run: Run, comm: Communicator, algorithm: Algorithm) -> RankState:
    """Return the state from which this rank resumes: its own, or a merged one if the number of ranks changed."""
    if saved.ranks == comm.size:
        return saved.read_rank_state(comm.rank)
    if reason := reason_not_elastic(run):
        raise UserError(
            f"{saved.folder} was written by {plural(saved.ranks, 'rank')} and cannot resume with {comm.size}: {reason}; "
            f"use {plural(saved.ranks, 'rank')}, or delete {saved.folder.parents[1]} to start again"
        )
    return _merge_rank_states(saved, roles(run, saved.ranks), roles(run, comm.size), comm.rank, algorithm)


def _merge_rank_states(
    saved: SavedCheckpoint, old: Sequence[Role], new: Sequence[Role], rank: int, algorithm: Algorithm
) -> RankState:
    """Return the state of a new rank.

    A worker gets the mean of the old workers' tensors and its share of their counts; a server gets the state
    that the old rank with its number saved. Both get `before`, the mask of samples that any old worker has
    used in this epoch. `old` and `new` are the roles of the old and of the new ranks.
    """
    workers = [number for number, role in enumerate(old) if role == "worker"]
    parts = [saved.read_rank_state(worker) for worker in workers]
    # The sampler skips these samples and divides the rest of the epoch among the new workers.
    used = {"before": torch.stack([part.tensors["ledger"] for part in parts]).amax(0).bool()}
    if new[rank] == "server":
        server = saved.read_rank_state(rank)
        return RankState(server.tensors | used, server.progress)
    place, places = new[:rank].count("worker"), new.count("worker")
    # Round-robin over the old workers; new workers beyond their number start with counts of zero.
    mine = parts[place::places]
    tensors = {
        name: _sum_or_concatenate(tensor, [part.tensors[name] for part in mine])
        if name in (*SUMMED_STATE, *algorithm.summed_state)
        else _mean([part.tensors[name] for part in parts if name in part.tensors])
        for name, tensor in parts[0].tensors.items()
    }
    clocks = [state for part in mine for state in part.progress["stopwatches"]]
    return RankState(tensors | used, parts[0].progress | {"stopwatches": clocks})


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean, computed in float64, so that the mean of equal values is exactly this value."""
    total = torch.stack([tensor.double() for tensor in tensors]).sum(0)
    return (total / len(tensors)).to(tensors[0].dtype)


def _sum_or_concatenate(like: Tensor, mine: Sequence[Tensor]) -> Tensor:
    """Return the sum of counts, or all rows of histograms; zeros or no rows if `mine` is empty."""
    if like.dim() == 2:
        return torch.cat([like[:0], *mine])
    return torch.stack([torch.zeros_like(like), *mine]).sum(0, dtype=like.dtype)
