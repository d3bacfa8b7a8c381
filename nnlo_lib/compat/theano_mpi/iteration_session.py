"""One process of a rule: `python -m nnlo_lib.compat.theano_mpi.iteration_session SESSION`, started by the launcher.

It trains a model that takes its own steps, and records the costs, errors and times that the model reports.
"""

import csv
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from safetensors.torch import save_file

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.compat.theano_mpi.iteration_model import ParameterView, build_iteration_model
from nnlo_lib.compat.theano_mpi.rule import RuleSettings, SessionTask
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import reveal
from nnlo_lib.train.rank_process import exit_process, register_rank, report_end, report_failure

PARAMETERS_FILE = "params.safetensors"
MODES = ("calc", "comm", "wait")
NAMES = {"train": ("train_cost", "train_error"), "val": ("val_cost", "val_error", "val_error_top5")}


class IterationRecorder:
    """Collects the values of one rank; `end_epoch` returns the means over all ranks."""

    def __init__(self, comm: Communicator) -> None:
        self._comm, self._started = comm, time.perf_counter()
        self._clear()

    def _clear(self) -> None:
        self._values: dict[str, list[float]] = {name: [] for names in NAMES.values() for name in names}
        self._seconds = dict.fromkeys(MODES, 0.0)

    def start(self) -> None:
        """Begin a part of an iteration."""
        self._started = time.perf_counter()

    def end(self, mode: str) -> None:
        """Count the time since `start` as `calc`, `comm` or `wait`."""
        if mode not in MODES:
            raise ValueError(f"recorder.end: unknown mode '{mode}'; use one of {', '.join(MODES)}")
        self._seconds[mode] += time.perf_counter() - self._started

    def train_error(self, count: int, cost: Any, error: Any) -> None:
        """Record loss and fraction of wrong answers of a training step, as numbers or tensors of one element."""
        self._add("train", cost, error)

    def val_error(self, count: int, cost: Any, error: Any, error_top5: Any = float("nan")) -> None:
        """Record loss, fraction of wrong answers, and of those not among the best five, of a validation batch."""
        self._add("val", cost, error, error_top5)

    def _add(self, split: str, *values: Any) -> None:
        for name, value in zip(NAMES[split], values, strict=True):
            self._values[name].append(float(value))

    def end_epoch(self) -> dict[str, float]:
        """Return the means over all ranks since the last call, and the times of the slowest rank."""
        ranks = self._comm.gather([self._values, self._seconds])
        self._clear()
        row = {}
        for name in self._values:
            everyones = [each for values, _ in ranks for each in values[name]]
            row[name] = sum(everyones) / len(everyones) if everyones else float("nan")
        return row | {f"{mode}_seconds": max(seconds[mode] for _, seconds in ranks) for mode in MODES}


class IterationRank:
    """Trains a model that takes its own steps, and exchanges its parameters by the algorithm of a rule."""

    def __init__(self, model: Any, comm: Communicator, settings: RuleSettings) -> None:
        self.model, self.comm = model, comm
        self.workers, self.is_server = comm.size - settings.servers, comm.rank < settings.servers
        self.view, self.recorder = ParameterView(model.params), IterationRecorder(comm)
        self.algorithm = settings.algorithm(model, comm)
        self._scales = settings.rule == "BSP" and settings.sync_type == "avg"
        self._iterations = 0
        numbers = comm.gather(
            None if self.is_server else [model.data.n_batch_train, model.n_subb, model.n_epochs]
        )
        if len({json.dumps(each) for each in numbers if each is not None}) > 1:
            raise UserError(
                f"n_batch_train, n_subb, n_epochs: the workers have {numbers[settings.servers :]}; give all workers as many "
                "batches and epochs"
            )

    def run(self) -> list[dict[str, float]]:
        """Train all epochs and return one row of means per epoch."""
        model, comm, rows = self.model, self.comm, []
        model.compile_iter_fns()
        # As in Theano-MPI, where an average of parameters is as fast as one worker.
        if self._scales and hasattr(model, "scale_lr"):
            model.scale_lr(self.workers)
        self.algorithm.start(self.view)
        for epoch in range(model.n_epochs):
            model.epoch = epoch
            if self.is_server:
                self.algorithm.serve(self.view, lambda: False)
            else:
                self._train_epoch()
            self.algorithm.quiesce(self.view)
            # A server takes no steps; the history counts the steps of one worker.
            self._iterations = max(comm.gather(self._iterations))
            stop = self._validate()
            rows.append({"epoch": epoch + 1, "iterations": self._iterations} | self.recorder.end_epoch())
            measured = (rows[-1][f"val_{name}"] for name in ("cost", "error", "error_top5"))
            model.current_info = [self._iterations, *measured]
            model.adjust_hyperp(epoch)
            if any(comm.gather(stop)):
                break
        self.algorithm.on_finish(self.view)
        model.cleanup()
        return rows

    def _train_epoch(self) -> None:
        model, batch, share = self.model, 0, SampleShare(1, self.workers)
        while batch < model.data.n_batch_train:
            following = None
            for _ in range(model.n_subb):
                self.algorithm.on_batch(self.view, share)
                # Before the model's step: EASGD moves the parameters, then takes `tau` steps, as Theano-MPI did.
                self.algorithm.on_gradient(self.view, share)
                following = model.train_iter(self._iterations, self.recorder)
                self.algorithm.on_parameters(self.view)
                self.algorithm.should_stop(False)
                self._iterations += 1
            batch = batch + 1 if following is None else following
        model.reset_iter("train")

    def _validate(self) -> bool:
        """Measure the model of the algorithm on each worker's validation batches; return True to stop."""
        self.algorithm.before_evaluation(self.view)
        stop = False
        if not self.is_server:
            for _ in range(self.model.data.n_batch_val * self.model.n_subb):
                stop |= self.model.val_iter(self._iterations, self.recorder) == "stop"
            self.model.reset_iter("val")
        self.algorithm.after_evaluation(self.view)
        return stop


def model_config(
    comm: Communicator, settings: RuleSettings, devices: Sequence[str], name: str
) -> dict[str, Any]:
    """Return the argument of the model's class on this rank; `devices` has the device of each rank, `cuda0` or `cpu`."""
    device = devices[comm.rank]
    # A server builds the model, too, but reads no samples.
    return {
        "rank": max(0, comm.rank - settings.servers), "size": comm.size - settings.servers, "verbose": comm.rank == 0,
        "mname": name, "device": f"cuda:{device.removeprefix('cuda')}" if device.startswith("cuda") else "cpu",
    }  # fmt: skip


def main() -> int:
    """Train the session given as JSON and return the exit status; an error ends all ranks."""
    # Importing mpi4py.MPI initializes MPI, which simulated ranks do not need.
    from mpi4py import MPI

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    session = SessionTask.parse(reveal(sys.argv[1]))
    world, settings, number = MPI.COMM_WORLD, RuleSettings(**session.rule), MPI.COMM_WORLD.Get_rank()
    register_rank(session.state, number)
    try:
        if world.Get_size() != len(session.devices):
            raise UserError(
                f"devices: {len(session.devices)} ranks are wanted, but MPI started {world.Get_size()}; use the launcher of the "
                "MPI library that mpi4py uses"
            )
        comm = MPICommunicator(world)
        file, _, name = session.run.model.name.rpartition(":")
        model = build_iteration_model(file, name, model_config(comm, settings, session.devices, name))
        rank = IterationRank(model, comm, settings)
        rows = rank.run()
        if number == 0:
            with atomic_write(RunPaths(session.folder).history) as part, part.open("w", newline="") as table:
                csv.DictWriter(table, rows[0]).writeheader()
                csv.DictWriter(table, rows[0]).writerows(rows)
            tensors = {str(place): each.detach().cpu().clone() for place, each in enumerate(model.params)}
            with atomic_write(session.folder / PARAMETERS_FILE) as part:
                save_file(tensors, part)
        comm.free_counter()
        return report_end(session.state, number, done=True, signal=None)
    except BaseException as error:
        status = report_failure(session.state, number, error)
        world.Abort(status)
        os._exit(status)  # The launcher reports the failure once.


if __name__ == "__main__":
    exit_process(main())
