"""Elastic averaging SGD: an elastic force ties the workers' parameters to a center that a server holds."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare
from nnlo_lib.algorithms.parameter_server.center_variable import CenterVariableServer
from nnlo_lib.algorithms.parameter_server.client import PUSH
from nnlo_lib.algorithms.parameter_server.nesterov_momentum import NesterovMomentum
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback


class EASGD(CenterVariableServer):
    """Every tau = `sync_every` steps an elastic force pulls a worker's parameters and the center together.

        x_i <- x_i - alpha (x_i - c),    c <- c + alpha (x_i - c)    with the values before, if tau divides t;
        x_i <- optimizer(x_i, g_i)    at every step, the gradient computed before the force moved x_i

    `momentum` delta > 0, EAMSGD, adds Nesterov momentum to every step of a worker, with v_i = 0 at first:

        g_i at x_i + delta v_i;    v_i <- delta v_i + (change of x_i by the optimizer, -eta g_i for SGD);    x_i <- x_i + v_i

    Zhang, Choromanska and LeCun, Deep Learning with Elastic Averaging SGD, 2015, arXiv:1412.6651,
    algorithm 1; algorithm 2 with `momentum` and SGD of rate eta, which `lr` sets. alpha = beta / p for p
    workers, with beta the `elastic_force`. v_i stays on its worker: it is not sent, and the force does not
    change it. The optimizer's own Nesterov momentum (sgd with `nesterov`) is another algorithm: its
    parameters, which the force pulls, are x_i + delta v_i. `synchronous`: equations (5) and (6),
    c <- c + alpha sum_i (x_i - c) over all workers that still have data. Invariant: the elastic moves of
    workers and center sum to zero. Bytes per worker and exchange: 4 P each way. `compression` rounds the
    pushed x_i (2 P up) and adds the rounding error to the next push: the sum is zero if the unsent residual
    is included.
    """

    push_purpose = "parameters"

    def __init__(
        self,
        comm: Communicator,
        synchronous: bool = False,
        sync_every: int = 10,
        elastic_force: float = 0.9,
        alpha: float | None = None,
        masters: int = 1,
        momentum: float = 0.0,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        super().__init__(comm, synchronous, sync_every, masters, feedback)
        self.alpha = self.push_scale = alpha if alpha is not None else elastic_force / self.workers
        self._steps = 0
        self._center = torch.empty(0)
        self._nesterov = NesterovMomentum(momentum if self.is_worker else 0.0)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._nesterov.reset(replica.theta)

    def on_batch(self, replica: ReplicaView, share: SampleShare) -> None:
        if share.count:
            self._nesterov.look_ahead(replica.theta)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._nesterov.return_back(replica.theta)
        if share.count and self._steps % self.sync_every == 0:
            self._exchange(replica)
        self._steps += 1
        self._nesterov.begin_step(replica.theta)

    def on_parameters(self, replica: ReplicaView) -> None:
        self._nesterov.end_step(replica.theta)

    def _exchange(self, replica: ReplicaView) -> None:
        """x_i <- x_i - alpha (x_i - c)."""
        if not self._center.numel():
            self._center = torch.empty_like(replica.theta)
        self.client.request(PUSH, replica.theta, self._center, self.push_purpose)
        self.client.wait()
        spring = torch.sub(replica.theta, self._center, out=self._center).mul_(self.alpha)
        replica.theta.sub_(spring)
        self._ledger.add_(spring)

    def update(self, replica: ReplicaView, number: int) -> Tensor:
        """Update the center, c <- c + alpha (sum_i x_i - k c), k = `number`; return c before the update."""
        # Workers and center move by the values before the update.
        center = replica.theta.clone()
        replica.theta.add_(replica.grad.sub_(center, alpha=number), alpha=self.alpha)
        return center

    def state(self) -> dict[str, Tensor]:
        velocity = self._nesterov.velocity
        own = {"easgd.velocity": velocity} if velocity.numel() else {}
        return super().state() | own | {"easgd.steps": torch.tensor([self._steps])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._steps = int(tensors["easgd.steps"])
        if "easgd.velocity" in tensors:
            self._nesterov.velocity = tensors["easgd.velocity"].clone()
