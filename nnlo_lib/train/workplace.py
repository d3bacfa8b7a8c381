"""What one rank of a training works with: its data, its replica, and who it is."""

from torch import nn

from nnlo_lib.algorithms.build import roles
from nnlo_lib.comm.aside import together
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated import SimulatedCommunicator
from nnlo_lib.config import Downpour
from nnlo_lib.problems.build import build as build_problem
from nnlo_lib.problems.problem import Problem
from nnlo_lib.problems.supervised import Supervised
from nnlo_lib.train.data import TrainingData
from nnlo_lib.train.dealing import AsTheyCome, Dealing, Planned
from nnlo_lib.train.observe.trace import open_trace
from nnlo_lib.train.optimizers.networks import equip
from nnlo_lib.train.replica.compiled import compiled
from nnlo_lib.train.replica.device import device_of
from nnlo_lib.train.replica.exchange import exchange_on
from nnlo_lib.train.replica.gradients import Gradients, OwnGradients
from nnlo_lib.train.replica.initial_model import initial_model
from nnlo_lib.train.replica.lone_sample import refuse_lone_sample
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.replica.stack import Stack, StackGradients
from nnlo_lib.train.replica.sync_batch_norm import synchronised
from nnlo_lib.train.replica.tensors import Tensors
from nnlo_lib.train.stopwatch import Stopwatch
from nnlo_lib.train.task import Task


class Workplace:
    """One rank's data, problem and replica, as the task says.

    is_scheduled: whether the replica's learning rate follows train.schedule; a server with a rule of its own keeps that
    rule's.
    """

    def __init__(self, task: Task, comm: Communicator, stack: Stack | None) -> None:
        self.task, self.comm, self.stack = task, comm, stack
        self.roles = roles(task.run, comm.size)
        self.stopwatch = Stopwatch(comm, open_trace(task, comm, self.roles[comm.rank]))
        self._open_data(task)
        self.problem: Problem = build_problem(task.run, self.data.outputs)
        self._build_replica(task)

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
        self.device = device_of(self.comm, run.parallel, self.is_worker)
        self.exchange = exchange_on(self.comm, run, self.device)
        self.precision, channels_last = Precision(run.train.precision, self.device), run.train.channels_last
        self.tensors = Tensors(self.data.manifest, run.data, self.device, self.precision.dtype, channels_last)
        module = self._network()
        self.gradients: Gradients
        if self.stack is None:
            peers = together(self.comm) if run.parallel.sync_batch_norm else None
            self.replica = Replica(synchronised(module, peers), self.device, channels_last=channels_last)
            self.gradients = OwnGradients(
                self.replica,
                self.problem,
                self.tensors,
                self.comm,
                self.precision,
                run.train.accumulate,
                peers,
            )
            if run.train.compile:
                self.replica.network = compiled(module, self.device)
        else:
            assert isinstance(self.comm, SimulatedCommunicator), "only the simulator stacks replicas"
            assert isinstance(self.problem, Supervised), "config refuses batched gradients of other problems"
            self.replica = self.stack.add(
                self.comm.rank, module, self.tensors, self.problem, self.device, channels_last
            )
            self.gradients = StackGradients(self.stack, self.comm)
        if self.is_worker and not run.parallel.sync_batch_norm:
            parts = run.train.accumulate
            refuse_lone_sample(module, self.problem, self.tensors, self.loader, parts, self.comm.rank)
        rule = run.train.optimizer
        if isinstance(run.algorithm, Downpour) and not self.is_worker:
            rule = run.algorithm.optimizer or rule
        self.is_scheduled = rule is run.train.optimizer
        equip(self.replica, rule, run.problem)
        self.replica.clip_norm = run.train.clip_norm

    def _network(self) -> nn.Module:
        module = initial_model(self.task.run, self.tensors.shape, self.data.outputs, self.task.seed)
        return self.precision.prepare(module)
