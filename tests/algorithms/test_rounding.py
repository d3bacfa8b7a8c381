"""Invariant checks in float32 over many steps tolerate rounding errors and detect real violations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.least_squares import DIMENSION, A, algorithm_of

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.core.errors import InvariantError
from nnlo_lib.train.evaluation.evaluator import check_invariant_and_consensus

NODES = 4
TRUTH = np.arange(1.0, DIMENSION + 1)  # fits every sample, so that gradients converge to zero
TRACKERS = {"dsgt": {"name": "dsgt"}, "next": {"name": "next", "inner_steps": 1, "tau": 0.0}}
PULLS = np.random.default_rng(2).normal(size=(NODES, 50))
PULLS -= PULLS.mean(0)  # every node has its own constant gradient; the gradients sum to zero


def on_cycle(comm, algorithm):
    return algorithm_of(comm, algorithm=algorithm, topology={"name": "cycle"})


def single(size):
    """Return a float32 replica with plain SGD steps."""
    replica = SimpleNamespace(theta=torch.zeros(size), grad=torch.zeros(size), buffers=torch.zeros(0))
    replica.step = lambda: replica.theta.sub_(replica.grad, alpha=0.1)
    return replica


def step(method, replica, gradient):
    replica.grad.copy_(torch.as_tensor(gradient))
    method.on_gradient(replica, SampleShare(1, NODES))
    replica.step()
    method.on_parameters(replica)


@pytest.mark.parametrize("name", TRACKERS)
def test_the_invariant_of_a_tracker_holds_after_convergence_and_detects_a_lost_gradient(name):
    """Each node trains on its own samples, which can be fitted exactly."""

    def program(comm):
        method, replica = on_cycle(comm, TRACKERS[name]), single(DIMENSION)
        samples = torch.tensor(A[comm.rank :: NODES], dtype=torch.float32)
        targets = samples @ torch.tensor(TRUTH, dtype=torch.float32)
        method.start(replica)
        for number in range(1, 1501):
            step(method, replica, samples.T @ (samples @ replica.theta - targets) / len(samples))
            if number % 100 == 0:
                check_invariant_and_consensus(method, replica, f"step {number}")
        assert float(method._gradient.norm()) < 1e-3 * float(method._largest)  # the training has converged
        np.testing.assert_allclose(replica.theta, TRUTH, atol=1e-3)
        method._tracker.add_(0.01 * method._largest)
        check_invariant_and_consensus(method, replica, "step 1501")

    with pytest.raises(InvariantError, match="the invariant is violated in step 1501"):
        SimulatedWorld(NODES).run(program)


@pytest.mark.parametrize("name", ["dsgd", "adpsgd"])
def test_rounding_does_not_add_up_over_epochs(name):
    def program(comm):
        """Return the invariant after each epoch of 100 steps whose gradients move the nodes apart."""
        method, replica, invariants = on_cycle(comm, {"name": name}), single(PULLS.shape[1]), []
        method.start(replica)
        for _ in range(12):
            for _ in range(100):
                comm.advance_clock_and_yield(1)
                step(method, replica, PULLS[comm.rank])
            method.quiesce(replica)
            invariants.append(method.telemetry(replica)["invariant"])
        return invariants

    invariants = SimulatedWorld(NODES).run(program)[0]
    assert invariants[-1] < 4 * invariants[0]
