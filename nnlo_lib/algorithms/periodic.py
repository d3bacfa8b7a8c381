"""What algorithms share that let replicas go their own way for some steps and then agree."""

from abc import abstractmethod

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, Share, mean_buffers, unequal
from nnlo_lib.comm.communicator import Communicator


class Periodic(Algorithm):
    """Take `sync_every` local steps, then `meet`; the end of an epoch is a meeting, too."""

    def __init__(self, comm: Communicator, sync_every: int) -> None:
        super().__init__(comm)
        self.sync_every = sync_every
        self._apart = 0  # local steps since the last meeting, the same on all ranks

    @abstractmethod
    def meet(self, replica: Model) -> None:
        """Make all replicas' parameters equal."""

    def on_gradient(self, replica: Model, share: Share) -> None:
        pass

    def on_parameters(self, replica: Model) -> None:
        self._apart += 1
        if self._apart == self.sync_every:
            self._meet(replica)

    def on_epoch(self, replica: Model) -> None:
        if self._apart:
            self._meet(replica)
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: Model) -> dict[str, float]:
        return {"invariant": unequal(self.comm, replica.theta)}

    def _meet(self, replica: Model) -> None:
        self.meet(replica)
        self._apart = 0

    def state(self) -> dict[str, Tensor]:
        return {"periodic.apart": torch.tensor([self._apart])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._apart = int(tensors["periodic.apart"])
