"""What algorithms share in which workers keep parameters of their own around a server's centre."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Model, relative_error
from nnlo_lib.algorithms.relay import ROOT
from nnlo_lib.algorithms.server import Server
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compress.feedback import Feedback


class Centred(Server):
    """Let rank 0 hold a centre c that moves only by what workers give, c <- c + sum of d_i.

    The centre is what is measured and published, with the mean of the workers' batch-norm statistics; workers then
    take their own back. Invariant: what c moved since the last epoch is the sum of all that workers gave, less what
    compression has yet to send. pull: how far c moves for a push of one.
    """

    pull = 1.0

    dealt = (*Server.dealt, "centred.ledger")

    def __init__(
        self,
        comm: Communicator,
        synchronous: bool,
        sync_every: int,
        masters: int,
        feedback: Feedback | None,
    ) -> None:
        super().__init__(comm, synchronous, sync_every, masters, feedback)
        self._own: tuple[Tensor, Tensor] | None = None
        # root: where the centre was; others: what they gave since, and owed then
        self._ledger = torch.empty(0)

    def start(self, replica: Model) -> None:
        super().start(replica)
        self._open_ledger(replica)

    def _open_ledger(self, replica: Model) -> None:
        self._ledger = replica.theta.clone() if self.comm.rank == ROOT else self._owed(replica)

    def _owed(self, replica: Model) -> Tensor:
        """Return by how much c will move when this rank's errors are sent."""
        errors = self.link.feedback.residual
        return errors * self.pull if errors.numel() else torch.zeros_like(replica.theta)

    def on_epoch(self, replica: Model) -> None:
        self._own = replica.theta.clone(), replica.buffers.clone()
        super().on_epoch(replica)

    def after_epoch(self, replica: Model) -> None:
        assert self._own is not None, "after_epoch follows on_epoch"
        replica.theta.copy_(self._own[0])
        replica.buffers.copy_(self._own[1])
        self._own = None

    def on_finish(self, replica: Model) -> None:
        super().on_epoch(replica)

    def telemetry(self, replica: Model) -> dict[str, float]:
        """Compare the books; new ones are opened, so that rounding does not add up over epochs.

        distance: the mean over workers of |x_i - c|.
        """
        moved = self._ledger - (replica.theta if self.comm.rank == ROOT else self._owed(replica))
        error = relative_error(self.comm, moved, replica.theta)
        self._open_ledger(replica)
        invariant = max(error, super().telemetry(replica)["invariant"])
        return {"invariant": invariant, "distance": self._distance(replica)}

    def _distance(self, replica: Model) -> float:
        assert self._own is not None, "telemetry follows on_epoch"
        distance = torch.zeros(1, dtype=torch.float64)
        if self.is_worker:
            distance += float((self._own[0] - replica.theta).norm())
        self.comm.allreduce(distance, "telemetry")
        return float(distance) / self.workers

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"centred.ledger": self._ledger}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._ledger = tensors["centred.ledger"].clone()
