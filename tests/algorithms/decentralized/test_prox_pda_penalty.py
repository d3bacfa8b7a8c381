"""Prox-PDA's penalty by the graph, compared with numpy on the list of links, which need not be alike."""

import numpy as np
import pytest
from helpers.decentralized_programs import neighbors
from helpers.least_squares import DIMENSION, START, gradient, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.comm.simulated.communicator import SimulatedWorld

STEPS, NONE = 10, {"name": "none"}
GRAPHS = {  # nodes, links
    "cycle": (4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "complete": (4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    "star": (5, [(0, 1), (0, 2), (0, 3), (0, 4)]),
    "path": (4, [(0, 1), (1, 2), (2, 3)]),
    "complete with one more node": (5, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 4)]),
}


def link(nodes):
    """Return a strategy of pairs of different nodes, the lower one first."""
    pairs = [(one, other) for other in range(nodes) for one in range(other)]
    return st.sampled_from(pairs)


def incidence(nodes, links):
    """Return a row per link: 1 at its first node, -1 at its second."""
    matrix = np.zeros((len(links), nodes))
    for row, (one, other) in zip(matrix, links, strict=True):
        row[one], row[other] = 1, -1
    return matrix


def penalties(nodes, links):
    """Return the documented penalty of each link: 0.6 / neighbors, averaged over its two nodes."""
    degrees = np.bincount(np.ravel(links), minlength=nodes)
    return np.array([(0.6 / degrees[one] + 0.6 / degrees[other]) / 2 for one, other in links])


def oracle(nodes, links, penalty, momentum):
    """Yield x+ = argmin <m + A'mu, x> + |Ax|^2 / 2 + |B(x - x_k)|^2 / 2 as the solution of a linear system.

    Args:
        nodes: number of nodes.
        links: pairs of nodes.
        penalty: penalty of each link; A has its square root.
        momentum: weight of earlier gradients in m.
    """
    a = np.sqrt(penalty)[:, None] * incidence(nodes, links)
    b, mu, m = np.abs(a), np.zeros((len(links), DIMENSION)), np.zeros((nodes, DIMENSION))
    theta = np.array([START] * nodes)
    for step in range(STEPS):
        m = momentum * m + (1 - momentum) * np.array(
            [gradient(theta[i], rows(i, step)) for i in range(nodes)]
        )
        mu = mu + a @ theta
        theta = np.linalg.solve(a.T @ a + b.T @ b, b.T @ b @ theta - m - a.T @ mu)
        yield theta


def trained(nodes, links, changes):
    """Return the results of all nodes.

    Args:
        nodes: number of nodes.
        links: pairs of nodes.
        changes: settings of prox_pda.
    """
    topology = {"name": "edges", "edges": links}
    arguments = {"name": "prox_pda", **changes}, topology, "plain", STEPS, NONE
    return SimulatedWorld(nodes).run(lambda comm: neighbors(comm, *arguments))


def assert_follows(results, expected):
    for step, theta in enumerate(expected):
        found = np.array([result["path"][step] for result in results])
        np.testing.assert_allclose(found, theta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_default_penalty_follows_from_the_neighbors(graph):
    nodes, links = GRAPHS[graph]
    results = trained(nodes, links, {})
    assert_follows(results, oracle(nodes, links, penalties(nodes, links), momentum=0.9))
    for result in results:
        assert result["telemetry"]["invariant"] < 1e-12


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_number_is_the_penalty_of_every_link(graph):
    nodes, links = GRAPHS[graph]
    results = trained(nodes, links, {"beta": 2.0, "momentum": 0.5})
    assert_follows(results, oracle(nodes, links, np.full(len(links), 2.0), momentum=0.5))


def test_the_default_of_a_cycle_is_bit_for_bit_the_number_of_earlier_versions():
    nodes, links = GRAPHS["cycle"]
    default, number = trained(nodes, links, {}), trained(nodes, links, {"beta": 0.3})
    assert [result["path"] for result in default] == [result["path"] for result in number]


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 7).flatmap(lambda nodes: st.tuples(st.just(nodes), st.sets(link(nodes)))))
def test_the_default_on_any_connected_graph(graph):
    """The documented bounds hold, too: a node's penalties sum to at least 0.3, and to 0.6 on average."""
    nodes, more = graph
    links = sorted(more | {(node, node + 1) for node in range(nodes - 1)})
    penalty = penalties(nodes, links)
    assert_follows(trained(nodes, links, {}), oracle(nodes, links, penalty, momentum=0.9))
    sums = np.abs(incidence(nodes, links)).T @ penalty
    assert sums.min() >= 0.3
    assert sums.mean() == pytest.approx(0.6)
