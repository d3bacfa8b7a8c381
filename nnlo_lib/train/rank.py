"""One process of a training: `python -m nnlo_lib.train.rank TASK`, started by the launcher."""

import argparse
import os
from datetime import UTC, datetime

import torch

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import AllReduce, Run
from nnlo_lib.errors import UserError
from nnlo_lib.train.faults import arm
from nnlo_lib.train.leaving import leave
from nnlo_lib.train.notes import announce, confess, stopped
from nnlo_lib.train.observe.described import described
from nnlo_lib.train.observe.observers import observers
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.publish import publish
from nnlo_lib.train.replica.stack import Stack
from nnlo_lib.train.task import Task
from nnlo_lib.train.training import Training
from nnlo_lib.train.tuning import tune_process


def one_rank(task: Task, comm: Communicator, stop: StopFlag, stack: Stack | None = None) -> bool:
    """Train; True when done, and published if the run is finished; False when stopped and saved."""
    arm(comm, task.state)
    started = _now()
    training = Training(task, comm, stop, stack)
    if comm.rank == 0:
        training.journal.write(_headline(training))
    with observers(training):
        try:
            done = training.run()
        except BaseException:
            training.checkpoints.give_up()
            raise
    if done and training.is_finished:
        publish(training, started, _now())
    return done


def simulate(task: Task, stop: StopFlag) -> bool:
    """Train with all ranks in this process."""
    from nnlo_lib.comm.simulated import World

    ranks, machine = task.run.parallel.ranks, task.run.parallel.simulation
    stack = Stack(ranks) if machine.compute == "batched" else None
    return all(World(ranks, machine, task.seed).run(lambda comm: one_rank(task, comm, stop, stack)))


def train_with_mpi(task: Task, stop: StopFlag) -> int:
    """Train as one rank of MPI's world; a failure is written to state/failures and ends every rank."""
    from mpi4py import MPI

    from nnlo_lib.comm.mpi import MPICommunicator

    world = MPI.COMM_WORLD
    announce(task.state, world.Get_rank())
    try:
        if world.Get_size() != task.run.parallel.ranks:
            raise UserError(
                f"started with {world.Get_size()} ranks, the experiment says {task.run.parallel.ranks}; "
                "does the launcher belong to the MPI that mpi4py uses?"
            )
        comm = MPICommunicator(world, reduction_of(task.run), task.run.parallel.peer_timeout)
        done = one_rank(task, comm, stop)
        comm.end_deal()
        return 0 if done else stopped(task.state, world.Get_rank(), stop.signal)
    except BaseException as error:
        status = confess(task.state, world.Get_rank(), error)
        world.Abort(status)
        os._exit(status)  # the launcher speaks for all ranks; a traceback here would only drown it


def reduction_of(run: Run) -> str:
    """Return how a run's communicator adds."""
    return run.algorithm.reduction if isinstance(run.algorithm, AllReduce) else "reproducible"


def _headline(training: Training) -> str:
    run, task = training.task.run, training.task
    table = described(training.replica.module, training.tensors.blank()).text
    numbers = "" if run.train.precision == "float32" else f", {run.train.precision}"
    sums = f", GPUs' vectors summed {training.exchange}" if training.exchange else ""
    return (
        f"{task.experiment}/{task.name} seed {task.seed}: {run.algorithm.name} on {training.comm.size} ranks "
        f"({run.parallel.transport}), {run.model.name} on {run.data.dataset}, "
        f"{training.loader.samples:,} samples, {training.loader.steps_per_epoch} steps an epoch{numbers}{sums}\n{table}"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def main() -> int:
    """Train the task given as JSON; exit 0 done, or stopped and saved, 2 the user's mistake, 1 anything else."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Task.parse)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="until the scheduler ends the job"
    )
    options = parser.parse_args()
    task: Task = options.task
    stop = StopFlag(60 * options.minutes).listen()
    tune_process()
    torch.set_num_threads(task.run.parallel.threads_per_rank)
    train = train_with_mpi if task.run.parallel.transport == "mpi" else _simulate_safely
    return train(task, stop)


def _simulate_safely(task: Task, stop: StopFlag) -> int:
    announce(task.state, 0)
    try:
        return 0 if simulate(task, stop) else stopped(task.state, 0, stop.signal)
    except BaseException as error:
        return confess(task.state, 0, error)


if __name__ == "__main__":
    leave(main())
