"""Federated averaging, in which only some ranks take part in a round: `scaffold`, and `average` with its keys for it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.local_sgd import PeriodicSync
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.core.rng import derive_seed


class FederatedRounds(PeriodicSync):
    """Rounds of `sync_every` steps, in which max(1, round(`participation` n)) ranks take part; the others rest.

    A rank that rests computes nothing and keeps the model; after the round, all ranks load the participants' new model.
    """

    def __init__(self, comm: Communicator, sync_every: int, participation: float, seed: int) -> None:
        super().__init__(comm, sync_every)
        self._number, self._seed = max(1, round(participation * comm.size)), seed
        self._begin_round(0)

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm with these settings and the run's seed."""
        return cls(context.comm, **config.arguments, seed=context.seed)

    def _begin_round(self, number: int) -> None:
        self._round = number
        generator = np.random.default_rng(derive_seed(self._seed, "participants", number))
        self.participants = sorted(generator.choice(self.comm.size, self._number, replace=False).tolist())
        self.rests = self.comm.rank not in self.participants

    def _sum_over_participants(self, vector: Tensor) -> None:
        """End the round: overwrite `vector` on all ranks by the sum of the participants' vectors, in rank order."""
        leader, *others = self.participants
        if len(self.participants) == self.comm.size:
            self.comm.allreduce(vector, "parameters")
        else:
            received = torch.empty_like(vector)
            for other in others if self.comm.rank == leader else ():
                self.comm.receive(received, other)
                vector.add_(received)
            if self.comm.rank in others:
                self.comm.send(vector, leader)
            self.comm.broadcast(vector, leader)
        self._begin_round(self._round + 1)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"federated.round": torch.tensor([self._round])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._begin_round(int(tensors["federated.round"]))


class FederatedAverage(FederatedRounds):
    """FedAvg and FedProx: `average` with `participation` or `proximal`, see the docstring of Average."""

    def __init__(
        self, comm: Communicator, sync_every: int, participation: float, proximal: float, seed: int
    ) -> None:
        super().__init__(comm, sync_every, participation, seed)
        self.proximal, self._samples = proximal, 0

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._theta = replica.theta.clone()  # of the round's start

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._samples += share.count
        if self.proximal and share.count:
            replica.grad.add_(replica.theta - self._theta, alpha=self.proximal)

    def synchronize(self, replica: ReplicaView) -> None:
        model = torch.cat([replica.theta, replica.buffers])
        total = torch.cat([model * self._samples, model.new_tensor([self._samples])])
        self._sum_over_participants(total)
        if total[-1]:  # a last, short round may have samples of other ranks only
            total.div_(total[-1].clone())
            replica.theta.copy_(total[: len(replica.theta)])
            replica.buffers.copy_(total[len(replica.theta) : -1])
        self._theta.copy_(replica.theta)
        self._samples = 0

    def state(self) -> dict[str, Tensor]:
        own = {"federated.samples": torch.tensor([self._samples]), "federated.theta": self._theta}
        return super().state() | own

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._samples, self._theta = int(tensors["federated.samples"]), tensors["federated.theta"].clone()


class Scaffold(FederatedRounds):
    """Correct each local gradient by control variates, which estimate the drift of the rank's own samples.

        theta_i <- theta_i - lr (g_i - c_i + c), H = `sync_every` times from theta, on the m ranks i of the round's S
        c_i+ = mean of the H g_i;    theta <- (1/m) sum_S theta_i;    c <- c + (1/n) sum_S (c_i+ - c_i);    c_i <- c_i+

    Karimireddy et al., SCAFFOLD, 2020, arXiv:1910.06378, algorithm 1 with a global step of 1; all c start at 0. With a
    constant rate, c_i+ is option II: c_i - c + (theta - theta_i) / (H lr). `participation`: as for `average`.

    Invariant: after each round all replicas are equal, and c is the mean of all c_i. Bytes per rank and round: an
    all-reduce of 8 P; if ranks rest, 8 P of m - 1 ranks to the first participant, which sends 8 P to the n - 1 others.
    """

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._own, self._common, self._sum = (torch.zeros_like(replica.theta) for _ in range(3))
        self._steps = 0  # with samples, in this round

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        if share.count:
            self._steps += 1
            self._sum.add_(replica.grad)
            replica.grad.add_(self._common - self._own)

    def synchronize(self, replica: ReplicaView) -> None:
        new = self._sum / self._steps if self._steps else self._own.clone()
        total = torch.cat([new - self._own, replica.theta, replica.buffers])
        self._sum_over_participants(total)
        change, theta, buffers = torch.tensor_split(total, (len(new), 2 * len(new)))
        self._common.add_(change, alpha=1 / self.comm.size)
        replica.theta.copy_(theta.div_(self._number))
        replica.buffers.copy_(buffers.div_(self._number))
        self._own, self._steps = new, 0
        self._sum.zero_()

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        error = relative_error(self.comm, self._common - self._own, self._own)
        return {"invariant": max(error, *super().telemetry(replica).values())}

    def state(self) -> dict[str, Tensor]:
        own = {"scaffold.own": self._own, "scaffold.common": self._common, "scaffold.sum": self._sum}
        return super().state() | own | {"scaffold.steps": torch.tensor([self._steps])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._own, self._common = tensors["scaffold.own"].clone(), tensors["scaffold.common"].clone()
        self._sum, self._steps = tensors["scaffold.sum"].clone(), int(tensors["scaffold.steps"])
