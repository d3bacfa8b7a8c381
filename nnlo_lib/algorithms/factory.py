"""Factory of a run's algorithm, and workers of several processes around any algorithm."""

from collections.abc import Callable

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, Role, SampleShare, mean_buffers
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.core.user_code import load_implementation


def build_algorithm(run: Run, comm: Communicator, seed: int) -> Algorithm:
    """Return this rank's instance of the algorithm, in GroupedWorkers if workers have several processes.

    All ranks of `comm` call it, with the same `seed`.
    """

    def build(ranks: Communicator) -> Algorithm:
        kind: type[Algorithm] = load_implementation(run.algorithm.reference)
        context = AlgorithmContext(ranks, seed, run.compression, run.topology, run.data)
        return kind.from_config(run.algorithm, context)

    group = run.parallel.processes_per_worker
    return GroupedWorkers(comm, group, run.algorithm.servers, build) if group > 1 else build(comm)


def roles(run: Run, size: int) -> list[Role]:
    """Return the role of each of `size` ranks: the servers are the first ranks."""
    return ["server" if rank < run.algorithm.servers else "worker" for rank in range(size)]


class GroupedWorkers(Algorithm):
    """Average gradients inside each worker's group of processes; only its leader runs the outer algorithm.

        g = sum_j (b_j / b) g_j over the group's processes j,    leader: outer algorithm on g,    group: theta of leader

    NNLO's `--n-processes`, except that the processes of a group read different samples. Each of the outer
    algorithm's `servers`, the first ranks, is a group of one process; the others form groups of `size`, in
    rank order. Invariant: the processes of a group hold equal parameters after each step. Bytes per group process
    and step: an all-reduce of 4 P in the group; the leader also broadcasts 4 P (size - 1).
    """

    def __init__(
        self, comm: Communicator, size: int, servers: int, outer: Callable[[Communicator], Algorithm]
    ) -> None:
        super().__init__(comm)
        # A server's color is its rank (by min); the groups of workers have the colors from `servers` on.
        self._group = comm.split(min(comm.rank, servers + (comm.rank - servers) // size))
        leads = self._group.rank == 0
        outer_comm = comm.split(0 if leads else 1)
        self._outer = outer(outer_comm) if leads else GroupFollower(outer_comm)
        self.owns_step = self._outer.owns_step
        # Followers, whose outer algorithm is a dummy, take the leader's values: all ranks must have the same.
        traits = [self._outer.replicas_differ, self._outer.steps_per_round]
        self.replicas_differ, self.steps_per_round = self._group.gather(traits)[0]

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._outer.start(replica)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        # Only the group's sum is the number of samples of the worker that the outer algorithm knows.
        samples = torch.tensor([share.count])
        self._group.allreduce(samples, "control")
        together = SampleShare(int(samples), share.global_count)
        if self._group.size > 1 and together.count:
            replica.grad.mul_(share.count / together.count)
            self._group.allreduce(replica.grad, "gradient")
        self._outer.on_gradient(replica, together)

    def on_parameters(self, replica: ReplicaView) -> None:
        self._outer.on_parameters(replica)
        self._group.broadcast(replica.theta)

    def quiesce(self, replica: ReplicaView) -> None:
        self._outer.quiesce(replica)
        self._group.broadcast(replica.theta)

    def before_evaluation(self, replica: ReplicaView) -> None:
        mean_buffers(self._group, replica, self._group.size, is_worker=True)
        self._outer.before_evaluation(replica)
        self._follow(replica)

    def after_evaluation(self, replica: ReplicaView) -> None:
        self._outer.after_evaluation(replica)
        self._follow(replica)

    def on_finish(self, replica: ReplicaView) -> None:
        self._outer.on_finish(replica)
        self._follow(replica)

    def _follow(self, replica: ReplicaView) -> None:
        """Overwrite the model of every process in the group by its leader's model."""
        self._group.broadcast(replica.theta)
        self._group.broadcast(replica.buffers, purpose="buffers")

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        leaders: dict[str, float] = self._group.gather(self._outer.telemetry(replica))[0]
        return leaders

    def histograms(self) -> dict[str, dict[int, int]]:
        return self._outer.histograms()

    def serve(self, replica: ReplicaView, requests_stop: Callable[[], bool]) -> None:
        self._outer.serve(replica, requests_stop)

    def should_stop(self, requested: bool) -> bool:
        requests = torch.tensor([int(requested)])
        self._group.allreduce(requests, "control")
        stop = torch.tensor([int(self._outer.should_stop(bool(requests)))])
        self._group.broadcast(stop, purpose="control")
        return bool(stop)

    def state(self) -> dict[str, Tensor]:
        return self._outer.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._outer.load_state(tensors)


class GroupFollower(Algorithm):
    """The outer algorithm of a process that does not lead its group: it does nothing."""

    owns_step = True  # the group gets theta from its leader

    def start(self, replica: ReplicaView) -> None:
        pass

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def should_stop(self, requested: bool) -> bool:
        return False
