"""Theano-MPI's exchange `cdd`: the sum of the workers' momenta."""

from collections.abc import Sequence

from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.compat.theano_mpi.parameter_view import flat_view


class MomentumSum(Algorithm):
    """After each step, write the sum of all workers' momenta v_i to V, with which the model moves its parameters.

        v_i <- mu v_i + g_i;    V <- sum_i v_i;    theta <- theta - lr V / n

    The model computes the first and the last equation in its `train_iter`. Invariant: the parameters of all
    ranks are equal if the model changes them by V only. Bytes per rank and step: an all-reduce of 4 P.

    Args:
        comm: communicator of the workers.
        momenta: v_i, the model's `vels`.
        sums: V, the model's `vels2`.
    """

    def __init__(self, comm: Communicator, momenta: Sequence[Tensor], sums: Sequence[Tensor]) -> None:
        super().__init__(comm)
        self._momenta, self._sums = flat_view(momenta), flat_view(sums)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_parameters(self, replica: ReplicaView) -> None:
        self._sums.copy_(self._momenta)
        self.comm.allreduce(self._sums, "gradient")

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass
