"""Each decentralized algorithm compared with numpy on whole matrices: row i of Theta is node i, W mixes all nodes."""

from functools import cache

import numpy as np
import pytest
from helpers.decentralized_programs import each_case, interrupted, neighbors
from helpers.least_squares import DIMENSION, START, Momentum, gradient, rows
from helpers.run_on_ranks import EVERYWHERE, on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config.algorithm import ALGORITHMS

STEPS = 50
NONE = {"name": "none"}


class Plain:
    """SGD without momentum: theta <- theta - lr g, with lr = 0.05."""

    def step(self, theta, g):
        return theta - 0.05 * g


def cycle(n, lazy=False):
    """Return the Metropolis weights of a cycle, computed by hand: 1/3 each; two nodes form one edge.

    Args:
        n: number of nodes.
        lazy: return (I + W) / 2.
    """
    w = np.full((2, 2), 0.5) if n == 2 else sum(np.roll(np.eye(n), s, 1) for s in (-1, 0, 1)) / 3
    return (np.eye(n) + w) / 2 if lazy else w


def gradients(theta, step):
    return np.array([gradient(theta[i], rows(i, step)) for i in range(len(theta))])


class Optimizers:
    """One optimizer per node: SGD with momentum, as in the experiment."""

    def __init__(self, n):
        self.rules = [Momentum() for _ in range(n)]

    def step(self, theta, g):
        return np.array([rule.step(t, d) for rule, t, d in zip(self.rules, theta, g, strict=True)])

    def forget(self):
        self.rules = [Momentum() for _ in self.rules]


def dsgd(theta, n, opt):
    w = cycle(n)
    for k in range(STEPS):
        theta = w @ opt.step(theta, gradients(theta, k))
        yield theta


def dsgd_in_place(theta, n, opt):
    w = cycle(n)
    for k in range(STEPS):
        theta = opt.step(theta, gradients(theta, k))
        for i in range(n):
            theta[i] = w[i] @ theta
        yield theta.copy()


def dsgt(theta, n, opt):
    w, y, g = cycle(n), np.zeros_like(theta), np.zeros_like(theta)
    for k in range(STEPS):
        new = gradients(theta, k)
        y, g = w @ y + new - g, new
        theta = w @ opt.step(theta, y)
        yield theta


def d2(theta, n, opt):
    """Algorithm 1 of the paper, with SGD: x+ = W (2 x - x_previous - lr (g - g_previous))."""
    w, lr, last = cycle(n, lazy=True), 0.05, None
    for k in range(STEPS):
        g = gradients(theta, k)
        new = w @ (theta - lr * g) if last is None else w @ (2 * theta - last[0] - lr * (g - last[1]))
        last, theta = (theta, g), new
        yield theta


def dinno(theta, n, opt, rho=0.3, scaling=1.01, primal=2, forgetful=True):
    laplacian = np.round(np.eye(n) - (cycle(n) > 0) + (cycle(n) > 0).sum(1) * np.eye(n) - np.eye(n))
    degree, p = np.diag(laplacian)[:, None], np.zeros_like(theta)
    for k in range(STEPS):
        if k % primal == 0:
            anchor, r = theta, rho * scaling ** (k // primal + 1)
            p = p + r * laplacian @ anchor
            # sum over j of (theta_i + theta_j) / 2
            middles = (degree * anchor - laplacian @ anchor + degree * anchor) / 2
            if forgetful:
                opt.forget()
        theta = opt.step(theta, gradients(theta, k) + p + 2 * r * (degree * theta - middles))
        yield theta


def dinno_persistent(theta, n, opt):
    yield from dinno(theta, n, opt, forgetful=False)


def prox_pda(theta, n, opt, beta=4.0):
    """x+ = argmin <g + A'mu, x> + beta/2 |Ax|^2 + beta/2 |B(x - x_k)|^2, solved as a linear system."""
    a = incidence(n)
    b, mu = np.abs(a), np.zeros((len(a), DIMENSION))
    for k in range(STEPS):
        mu = mu + beta * a @ theta
        right = beta * b.T @ b @ theta - gradients(theta, k) - a.T @ mu
        theta = np.linalg.solve(beta * (a.T @ a + b.T @ b), right)
        yield theta


def prox_pda_momentum(theta, n, opt, beta=4.0, momentum=0.6):
    """The same minimum, linearized at the weighted sum of all gradients so far."""
    a, seen = incidence(n), []
    b, mu = np.abs(a), np.zeros((len(a), DIMENSION))
    for k in range(STEPS):
        seen.append(gradients(theta, k))
        average = sum((1 - momentum) * momentum ** (k - t) * g for t, g in enumerate(seen))
        mu = mu + beta * a @ theta
        right = beta * b.T @ b @ theta - average - a.T @ mu
        theta = np.linalg.solve(beta * (a.T @ a + b.T @ b), right)
        yield theta


def incidence(n):
    edges = [(i, (i + 1) % n) for i in range(n if n > 2 else 1)]
    a = np.zeros((len(edges), n))
    for e, (i, j) in enumerate(edges):
        a[e, i], a[e, j] = 1, -1
    return a


def next_(theta, n, opt, inner=2, tau=0.5, a=0.8, mu=0.1):
    w, y, g = cycle(n), np.zeros_like(theta), np.zeros_like(theta)
    for k in range(STEPS):
        if k % inner == 0:
            x, new = theta, gradients(theta, k)
            y, g = w @ y + new - g, new
        theta = opt.step(theta, gradients(theta, k) + tau * (theta - x) + y - g)
        if k % inner == inner - 1:
            theta, y, a = w @ (x + a * (theta - x)), y, a * (1 - mu * a)
        yield theta


def choco(theta, n, opt, gamma=0.4, keep=3):
    w, public = cycle(n), theta.copy()
    for k in range(STEPS):
        theta = opt.step(theta, gradients(theta, k))
        difference = theta - public
        for row in difference:
            row[np.argsort(-np.abs(row), kind="stable")[keep:]] = 0
        public = public + difference
        theta = theta + gamma * (w @ public - public)
        yield theta


LAZY = {"name": "cycle", "weights": "lazy_metropolis"}
DINNO = {"name": "dinno", "rho": 0.3 * 1.01, "rho_scaling": 1.01}
CASES = {  # oracle, algorithm, topology, optimizer, vectors of P values sent to a neighbor in STEPS steps, compression
    "dsgd": (dsgd, {"name": "dsgd"}, {"name": "cycle"}, "sgd", STEPS, NONE),
    "dsgd_in_place": (dsgd_in_place, {"name": "dsgd", "mixing": "in_place"}, {"name": "cycle"}, "sgd", STEPS, NONE),
    "dsgt": (dsgt, {"name": "dsgt"}, {"name": "cycle"}, "sgd", 2 * STEPS, NONE),
    "d2": (d2, {"name": "d2"}, LAZY, "plain", STEPS, NONE),
    "dinno": (dinno, DINNO, {"name": "cycle"}, "sgd", STEPS // 2, NONE),
    "dinno_persistent": (
        dinno_persistent, {**DINNO, "name": "cadmm", "persistent_optimizer": True}, {"name": "cycle"}, "sgd", STEPS // 2, NONE,
    ),
    "prox_pda": (
        prox_pda, {"name": "prox_pda", "beta": 4.0, "momentum": 0.0}, {"name": "cycle"}, "sgd", STEPS, NONE,
    ),
    "prox_pda_momentum": (
        prox_pda_momentum, {"name": "prox_pda", "beta": 4.0, "momentum": 0.6}, {"name": "cycle"}, "sgd", STEPS, NONE,
    ),
    "next": (
        next_, {"name": "next", "tau": 0.5, "step": 0.8, "step_decay": 0.1}, {"name": "cycle"}, "sgd", STEPS, NONE,
    ),
    "choco_sgd": (
        choco, {"name": "choco_sgd", "gamma": 0.4}, {"name": "cycle"}, "sgd", 3 * (8 + 4) / (8 * DIMENSION) * STEPS,
        {"name": "top_k", "fraction": 0.43},
    ),
}  # fmt: skip


@cache
def every_case(transport, ranks):
    """Run all cases in one start of the ranks; with two ranks, a path replaces the cycle."""
    cases = [
        [algorithm, topology if ranks > 2 else {**topology, "name": "path"}, optimizer, STEPS, compression]
        for _, algorithm, topology, optimizer, _, compression in CASES.values()
    ]
    results = on_ranks(each_case, transport, ranks, cases)
    return dict(zip(CASES, zip(*results, strict=True), strict=True))


@EVERYWHERE
@pytest.mark.parametrize("case", CASES)
def test_equals_its_oracle(transport, ranks, case):
    oracle, _, _, _, vectors, _ = CASES[case]
    results, degree = every_case(transport, ranks)[case], 1 if ranks == 2 else 2
    for k, theta in enumerate(oracle(np.array([START] * ranks), ranks, Optimizers(ranks))):
        for i in range(ranks):
            np.testing.assert_allclose(results[i]["path"][k], theta[i], rtol=0, atol=1e-9)
    for result in results:
        assert result["bytes"] == round(degree * vectors * 8 * DIMENSION)
        assert result["telemetry"].get("invariant", 0) < 1e-12


@pytest.mark.mpi
@pytest.mark.processes
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_mpi(case):
    simulated, real = every_case("simulated", 4)[case], every_case("mpi", 4)[case]
    assert [result["path"] for result in simulated] == [result["path"] for result in real]


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_holds_everything(case):
    _, algorithm, topology, _, _, compression = CASES[case]
    whole = on_ranks(neighbors, "simulated", 4, algorithm, topology, "sgd", 7, compression)
    parts = on_ranks(interrupted, "simulated", 4, algorithm, topology, 7, compression)
    assert [result["path"] for result in whole] == parts


def test_equal_nodes_feel_no_penalty():
    """DiNNO's penalty is exactly zero if all nodes agree.

    A rounding error would matter, because a newly reset Adam divides by its gradient.
    """
    results = on_ranks(neighbors, "simulated", 4, DINNO, {"name": "complete"}, "plain", 1, NONE)
    for rank, result in enumerate(results):
        alone = START - 0.05 * gradient(START, rows(rank, 0))
        np.testing.assert_array_max_ulp(np.array(result["path"][0]), alone, maxulp=1)


GRAPHS = st.one_of(
    st.fixed_dictionaries({"name": st.sampled_from(["star", "path", "complete", "wheel"])}),
    st.fixed_dictionaries({"name": st.just("erdos_renyi"), "p": st.floats(0.4, 1)}),
).flatmap(
    lambda graph: st.sampled_from(["metropolis", "lazy_metropolis", "max_degree"]).map(
        lambda weights: {**graph, "weights": weights}
    )
)
KEPT = ("dsgd", "dsgt", "d2", "dinno", "prox_pda", "next", "choco_sgd")
CHANGING = [name for name in KEPT if "static" not in ALGORITHMS[name].graph_properties]


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(KEPT), graph=GRAPHS, nodes=st.integers(4, 9), steps=st.integers(1, 12),
    compression=st.sampled_from(["none", "fp16", "bf16"]),
)  # fmt: skip
@pytest.mark.long
def test_invariants_hold_on_any_graph(name, graph, nodes, steps, compression):
    """The global invariants (mean of trackers, sum of duals, ...) hold on any graph, with and without compression."""
    graph = {**graph, "weights": "lazy_metropolis"} if name == "d2" else graph
    arguments = {"name": name}, graph, "plain", steps, {"name": compression}
    for result in SimulatedWorld(nodes).run(lambda comm: neighbors(comm, *arguments)):
        assert result["telemetry"]["invariant"] < 1e-12


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(CHANGING), graph=GRAPHS, drop=st.floats(0, 0.9), nodes=st.integers(2, 6), steps=st.integers(1, 12)
)  # fmt: skip
@pytest.mark.long
def test_invariants_hold_where_links_are_lost(name, graph, drop, nodes, steps):
    """The invariants also hold in rounds in which a node has no links."""
    graph = {**graph, "p": 1.0} if "p" in graph else graph
    graph = {**graph, "name": "path"} if graph["name"] == "wheel" else graph
    arguments = {"name": name}, {**graph, "drop": drop}, "plain", steps, NONE
    for result in SimulatedWorld(nodes).run(lambda comm: neighbors(comm, *arguments)):
        assert result["telemetry"]["invariant"] < 1e-12
