"""Downpour SGD: a server holds the parameters, workers send gradients and fetch parameters."""

from collections.abc import Callable

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, Role, Share, mean_buffers
from nnlo_lib.comm.communicator import Communicator

SERVER = 0
PUSH, DONE, FETCH = 1, 2, 3  # message tags


class Downpour(Algorithm):
    """Let a server apply each worker's accrued gradient as it comes, and answer with its parameters.

        worker i:  a_i = sum of its gradients since the last exchange, taken at locally stepped parameters
        server:    theta <- optimizer(theta, a_i);   worker i: theta_i <- theta

    Dean et al., Large Scale Distributed Deep Networks, 2012, algorithm 1 with n_push = n_fetch = sync_every.
    `synchronous`: the server waits for all workers that still have data and applies the mean of their a_i, weighted
    by samples. Invariant: the server's update count is the number of pushes (asynchronous) or rounds (synchronous).
    Bytes per worker and exchange: 4 P + 16 pushed by the worker, 4 P + 8 by the server.
    """

    def __init__(self, comm: Communicator, synchronous: bool = False, sync_every: int = 1) -> None:
        super().__init__(comm)
        self.synchronous, self.sync_every = synchronous, sync_every
        self.owns_step = sync_every == 1  # a local step would be overwritten at once
        self.updates = 0
        self._accrued: Tensor | None = None
        self._batches = self._samples = 0
        self._wish = self._stop = False

    @staticmethod
    def roles(size: int) -> list[Role]:
        workers: list[Role] = ["worker"] * (size - 1)
        return ["server", *workers]

    def on_gradient(self, replica: Model, share: Share) -> None:
        if not share.count:
            return
        self._batches += 1
        self._samples += share.count
        if self.sync_every > 1:
            self._accrued = (
                replica.grad.clone() if self._accrued is None else self._accrued.add_(replica.grad)
            )

    def on_parameters(self, replica: Model) -> None:
        if self._batches == self.sync_every:
            self._exchange(replica)

    def on_pause(self, replica: Model) -> None:
        if self.comm.rank != SERVER:
            if self._batches:
                self._exchange(replica)
            self.comm.send(torch.tensor([0, int(self._wish)]), SERVER, DONE, "control")
        self._wish = self._stop = False

    def on_epoch(self, replica: Model) -> None:
        self.comm.broadcast(replica.theta, SERVER)
        mean_buffers(self.comm, replica, self.comm.size - 1, self.comm.rank != SERVER)

    def agreed(self, wish: bool) -> bool:
        """Tell the server `wish` with the next push; say whether its last answer was to stop."""
        self._wish = wish
        return self._stop

    def _exchange(self, replica: Model) -> None:
        """Push the accrued gradient, fetch the parameters."""
        gradient = replica.grad if self._accrued is None else self._accrued
        self.comm.send(torch.tensor([self._samples, int(self._wish)]), SERVER, PUSH, "control")
        self.comm.send(gradient, SERVER, PUSH, "gradient")
        answer = torch.empty(1, dtype=torch.int64)
        self.comm.receive(answer, SERVER, FETCH)
        self.comm.receive(replica.theta, SERVER, FETCH)
        self._stop = bool(answer.item())
        self._accrued, self._batches, self._samples = None, 0, 0

    def serve(self, replica: Model, wish: Callable[[], bool]) -> None:
        active = set(range(1, self.comm.size))
        pushed: dict[int, tuple[int, Tensor]] = {}  # worker -> samples, gradient
        while active:
            worker, tag = self._listen(replica, pushed)
            if tag == DONE:
                active.remove(worker)
            elif not self.synchronous:
                self._update(replica, pushed.pop(worker)[1])
                self._answer(replica, worker, wish())
            if pushed and set(pushed) == active:
                self._round(replica, pushed, wish())

    def _listen(self, replica: Model, pushed: dict[int, tuple[int, Tensor]]) -> tuple[int, int]:
        """Receive one message from any worker; a gradient goes into `pushed`."""
        message = self.comm.probe()
        header = torch.empty(2, dtype=torch.int64)
        self.comm.receive(header, message.source, message.tag)
        samples, wish = header.tolist()
        self._stop |= bool(wish)
        if message.tag == PUSH:
            gradient = torch.empty_like(replica.grad) if self.synchronous else replica.grad
            self.comm.receive(gradient, message.source, PUSH)
            pushed[message.source] = (samples, gradient)
        return message.source, message.tag

    def _round(self, replica: Model, pushed: dict[int, tuple[int, Tensor]], wish: bool) -> None:
        """Apply the mean of the workers' gradients, added in rank order, and answer them all."""
        total = sum(samples for samples, _ in pushed.values())
        mean = torch.zeros_like(replica.grad)
        for worker in sorted(pushed):
            samples, gradient = pushed[worker]
            mean.add_(gradient, alpha=samples / total)
        self._update(replica, mean)
        for worker in sorted(pushed):
            self._answer(replica, worker, wish)
        pushed.clear()

    def _update(self, replica: Model, gradient: Tensor) -> None:
        if gradient is not replica.grad:
            replica.grad.copy_(gradient)
        replica.step()
        self.updates += 1

    def _answer(self, replica: Model, worker: int, wish: bool) -> None:
        self._stop |= wish
        self.comm.send(torch.tensor([int(self._stop)]), worker, FETCH, "control")
        self.comm.send(replica.theta, worker, FETCH, "parameters")

    def state(self) -> dict[str, Tensor]:
        return {"downpour.updates": torch.tensor([self.updates])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.updates = int(tensors["downpour.updates"])
