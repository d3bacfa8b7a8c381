"""Base class of the algorithms that synchronize all replicas every few local steps."""

from abc import abstractmethod

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, fraction_unequal, mean_buffers
from nnlo_lib.comm.communicator import Communicator


class PeriodicSync(Algorithm):
    """Take `sync_every` local steps, then `synchronize`; every evaluation also synchronizes first."""

    def __init__(self, comm: Communicator, sync_every: int) -> None:
        super().__init__(comm)
        self.sync_every = sync_every
        self._steps_since_sync = 0  # local steps since the last synchronization, the same on all ranks

    @abstractmethod
    def synchronize(self, replica: ReplicaView) -> None:
        """Make all replicas' parameters equal."""

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_parameters(self, replica: ReplicaView) -> None:
        self._steps_since_sync += 1
        if self._steps_since_sync == self.sync_every:
            self._synchronize_and_reset(replica)

    def before_evaluation(self, replica: ReplicaView) -> None:
        if self._steps_since_sync:
            self._synchronize_and_reset(replica)
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": fraction_unequal(self.comm, replica.theta)}

    def _synchronize_and_reset(self, replica: ReplicaView) -> None:
        self.synchronize(replica)
        self._steps_since_sync = 0

    def state(self) -> dict[str, Tensor]:
        # Names of state tensors are part of the checkpoint format: older spellings stay.
        return {"periodic.apart": torch.tensor([self._steps_since_sync])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._steps_since_sync = int(tensors["periodic.apart"])
