"""State of a rank between two steps, which checkpoints save and restore bit-exactly.

If the number of ranks changes, each new rank resumes from the combined states of the old ranks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, TypedDict

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.base import Algorithm
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

# Tensors of counts, which must not be averaged: each old rank's counts go to exactly one new rank.
SUMMED_STATE = ("sums", "ledger")
# Value of `used_before_resize` if the number of ranks has not changed in the running epoch.
NO_SAMPLES_USED = torch.empty(0, dtype=torch.bool)
MIN_COMMON_BYTES = 1 << 20  # of a tensor; a smaller one is not worth a comparison


class TrainingSegment(TypedDict):
    """Part of a training with constant number of ranks and code; `step`: steps done before it."""

    step: int
    ranks: int
    code: str


@dataclass
class RunPosition:
    """Position of a rank in its run. The names of the fields are keys of a checkpoint."""

    epoch: int = 0
    # progress within the running epoch, in steps of this rank (with dynamic dealing: batches of all workers)
    index: int = 0
    steps: int = 0
    samples: int = 0
    restarts: int = 0
    validated_at: int = 0  # `steps` at the last validation
    over: str = ""  # why the training ends before its last epoch; else an empty string
    # global step minus the step implied by `epoch` and today's steps per epoch; non-zero only after a change of the
    # number of ranks
    shift: int = 0
    legs: list[TrainingSegment] = field(default_factory=list)
    # True if simulated ranks that do not wait for each other paused within an epoch, which changed their messages in
    # flight
    paused_within: bool = False

    @property
    def where(self) -> str:
        """Text that names the position in messages."""
        return f"epoch {self.epoch + 1}, step {self.index}"


class TrainingState:
    """A rank's state between two steps."""

    def __init__(
        self, context: RankContext, algorithm: Algorithm, best_weights: BestWeights, recorder: Recorder
    ) -> None:
        self._context, self._recorder = context, recorder
        self.algorithm, self.best_weights = algorithm, best_weights
        self.position = RunPosition()
        # Of samples, loss and metrics in the running epoch; on a GPU of the replica, as a step must not wait for its sums.
        device = context.replica.theta.device
        self.metric_sums = torch.zeros(context.problem.sums_size, dtype=torch.float64, device=device)
        # Exponential moving average of the losses of this rank's mini-batches; NaN before the first loss.
        self.loss_decay, self.loss_average = context.task.run.observe.loss_average, math.nan
        # Mask of the running epoch's samples that were used before the number of ranks changed, (samples,) of bool.
        self.used_before_resize = NO_SAMPLES_USED
        self._machine: dict[str, Any] = {}

    @property
    def run_step(self) -> int:
        """Global step of the run, including steps done with other numbers of ranks."""
        return self._implied_step + self.position.shift

    @property
    def _implied_step(self) -> int:
        """Step that `epoch` and `index` imply with the present number of ranks."""
        return self.position.epoch * self._context.loader.steps_per_epoch + self.position.index

    def worker_steps(self, run_step: int) -> int:
        """Return the number of steps of a worker before a global step; with dynamic dealing, the mean."""
        run, legs = self._context.task.run, self.position.legs
        # A global step is a batch of one worker with dynamic dealing, otherwise a step of every worker.
        if run.train.dealing == "static":
            return run_step
        ends = [*(leg["step"] for leg in legs[1:]), run_step]
        # Fractions, so that a segment that begins between two steps of the workers loses nothing.
        return int(
            sum(
                Fraction(end - leg["step"], roles(run, leg["ranks"]).count("worker"))
                for leg, end in zip(legs, ends, strict=True)
            )
        )

    def add_sums(self, sums: Tensor) -> None:
        """Add the sums of a mini-batch (see Problem). Raises UserError if an own problem returns another number of them."""
        if sums.shape != self.metric_sums.shape:
            problem = self._context.task.run.problem.name
            raise UserError(
                f"problem {problem}: compute_loss returned sums of shape {tuple(sums.shape)} instead of ({len(self.metric_sums)},): "
                "the number of samples, then the sum of the loss and of each metric in `names`"
            )
        self.metric_sums += sums.to(self.metric_sums.device)
        decay, before = self.loss_decay, self.loss_average
        # A batch without samples has no loss.
        if decay is not None and (loss := self._context.problem.means(sums).get("loss")) is not None:
            self.loss_average = loss if math.isnan(before) else decay * before + (1 - decay) * loss

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
        rows = {name: len(table.rows) for name, table in recorder.tables.items()}
        progress |= {"stopwatches": [context.phase_timer.state()], "rows": rows}
        progress |= {"machine": context.comm.machine_state()}
        tensors: dict[str, Tensor] = {
            **context.replica.state(), **self.algorithm.state(), **self.best_weights.state(),
            **context.precision.state(), **context.averaged_weights.state(), "sums": self.metric_sums,
            "ledger": from_numpy(recorder.sample_counts.counts), "before": self.used_before_resize,
        }  # fmt: skip
        if self.loss_decay is not None:
            tensors["loss_average"] = torch.tensor([self.loss_average], dtype=torch.float64)
        return RankState(tensors, progress, self._common(tensors))

    def _common(self, tensors: dict[str, Tensor]) -> tuple[str, ...]:
        """Return the names of large tensors that have the same bits on all ranks, which add the same gradients in one order."""
        algorithm = self._context.task.run.algorithm
        if not (algorithm.capabilities.shares_gradient and algorithm.sums_in_rank_order):
            return ()
        is_whole = not self.algorithm.shards_optimizer
        moments = (name for name in tensors if is_whole and name.startswith("optimizer."))
        names = ("theta", "best.theta", "ema.theta", *moments)
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
        self._machine = progress["machine"]
        # The rest of the epoch is without the samples used before, also in a second restart in this epoch.
        if resized or tensors["before"].numel():
            self.used_before_resize, epoch = tensors["before"], self.position.epoch
            step = context.loader.resume(epoch, self.used_before_resize.numpy())
            context.check_batch_norm((epoch, step))
            if resized and context.is_worker:
                self.position.index = step
        if resized:
            # The new number of ranks changes the steps per epoch, so epoch and index imply another step than done.
            self.position.shift = saved.step - max(context.comm.gather(self._implied_step))

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
        self._context.averaged_weights.load_state(tensors)
        # Without one, as in a checkpoint without the request, the average starts with the next loss.
        self.loss_average = float(tensors.get("loss_average", math.nan))
        self.metric_sums.copy_(tensors["sums"])
        self._recorder.sample_counts.restore(tensors["ledger"].numpy())


def load_rank_state(saved: SavedCheckpoint, run: Run, comm: Communicator, algorithm: Algorithm) -> RankState:
    """Return the state from which this rank resumes: its own, or a merged one if the number of ranks changed.

    A worker gets the mean of the old workers' tensors and its share of their counts; a server gets the state
    that the old rank with its number saved. Both get `before`, the mask of samples that any old worker has
    used in this epoch.
    """
    if saved.ranks == comm.size:
        return saved.read_rank_state(comm.rank)
    if reason := reason_not_elastic(run):
        raise UserError(
            f"{saved.folder} was written by {plural(saved.ranks, 'rank')} and cannot resume with {comm.size}: {reason}; "
            f"use {plural(saved.ranks, 'rank')}, or delete {saved.folder.parents[1]} to start again"
        )
    old, new, rank = roles(run, saved.ranks), roles(run, comm.size), comm.rank
    workers = [number for number, role in enumerate(old) if role == "worker"]
    parts = [saved.read_rank_state(worker) for worker in workers]
    # The sampler skips these samples and divides the rest of the epoch among the new workers.
    used = {"before": torch.stack([part.tensors["ledger"] for part in parts]).amax(0).bool()}
    own_part = algorithm.comm.part(parts[0].tensors["theta"].numel())
    machine = _merge_machines(saved, parts, rank)
    if new[rank] == "server":
        server = saved.read_rank_state(rank)
        return RankState(server.tensors | used, server.progress | {"machine": machine})
    place, places = new[:rank].count("worker"), new.count("worker")
    # Round-robin over the old workers; new workers beyond their number start with counts of zero.
    mine = parts[place::places]
    tensors = {
        name: _sum_or_concatenate(tensor, [part.tensors[name] for part in mine])
        if name in (*SUMMED_STATE, *algorithm.summed_state)
        else torch.cat([part.tensors[name] for part in parts])[own_part]
        if algorithm.shards_optimizer and name.startswith("optimizer.") and tensor.dim()
        else _mean([part.tensors[name] for part in parts if name in part.tensors])
        for name, tensor in parts[0].tensors.items()
    }
    clocks = [state for part in mine for state in part.progress["stopwatches"]]
    return RankState(tensors | used, parts[0].progress | {"stopwatches": clocks, "machine": machine})


def _merge_machines(saved: SavedCheckpoint, parts: Sequence[RankState], rank: int) -> dict[str, Any]:
    """Return the virtual machine of a new rank, at the latest clock of the old workers; empty if there is none."""
    machines = [part.progress["machine"] for part in parts]
    if not all(machines):
        return {}
    new = {
        "cost": {"steps": 0, "card_free": 0.0, "arrivals": []},
        "draws": machines[0]["draws"] | {"messages": []},
    }
    own = saved.read_rank_state(rank).progress["machine"] if rank < saved.ranks else new
    return own | {"clock": max(machine["clock"] for machine in machines)}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """Return the mean, computed in float64, so that the mean of equal values is exactly this value."""
    total = torch.stack([tensor.double() for tensor in tensors]).sum(0)
    return (total / len(tensors)).to(tensors[0].dtype)


def _sum_or_concatenate(like: Tensor, mine: Sequence[Tensor]) -> Tensor:
    """Return the sum of counts, or all rows of histograms; zeros or no rows if `mine` is empty."""
    if like.dim() == 2:
        return torch.cat([like[:0], *mine])
    return torch.stack([torch.zeros_like(like), *mine]).sum(0, dtype=like.dtype)
