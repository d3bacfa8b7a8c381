"""The training loop: one, generic, for every algorithm and transport."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.algorithm import Share
from nnlo_lib.algorithms.build import build as build_algorithm
from nnlo_lib.algorithms.build import roles
from nnlo_lib.checkpoint.checkpoints import Checkpoints, Moment, Saved
from nnlo_lib.checkpoint.part import Part
from nnlo_lib.checkpoint.rhythm import Rhythm
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated import SimulatedCommunicator
from nnlo_lib.config import Downpour
from nnlo_lib.data.loader import Batch
from nnlo_lib.errors import NotSavedError
from nnlo_lib.failpoints import failpoint
from nnlo_lib.models.build import build as build_model
from nnlo_lib.problems.classification import Classification
from nnlo_lib.state.steps import Steps
from nnlo_lib.streams import stream
from nnlo_lib.train.agreement import agreement
from nnlo_lib.train.books import Books
from nnlo_lib.train.data import TrainingData
from nnlo_lib.train.dealing import AsTheyCome, Dealing, Planned
from nnlo_lib.train.device import device_of
from nnlo_lib.train.elastic import part_for
from nnlo_lib.train.gradients import Gradients, Measured, OwnGradients
from nnlo_lib.train.optimizers import equip
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.progress import Progress
from nnlo_lib.train.replica import Replica
from nnlo_lib.train.schedule import learning_rate
from nnlo_lib.train.stack import Stack, StackGradients
from nnlo_lib.train.stopwatch import Stopwatch
from nnlo_lib.train.task import Task
from nnlo_lib.train.tensors import Tensors
from nnlo_lib.train.validation import Validation

PROGRESS = ("epoch", "index", "steps", "samples", "restarts")
NOTHING = torch.empty(0, dtype=torch.bool)  # of the running epoch was used before the number of ranks changed


class Training:
    """One rank's part of a training, resumable at any step.

    `run` returns True when the task is done, False when it was asked to stop and has saved.
    """

    def __init__(self, task: Task, comm: Communicator, stop: StopFlag, stack: Stack | None = None) -> None:
        self.task, self.comm, self.stop, self.stack = task, comm, stop, stack
        run = task.run
        self.roles = roles(run, comm.size)
        self.stopwatch = Stopwatch(comm)
        self.problem = Classification(run.loss, run.metrics)
        self._open_data(task)
        self.books = Books(task, comm, self.data)
        self.journal = self.books.journal
        self.rhythm = Rhythm(run.checkpoint, watches=run.parallel.transport == "mpi")
        self.checkpoints = Checkpoints(
            task.state / "checkpoints", task.key, run.checkpoint, comm, self.journal, run.parallel.peer_timeout
        )  # fmt: skip
        self._build_replica(task)
        self.algorithm = build_algorithm(run, comm, task.seed)
        self.validation = Validation(self.data, self.tensors, self.problem, comm, self.books.nodes)
        self.epoch = self.index = self.steps = self.samples = self.restarts = 0
        self.before = NOTHING
        self.sums = torch.zeros(1 + len(self.problem.names), dtype=torch.float64)

    @property
    def is_finished(self) -> bool:
        """Whether the run's last epoch is done; a task may end before."""
        return self.epoch == self.task.run.train.epochs

    @property
    def is_worker(self) -> bool:
        """Whether this rank computes gradients."""
        return self.roles[self.comm.rank] == "worker"

    @property
    def _leads(self) -> bool:
        """Whether this is the first of the workers."""
        return self.comm.rank == self.roles.index("worker")

    def _open_data(self, task: Task) -> None:
        workers = self.roles.count("worker")
        worker = self.roles[: self.comm.rank].count("worker") if self.is_worker else 0
        self.data = TrainingData(task, workers)
        self.loader = self.data.loader(worker)
        dynamic = task.run.train.dealing == "dynamic"
        self.dealing: Dealing = AsTheyCome(self.loader, self.comm) if dynamic else Planned(self.loader)
        if self.comm.rank == 0:
            self.data.save()

    def _build_replica(self, task: Task) -> None:
        run = task.run
        self.device = device_of(self.comm, run.parallel.gpus_per_rank)
        self.tensors = Tensors(self.data.manifest, run.data, self.device)
        module = build_model(run.model.name, run.model.args, self.tensors.shape, self.data.classes, task.seed)
        self.gradients: Gradients
        if self.stack is None:
            self.replica = Replica(module, self.device)
            self.gradients = OwnGradients(self.replica, self.problem, self.tensors, self.comm)
        else:
            assert isinstance(self.comm, SimulatedCommunicator), "only the simulator stacks replicas"
            self.replica = self.stack.add(self.comm.rank, module, self.tensors, self.problem, self.device)
            self.gradients = StackGradients(self.stack, self.comm)
        rule = run.train.optimizer
        if isinstance(run.algorithm, Downpour) and not self.is_worker:
            rule = run.algorithm.optimizer or rule
        equip(self.replica, rule)

    def run(self) -> bool:
        """Train to the task's last epoch, or until all ranks agree to stop. Raises NotSavedError if a stop could not save."""
        self._resume()
        while self.epoch < self.task.ends_at:
            self._train()
            stop, due = map(any, zip(*self.comm.gather([self.stop(), self._due()]), strict=True))
            ended = self.epoch == self.task.ends_at
            if stop or due or ended:
                self._save()
            if stop and not ended:
                return self._stopped()
        saved = self.checkpoints.settle()
        if self.is_finished:
            self.algorithm.on_finish(self.replica)
        elif not saved:
            raise NotSavedError(f"paused before {self._where} and could not save: the warning above says why")
        failpoint("training.finish")
        return True

    def _train(self) -> None:
        """Train until the epoch ends, or a stop or a checkpoint is wished for."""
        self.dealing.begin(self.index)
        with self.stopwatch.training():
            self._train_epoch() if self.is_worker else self.algorithm.serve(self.replica, self._wishes_pause)
            self.algorithm.on_pause(self.replica)
        failpoint("training.pause")
        self.index = self.dealing.done(self.index)
        if all(self.comm.gather(self.index == self.loader.steps_per_epoch or not self.is_worker)):
            self._end_epoch()

    def _wishes_pause(self) -> bool:
        return self.stop() or self.rhythm.due(self.steps)

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
                if self.algorithm.agreed(self._wishes_pause()) and self.dealing.leave():
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
        if not self.algorithm.owns_step:
            self.replica.lr = self._learning_rate()
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
        if not batch.count:
            self.replica.grad.zero_()
            return None
        seed = stream(self.task.seed, "dropout", self.comm.rank, self.epoch, batch.index)
        where = f"in epoch {self.epoch + 1}, step {batch.index + 1}, on rank {self.comm.rank}"
        return self.gradients(batch, seed, where)

    def _learning_rate(self) -> float:
        train, steps = self.task.run.train, self.loader.steps_per_epoch
        step, a_round = self.epoch * steps + self.index, self.algorithm.steps_per_round
        return learning_rate(
            train.schedule, train.optimizer.lr, step // a_round, train.epochs * steps // a_round
        )

    def _end_epoch(self) -> None:
        """Agree on what to measure, measure it and write the epoch's row of the history."""
        with self.stopwatch.training():
            self.algorithm.on_epoch(self.replica)
        self.comm.allreduce(self.sums, "metrics")
        measured = {f"train_{name}": value for name, value in self.problem.means(self.sums).items()}
        self.samples += int(self.sums[0])
        with self.stopwatch.phase("evaluate"):
            failpoint("training.evaluate")
            measured |= self._validated() | agreement(self.algorithm, self.replica, self._where)
        self.algorithm.after_epoch(self.replica)
        self.books.close_ledger(self.epoch)
        measured["bytes"] = sum(self.comm.gather(self._bytes_of_training()))
        self.epoch, self.index, self.before = self.epoch + 1, 0, NOTHING
        self.sums.zero_()
        if self.comm.rank == 0:
            self.books.record(self._row(), measured)
        failpoint("training.epoch")

    def _bytes_of_training(self) -> int:
        counts = self.stopwatch.traffic()["bytes"]
        return sum(count for purpose, count in counts.items() if purpose not in ("metrics", "telemetry"))

    def _validated(self) -> dict[str, float]:
        if self.algorithm.apart:
            return self.validation.each(self.replica, self.epoch + 1, self.stack)
        return self.validation.together(self.replica)

    def _row(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "step": self._step_of_run,
            "samples": self.samples,
            "seconds": round(self.stopwatch.trained, 6),
            "learning_rate": self.replica.lr,
        }

    @property
    def _step_of_run(self) -> int:
        return self.epoch * self.loader.steps_per_epoch + self.index

    @property
    def _where(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.index}"

    def _save(self) -> None:
        progress: dict[str, Any] = {name: getattr(self, name) for name in PROGRESS}
        progress |= {"stopwatches": [self.stopwatch.state()], "rows": self.books.rows()}
        tensors: dict[str, Tensor] = {
            **self.replica.state(), **self.algorithm.state(), "sums": self.sums,
            "ledger": from_numpy(self.books.uses.counts), "before": self.before,
        }  # fmt: skip
        with self.stopwatch.phase("checkpoint"):
            self.checkpoints.save(Part(tensors, progress), self._moment(), self.books.flushed())
        self.rhythm.saved(self.steps, self.epoch)
        self.stop.saving_takes(self.checkpoints.took)

    def _moment(self) -> Moment:
        rows = self.books.history.rows if self.index == 0 else []
        return Moment(self.epoch, self._step_of_run, rows[-1] if rows else {})

    def _resume(self) -> None:
        saved = self.checkpoints.load()
        self.algorithm.start(self.replica)
        rows: dict[str, int] = {}
        if saved is not None:
            rows = self._load(saved)
            self.journal.write(f"resumed at epoch {self.epoch}, step {self.index} (restart {self.restarts})")
        if self.is_worker:
            self.replica.lr = self._learning_rate()
        self.books.rewind(rows)
        self.rhythm.saved(self.steps, self.epoch)
        self.trail = Steps(self.task.state, self._step_of_run, leads=self._leads)
        failpoint("training.resumed")

    def _load(self, saved: Saved) -> dict[str, int]:
        """Go on from a checkpoint; return how many rows each table had."""
        resized = saved.ranks != self.comm.size
        if resized:
            self.journal.write(f"going on with {self.comm.size} ranks where {saved.ranks} were before")
        tensors, progress = part_for(saved, self.task.run, self.comm, self.algorithm)
        self.replica.load_state(tensors)
        self.algorithm.load_state(tensors)
        self.sums.copy_(tensors["sums"])
        self.books.uses.load(tensors["ledger"].numpy())
        for name in PROGRESS:
            setattr(self, name, progress[name])
        self.restarts += 1
        for state in progress["stopwatches"]:
            self.stopwatch.load_state(state)
        if resized or tensors["before"].numel():
            self._leave_out(tensors["before"], resized)
        rows: dict[str, int] = progress["rows"]
        return rows

    def _leave_out(self, used: Tensor, resized: bool) -> None:
        """Leave out what was used of the epoch when the number of ranks changed."""
        self.before = used
        step = self.loader.go_on(self.epoch, used.numpy())
        self.index = step if resized and self.is_worker else self.index
