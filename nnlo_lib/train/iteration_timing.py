"""Seconds of training iterations of a model on one rank, with made-up samples."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.problems.base import build_problem
from nnlo_lib.train.optimizers.factory import attach_optimizers
from nnlo_lib.train.replica.device import select_device
from nnlo_lib.train.replica.model_build import build_random_model, model_output_size
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.preprocess import Preprocessor, made_up_batch
from nnlo_lib.train.replica.recorded_passes import build_gradients

WARM_UP = 5  # iterations that are not counted: memory is allocated, kernels are chosen or compiled


@dataclass(frozen=True)
class IterationTimes:
    """Seconds of iterations."""

    gradients: Sequence[float]
    steps: Sequence[float]
    batch_size: int
    device: str

    @property
    def text(self) -> str:
        """The times in one line."""
        totals = [sum(each) for each in zip(self.gradients, self.steps, strict=True)]
        middle = median(totals)
        return (
            f"{len(totals)} iterations after {WARM_UP} of warm-up, batch {self.batch_size}, {self.device}, "
            f"{torch.get_num_threads()} threads: median {middle * 1e3:.3f} ms (gradient {median(self.gradients) * 1e3:.3f}, "
            f"optimizer {median(self.steps) * 1e3:.3f}; {min(totals) * 1e3:.3f} to {max(totals) * 1e3:.3f}), "
            f"{self.batch_size / middle:,.0f} samples/s"
        )


def time_iterations(run: Run, manifest: DataManifest, seed: int, iterations: int) -> IterationTimes:
    """Return the times of iterations on one rank; data loading and exchanges are not included."""
    torch.set_num_threads(run.parallel.threads_per_rank)
    # One simulated rank: a communicator without MPI.
    return SimulatedWorld(1).run(lambda comm: _times(comm, run, manifest, seed, iterations))[0]


def _times(
    comm: Communicator, run: Run, manifest: DataManifest, seed: int, iterations: int
) -> IterationTimes:
    device = select_device(comm, run.parallel)
    precision = Precision(run.train.precision, device)
    tensors = Preprocessor(manifest, run.data, device, precision.dtype, run.train.channels_last)
    module = build_random_model(run, tensors.shape, model_output_size(run, manifest), seed)
    problem = build_problem(run, manifest.classes)
    replica, gradients = build_gradients(run, comm, module, problem, tensors, precision, device)
    attach_optimizers(replica, run.train.optimizer, run.problem)
    replica.clip_norm = run.train.clip_norm
    # The step costs as much with any rate; with this one, made-up samples cannot make the model diverge.
    replica.lr = 0.0
    replica.module.train()
    batch = made_up_batch(manifest, run.train.batch_size, run.problem)

    def seconds(work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        work()
        if device != "cpu":  # the call leaves work to the GPU
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    # A GAN trains another network in some steps, so each iteration has its number.
    steps = range(WARM_UP + iterations)
    compute = [partial(gradients, batch, seed, "in a timed iteration", step) for step in steps]
    measured = [(seconds(each), seconds(replica.step)) for each in compute][WARM_UP:]
    of_gradients, of_steps = zip(*measured, strict=True)
    return IterationTimes(of_gradients, of_steps, run.train.batch_size, device)
