"""Attach the observers that the settings `observe` enable."""

from nnlo_lib.train.observe.profiler import StepProfiler
from nnlo_lib.train.observe.resource_monitor import MonitorCallback, ResourceMonitor
from nnlo_lib.train.observe.tensorboard import TensorBoardCallback, TensorBoardWriter
from nnlo_lib.train.observe.tracing import StepTracer
from nnlo_lib.train.trainer import Trainer


def attach_observers(trainer: Trainer) -> None:
    """Add this rank's observers to the trainer's callbacks.

    The profiler comes first, so that the measurements of the other observers do not include its start and
    stop.
    """
    context, observe = trainer.context, trainer.context.task.run.observe
    rank, is_first = context.comm.rank, context.comm.rank == 0
    if observe.profile and observe.profile.rank == rank:
        trainer.callbacks.append(StepProfiler(trainer, observe.profile))
    if observe.trace:
        trainer.callbacks.append(StepTracer(context.comm.now, context.phase_timer.trace))
    if observe.tensorboard and is_first:
        board = TensorBoardWriter(context.task.paths.tensorboard)
        trainer.callbacks.append(TensorBoardCallback(board, trainer.recorder))
    if observe.monitor and (is_first or not context.comm.is_virtual):  # simulated ranks share one process
        monitor = ResourceMonitor(context.task.observe_folder, rank, context.device, observe.monitor)
        trainer.callbacks.append(MonitorCallback(monitor))
