"""Downpour SGD: a server holds the parameters, workers send gradients and fetch parameters."""

from collections.abc import Callable

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, Role, Share, mean_buffers
from nnlo_lib.comm.communicator import Communicator

SERVER = 0
PUSH, DONE, FETCH, STOP = 1, 2, 3, 4  # message tags; STOP is added to another


class Downpour(Algorithm):
    """Let a server apply each worker's accrued gradient as it comes, and answer with its parameters.

        worker i:  a_i = sum of its gradients since the last exchange, taken at locally stepped parameters
        server:    theta <- optimizer(theta, a_i);   worker i: theta_i <- theta

    Dean et al., Large Scale Distributed Deep Networks, 2012, algorithm 1 with n_push = n_fetch = sync_every.
    `synchronous`: each gradient is weighted by its worker's share of the step's samples, and the server waits for all
    workers that still have data and applies the sum of their a_i. Invariant: the server's update count is the number
    of pushes (asynchronous) or rounds (synchronous). Bytes per worker and exchange: 4 P each way.
    """

    def __init__(self, comm: Communicator, synchronous: bool = False, sync_every: int = 1) -> None:
        super().__init__(comm)
        self.synchronous, self.sync_every = synchronous, sync_every
        self.owns_step = sync_every == 1  # a local step would be overwritten at once
        self.updates = self._batches = 0
        self._accrued: Tensor | None = None
        self._wish = self._stop = self._pushed = False

    @staticmethod
    def roles(size: int) -> list[Role]:
        workers: list[Role] = ["worker"] * (size - 1)
        return ["server", *workers]

    def on_gradient(self, replica: Model, share: Share) -> None:
        if not share.count:
            return
        self._batches += 1
        weight = share.count / share.global_count if self.synchronous else 1.0
        if self.sync_every == 1:
            self._accrued = replica.grad.mul_(weight)
        elif self._accrued is None:
            self._accrued = replica.grad * weight
        else:
            self._accrued.add_(replica.grad, alpha=weight)
        if self._batches == self.sync_every:
            self._push()

    def on_parameters(self, replica: Model) -> None:
        self._fetch(replica)

    def on_pause(self, replica: Model) -> None:
        if self.comm.rank != SERVER:
            if self._batches:
                self._push()
            self._fetch(replica)
            self.comm.send(replica.theta.new_empty(0), SERVER, DONE + STOP * self._wish, "control")
        self._wish = self._stop = False

    def on_epoch(self, replica: Model) -> None:
        self.comm.broadcast(replica.theta, SERVER)
        mean_buffers(self.comm, replica, self.comm.size - 1, self.comm.rank != SERVER)

    def agreed(self, wish: bool) -> bool:
        """Tell the server `wish` with the next push; say whether its last answer was to stop."""
        self._wish = wish
        return self._stop

    def _push(self) -> None:
        """Send the accrued gradient."""
        assert self._accrued is not None
        self.comm.send(self._accrued, SERVER, PUSH + STOP * self._wish, "gradient")
        self._accrued, self._batches, self._pushed = None, 0, True

    def _fetch(self, replica: Model) -> None:
        """Receive the server's parameters, its answer to a push."""
        if self._pushed:
            answer = self.comm.probe(SERVER)
            self.comm.receive(replica.theta, SERVER, answer.tag)
            self._stop, self._pushed = answer.tag > STOP, False

    def serve(self, replica: Model, wish: Callable[[], bool]) -> None:
        active = set(range(1, self.comm.size))
        pushed: dict[int, Tensor] = {}  # by worker
        while active:
            message = self.comm.probe()
            kind, wished = message.tag % STOP, message.tag > STOP
            self._stop |= wished or wish()
            if kind == DONE:
                self.comm.receive(replica.grad.new_empty(0), message.source, message.tag)
                active.remove(message.source)
            else:
                gradient = torch.empty_like(replica.grad) if self.synchronous else replica.grad
                self.comm.receive(gradient, message.source, message.tag)
                pushed[message.source] = gradient
            if pushed and (set(pushed) == active or not self.synchronous):
                self._update(replica, pushed)

    def _update(self, replica: Model, pushed: dict[int, Tensor]) -> None:
        """Apply the sum of the gradients, added in rank order, and answer their workers."""
        if self.synchronous:
            replica.grad.zero_()
            for worker in sorted(pushed):
                replica.grad.add_(pushed[worker])
        replica.step()
        self.updates += 1
        for worker in sorted(pushed):
            self.comm.send(replica.theta, worker, FETCH + STOP * self._stop, "parameters")
        pushed.clear()

    def state(self) -> dict[str, Tensor]:
        return {"downpour.updates": torch.tensor([self.updates])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.updates = int(tensors["downpour.updates"])
