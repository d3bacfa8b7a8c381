"""Base class of the algorithms in which workers keep their own parameters around a center on the server."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, relative_error
from nnlo_lib.algorithms.parameter_server.request_queue import ROOT_RANK
from nnlo_lib.algorithms.parameter_server.server import ParameterServer
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback


class CenterVariableServer(ParameterServer):
    """Base class: rank 0 holds a center c that changes only by the workers' pushes, c <- c + sum of d_i.

    The center is evaluated and published, with the mean of the workers' batch-norm statistics; after an
    evaluation workers restore their own model. Invariant: the change of c since the last telemetry is the sum
    of the d_i of all workers, except for the compression residual, which is sent later.

    Attributes:
        push_scale: change of c per unit of a pushed vector.
    """

    push_scale = 1.0

    summed_state = (*ParameterServer.summed_state, "centred.ledger")

    def __init__(
        self,
        comm: Communicator,
        synchronous: bool,
        sync_every: int,
        masters: int,
        feedback: ErrorFeedback | None,
    ) -> None:
        super().__init__(comm, synchronous, sync_every, masters, feedback)
        self._own: tuple[Tensor, Tensor] | None = None
        # Root: c at the last telemetry. Others: the sum of their d_i since then, plus `_owed` at that time.
        self._ledger = torch.empty(0)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._open_ledger(replica)

    def _open_ledger(self, replica: ReplicaView) -> None:
        self._ledger = replica.theta.clone() if self.comm.rank == ROOT_RANK else self._owed(replica)

    def _owed(self, replica: ReplicaView) -> Tensor:
        """Return the change of c that is outstanding until this rank's compression residual is sent."""
        errors = self.client.feedback.residual
        return errors * self.push_scale if errors.numel() else torch.zeros_like(replica.theta)

    def before_evaluation(self, replica: ReplicaView) -> None:
        self._own = replica.theta.clone(), replica.buffers.clone()
        super().before_evaluation(replica)

    def after_evaluation(self, replica: ReplicaView) -> None:
        assert self._own is not None, "after_evaluation() called without before_evaluation()"
        replica.theta.copy_(self._own[0])
        replica.buffers.copy_(self._own[1])
        self._own = None

    def on_finish(self, replica: ReplicaView) -> None:
        # The center is published; no worker continues, so that no own model is kept.
        super().before_evaluation(replica)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Return the relative error of the invariant, and `distance`: the mean over workers of |x_i - c|.

        A new ledger is started, so that rounding does not add up over epochs.
        """
        # On the root minus the change of c, on the other ranks the delivered d_i: their sum must be zero.
        moved = self._ledger - (replica.theta if self.comm.rank == ROOT_RANK else self._owed(replica))
        error = relative_error(self.comm, moved, replica.theta)
        self._open_ledger(replica)
        invariant = max(error, super().telemetry(replica)["invariant"])
        return {"invariant": invariant, "distance": self._distance(replica)}

    def _distance(self, replica: ReplicaView) -> float:
        assert self._own is not None, "telemetry() called without before_evaluation()"
        distance = torch.zeros(1, dtype=torch.float64)
        if self.is_worker:
            distance += float((self._own[0] - replica.theta).norm())
        self.comm.allreduce(distance, "telemetry")
        return float(distance) / self.workers

    def state(self) -> dict[str, Tensor]:
        # Names of state tensors are part of the checkpoint format: older spellings stay.
        return super().state() | {"centred.ledger": self._ledger}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._ledger = tensors["centred.ledger"].clone()
