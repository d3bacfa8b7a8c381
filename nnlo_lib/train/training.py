"""The training loop: one, generic, for every algorithm and transport."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Share
from nnlo_lib.algorithms.build import build as build_algorithm
from nnlo_lib.algorithms.build import roles
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Downpour
from nnlo_lib.data.loader import Batch
from nnlo_lib.errors import UserError
from nnlo_lib.models.build import build as build_model
from nnlo_lib.problems.classification import Classification
from nnlo_lib.streams import stream
from nnlo_lib.train.checkpoint import Checkpoints
from nnlo_lib.train.data import TrainingData
from nnlo_lib.train.device import device_of, seed_step
from nnlo_lib.train.evaluate import evaluation_sums
from nnlo_lib.train.journal import History, Journal
from nnlo_lib.train.optimizers import equip
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.progress import Progress
from nnlo_lib.train.replica import Replica
from nnlo_lib.train.stopwatch import Stopwatch
from nnlo_lib.train.task import Task
from nnlo_lib.train.tensors import Tensors


class Training:
    """One rank's part of a training, resumable at any step.

    `run` returns True when the last epoch is done, False when it was asked to stop and has saved.
    """

    def __init__(self, task: Task, comm: Communicator, stop: StopFlag) -> None:
        self.task, self.comm, self.stop = task, comm, stop
        run = task.run
        self.roles = roles(run.algorithm, comm.size)
        self.journal = Journal(task.state, speaks=comm.rank == 0)
        self.history = History(task.state)
        self.checkpoints = Checkpoints(
            task.state / "checkpoints", task.key, run.train.keep_checkpoints, comm, self.journal
        )
        self.stopwatch = Stopwatch(comm)
        self.problem = Classification(run.loss, run.metrics)
        self._open_data(task)
        self._build_replica(task)
        self.algorithm = build_algorithm(run.algorithm, run.parallel.processes_per_worker, comm)
        self.epoch = self.index = self.steps = self.samples = self.restarts = 0
        self.sums = torch.zeros(1 + len(self.problem.names), dtype=torch.float64)

    @property
    def is_worker(self) -> bool:
        """Whether this rank computes gradients."""
        return self.roles[self.comm.rank] == "worker"

    def _open_data(self, task: Task) -> None:
        workers = self.roles.count("worker")
        worker = self.roles[: self.comm.rank].count("worker") if self.is_worker else 0
        self.data = TrainingData(task, workers)
        self.loader = self.data.loader(worker)
        if self.comm.rank == 0:
            self.data.save()

    def _build_replica(self, task: Task) -> None:
        run = task.run
        self.device = device_of(self.comm, run.parallel.gpus_per_rank)
        self.tensors = Tensors(self.data.manifest, run.data, self.device)
        module = build_model(run.model.name, run.model.args, self.tensors.shape, self.data.classes, task.seed)
        self.replica = Replica(module, self.device)
        rule = run.train.optimizer
        if isinstance(run.algorithm, Downpour) and not self.is_worker:
            rule = run.algorithm.optimizer or rule
        equip(self.replica, rule)

    def run(self) -> bool:
        """Train to the last epoch, or until all ranks agree to stop."""
        self._resume()
        while self.epoch < self.task.run.train.epochs:
            with self.stopwatch.training():
                self._train_epoch() if self.is_worker else self.algorithm.serve(self.replica, self.stop)
                self.algorithm.on_pause(self.replica)
            if self._everyone(self.index == self.loader.steps_per_epoch or not self.is_worker):
                self._end_epoch()
            self._save()
            if not self._everyone(not self.stop()):
                self.journal.write(f"stopped at epoch {self.epoch}, step {self.index}: saved")
                return False
        return True

    def _train_epoch(self) -> None:
        self.replica.module.train()
        shown = self.comm.rank == self.roles.index("worker")
        with Progress(self.epoch, self.index, self.loader, self.problem, shown) as progress:
            batches = self.stopwatch.fetching(self.loader.epoch(self.epoch, self.index))
            batch = next(batches, None)
            while batch is not None:
                batch = self._step(batch, batches)
                progress.show(self.index, self.sums)
                if self.algorithm.agreed(self.stop()):
                    break

    def _step(self, batch: Batch, batches: Iterator[Batch]) -> Batch | None:
        """Learn from `batch` and return the next one, made ready while a gradient may be on its way."""
        measured = self._gradient(batch)
        self.algorithm.on_gradient(self.replica, Share(batch.count, batch.global_count))
        following = next(batches, None)
        if measured is not None:
            self.sums += self.problem.sums(*measured)
        if not self.algorithm.owns_step:
            self.replica.step()
        self.algorithm.on_parameters(self.replica)
        self.index = batch.index + 1
        self.steps += 1
        return following

    def _gradient(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor] | None:
        """Compute the gradient, and scores, labels and loss; dropout draws from the stream of this very step."""
        if not batch.count:
            self.replica.grad.zero_()
            return None
        seed_step(stream(self.task.seed, "dropout", self.comm.rank, self.epoch, batch.index), self.device)
        inputs, labels = self.tensors(batch.inputs, batch.labels)
        scores = self.replica.forward(*inputs)
        loss = self.problem.loss(scores, labels)
        if not math.isfinite(loss.item()):
            raise UserError(
                f"the loss became {loss.item()} in epoch {self.epoch + 1}, step {batch.index + 1}, on rank "
                f"{self.comm.rank}; a smaller train.optimizer.lr usually helps"
            )
        self.replica.backward(loss)
        self.comm.computed(batch.count)
        return scores, labels, loss

    def _end_epoch(self) -> None:
        """Agree on one model, measure it and write the epoch's row of the history."""
        with self.stopwatch.training():
            self.algorithm.on_epoch(self.replica)
        self.comm.allreduce(self.sums, "metrics")
        measured = {f"train_{name}": value for name, value in self.problem.means(self.sums).items()}
        self.samples += int(self.sums[0])
        measured |= self._validate()
        self.epoch, self.index = self.epoch + 1, 0
        self.sums.zero_()
        if self.comm.rank == 0:
            self._record(measured)

    def _validate(self) -> dict[str, float]:
        split, samples = self.data.validating
        if not len(samples):
            return {}
        ours = samples[self.comm.rank :: self.comm.size]
        with self.stopwatch.phase("evaluate"):
            sums = evaluation_sums(self.replica.module, split, ours, self.tensors, self.problem)
            self.comm.allreduce(sums, "metrics")
        return {f"val_{name}": value for name, value in self.problem.means(sums).items()}

    def _record(self, measured: dict[str, float]) -> None:
        before = self.history.rows[-1] if self.history.rows else {"seconds": 0.0, "samples": 0}
        seconds = self.stopwatch.trained
        row = {
            "epoch": self.epoch,
            "step": self.epoch * self.loader.steps_per_epoch,
            "samples": self.samples,
            "seconds": round(seconds, 6),
            "samples_per_second": round(
                (self.samples - before["samples"]) / (seconds - before["seconds"]), 3
            ),
            "learning_rate": self.task.run.train.optimizer.lr,
            **measured,
        }
        self.history.append(row)
        figures = "  ".join(f"{name} {value:.4f}" for name, value in measured.items())
        self.journal.write(
            f"epoch {self.epoch:3d}/{self.task.run.train.epochs}  {row['samples_per_second']:,.0f} samples/s  {figures}"
        )

    def _everyone(self, condition: bool) -> bool:
        return all(self.comm.gather(condition))

    def _save(self) -> None:
        progress: dict[str, Any] = {name: getattr(self, name) for name in PROGRESS}
        progress |= {"rows": len(self.history.rows), "stopwatch": self.stopwatch.state()}
        tensors: dict[str, Tensor] = {**self.replica.state(), **self.algorithm.state(), "sums": self.sums}
        with self.stopwatch.phase("checkpoint"):
            self.checkpoints.save(tensors, progress)

    def _resume(self) -> None:
        saved = self.checkpoints.load()
        if saved is None:
            self.algorithm.start(self.replica)
            rows = 0
        else:
            tensors, progress = saved
            self.replica.load_state(tensors)
            self.algorithm.load_state(tensors)
            self.sums.copy_(tensors["sums"])
            for name in PROGRESS:
                setattr(self, name, progress[name])
            self.restarts += 1
            self.stopwatch.load_state(progress["stopwatch"])
            rows = progress["rows"]
            self.journal.write(f"resumed at epoch {self.epoch}, step {self.index} (restart {self.restarts})")
        if self.comm.rank == 0:
            self.history.rewind(rows)


PROGRESS = ("epoch", "index", "steps", "samples", "restarts")
