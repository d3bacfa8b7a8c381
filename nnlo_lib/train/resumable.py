"""A rank's place in its training, saved and found again."""

from typing import Any

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.build import build as build_algorithm
from nnlo_lib.checkpoint.checkpoints import Checkpoints, Moment, Saved
from nnlo_lib.checkpoint.part import Part
from nnlo_lib.checkpoint.rhythm import Rhythm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.failpoints import failpoint
from nnlo_lib.state.steps import Steps
from nnlo_lib.train.code_version import code_version
from nnlo_lib.train.elastic import part_for
from nnlo_lib.train.former import set_aside
from nnlo_lib.train.legs import Leg, joined
from nnlo_lib.train.measure.best import Best
from nnlo_lib.train.measure.books import Books
from nnlo_lib.train.optimizers.rates import Rates
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.replica.stack import Stack
from nnlo_lib.train.task import Task
from nnlo_lib.train.workplace import Workplace

PROGRESS = ("epoch", "index", "steps", "samples", "restarts", "validated_at", "over", "shift", "legs")
NOTHING = torch.empty(0, dtype=torch.bool)  # of the running epoch was used before the number of ranks changed


class Resumable(Workplace):
    """A workplace with the state that a training goes on from, to the bit.

    epoch, index: epochs done, and steps of the running one; steps: of this rank; samples: that all ranks learned from;
    validated_at: `steps` at the last validation; over: why the training ends before its last epoch; before: what of the
    running epoch was used before the number of ranks changed; shift: steps that were done until then, less those that
    so many epochs have now.
    """

    def __init__(self, task: Task, comm: Communicator, stop: StopFlag, stack: Stack | None) -> None:
        super().__init__(task, comm, stack)
        run, self.stop = task.run, stop
        self._code = code_version() if comm.rank == 0 else ""
        self.books = Books(task, comm, self.data)
        self.journal = self.books.journal
        self.rhythm = Rhythm(run.checkpoint, watches=run.parallel.transport == "mpi")
        self.checkpoints = Checkpoints(
            task.state / "checkpoints", task.key, self._code, run.checkpoint, comm, self.journal,
            run.parallel.peer_timeout,
        )  # fmt: skip
        self.algorithm = build_algorithm(run, comm, task.seed)
        self.rates = Rates(run.train, self.roles.count("worker"), self.algorithm.steps_per_round)
        self.best = Best(run.train.restore_best)
        self.epoch = self.index = self.steps = self.samples = self.restarts = self.validated_at = 0
        self.shift, self.legs = 0, list[Leg]()
        self.over = ""
        self.before = NOTHING
        self.sums = torch.zeros(1 + len(self.problem.names), dtype=torch.float64)

    @property
    def _step_of_schedule(self) -> int:
        """Steps of so many epochs with as many ranks as now."""
        return self.epoch * self.loader.steps_per_epoch + self.index

    @property
    def _step_of_run(self) -> int:
        """Steps done, whoever did them."""
        return self._step_of_schedule + self.shift

    def _learning_rate(self) -> float:
        return self.rates(self._step_of_schedule, self.loader.steps_per_epoch)

    @property
    def _where(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.index}"

    def _save(self) -> None:
        progress: dict[str, Any] = {name: getattr(self, name) for name in PROGRESS}
        progress |= {"stopwatches": [self.stopwatch.state()], "rows": self.books.rows()}
        tensors: dict[str, Tensor] = {
            **self.replica.state(), **self.algorithm.state(), **self.best.state(), **self.precision.state(),
            "sums": self.sums,
            "ledger": from_numpy(self.books.uses.counts), "before": self.before,
        }  # fmt: skip
        with self.stopwatch.phase("checkpoint"):
            self.checkpoints.save(Part(tensors, progress), self._moment(), self.books.flushed())
        self.rhythm.saved(self.steps, self.epoch)
        self.stop.saving_takes(self.checkpoints.took)

    def _moment(self) -> Moment:
        rows = self.books.history.rows if self.index == 0 else []
        return Moment(self.epoch, max(self.comm.gather(self._step_of_run)), rows[-1] if rows else {})

    def _resume(self) -> None:
        saved = self.checkpoints.load(self.task.run.train.epochs)
        self.algorithm.start(self.replica)
        rows: dict[str, int] = {}
        if saved is not None:
            rows = self._load(saved)
            self.journal.write(f"resumed at epoch {self.epoch}, step {self.index} (restart {self.restarts})")
        elif self.comm.rank == 0:
            self._set_aside()
        self.books.rewind(rows)
        self._begin_leg()
        self.rates.tell(self.journal)
        self.rates.hear(self.comm, self.books.history.rows)
        if self.is_scheduled:
            self.replica.lr = self._learning_rate()
        self.rhythm.saved(self.steps, self.epoch)
        self.trail = Steps(self.task.state, self._step_of_run, leads=self._leads)
        failpoint("training.resumed")

    def _set_aside(self) -> None:
        if former := set_aside(self.task.state):
            self.journal.write(
                f"warning: it begins at step 0; what was trained before is in {former}: to go on with that, undo the "
                f"change and put its content in the place of what is in {former.parent}; else delete it"
            )

    def _begin_leg(self) -> None:
        steps, codes = zip(*self.comm.gather([self._step_of_run, self._code]), strict=True)
        self.legs = joined(self.legs, Leg(step=max(steps), ranks=self.comm.size, code=codes[0]))

    def _load(self, saved: Saved) -> dict[str, int]:
        """Go on from a checkpoint; return how many rows each table had."""
        resized = saved.ranks != self.comm.size
        if resized:
            self.journal.write(f"going on with {self.comm.size} ranks where {saved.ranks} were before")
        tensors, progress = part_for(saved, self.task.run, self.comm, self.algorithm)
        self.replica.load_state(tensors)
        self.algorithm.load_state(tensors)
        self.best.load_state(tensors)
        self.precision.load_state(tensors)
        self.sums.copy_(tensors["sums"])
        self.books.uses.load(tensors["ledger"].numpy())
        for name in PROGRESS:
            setattr(self, name, progress[name])
        self.restarts += 1
        for state in progress["stopwatches"]:
            self.stopwatch.load_state(state)
        if resized or tensors["before"].numel():
            self._leave_out(tensors["before"], resized)
        if resized:
            self._count_on(saved.step)
        rows: dict[str, int] = progress["rows"]
        return rows

    def _leave_out(self, used: Tensor, resized: bool) -> None:
        """Leave out what was used of the epoch when the number of ranks changed."""
        self.before = used
        step = self.loader.go_on(self.epoch, used.numpy())
        self.index = step if resized and self.is_worker else self.index

    def _count_on(self, done: int) -> None:
        """Let the steps of other ranks than before follow those that were done."""
        self.shift = done - max(self.comm.gather(self._step_of_schedule))
