"""Local SGD: replicas learn alone and average their parameters every few steps."""

from nnlo_lib.algorithms.algorithm import Model
from nnlo_lib.algorithms.periodic import Periodic


class Average(Periodic):
    """Average the parameters every H = `sync_every` steps.

        theta_i <- optimizer(theta_i, g_i), H times;    theta_i <- (1/n) sum_j theta_j

    Stich, Local SGD Converges Fast and Communicates Little, 2019, algorithm 1; with one epoch for H it is McMahan et
    al.'s FedAvg of equal clients. Optimizer states stay local. Invariant: after a meeting all replicas are equal.
    Bytes per rank: those of an all-reduce of 4 P, every H steps.
    """

    def meet(self, replica: Model) -> None:
        self.comm.allreduce(replica.theta, "parameters")
        replica.theta.div_(self.comm.size)
