"""What algorithms share in which workers agree through a server."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, mean_buffers, relative_error
from nnlo_lib.algorithms.link import FETCH, PUSH, Header, Link
from nnlo_lib.algorithms.relay import ROOT, Desk, server_of
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compress.feedback import Feedback
from nnlo_lib.comm.compress.none import Identity


class Server(Algorithm):
    """Let rank 0, the root, hold parameters that workers push to and fetch.

    With several masters, ranks 1 .. masters - 1 are relays: each adds up what its workers push, asks its own server
    in their place and hands them the answer. Workers and relays may compress what they push; each makes up in later
    pushes for what its own left out. `synchronous`: servers wait for all who still have data. Invariant:
    every push is applied exactly once. updates: of the root's parameters; pushes: that came into them.
    """

    push_purpose = "gradient"
    dealt: tuple[str, ...] = ("server.staleness",)

    def __init__(
        self,
        comm: Communicator,
        synchronous: bool = False,
        sync_every: int = 1,
        masters: int = 1,
        feedback: Feedback | None = None,
    ) -> None:
        super().__init__(comm)
        self.synchronous, self.sync_every = synchronous, sync_every
        self.updates = self.pushes = 0
        self.workers, self.is_worker = comm.size - masters, comm.rank >= masters
        servers = {rank: server_of(rank, comm.size, masters) for rank in range(1, comm.size)}
        feedback = feedback or Feedback(Identity(), comm.rank)
        self.link = Link(comm, servers.get(comm.rank, ROOT), feedback)
        clients = [rank for rank, server in servers.items() if server == comm.rank]
        self._answered = dict.fromkeys(clients, 0)  # up to which update each client was told

    @abstractmethod
    def update(self, replica: Model, number: int) -> Tensor:
        """Let the sum of `number` pushes, in `replica.grad`, change the root's parameters; return the answer."""

    def answer_to_push(self, replica: Model) -> Tensor:
        """Return where a relay puts the answer to a push."""
        return replica.theta

    def on_pause(self, replica: Model) -> None:
        if self.comm.rank != ROOT:
            self.link.leave(replica.theta[:0])
        self.link.wish = self.link.stop = False

    def on_epoch(self, replica: Model) -> None:
        self.comm.broadcast(replica.theta, ROOT)
        mean_buffers(self.comm, replica, self.workers, self.is_worker)
        self._answered = dict.fromkeys(self._answered, self.updates)

    def agreed(self, wish: bool) -> bool:
        """Tell the server `wish` with the next request; say whether its last answer was to stop."""
        self.link.wish = wish
        return self.link.stop

    def serve(self, replica: Model, wish: Callable[[], bool]) -> None:
        alone = self.comm.rank == ROOT and not self.synchronous
        compressor = self.link.feedback.compressor
        desk = Desk(self.comm, list(self._answered), replica.grad, not alone, compressor)
        while desk.active:
            desk.collect()
            self.link.wish |= desk.wish or wish()
            if self.synchronous and set(desk.waiting) != desk.active:
                continue
            for kind in sorted({header.kind for header in desk.waiting.values()}):
                self._answer(replica, kind, *desk.hand_over(kind))

    def _answer(self, replica: Model, kind: int, clients: list[int], number: int) -> None:
        answer = (self._decide if self.comm.rank == ROOT else self._relay)(replica, kind, number)
        for client in clients:
            header = Header(kind, self.link.stop, self.updates - self._answered[client])
            self.comm.send(answer, client, header.tag, "parameters")
            self._answered[client] = self.updates

    def _decide(self, replica: Model, kind: int, number: int) -> Tensor:
        self.link.stop = self.link.wish
        if kind == FETCH:
            return replica.theta
        self.updates, self.pushes = self.updates + 1, self.pushes + number
        return self.update(replica, number)

    def _relay(self, replica: Model, kind: int, number: int) -> Tensor:
        """Ask one's own server in the place of the clients."""
        vector, room = replica.theta[:0], replica.theta
        if kind == PUSH:
            vector, room = replica.grad, self.answer_to_push(replica)
        self.link.ask(kind, vector, room, self.push_purpose, number)
        self.updates += self.link.settle()
        return room

    def telemetry(self, replica: Model) -> dict[str, float]:
        mine = self.link.staleness.total() * self.is_worker
        error, size = torch.tensor([[self.pushes - mine], [self.pushes]], dtype=torch.float64)
        return {"invariant": relative_error(self.comm, error, size)}

    def counts(self) -> dict[str, dict[int, int]]:
        return {"staleness": dict(sorted(self.link.staleness.items()))} if self.is_worker else {}

    def state(self) -> dict[str, Tensor]:
        answered = [*self._answered.values()]
        staleness = sorted(self.link.staleness.items())
        own = {
            "server.updates": torch.tensor([self.updates, self.pushes]),
            "server.answered": torch.tensor(answered, dtype=torch.int64),
            "server.staleness": torch.tensor(staleness, dtype=torch.int64).view(-1, 2),
        }
        return own | self.link.feedback.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.link.feedback.load_state(tensors)
        self.updates, self.pushes = tensors["server.updates"].tolist()
        answered = tensors["server.answered"].tolist()
        if len(answered) != len(self._answered):  # other clients, who have just been told all
            answered = [self.updates] * len(self._answered)
        self._answered = dict(zip(self._answered, answered, strict=True))
        self.link.staleness = Counter()
        for staleness, pushes in tensors["server.staleness"].tolist():
            self.link.staleness[staleness] += pushes
