"""Evaluation of the replicas on the validation samples."""

from collections.abc import Callable
from contextlib import closing
from math import inf
from time import monotonic

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.problems.base import Problem
from nnlo_lib.state.jsonl_table import JsonlTable
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.evaluation.consensus import summarize_nodes
from nnlo_lib.train.evaluation.evaluate import Batches, evaluation_batches, evaluation_sums
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.replica.stacked_replicas import ReplicaStack

# A stop request waits this long for the end of a validation; most end sooner, and their row is then in the checkpoint.
STOP_PATIENCE_S = 5.0


class InterruptedValidationError(Exception):
    """All ranks ended a validation early, because one of them has to stop; it starts over after the resume."""


class Validation:
    """Evaluates the common model on all ranks together, or each rank's model (rows of `nodes`).

    Args:
        data: samples of the training.
        tensors: preprocessor of the model's inputs.
        problem: loss and metrics.
        comm: communicator of the ranks.
        nodes: table to which rank 0 appends a row for each node.
        stop: returns True if this rank has to stop.
    """

    def __init__(
        self,
        data: TrainingData,
        tensors: Preprocessor,
        problem: Problem,
        comm: Communicator,
        nodes: JsonlTable,
        stop: Callable[[], bool] = bool,
    ) -> None:
        self._data, self._tensors, self._problem = data, tensors, problem
        self._comm, self._nodes, self._stop = comm, nodes, stop
        self._interrupted = False

    def measure_shared_model(self, replica: Replica) -> dict[str, float]:
        """Return loss and metrics of the common model; each rank evaluates its share of the samples.

        Raises InterruptedValidationError on all ranks if one has to stop.
        """
        if not len(self._data.validation_set[1]):
            return {}
        # Sums in float64, not means: the shares of the ranks may differ in size.
        sums = self._sums(replica, self._comm.rank, self._comm.size)
        self._comm.allreduce(sums, "metrics")
        return {f"val_{name}": value for name, value in self._problem.means(sums).items()}

    def measure_each_model(
        self, replica: Replica, epoch: float, stack: ReplicaStack | None
    ) -> dict[str, float]:
        """Return the ranks' mean, smallest and largest loss and metrics.

        Args:
            replica: replica of this rank.
            epoch: number of epochs so far, with the fraction of the running one.
            stack: replicas of all simulated ranks, if their gradients are batched; else None.

        Raises InterruptedValidationError on all ranks if one has to stop.
        """
        split, samples = self._data.validation_set
        if not len(samples):
            return {}
        # A stack evaluates all replicas in one call, so all of them must be ready.
        self._comm.barrier()
        if stack is None:
            sums = self._sums(replica, 0, 1)
        else:
            sums = stack.evaluate_replicas(epoch, split, samples)[self._comm.rank]
        nodes = [self._problem.means(torch.tensor(each)) for each in self._comm.gather(sums.tolist())]
        if self._comm.rank == 0:
            for node, means in enumerate(nodes):
                self._nodes.append({"epoch": epoch, "node": node, **means})
        return summarize_nodes(nodes)

    def _sums(self, replica: Replica, first: int, every: int) -> Tensor:
        split, samples = self._data.validation_set
        batches = evaluation_batches(replica.module, split, samples[first::every], self._tensors)
        with closing(batches):
            sums = evaluation_sums(replica.module, self._until_stop(batches), self._problem)
        # Signals reach ranks at different batches; the clocks of simulated ranks do not see this question.
        with self._comm.outside_of_time():
            if any(self._comm.gather(self._interrupted)):
                raise InterruptedValidationError
        return sums

    def _until_stop(self, batches: Batches) -> Batches:
        """Yield the batches until this rank has had to stop for STOP_PATIENCE_S."""
        since, self._interrupted = inf, False
        for batch in batches:
            if self._stop():
                since = min(since, monotonic())
            if monotonic() - since > STOP_PATIENCE_S:
                self._interrupted = True
                return
            yield batch
