"""One process of a training: `python -m nnlo_lib.train.rank TASK`, started by the launcher."""

import argparse
import faulthandler
import os
from contextlib import closing, suppress
from dataclasses import replace

import torch

from nnlo_lib.checkpoint.checkpointer import Checkpointer
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.config.run import changed_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.failpoints import FAILPOINT_VARIABLE
from nnlo_lib.core.installation import MPI_REMEDY
from nnlo_lib.core.process import process_age
from nnlo_lib.core.secrets import reveal
from nnlo_lib.core.text_format import plural, timestamp
from nnlo_lib.core.user_code import load_user_function
from nnlo_lib.state.training_records import RunLog
from nnlo_lib.train.model_summary import summarize_model
from nnlo_lib.train.observers import attach_observers
from nnlo_lib.train.publish import publish_training
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.rank_process import (
    StopFlag,
    exit_process,
    register_rank,
    report_end,
    report_failure,
    tune_malloc_and_timers,
)
from nnlo_lib.train.replica.stacked_replicas import ReplicaStack
from nnlo_lib.train.task import Task
from nnlo_lib.train.trainer import Trainer


def train_rank(
    task: Task, comm: Communicator, stop: StopFlag, stack: ReplicaStack | None = None, started: float | None = None
) -> bool:  # fmt: skip
    """Train as one rank, and publish the outputs if the run is finished; `started`: as of RankContext."""
    # First, so that failpoints of the start count, too.
    if arm := os.environ.pop(FAILPOINT_VARIABLE, None):
        load_user_function(arm)(comm.rank, task.state)
    started_at = timestamp()
    trainer = Trainer(RankContext(task, comm, stack, started=started), stop)
    if comm.rank == 0:
        trainer.journal.write(_headline(trainer.context))
    attach_observers(trainer)
    with closing(trainer):
        try:
            done = trainer.run()
        except BaseException as error:
            error.add_note(trainer.context.preprocessor.sample_text)
            # The writer threads end before the process; rank 0 would otherwise wait for files of failed ranks.
            trainer.checkpointer.abort()
            raise
    if done and trainer.is_finished:
        # After `closing`: traces and monitor files are published, so they must be complete.
        publish_training(trainer, started_at, timestamp())
    return done


def train_simulated(task: Task, stop: StopFlag) -> bool:
    """Train with all ranks simulated in this process; return True if done, False if stopped and saved.

    Before ranks leave or return, the training pauses with a checkpoint, from which the other number of ranks resumes.
    """
    parallel = task.run.parallel
    if not parallel.simulation.elastic:
        return _train_together(task, parallel.ranks, stop)
    epoch, is_over = _newest_checkpoint(task)
    while True:
        # A training that has ended resumes with the ranks of its last epoch.
        current = epoch if is_over or epoch == task.ends_at else epoch + 1
        until = min([start - 1 for start in parallel.simulation.elastic if start > current] + [task.ends_at])
        if not _train_together(replace(task, until=until), parallel.ranks_in(current), stop):
            return False
        if until == task.ends_at:
            return True
        epoch, is_over = _newest_checkpoint(task)
        # A pause is complete only with its checkpoint. Without it, the training has ended early and is published.
        if is_over or epoch < until:
            return True


def _train_together(task: Task, ranks: int, stop: StopFlag) -> bool:
    from nnlo_lib.comm.simulated.communicator import SimulatedWorld

    machine = task.run.parallel.simulation
    stack = ReplicaStack(ranks) if machine.compute == "batched" else None
    world = SimulatedWorld(ranks, machine, task.stream_seed)
    return all(world.run(lambda comm: train_rank(task, comm, stop, stack)))


def _newest_checkpoint(task: Task) -> tuple[int, bool]:
    """Return the number of complete epochs of the checkpoint from which a training resumes, and whether the training has ended early."""
    from nnlo_lib.comm.simulated.communicator import SimulatedWorld

    def position(comm: Communicator) -> tuple[int, bool]:
        folder, log = task.paths.state.checkpoints, RunLog(task.state, enabled=True)
        checkpointer = Checkpointer(folder, task.fingerprint, "", task.run.checkpoint, comm, log, 0)
        saved = checkpointer.load(task.run.train.epochs, task.start)
        return (saved.epoch, bool(saved.read_rank_state(0).progress["over"])) if saved else (0, False)

    return SimulatedWorld(1).run(position)[0]


def train_with_mpi(task: Task, stop: StopFlag) -> int:
    """Train as one rank of MPI's world; return the exit status.

    A failure is written to state/failures and ends all ranks.
    """
    # Importing mpi4py.MPI initializes MPI, which simulated ranks do not need.
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        found = str(error).partition("\n")[0]
        return report_failure(
            task.state, 0, UserError(f"mpi4py finds no MPI library ({found}); {MPI_REMEDY}")
        )

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    world = MPI.COMM_WORLD
    register_rank(task.state, world.Get_rank())
    try:
        if world.Get_size() != task.run.parallel.ranks:
            raise UserError(
                f"parallel.ranks: {task.run.parallel.ranks} ranks are configured, but MPI started {world.Get_size()}; "
                "use the launcher (for example mpiexec) of the MPI library that mpi4py uses"
            )
        comm = MPICommunicator(world, reduction_mode(task.run), task.run.parallel.peer_timeout)
        done = train_rank(task, comm, stop, started=comm.now() - process_age())
        # Freeing is collective, so it belongs to the path on which all ranks arrive.
        comm.free_counter()
        status = report_end(task.state, world.Get_rank(), done, stop.signal)
    except BaseException as error:
        status = report_failure(task.state, world.Get_rank(), error)
        # Other ranks may wait for this one in a call; without Abort, they would wait until they detect its loss.
        world.Abort(status)
        os._exit(status)  # The launcher reports the failure once; tracebacks of all ranks would hide it.
    rank = world.Get_rank()
    MPI.Finalize()  # The other ranks end now.
    if done and rank == 0:
        evaluate_here(task, stop)
    return status


def evaluate_here(task: Task, stop: StopFlag) -> None:
    """Evaluate the published model in the process that has trained it, unless it is of a trial of a search.

    The launcher would have to import torch for it. It does so if the evaluation fails, which it then reports, or is stopped.
    """
    from nnlo_lib.train.evaluation.evaluate import evaluate_model

    if SearchPaths.around(task.folder):
        return
    # Again: MPICH has removed the handler of SIGUSR1 in MPI.Finalize.
    with suppress(BaseException), stop.install_handlers().raised():
        evaluate_model(task.run, task.manifest, task.paths.model, task.paths.evaluation)


def reduction_mode(run: Run) -> str:
    """Return the run's reduction mode: `reproducible` (sums in rank order) or `fastest`."""
    return "reproducible" if run.algorithm.sums_in_rank_order else "fastest"


def _headline(context: RankContext) -> str:
    run, task = context.task.run, context.task
    table = summarize_model(context.replica.module, context.made_up_sample).text
    numbers = "" if run.train.precision == "float32" else f", {run.train.precision}"
    sums = f", GPU vectors summed {context.gpu_transport}" if context.gpu_transport else ""
    summary = (
        f"{task.experiment}/{task.name} seed {task.seed}: {run.algorithm.name} on {plural(context.comm.size, 'rank')} "
        f"({run.parallel.transport}), {run.model.name} on {run.data.dataset}, "
        f"{plural(context.loader.samples, 'sample')}, {plural(context.loader.steps_per_epoch, 'step')} per epoch{numbers}{sums}"
    )
    return "\n".join([summary, *changed_settings(run), table])


def main() -> int:
    """Train the task given as JSON and return the exit status.

    The status is 0 if done, or stopped and saved; 2 after a UserError, unless the disk was full; 75
    (EXIT_PREEMPTED) if stopped and saved, but the note for the launcher could not be written; 1 after
    any other error.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=lambda text: Task.parse(reveal(text)))
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="minutes until the scheduler ends the job"
    )
    options = parser.parse_args()
    task: Task = options.task
    # The traceback of a crash in compiled code reaches the log through stderr.
    faulthandler.enable(all_threads=False)
    # As early as possible: a stop signal that arrives before the handlers ends the process without saving.
    stop = StopFlag(60 * options.minutes).install_handlers()
    tune_malloc_and_timers()
    torch.set_num_threads(task.run.parallel.threads_per_rank)
    if task.run.parallel.transport == "mpi":
        return train_with_mpi(task, stop)
    register_rank(task.state, 0)
    try:
        done = train_simulated(task, stop)
        status = report_end(task.state, 0, done, stop.signal)
    except BaseException as error:
        return report_failure(task.state, 0, error)
    if done:
        evaluate_here(task, stop)
    return status


if __name__ == "__main__":
    exit_process(main())
