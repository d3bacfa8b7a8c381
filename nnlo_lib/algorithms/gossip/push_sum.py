"""Base class of the gossip algorithms in which every replica has a weight in the mean."""

import math

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, mean_buffers
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.comm.compression.bit_packing import concat_bytes
from nnlo_lib.comm.compression.identity import Identity


class PushSum(Algorithm):
    """Base class: holds a replica's weight w_i; the mean model of the ranks is sum_i w_i theta_i / sum_i w_i.

    Kempe, Dobra and Gehrke, Gossip-Based Computation of Aggregate Information, 2003. Invariant:
    sum_i w_i = n. In a packet the weight has the dtype of theta, and a `compressor` without memory encodes
    the parameters; the sender keeps the rounding errors of both.
    """

    replicas_differ = True

    def __init__(self, comm: Communicator, compressor: Compressor | None = None) -> None:
        super().__init__(comm)
        self._compressor = compressor or Identity()
        self.weight = 1.0
        self.local_steps = 0

    def packed(self, vector: Tensor, weight: float) -> Tensor:
        """Return the packet, uint8, of a weight and a vector."""
        payload = self._compressor.encode(vector, self.local_steps, self.comm.rank)
        return concat_bytes(vector.new_tensor([weight]), payload)

    def payload_buffer(self, like: Tensor) -> Tensor:
        """Return memory for a packet with a vector of the length of `like`."""
        size = like.element_size() + self._compressor.size(like)
        return torch.empty(size, dtype=torch.uint8, device=like.device)

    def unpacked(self, packet: Tensor, like: Tensor) -> tuple[Tensor, float]:
        """Return the vector, which has the length of `like`, and the weight of a packet."""
        vector, head = torch.empty_like(like), like.element_size()
        self._compressor.decode(packet[head:], vector)
        return vector, float(packet[:head].view(like.dtype))

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def on_finish(self, replica: ReplicaView) -> None:
        replica.theta.mul_(self.weight)
        self.comm.allreduce(replica.theta, "parameters")
        # The sum of the weights is n only up to rounding errors. fsum gives the same exact sum on all ranks.
        replica.theta.div_(math.fsum(self.comm.gather(self.weight)))
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
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
