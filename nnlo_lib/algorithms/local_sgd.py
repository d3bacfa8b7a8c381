"""Local SGD: `average` and `diloco` synchronize every few local steps, `noloco` pairs of ranks, `individual` never."""

from abc import abstractmethod

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import (
    Algorithm,
    ReplicaView,
    SampleShare,
    fraction_unequal,
    mean_buffers,
    relative_error,
)
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator, Request
from nnlo_lib.comm.compression.base import ErrorFeedback, build_compressor, compressed_iallreduce
from nnlo_lib.config.algorithm import AverageConfig, DiLoCoConfig, NoLoCoConfig
from nnlo_lib.core.rng import derive_seed


class PeriodicSync(Algorithm):
    """Take `sync_every` local steps, then `synchronize`; every evaluation also synchronizes first."""

    def __init__(self, comm: Communicator, sync_every: int) -> None:
        super().__init__(comm)
        self.sync_every = sync_every
        self._steps_since_sync = 0  # the same on all ranks

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


class Average(PeriodicSync):
    """Average the parameters every H = `sync_every` steps.

        theta_i <- optimizer(theta_i, g_i), H times;    theta_i <- (1/n) sum_j theta_j

    Stich, Local SGD Converges Fast and Communicates Little, 2019, algorithm 1. Optimizer states stay local. Invariant:
    after each synchronization all replicas are equal. Bytes per rank: an all-reduce of 4 P every H steps.

    With `compression`, ranks send the change since the last synchronization: n - 1 compressed vectors per rank, every H
    steps. They add the compression error to the next change (Basu et al., Qsparse-local-SGD, 2019, algorithm 1).

    With `participation` C below 1 or `proximal` mu, a round is (federated.py; b_i samples of rank i in the round)

        S: m = max(1, C n) ranks;    theta_i <- optimizer(theta_i, g_i + mu (theta_i - theta)), H times, i in S
        theta <- sum_S b_i theta_i / sum_S b_i, batch-norm statistics too;    theta_i <- theta, all i

    McMahan et al., FedAvg, 2017, arXiv:1602.05629, algorithm 1; Li et al., FedProx, 2020, arXiv:1812.06127. Other than there, a
    round counts steps, an evaluation ends it, and all ranks load theta. Bytes per round: m - 1 vectors of 4 P + 4 to the
    first participant, which sends the sum to the n - 1 others; an all-reduce if m = n.
    """

    @classmethod
    def from_config(cls, config: AverageConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm; if the compression is lossy, the variant that averages changes."""
        if context.compressor.lossless:
            return cls(context.comm, config.sync_every)
        # DiLoCo averages changes; an outer learning rate of 1 without momentum adds their mean.
        outer = DiLoCoConfig(sync_every=config.sync_every, outer_lr=1.0, outer_momentum=0.0)
        return CompressedAverage(context.comm, outer, [context.error_feedback])

    def synchronize(self, replica: ReplicaView) -> None:
        self.comm.allreduce(replica.theta, "parameters")
        replica.theta.div_(self.comm.size)


class DiLoCo(PeriodicSync):
    """Apply an outer SGD with Nesterov momentum to the ranks' mean change in H = `sync_every` local steps.

        theta_i <- optimizer(theta_i, g_i), H times from theta;    d = (1/n) sum_i (theta - theta_i)
        v <- mu v + d;    theta <- theta - lr (d + mu v);    theta_i <- theta

    Douillard et al., DiLoCo, 2023, arXiv:2311.08105, algorithm 1; the momentum has PyTorch's form. With
    lr = 1 and mu = 0 it is local SGD. Invariant: all ranks hold the same theta and v after each outer step.
    Bytes per rank: an all-reduce of 4 P every H steps.

    With `fragments` K, K equal parts take turns, each every H steps, in messages of 4 P / K bytes. With `overlap` tau,
    ranks send the change of a part after step t; its outer step follows after step t + tau, and ends with

        theta_i <- alpha theta_i + (1 - alpha) theta

    Douillard et al., Streaming DiLoCo, 2025, arXiv:2501.18512, algorithm 2. An evaluation completes what is in flight,
    then synchronizes all parts. `compression` sends n - 1 compressed changes per part, and adds the error of a part to
    its next change, as in Therien et al., MuLoCo, 2025, arXiv:2505.23725, with `train.optimizer: muon`.
    """

    def __init__(self, comm: Communicator, config: DiLoCoConfig, feedbacks: list[ErrorFeedback]) -> None:
        super().__init__(comm, config.sync_every)
        self._config, self._feedbacks, fragments = config, feedbacks, config.fragments
        self._alpha = 0.5 if config.alpha is None else config.alpha
        # Steps after a synchronization of all fragments until each one's first turn.
        self._turns = [config.sync_every * (index + 1) // fragments for index in range(fragments)]
        # Of the names of compression states; an undivided vector has none.
        self._prefixes = [f"fragment.{index}." if index else "" for index in range(fragments)]
        self._theta = self._velocity = torch.empty(0)
        # By fragment: its change in flight, or its mean change if there is no request.
        self._pending: dict[int, tuple[Tensor, Request | None]] = {}

    @classmethod
    def from_config(cls, config: DiLoCoConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm with these settings."""
        # A compressor serves one vector; the first fragment has the seed of a vector that is not divided.
        others = [derive_seed(context.seed, "fragment", index) for index in range(1, config.fragments)]
        compressors = [build_compressor(context.compression, seed) for seed in (context.seed, *others)]
        return cls(context.comm, config, [ErrorFeedback(each, context.comm.rank) for each in compressors])

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._theta, self._velocity = replica.theta.clone(), torch.zeros_like(replica.theta)

    def on_parameters(self, replica: ReplicaView) -> None:
        self._steps_since_sync += 1
        overlap = self._config.overlap
        for index, turn in enumerate(self._turns):
            steps = self._steps_since_sync - turn  # negative before the fragment's first turn
            if steps >= 0 and steps % self.sync_every == 0:
                self._send(replica, index)
            if steps >= overlap and (steps - overlap) % self.sync_every == 0:
                self._take_outer_step(replica, index, self._alpha if overlap else 0.0)
        if len(self._turns) == 1 and not overlap:
            self._steps_since_sync %= self.sync_every  # all parameters are synchronized

    def quiesce(self, replica: ReplicaView) -> None:
        super().quiesce(replica)
        # The outer steps follow in their turn, so that the interval of checkpoints changes no bit.
        for index in self._pending:
            self._receive(index)

    def synchronize(self, replica: ReplicaView) -> None:
        for index in list(self._pending):
            self._take_outer_step(replica, index, self._alpha)
        steps = [self._steps_since_sync - turn for turn in self._turns]
        # A fragment that ranks have not changed since its outer step gets no second one.
        changed = [
            k for k, each in enumerate(steps) if self._config.overlap or each < 0 or each % self.sync_every
        ]
        for index in changed:
            self._send(replica, index)
        for index in changed:
            self._take_outer_step(replica, index, 0.0)

    def _part(self, vector: Tensor, index: int) -> Tensor:
        return vector.tensor_split(len(self._turns))[index]

    def _send(self, replica: ReplicaView, index: int) -> None:
        change = torch.sub(self._part(self._theta, index), self._part(replica.theta, index))
        feedback = self._feedbacks[index]
        if feedback.compressor.lossless:
            request = self.comm.iallreduce(change, "parameters")
        else:
            request = compressed_iallreduce(self.comm, feedback, change, "parameters")
        self._pending[index] = change, request

    def _receive(self, index: int) -> Tensor:
        change, request = self._pending[index]
        if request is not None:
            request.wait()
            self._pending[index] = change.div_(self.comm.size), None
        return change

    def _take_outer_step(self, replica: ReplicaView, index: int, alpha: float) -> None:
        """Receive the change of a fragment and take its outer step; the replica keeps `alpha` of its own parameters."""
        change = self._receive(index)
        del self._pending[index]
        theta, velocity = self._part(self._theta, index), self._part(self._velocity, index)
        # All ranks compute the same outer step from the same sum, so that `_theta` needs no further message.
        momentum = self._config.outer_momentum
        velocity.mul_(momentum).add_(change)
        theta.sub_(change.add_(velocity, alpha=momentum), alpha=self._config.outer_lr)
        own = self._part(replica.theta, index)
        own.copy_(own.lerp(theta, 1 - alpha) if alpha else theta)

    def state(self) -> dict[str, Tensor]:
        own = {"diloco.theta": self._theta, "diloco.velocity": self._velocity}
        own |= {f"diloco.change.{index}": change for index, (change, _) in self._pending.items()}
        for prefix, feedback in zip(self._prefixes, self._feedbacks, strict=True):
            own |= {f"{prefix}{name}": tensor for name, tensor in feedback.state().items()}
        return super().state() | own

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._theta, self._velocity = tensors["diloco.theta"].clone(), tensors["diloco.velocity"].clone()
        changes = [index for index in range(len(self._turns)) if f"diloco.change.{index}" in tensors]
        self._pending = {index: (tensors[f"diloco.change.{index}"].clone(), None) for index in changes}
        for prefix, feedback in zip(self._prefixes, self._feedbacks, strict=True):
            named = [name for name in tensors if name.startswith(prefix)]
            feedback.load_state({name.removeprefix(prefix): tensors[name] for name in named})


class CompressedAverage(DiLoCo):
    """Average compressed changes; error messages name this class, not DiLoCo."""


class NoLoCo(PeriodicSync):
    """Take H = `sync_every` local steps, then an outer step with momentum and the average of a random pair of ranks.

        theta_i <- optimizer(theta_i, g_i), H times from phi_i;    d_i = theta_i - phi_i
        v_i <- mu v_i + lr (d_i + d_j) / 2 + gamma (phi_j - phi_i) / 2      i and j: a pair of this round
        phi_i <- phi_i + v_i;    theta_i <- phi_i

    Kolehmainen et al., NoLoCo, 2025, arXiv:2506.10911, with groups of two ranks. All ranks draw the same pairs from seed and
    round; if their number is odd, one rank has no partner. A rank sends lr d_i + gamma phi_i, from which both compute
    opposite moves. Invariant: the moves of all ranks add up to zero. Bytes per rank: 4 P every H steps, to one rank.
    """

    replicas_differ = True

    def __init__(self, comm: Communicator, config: NoLoCoConfig, seed: int) -> None:
        super().__init__(comm, config.sync_every)
        self._config, self._seed = config, seed
        self._round = torch.zeros(1, dtype=torch.int64)
        # `_moved`: sum of the moves since the last telemetry.
        self._phi = self._velocity = self._moved = torch.empty(0)

    @classmethod
    def from_config(cls, config: NoLoCoConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm with these settings."""
        return cls(context.comm, config, context.seed)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._phi = replica.theta.clone()
        self._velocity, self._moved = torch.zeros_like(self._phi), torch.zeros_like(self._phi)

    def synchronize(self, replica: ReplicaView) -> None:
        turn = int(self._round)
        order = sorted(range(self.comm.size), key=lambda rank: derive_seed(self._seed, "noloco", turn, rank))
        place = order.index(self.comm.rank) ^ 1
        self._round += 1
        change = torch.sub(replica.theta, self._phi).mul_(self._config.outer_lr)
        self._velocity.mul_(self._config.outer_momentum).add_(change)
        if place < self.comm.size:
            ours, theirs = change.add_(self._phi, alpha=self._config.gamma), torch.empty_like(change)
            self.comm.exchange({order[place]: ours}, {order[place]: theirs})
            move = theirs.sub_(ours).div_(2)
            self._velocity.add_(move)
            self._moved.add_(move)
        self._phi.add_(self._velocity)
        replica.theta.copy_(self._phi)

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Return the relative error of the moves' sum; start a new sum, so that rounding does not add up."""
        error = relative_error(self.comm, self._moved, replica.theta)
        self._moved.zero_()
        return {"invariant": error}

    def state(self) -> dict[str, Tensor]:
        own = {"noloco.phi": self._phi, "noloco.velocity": self._velocity, "noloco.moved": self._moved}
        return super().state() | own | {"noloco.round": self._round}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        super().load_state(tensors)
        self._phi, self._velocity = tensors["noloco.phi"].clone(), tensors["noloco.velocity"].clone()
        self._moved, self._round = tensors["noloco.moved"].clone(), tensors["noloco.round"].clone().cpu()


class Individual(Algorithm):
    """Train every replica alone, from common initial parameters.

        theta_i <- optimizer(theta_i, g_i)

    DiNNO's `individual training`: the baseline that synchronization must beat. Bytes: only the initial
    broadcast.
    """

    replicas_differ = True

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass
