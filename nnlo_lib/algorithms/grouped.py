"""Workers made of several processes: a composition of communicators, not a case inside any algorithm."""

from collections.abc import Callable

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, Share, mean_buffers
from nnlo_lib.comm.communicator import Communicator


class Grouped(Algorithm):
    """Average gradients inside each worker's group of processes; its leader alone takes part in the outer algorithm.

        g = sum_j (b_j / b) g_j over the group's processes j,    leader: outer algorithm on g,    group: theta of leader

    NNLO's `--n-processes`, except that the processes of a group read different samples. Rank 0 is the outer
    algorithm's server, ranks 1.. form groups of `size`. Invariant: the processes of a group are equal after each step.
    Bytes per group process and step: those of allreduce in the group; the leader also broadcasts 4 P (size - 1).
    """

    def __init__(self, comm: Communicator, size: int, outer: Callable[[Communicator], Algorithm]) -> None:
        super().__init__(comm)
        self._group = comm.split((comm.rank + size - 1) // size)  # color 0: the server
        self._leads = self._group.rank == 0
        among_leaders = comm.split(0 if self._leads else 1)
        self._outer = outer(among_leaders)
        self.owns_step = self._outer.owns_step
        self._workers, self._is_worker = (comm.size - 1) // size, comm.rank > 0

    def on_gradient(self, replica: Model, share: Share) -> None:
        samples = torch.tensor([share.count])
        self._group.allreduce(samples, "control")
        together = Share(int(samples), share.global_count)
        if self._group.size > 1 and together.count:
            replica.grad.mul_(share.count / together.count)
            self._group.allreduce(replica.grad, "gradient")
        if self._leads:
            self._outer.on_gradient(replica, together)

    def on_parameters(self, replica: Model) -> None:
        if self._leads:
            self._outer.on_parameters(replica)
        self._group.broadcast(replica.theta)

    def on_pause(self, replica: Model) -> None:
        if self._leads:
            self._outer.on_pause(replica)
        self._group.broadcast(replica.theta)

    def on_epoch(self, replica: Model) -> None:
        mean_buffers(self._group, replica, self._group.size, is_worker=True)
        if self._leads:
            self._outer.on_epoch(replica)
        self._group.broadcast(replica.theta)
        self._group.broadcast(replica.buffers, purpose="buffers")

    def serve(self, replica: Model, wish: Callable[[], bool]) -> None:
        self._outer.serve(replica, wish)

    def agreed(self, wish: bool) -> bool:
        wishes = torch.tensor([int(wish)])
        self._group.allreduce(wishes, "control")
        stop = torch.tensor([int(self._outer.agreed(bool(wishes)) if self._leads else 0)])
        self._group.broadcast(stop, purpose="control")
        return bool(stop)

    def state(self) -> dict[str, Tensor]:
        return self._outer.state() if self._leads else {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        if self._leads:
            self._outer.load_state(tensors)
