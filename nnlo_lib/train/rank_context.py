"""Context of one rank of a training: communicator, role, data, source of batches, problem, replica and gradients."""

import socket
import uuid
from collections.abc import Iterator
from copy import deepcopy
from functools import partial

from torch import Tensor, nn

from nnlo_lib.algorithms.factory import roles
from nnlo_lib.batch import BatchJob
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.data.loading.loader import Batch, BatchLoader
from nnlo_lib.data.store.staging import StagingJob
from nnlo_lib.models.zoo_registry import MODELS
from nnlo_lib.problems.base import Problem, build_problem
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.optimizers.factory import MultiNetworkOptimizer, attach_optimizers
from nnlo_lib.train.phase_timer import PhaseTimer, open_trace
from nnlo_lib.train.replica.averaged_weights import AveragedWeights
from nnlo_lib.train.replica.device import select_device, select_gpu_transport, use_reproducible_kernels
from nnlo_lib.train.replica.gradients import GradientFunction, check_batch_norm_batches
from nnlo_lib.train.replica.model_build import build_initial_model
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.preprocess import Preprocessor, made_up_batch
from nnlo_lib.train.replica.recorded_passes import build_gradients
from nnlo_lib.train.replica.stacked_replicas import ReplicaStack, StackedGradients
from nnlo_lib.train.replica.sync_batch_norm import PassCollectives
from nnlo_lib.train.task import Task


class BatchSource:
    """Source of a worker's batches, as the sampler planned them; `index` counts this worker's steps in an epoch."""

    def __init__(self, loader: BatchLoader) -> None:
        self._loader = loader

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch."""
        return self._loader.epoch(epoch, index)

    def start_at(self, index: int) -> None:
        """Prepare to continue the epoch at `index`; all ranks call it."""

    def stop_early(self) -> bool:
        """Stop yielding batches; return True if the next batch, already loaded, may be discarded."""
        return True

    def synced_index(self, index: int) -> int:
        """Return the progress within the epoch; all ranks call it after a pause."""
        return index


class DynamicBatches(BatchSource):
    """Gives the epoch's next batch to the first idle worker; `index` counts the batches of all workers."""

    def __init__(self, loader: BatchLoader, comm: Communicator) -> None:
        super().__init__(loader)
        self._comm = comm

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        # The flag comes before the ticket: a batch that is drawn and not used would be missing in the epoch.
        while not self._is_stopping and (ticket := self._comm.next_index()) < self._loader.steps_per_epoch:
            yield self._loader.batch(epoch, ticket)

    def start_at(self, index: int) -> None:
        self._is_stopping = False
        self._comm.reset_counter(index)

    def stop_early(self) -> bool:
        self._is_stopping = True
        return False  # The shared counter has passed this batch: no other worker would train on it.

    def synced_index(self, index: int) -> int:
        # Idle workers draw tickets beyond the end of the epoch. The ticket that is drawn here is not lost:
        # `start_at` resets the counter.
        next_index = self._comm.next_index() if self._comm.rank == 0 else 0
        return min(int(self._comm.gather(next_index)[0]), self._loader.steps_per_epoch)


class RankContext:
    """One rank's communicator, data, problem and replica, built from the task by all ranks together.

    The `stack` holds the replicas of simulated ranks with batched gradients. `started`, by default now, is the start of the
    rank on the communicator's clock, in seconds.
    """

    def __init__(
        self, task: Task, comm: Communicator, stack: ReplicaStack | None = None, module: nn.Module | None = None,
        started: float | None = None,
    ) -> None:  # fmt: skip
        self.task, self.comm, self.stack = task, comm, stack
        started = comm.now() if started is None else started
        task.input_checksums  # noqa: B018 - read now: a later edit is not the code that trains
        self.roles = roles(task.run, comm.size)
        self.phase_timer = PhaseTimer(comm, open_trace(task, comm, self.roles[comm.rank], started), started)
        # Only with the key, because the exchange would change the clocks of simulated ranks.
        job = _staging_job(comm) if task.run.data.stage_to else None
        workers = self.roles.count("worker")
        self.data = comm.shared("data", lambda: TrainingData(task, workers, job))
        if comm.rank == 0:
            self.data.save()
        self.problem: Problem = build_problem(task.run, self.data.manifest.classes, self.data.class_weights)
        self._build_replica(task.run, module)
        # After the model: the samples may take what it leaves of a GPU's memory.
        worker = self.roles[: comm.rank].count("worker") if self.is_worker else 0
        is_resident = task.run.data.placement == "device" and self.is_worker
        self.loader = self.data.loader(worker, self.device if is_resident else None)
        is_dynamic = task.run.train.dealing == "dynamic"
        self.batch_source = DynamicBatches(self.loader, comm) if is_dynamic else BatchSource(self.loader)
        self.check_batch_norm()

    @property
    def is_worker(self) -> bool:
        """True if this rank computes gradients."""
        return self.roles[self.comm.rank] == "worker"

    @property
    def workers(self) -> int:
        """Number of workers; a worker may consist of several processes."""
        return self.roles.count("worker") // self.task.run.parallel.processes_per_worker

    @property
    def is_first_worker(self) -> bool:
        """True if this rank is the first worker."""
        return self.comm.rank == self.roles.index("worker")

    @property
    def made_up_sample(self) -> tuple[Tensor, ...]:
        """Inputs of a mini-batch of one random sample."""
        sample = made_up_batch(self.data.normalized_manifest, 1)
        return self.preprocessor(sample.inputs, sample.labels)[0]

    def _build_replica(self, run: Run, module: nn.Module | None) -> None:
        # Also for a given module: raises UserError if the labels do not fit the problem.
        outputs = self.data.outputs
        self.device = select_device(self.comm, run.parallel, self.is_worker)
        if self.device != "cpu" and run.train.deterministic:
            use_reproducible_kernels()
        self.gpu_transport = select_gpu_transport(self.comm, run, self.device)
        self.precision, channels_last = Precision(run.train.precision, self.device), run.train.channels_last
        self.preprocessor = Preprocessor(
            self.data.normalized_manifest, run.data, self.device, self.precision.dtype, channels_last
        )
        if module is None:
            build = partial(build_initial_model, run, self.preprocessor.shape, outputs, self.task.stream_seed)
            # A copy is faster than random numbers. A network of a user may hold what deepcopy does not copy.
            is_copied = self.comm.is_virtual and run.model.name in MODELS
            module = deepcopy(self.comm.shared("initial model", build)) if is_copied else build()
        self.gradients: GradientFunction
        if self.stack is None:
            self.replica, self.gradients = build_gradients(
                run, self.comm, module, self.problem, self.preprocessor, self.precision, self.device,
                PassCollectives(self.comm) if run.parallel.sync_batch_norm else None,
            )  # fmt: skip
        else:
            assert isinstance(self.problem, SupervisedProblem), "the configuration accepts no other problem"
            module = self.precision.prepare(module)
            self.replica = self.stack.add(
                self.comm.rank, module, self.preprocessor, self.problem, self.device, channels_last
            )
            self.gradients = StackedGradients(self.stack, self.comm)
        if getattr(run.algorithm, "shard", "none") == "optimizer":
            part = self.comm.part(self.replica.theta.numel())
            self.replica.keep_part(part, partial(self.comm.allreduce, purpose="control"))
        # A server applies the workers' gradients; an algorithm may configure another optimizer for it.
        own = None if self.is_worker else run.algorithm.server_optimizer
        # Such an optimizer keeps its learning rate; others follow train.schedule.
        self.is_lr_scheduled = own is None
        attach_optimizers(self.replica, own or run.worker_train.optimizer, run.problem)
        if run.algorithm.exchanges_first and isinstance(self.replica.optimizer, MultiNetworkOptimizer):
            # Otherwise every rank bounds its weights in its first step, before others see them.
            self.replica.optimizer.clip_weights()
        self.replica.clip_norm = run.train.clip_norm
        self.averaged_weights = AveragedWeights(self.replica, run.train.ema)

    def check_batch_norm(self, resumed: tuple[int, int] | None = None) -> None:
        """Raise UserError if the resumed (epoch, step), or else a step of each epoch, would normalize a single sample."""
        run = self.task.run
        # Synchronized normalization uses the samples of all ranks, so a rank may have a single one.
        if self.is_worker and not run.parallel.sync_batch_norm:
            model = self.replica.module, self.problem, self.preprocessor
            check_batch_norm_batches(*model, self.loader, run.train.accumulate, self.comm.rank, resumed)


def _staging_job(comm: Communicator) -> StagingJob:
    """Return the job of all ranks; the first rank of each host writes the warnings of its host."""
    host, job = socket.gethostname(), BatchJob.current()
    # A batch job can train many fold tasks of a search, of which only the first compares the checksums.
    name = f"{job.scheduler}-{job.job_id}-{BatchJob.current_restarts()}" if job else uuid.uuid4().hex
    ranks = comm.gather([host, name])
    # Any of the simulated ranks may be the one that stages.
    is_first = comm.is_virtual or [each for each, _ in ranks].index(host) == comm.rank
    return StagingJob(ranks[0][1], is_first)
