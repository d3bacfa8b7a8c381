"""Invariant checks in float32 over many steps tolerate rounding errors and detect real violations."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.decentralized_programs import algorithm_of
from helpers.gossip_programs import make
from helpers.least_squares import DIMENSION, A

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.core.errors import InvariantError
from nnlo_lib.train.evaluation.consensus import check_invariant_and_consensus

NODES, NONE, CYCLE = 4, {"name": "none"}, {"name": "cycle"}
TRUTH = np.arange(1.0, DIMENSION + 1)  # fits every sample, so that gradients converge to zero
TRACKERS = {"dsgt": {"name": "dsgt"}, "next": {"name": "next", "inner_steps": 1, "tau": 0.0}}
PULLS = np.random.default_rng(2).normal(size=(NODES, 50))
PULLS -= PULLS.mean(0)  # every node has its own constant gradient; the gradients sum to zero


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


def fitted(comm, algorithm, steps, epoch):
    """Train on data that can be fitted exactly, each node on its own samples; check the invariant after each epoch.

    Args:
        comm: communicator of the node.
        algorithm: settings of the algorithm.
        steps: number of steps.
        epoch: steps per epoch.
    """
    method, replica = algorithm_of(comm, algorithm, CYCLE, NONE), single(DIMENSION)
    samples = torch.tensor(A[comm.rank :: NODES], dtype=torch.float32)
    targets = samples @ torch.tensor(TRUTH, dtype=torch.float32)
    method.start(replica)
    for number in range(1, steps + 1):
        step(method, replica, samples.T @ (samples @ replica.theta - targets) / len(samples))
        if number % epoch == 0:
            check_invariant_and_consensus(method, replica, f"step {number}")
    return method, replica


@pytest.mark.long
@pytest.mark.parametrize("name", TRACKERS)
def test_a_run_that_fits_its_data_goes_on(name):
    def program(comm):
        method, replica = fitted(comm, TRACKERS[name], 1500, 100)
        assert float(method._gradient.norm()) < 1e-3 * float(method._largest)  # the training has converged
        np.testing.assert_allclose(replica.theta, TRUTH, atol=1e-3)

    SimulatedWorld(NODES).run(program)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_lost_something_is_told(name):
    def program(comm):
        method, replica = fitted(comm, TRACKERS[name], 500, 500)
        method._tracker.add_(0.01 * method._largest)
        check_invariant_and_consensus(method, replica, "step 501")

    with pytest.raises(InvariantError, match="the invariant is violated"):
        SimulatedWorld(NODES).run(program)


def pulled(comm, method, epochs):
    """Return the invariant after each epoch of 300 steps whose gradients move the nodes apart."""
    replica, told = single(PULLS.shape[1]), []
    method.start(replica)
    for _ in range(epochs):
        for _ in range(300):
            comm.advance_clock_and_yield(1)
            step(method, replica, PULLS[comm.rank])
        method.quiesce(replica)
        told.append(method.telemetry(replica)["invariant"])
    return told


METHODS = {
    "dsgd": lambda comm: algorithm_of(comm, {"name": "dsgd"}, CYCLE, NONE),
    "adpsgd": lambda comm: make(comm, "adpsgd", CYCLE),
}


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_rounding_does_not_add_up_over_epochs(name):
    told = SimulatedWorld(NODES).run(lambda comm: pulled(comm, METHODS[name](comm), 12))[0]
    assert told[-1] < 4 * told[0]
