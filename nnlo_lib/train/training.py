"""The training loop: one, generic, for every algorithm and transport."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, from_numpy

from nnlo_lib.algorithms.algorithm import Share
from nnlo_lib.algorithms.build import build as build_algorithm
from nnlo_lib.algorithms.build import roles
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated import SimulatedCommunicator
from nnlo_lib.config import Downpour
from nnlo_lib.data.loader import Batch
from nnlo_lib.models.build import build as build_model
from nnlo_lib.problems.classification import Classification
from nnlo_lib.state import ledger
from nnlo_lib.state.checkpoints import Checkpoints, Moment
from nnlo_lib.state.history import History
from nnlo_lib.state.journal import Journal
from nnlo_lib.state.part import Part
from nnlo_lib.state.rhythm import Rhythm
from nnlo_lib.state.steps import Steps
from nnlo_lib.streams import stream
from nnlo_lib.train.agreement import agreement
from nnlo_lib.train.data import TrainingData
from nnlo_lib.train.dealing import AsTheyCome, Dealing, Planned
from nnlo_lib.train.device import device_of
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


class Training:
    """One rank's part of a training, resumable at any step.

    `run` returns True when the last epoch is done, False when it was asked to stop and has saved.
    """

    def __init__(self, task: Task, comm: Communicator, stop: StopFlag, stack: Stack | None = None) -> None:
        self.task, self.comm, self.stop, self.stack = task, comm, stop, stack
        run = task.run
        self.roles = roles(run, comm.size)
        self.journal = Journal(task.state, speaks=comm.rank == 0)
        self.tables = {name: History(task.state, name) for name in ("history", "nodes", "ledger")}
        self.history, self.nodes = self.tables["history"], self.tables["nodes"]
        self.checkpoints = Checkpoints(
            task.state / "checkpoints",
            task.key,
            run.checkpoint,
            comm,
            self.journal,
            run.parallel.peer_timeout,
        )
        self.rhythm = Rhythm(run.checkpoint, watches=run.parallel.transport == "mpi")
        self.stopwatch = Stopwatch(comm)
        self.problem = Classification(run.loss, run.metrics)
        self._open_data(task)
        self._build_replica(task)
        self.algorithm = build_algorithm(run, comm, task.seed)
        self.validation = Validation(self.data, self.tensors, self.problem, comm, self.nodes)
        self.epoch = self.index = self.steps = self.samples = self.restarts = 0
        self.sums = torch.zeros(1 + len(self.problem.names), dtype=torch.float64)

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
        self.ledger = ledger.Ledger(len(self.data.split))
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
        """Train to the last epoch, or until all ranks agree to stop. Raises OSError if the stop could not be saved."""
        self._resume()
        while self.epoch < self.task.run.train.epochs:
            self._train()
            stop, due = map(any, zip(*self.comm.gather([self.stop(), self._due()]), strict=True))
            ended = self.epoch == self.task.run.train.epochs
            if stop or due or ended:
                self._save()
            if stop and not ended:
                return self._stopped()
        self.checkpoints.settle()
        self.algorithm.on_finish(self.replica)
        return True

    def _train(self) -> None:
        """Train until the epoch ends, or a stop or a checkpoint is wished for."""
        self.dealing.begin(self.index)
        with self.stopwatch.training():
            self._train_epoch() if self.is_worker else self.algorithm.serve(self.replica, self._wishes_pause)
            self.algorithm.on_pause(self.replica)
        self.index = self.dealing.done(self.index)
        if all(self.comm.gather(self.index == self.loader.steps_per_epoch or not self.is_worker)):
            self._end_epoch()

    def _wishes_pause(self) -> bool:
        return self.stop() or self.rhythm.due(self.steps)

    def _due(self) -> bool:
        return self.rhythm.due(self.steps) or (self.index == 0 and self.rhythm.due_after(self.epoch))

    def _stopped(self) -> bool:
        if not self.checkpoints.settle():
            raise OSError(f"stopped at {self._where}, and could not save; see the warning above")
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
        self.ledger.mark(batch.ids)
        self.trail.reached(self._step_of_run)
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
            measured |= self._validated() | agreement(self.algorithm, self.replica, self._where)
        self.algorithm.after_epoch(self.replica)
        self._close_ledger()
        measured["bytes"] = sum(self.comm.gather(self._bytes_of_training()))
        self.epoch, self.index = self.epoch + 1, 0
        self.sums.zero_()
        if self.comm.rank == 0:
            self._record(measured)

    def _close_ledger(self) -> None:
        """Add up how often each sample was used, and compare with what the epoch should use."""
        uses = from_numpy(self.ledger.counts).int()
        self.comm.allreduce(uses, "telemetry")
        self.ledger.clear()
        if self.comm.rank == 0:
            expected = self.data.expected(self.epoch)
            self.tables["ledger"].append(ledger.row(self.epoch + 1, uses.numpy(), expected))

    def _bytes_of_training(self) -> int:
        counts = self.stopwatch.traffic()["bytes"]
        return sum(count for purpose, count in counts.items() if purpose not in ("metrics", "telemetry"))

    def _validated(self) -> dict[str, float]:
        if self.algorithm.apart:
            return self.validation.each(self.replica, self.epoch + 1, self.stack)
        return self.validation.together(self.replica)

    def _record(self, measured: dict[str, float]) -> None:
        before = self.history.rows[-1] if self.history.rows else {"seconds": 0.0, "samples": 0}
        seconds = self.stopwatch.trained
        row = {
            "epoch": self.epoch,
            "step": self.epoch * self.loader.steps_per_epoch,
            "samples": self.samples,
            "passes": round(self.samples / self.data.trained_on, 6),
            "seconds": round(seconds, 6),
            "samples_per_second": round(
                (self.samples - before["samples"]) / (seconds - before["seconds"]), 3
            ),
            "learning_rate": self.replica.lr,
            **measured,
        }
        self.history.append(row)
        figures = "  ".join(f"{name} {value:.4g}" for name, value in measured.items())
        self.journal.write(
            f"epoch {self.epoch:3d}/{self.task.run.train.epochs}  {row['samples_per_second']:,.0f} samples/s  {figures}"
        )

    @property
    def _step_of_run(self) -> int:
        return self.epoch * self.loader.steps_per_epoch + self.index

    @property
    def _where(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.index}"

    def _save(self) -> None:
        progress: dict[str, Any] = {name: getattr(self, name) for name in PROGRESS}
        progress |= {"stopwatch": self.stopwatch.state()}
        progress |= {"rows": {name: len(table.rows) for name, table in self.tables.items()}}
        tensors: dict[str, Tensor] = {
            **self.replica.state(), **self.algorithm.state(), "sums": self.sums, "ledger": from_numpy(self.ledger.counts),
        }  # fmt: skip
        with self.stopwatch.phase("checkpoint"):
            self.checkpoints.save(Part(tensors, progress), self._moment(), self._flushed())
        self.rhythm.saved(self.steps, self.epoch)
        self.stop.saving_takes(self.checkpoints.took)

    def _moment(self) -> Moment:
        ends_epoch = self.comm.rank == 0 and self.index == 0 and bool(self.history.rows)
        return Moment(self.epoch, self._step_of_run, self.history.rows[-1] if ends_epoch else {})

    def _flushed(self) -> str:
        """Write the rows that a checkpoint relies on; return why the disk refused, if it did."""
        try:
            for table in self.tables.values():
                table.flush()
        except OSError as error:
            return str(error)
        return ""

    def _resume(self) -> None:
        saved = self.checkpoints.load()
        self.algorithm.start(self.replica)
        rows: dict[str, int] = {}
        if saved is not None:
            rows = self._load(saved.part(self.comm.rank))
            self.journal.write(f"resumed at epoch {self.epoch}, step {self.index} (restart {self.restarts})")
        if self.is_worker:
            self.replica.lr = self._learning_rate()
        if self.comm.rank == 0:
            for name, table in self.tables.items():
                table.rewind(rows.get(name, 0))
        self.rhythm.saved(self.steps, self.epoch)
        self.trail = Steps(self.task.state, self._step_of_run, leads=self._leads)

    def _load(self, part: Part) -> dict[str, int]:
        """Go on from a checkpoint; return how many rows each table had."""
        tensors, progress = part
        self.replica.load_state(tensors)
        self.algorithm.load_state(tensors)
        self.sums.copy_(tensors["sums"])
        self.ledger.load(tensors["ledger"].numpy())
        for name in PROGRESS:
            setattr(self, name, progress[name])
        self.restarts += 1
        self.stopwatch.load_state(progress["stopwatch"])
        rows: dict[str, int] = progress["rows"]
        return rows


PROGRESS = ("epoch", "index", "steps", "samples", "restarts")
