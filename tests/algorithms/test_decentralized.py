"""Each decentralized algorithm compared with numpy on whole matrices: row i of Theta is node i, W mixes all nodes."""

from functools import partial

import numpy as np
import pytest
from helpers.least_squares import (
    BATCH,
    CLOSE,
    START,
    STEPS,
    VECTOR,
    Momentum,
    full,
    gradient,
    gradient_of,
    rows,
    train,
)
from helpers.reference_compressors import BYTES, SETTINGS, top_k
from helpers.run_on_ranks import on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.config.algorithm import ALGORITHMS

NODES = 4
CYCLE = {"name": "cycle"}
# Metropolis weights of the cycle, by hand.
W = sum(np.roll(np.eye(NODES), shift, 1) for shift in (-1, 0, 1)) / 3
LAPLACIAN = 3 * (np.eye(NODES) - W)
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def gradients(theta, step):
    return np.array([gradient_of(theta[i], i, step) for i in range(len(theta))])


class Optimizers:
    """One optimizer per node: SGD with momentum, as in the experiment."""

    def __init__(self, n):
        self.rules = [Momentum() for _ in range(n)]

    def step(self, theta, g):
        return np.array([rule.step(t, d) for rule, t, d in zip(self.rules, theta, g, strict=True)])

    def forget(self):
        self.rules = [Momentum() for _ in self.rules]


def dsgd(theta, opt):
    for k in range(STEPS):
        theta = W @ opt.step(theta, gradients(theta, k))
        yield theta


def dsgd_in_place(theta, opt):
    for k in range(STEPS):
        theta = opt.step(theta, gradients(theta, k))
        for i in range(NODES):
            theta[i] = W[i] @ theta
        yield theta.copy()


def dsgt(theta, opt):
    y, g = np.zeros_like(theta), np.zeros_like(theta)
    for k in range(STEPS):
        new = gradients(theta, k)
        y, g = W @ y + new - g, new
        theta = W @ opt.step(theta, y)
        yield theta


def d2(theta, opt):
    """Algorithm 1 of the paper, with SGD: x+ = W (2 x - x_previous - lr (g - g_previous))."""
    w, lr, last = (np.eye(NODES) + W) / 2, 0.05, None
    for k in range(STEPS):
        g = gradients(theta, k)
        new = w @ (theta - lr * g) if last is None else w @ (2 * theta - last[0] - lr * (g - last[1]))
        last, theta = (theta, g), new
        yield theta


def dinno(theta, opt, rho=0.3, scaling=1.01, primal=2, forgetful=True):
    degree, p = np.diag(LAPLACIAN)[:, None], np.zeros_like(theta)
    for k in range(STEPS):
        if k % primal == 0:
            anchor, r = theta, rho * scaling ** (k // primal + 1)
            p = p + r * LAPLACIAN @ anchor
            # sum over j of (theta_i + theta_j) / 2
            middles = (degree * anchor - LAPLACIAN @ anchor + degree * anchor) / 2
            if forgetful:
                opt.forget()
        theta = opt.step(theta, gradients(theta, k) + p + 2 * r * (degree * theta - middles))
        yield theta


def dinno_persistent(theta, opt):
    yield from dinno(theta, opt, forgetful=False)


def prox_pda(theta, opt, links=RING, penalty=4.0, momentum=0.6):
    """x+ = argmin <m + A'mu, x> + |Ax|^2 / 2 + |B(x - x_k)|^2 / 2, solved as a linear system.

    A has a row for each link, the root of its penalty at one node and minus that at the other, and B = |A|.
    """
    a = np.zeros((len(links), len(theta)))
    for row, (one, other) in zip(a, links, strict=True):
        row[one], row[other] = 1, -1
    a *= np.sqrt(np.broadcast_to(penalty, len(links)))[:, None]
    b, mu, m = np.abs(a), 0.0, 0.0
    for k in range(STEPS):
        m = momentum * m + (1 - momentum) * gradients(theta, k)
        mu = mu + a @ theta
        theta = np.linalg.solve(a.T @ a + b.T @ b, b.T @ b @ theta - m - a.T @ mu)
        yield theta


def next_(theta, opt, inner=2, tau=0.5, a=0.8, mu=0.1):
    y, g = np.zeros_like(theta), np.zeros_like(theta)
    for k in range(STEPS):
        if k % inner == 0:
            x, new = theta, gradients(theta, k)
            y, g = W @ y + new - g, new
        theta = opt.step(theta, gradients(theta, k) + tau * (theta - x) + y - g)
        if k % inner == inner - 1:
            theta, a = W @ (x + a * (theta - x)), a * (1 - mu * a)
        yield theta


def choco(theta, opt, gamma=0.4):
    public = theta.copy()
    for k in range(STEPS):
        theta = opt.step(theta, gradients(theta, k))
        public = public + np.array([top_k(row) for row in theta - public])
        theta = theta + gamma * (W @ public - public)
        yield theta


def quasi_global(theta, opt, start=dsgd, mu=0.8):
    """Lin et al. 2021, algorithm 1: the momentum is a mean of (x - x_new) / lr, and is added to the gradients."""
    lr, m, last, y, g, w = 0.05, 0.0, None, 0.0, 0.0, W
    for k in range(STEPS):
        new = gradients(theta, k)
        y, g = (W @ y if k else 0.0) + new - g, new
        psi = theta - lr * ((y if start is dsgt else new) + mu * m)
        if start is d2:
            w, corrected = (np.eye(NODES) + W) / 2, psi if last is None else psi + theta - last
            mixed, last = w @ corrected, psi
        else:
            mixed = w @ psi
        m, theta = mu * m + (1 - mu) * (theta - mixed) / lr, mixed
        yield theta


def momentum_tracking(theta, opt, beta=0.8):
    """Takezawa et al. 2022, algorithm 1."""
    u, c = np.zeros_like(theta), np.zeros_like(theta)
    for k in range(STEPS):
        new = beta * u + gradients(theta, k)
        c, u = W @ c + new - u, new
        theta = W @ (theta - 0.05 * c)
        yield theta


DINNO = {"name": "dinno", "rho": 0.3 * 1.01, "rho_scaling": 1.01}
PLAIN = {"optimizer": "sgd", "train": {"optimizer": {"name": "sgd", "lr": 0.05}}}
QUASI_GLOBAL = {"quasi_global_momentum": 0.8}
PROX_PDA = {"name": "prox_pda", "beta": 4.0, "momentum": 0.6}
CASES = {  # oracle, algorithm, vectors of P values sent to a neighbor in STEPS steps, other sections
    "dsgd": (dsgd, {"name": "dsgd"}, STEPS, {}),
    "dsgd in place": (dsgd_in_place, {"name": "dsgd", "mixing": "in_place"}, STEPS, {}),
    "dsgt": (dsgt, {"name": "dsgt"}, 2 * STEPS, {}),
    "d2": (d2, {"name": "d2"}, STEPS, {"optimizer": "sgd", "topology": CYCLE | {"weights": "lazy_metropolis"}}),
    "dsgd, quasi-global": (quasi_global, {"name": "dsgd"} | QUASI_GLOBAL, STEPS, PLAIN),
    "dsgt, quasi-global": (partial(quasi_global, start=dsgt), {"name": "dsgt"} | QUASI_GLOBAL, 2 * STEPS, PLAIN),
    "d2, quasi-global": (
        partial(quasi_global, start=d2), {"name": "d2"} | QUASI_GLOBAL, STEPS,
        PLAIN | {"topology": CYCLE | {"weights": "lazy_metropolis"}},
    ),
    "dsgt, momentum tracking": (
        momentum_tracking, {"name": "dsgt", "momentum_tracking": 0.8}, 2 * STEPS, PLAIN,
    ),
    "dinno": (dinno, DINNO, STEPS // 2, {}),
    "dinno, persistent": (
        dinno_persistent, DINNO | {"name": "cadmm", "persistent_optimizer": True}, STEPS // 2, {},
    ),
    "dinno, duals of edges": (dinno, DINNO | {"duals": "edge"}, STEPS // 2, {}),
    "prox_pda": (prox_pda, PROX_PDA, STEPS, {}),
    "next": (next_, {"name": "next", "tau": 0.5, "step": 0.8, "step_decay": 0.1}, STEPS, {}),
    "choco_sgd": (
        choco, {"name": "choco_sgd", "gamma": 0.4}, BYTES["top_k"] / VECTOR * STEPS, {"compression": SETTINGS["top_k"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("oracle", "algorithm", "vectors", "sections"), CASES.values(), ids=CASES)
def test_trajectory_bytes_and_checkpoint(oracle, algorithm, vectors, sections):
    sections = {"topology": CYCLE, "algorithm": algorithm} | sections
    results = on_ranks(train, "simulated", NODES, sections, full(NODES))
    for k, theta in enumerate(oracle(np.array([START] * NODES), Optimizers(NODES))):
        np.testing.assert_allclose([result["path"][k] for result in results], theta, **CLOSE)
    for result in results:
        assert result["sent"]["parameters"] == round(2 * vectors * VECTOR)
        assert result["telemetry"][0].get("invariant", 0) < 1e-12
    stopped = on_ranks(train, "simulated", NODES, sections | {"stops": [5, 10]}, full(NODES))
    assert stopped[0]["pauses"] == [6, 11]  # the second one in the middle of a round
    assert [result["path"] for result in stopped] == [result["path"] for result in results]


GRAPHS = {  # nodes, links
    "cycle": (4, RING),
    "complete": (4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    "star": (5, [(0, 1), (0, 2), (0, 3), (0, 4)]),
    "complete with one more node": (5, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 4)]),
}


def of_prox_pda(nodes, links, **changes):
    sections = {
        "algorithm": {"name": "prox_pda", **changes}, "topology": {"name": "edges", "edges": links}, "optimizer": "sgd",
    }  # fmt: skip
    return on_ranks(train, "simulated", nodes, sections, full(nodes, 10))


@pytest.mark.parametrize(("nodes", "links"), GRAPHS.values(), ids=GRAPHS)
def test_the_penalty_of_prox_pda_is_a_number_or_follows_from_the_neighbors(nodes, links):
    """By default the penalty of a link is 0.6 / neighbors, averaged over its two nodes."""
    degrees = np.bincount(np.ravel(links), minlength=nodes)
    default = np.array([(0.6 / degrees[one] + 0.6 / degrees[other]) / 2 for one, other in links])
    for penalty, momentum, changes in ((default, 0.9, {}), (2.0, 0.5, {"beta": 2.0, "momentum": 0.5})):
        results = of_prox_pda(nodes, links, **changes)
        expected = prox_pda(np.array([START] * nodes), None, links, penalty, momentum)
        for step, theta in zip(range(10), expected, strict=False):
            found = [result["path"][step] for result in results]
            np.testing.assert_allclose(found, theta, rtol=1e-9, atol=1e-9)
        assert all(result["telemetry"][0]["invariant"] < 1e-12 for result in results)
    sums = np.bincount(np.ravel(links), np.repeat(default, 2))
    assert sums.min() >= 0.3
    assert sums.mean() == pytest.approx(0.6)


def test_the_default_penalty_of_a_cycle_has_the_bits_of_the_number_of_earlier_versions():
    default, number = of_prox_pda(4, RING), of_prox_pda(4, RING, beta=0.3)
    assert [result["path"] for result in default] == [result["path"] for result in number]


def test_nodes_that_agree_have_no_penalty_in_dinno():
    """A rounding error would matter, because a newly reset Adam divides by its gradient."""
    sections = {"algorithm": DINNO, "topology": {"name": "complete"}, "optimizer": "sgd"}
    for rank, result in enumerate(on_ranks(train, "simulated", NODES, sections, full(NODES, 1))):
        alone = START - 0.05 * gradient(START, rows(rank, 0))
        np.testing.assert_array_max_ulp(np.array(result["path"][0]), alone, maxulp=1)


@pytest.mark.parametrize("stops", [[], [5, 10]])
def test_a_dual_of_an_edge_acts_only_while_its_nodes_are_linked(stops):
    pair = {"name": "edges", "edges": [[0, 1], [2, 3]]}
    graphs = {"name": "sequence", "of": [CYCLE, pair, pair]}
    sections = {
        "algorithm": DINNO | {"duals": "edge"},
        "topology": graphs,
        "optimizer": "sgd",
        "stops": stops,
    }
    results = on_ranks(train, "simulated", NODES, sections, full(NODES))
    theta, duals = np.array([START] * NODES), {}
    for k in range(STEPS):
        if k % 2 == 0:
            links = [pair["edges"], RING][k // 2 % 3 == 0]
            anchor, rho = theta, 0.3 * 1.01 ** (k // 2 + 1)
            for i, j in links:
                duals[i, j] = duals.get((i, j), 0) + rho * (anchor[i] - anchor[j])
        slope = gradients(theta, k)
        for i, j in links:
            middle = (anchor[i] + anchor[j]) / 2
            slope[i] += duals[i, j] + 2 * rho * (theta[i] - middle)
            slope[j] += -duals[i, j] + 2 * rho * (theta[j] - middle)
        theta = theta - 0.05 * slope
        np.testing.assert_allclose([result["path"][k] for result in results], theta, **CLOSE)


KEPT = ("dsgd", "dsgt", "d2", "dinno", "prox_pda", "next", "choco_sgd")
CHANGING = [name for name in KEPT if "static" not in ALGORITHMS[name].graph_properties]


@settings(max_examples=40)
@given(
    name=st.sampled_from(KEPT), nodes=st.integers(4, 9), steps=st.integers(1, 12), drop=st.sampled_from([0, 0.3, 0.9]),
    graph=st.sampled_from([{"name": "star"}, {"name": "complete"}, {"name": "erdos_renyi", "p": 0.6}]),
    weights=st.sampled_from(["metropolis", "lazy_metropolis", "max_degree"]),
    compression=st.sampled_from(["none", "fp16", "bf16"]), edges=st.booleans(),
)  # fmt: skip
def test_invariants_hold_on_any_graph(name, nodes, steps, drop, graph, weights, compression, edges):
    """The global invariants (mean of trackers, sum of duals, ...) hold, with and without compression and lost links."""
    topology = {**graph, "weights": "lazy_metropolis" if name == "d2" else weights}
    if name in CHANGING:
        topology["drop"], compression = drop, "none" if drop else compression
    algorithm = {"name": name} | ({"duals": "edge"} if edges and name == "dinno" else {})
    sections = {"algorithm": algorithm, "topology": topology, "compression": {"name": compression}}
    counts = [[BATCH] * steps] * nodes
    for result in on_ranks(train, "simulated", nodes, sections | {"optimizer": "sgd"}, counts):
        assert result["telemetry"][0]["invariant"] < 1e-12


def test_dinno_counts_the_neighbors_in_the_graph_of_the_round():
    star = np.diag([3.0, 1, 1, 1])
    star[0, 1:] = star[1:, 0] = -1
    graphs = {"name": "sequence", "of": [{"name": "star"}, CYCLE]}
    sections = {"algorithm": DINNO, "topology": graphs, "optimizer": "sgd"}
    results = on_ranks(train, "simulated", NODES, sections, full(NODES))
    theta, p = np.array([START] * NODES), 0.0
    for k in range(STEPS):
        if k % 2 == 0:
            laplacian, rho, anchor = (star, LAPLACIAN)[k // 2 % 2], 0.3 * 1.01 ** (k // 2 + 1), theta
            p = p + rho * laplacian @ anchor
        penalty = 2 * np.diag(laplacian)[:, None] * (theta - anchor) + laplacian @ anchor
        theta = theta - 0.05 * (gradients(theta, k) + p + rho * penalty)
        np.testing.assert_allclose([result["path"][k] for result in results], theta, **CLOSE)
