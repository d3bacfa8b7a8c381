"""What gossip algorithms share in which every replica has a weight, its part of the mean."""

import math

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, mean_buffers
from nnlo_lib.comm.communicator import Communicator


class PushSum(Algorithm):
    """Hold a replica's weight w_i; the ranks' mean model is sum_i w_i theta_i / sum_i w_i.

    Kempe, Dobra and Gehrke, Gossip-Based Computation of Aggregate Information, 2003. Invariant: sum_i w_i = n. On
    the wire a weight is of theta's type; what rounding takes from it stays with the sender.
    """

    apart = True

    def __init__(self, comm: Communicator) -> None:
        super().__init__(comm)
        self.weight = 1.0
        self.local_steps = 0

    def on_epoch(self, replica: Model) -> None:
        pass

    def on_finish(self, replica: Model) -> None:
        replica.theta.mul_(self.weight)
        self.comm.allreduce(replica.theta, "parameters")
        replica.theta.div_(math.fsum(self.comm.gather(self.weight)))
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: Model) -> dict[str, float]:
        weights = self.comm.gather(self.weight)
        return {
            "invariant": abs(math.fsum(weights) - self.comm.size) / self.comm.size,
            "mass_min": min(weights),
            "mass_max": max(weights),
        }

    def state(self) -> dict[str, Tensor]:
        return {
            "push_sum.weight": torch.tensor([self.weight], dtype=torch.float64),
            "push_sum.local_steps": torch.tensor([self.local_steps]),
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.weight = float(tensors["push_sum.weight"])
        self.local_steps = int(tensors["push_sum.local_steps"])


def packed(vector: Tensor, weight: float) -> Tensor:
    """Return [vector, weight], as it travels."""
    return torch.cat([vector, vector.new_tensor([weight])])


def unpacked(packet: Tensor) -> tuple[Tensor, float]:
    """Return the vector and the weight of a packet."""
    return packet[:-1], float(packet[-1])
