"""Workers that keep parameters of their own around a center on the server: `easgd` and `gem`."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.server import ROOT_RANK, ParameterServer
from nnlo_lib.algorithms.server_client import FETCH, PUSH
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import ErrorFeedback

# Of the code of GEM's authors; keeps the scale finite where a worker's update is zero.
EPSILON = 1e-12


class CenterVariableServer(ParameterServer):
    """Base class: rank 0 holds a center c that changes only by the workers' pushes, c <- c + sum of d_i.

    The center is evaluated and published, with the mean of the workers' batch-norm statistics; after an
    evaluation workers restore their own model. Invariant: the change of c since the last telemetry is the sum
    of the d_i of all workers, except for the compression residual, which is sent later.
    """

    push_scale = 1.0  # change of c per unit of a pushed vector
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
        assert self._own is not None, "telemetry() called without before_evaluation()"
        distance = torch.zeros(1, dtype=torch.float64)
        if self.is_worker:
            distance += float((self._own[0] - replica.theta).norm())
        self.comm.allreduce(distance, "telemetry")
        return {"invariant": invariant, "distance": float(distance) / self.workers}

    def state(self) -> dict[str, Tensor]:
        # Names of state tensors are part of the checkpoint format: older spellings stay.
        return super().state() | {"centred.ledger": self._ledger}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._ledger = tensors["centred.ledger"].clone()


class EASGD(CenterVariableServer):
    """Every tau = `sync_every` steps an elastic force pulls a worker's parameters and the center together.

        x_i <- x_i - alpha (x_i - c),    c <- c + alpha (x_i - c)    with the values before, if tau divides t;
        x_i <- optimizer(x_i, g_i)    at every step, the gradient computed before the force moved x_i

    `momentum` delta > 0, EAMSGD, adds Nesterov momentum to every step of a worker, with v_i = 0 at first:

        g_i at x_i + delta v_i;    v_i <- delta v_i + (change of x_i by the optimizer, -eta g_i for SGD);    x_i <- x_i + v_i

    Zhang, Choromanska and LeCun, Deep Learning with Elastic Averaging SGD, 2015, arXiv:1412.6651, algorithm 1.
    Algorithm 2 is `momentum` with SGD of rate eta, which `lr` sets. For p workers, alpha = beta / p, with beta the
    `elastic_force`. The velocity v_i stays on its worker, and the force does not change it. The optimizer's own
    Nesterov momentum (sgd with `nesterov`) is another algorithm: the force then pulls x_i + delta v_i.

    With `synchronous`, equations (5) and (6): c <- c + alpha sum_i (x_i - c) over all workers that still have data.
    Invariant: the elastic moves of workers and center sum to zero. Bytes per worker and exchange: 4 P each way.
    `compression` rounds the pushed x_i (2 P up) and adds the rounding error to the next push: the invariant includes it.
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


class NesterovMomentum:
    """The velocity v of a worker, whose gradients are computed at theta + delta v; `momentum` delta = 0 switches it off.

    Order in a step: `look_ahead`, gradient, `return_back`, any exchange, `begin_step`, step of the local
    optimizer, `end_step`. A step without samples calls none of them. Before `reset`, and if it is off, v is empty.
    """

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self.velocity = self._origin = torch.empty(0)
        self._in_step = False

    def reset(self, theta: Tensor) -> None:
        """Set v to zero."""
        if self._momentum:
            self.velocity = torch.zeros_like(theta)

    def look_ahead(self, theta: Tensor) -> None:
        """theta <- theta + delta v, where the gradient is computed."""
        self._in_step = bool(self._momentum)
        if self._in_step:
            self._origin = theta.clone()
            theta.add_(self.velocity, alpha=self._momentum)

    def return_back(self, theta: Tensor) -> None:
        """Restore theta as before `look_ahead`, bit for bit."""
        if self._in_step:
            theta.copy_(self._origin)

    def begin_step(self, theta: Tensor) -> None:
        """Keep theta, from which the local optimizer makes its step."""
        if self._in_step:
            self._origin.copy_(theta)

    def end_step(self, theta: Tensor) -> None:
        """v <- delta v + (theta's change by the local optimizer); theta <- theta before its step + v."""
        if self._in_step:
            self.velocity.mul_(self._momentum).add_(theta.sub_(self._origin))
            torch.add(self._origin, self.velocity, out=theta)
            self._in_step = False


class GEM(CenterVariableServer):
    """Scale each value of an update so that the center's energy matches a proxy, SGD with momentum.

        u_i = change by the local optimizer since the last exchange (-eta g_i for SGD),    m_i <- mu m_i + u_i
        fetch c;    pi = (kappa |m_i| - |c - c'|) / (|u_i| + epsilon), within 0 .. `largest_scale`;    c' <- c
        push pi u_i;    theta_i <- c + pi u_i;    server: c <- c + pi u_i

    The center that this worker fetched last is c', at first the initial parameters; all products are value by value.
    Hermans and Louppe, Gradient Energy Matching for Distributed Asynchronous Gradient Descent, 2018, arXiv:1805.08469.
    Checked against the authors' code (github.com/montefiore-institute/gradient-energy-matching), not the equations.
    That code also bounds pi by 5 and has epsilon = 1e-12, but as |u_i + epsilon|. Its server handles a fetch and the
    following push at once; here other workers may push in between, which `staleness` counts.

    The local optimizer should have no momentum of its own. Invariant: the change of the center is the sum of the pushed
    updates. Bytes per worker and exchange: 4 P each way. `compression` applies to pi u_i: one compressed vector up, 4 P
    down; the center lags by the residual that is still to be sent.
    """

    def __init__(
        self,
        comm: Communicator,
        sync_every: int = 1,
        momentum: float = 0.0,
        kappa: float = 1.0,
        largest_scale: float = 5.0,
        masters: int = 1,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        super().__init__(comm, False, sync_every, masters, feedback)
        self.momentum, self.kappa, self.largest_scale = momentum, kappa, largest_scale
        self._batches = 0
        # m, c', and theta after the last exchange.
        self._proxy = self._stale = self._exchange_origin = torch.empty(0)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._proxy = torch.zeros_like(replica.theta)
        self._stale, self._exchange_origin = replica.theta.clone(), replica.theta.clone()

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._batches += share.count > 0

    def on_parameters(self, replica: ReplicaView) -> None:
        if self._batches == self.sync_every:
            self._exchange(replica)

    def quiesce(self, replica: ReplicaView) -> None:
        if self._batches:
            self._exchange(replica)
        super().quiesce(replica)

    def _exchange(self, replica: ReplicaView) -> None:
        u = replica.theta - self._exchange_origin
        self._proxy.mul_(self.momentum).add_(u)
        self.client.request(FETCH, replica.theta[:0], replica.theta)
        # The scale depends on the fetched center: unlike Downpour, a worker must wait here.
        self.client.wait()
        # pi = (kappa |m| - |c - c'|) / (|u| + epsilon), within 0 .. largest_scale.
        energy = self._proxy.abs().mul_(self.kappa).sub_(torch.sub(replica.theta, self._stale).abs_())
        u.mul_(energy.div_(u.abs().add_(EPSILON)).clamp_(0, self.largest_scale))
        self.client.request(PUSH, u, u[:0])
        self._stale.copy_(replica.theta)
        torch.add(replica.theta, u, out=self._exchange_origin)
        replica.theta.copy_(self._exchange_origin)
        self._ledger.add_(u)
        self._batches = 0

    def update(self, replica: ReplicaView, number: int) -> Tensor:
        """c <- c + sum of pi u."""
        replica.theta.add_(replica.grad)
        return self.answer_to_push(replica)

    def answer_to_push(self, replica: ReplicaView) -> Tensor:
        return replica.theta[:0]

    def state(self) -> dict[str, Tensor]:
        return super().state() | {
            "gem.proxy": self._proxy,
            "gem.stale": self._stale,
            "gem.from": self._exchange_origin,
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._proxy, self._stale = tensors["gem.proxy"].clone(), tensors["gem.stale"].clone()
        self._exchange_origin = tensors["gem.from"].clone()
