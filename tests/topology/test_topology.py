"""Graphs and mixing matrices compared with closed forms, counts without networkx and the definitions of the papers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from nnlo_lib.config.topology import TopologyConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.topology import Topology, build_topology

BLOCK = TypeAdapter(TopologyConfig)

UNDIRECTED = ["wheel", "cycle", "star", "path", "complete", "grid", "torus", "complete_bipartite"]
DIRECTED = ["exponential", "one_peer_exponential"]
GIVEN = ["base_k"]
RANDOM = [
    {"name": "erdos_renyi", "p": 0.5},
    {"name": "random", "p": 0.5},  # another name of erdos_renyi
    {"name": "watts_strogatz", "k": 4, "p": 0.3},
    {"name": "random_regular", "degree": 4},
    {"name": "disk", "radius": 0.7},
    {"name": "delaunay"},
]


def made(nodes: int, seed: int = 0, **block: object) -> Topology:
    return build_topology(BLOCK.validate_python(block), nodes, seed)


def matrix(nodes: int, round: int = 0, seed: int = 0, **block: object) -> np.ndarray:
    return made(nodes, seed, **block).at(round).matrix


def links(mixing: np.ndarray) -> set[tuple[int, int]]:
    """Return (receiver, sender) pairs."""
    return {(i, j) for i, j in itertools.product(range(len(mixing)), repeat=2) if i != j and mixing[i, j]}


def both(*pairs: tuple[int, int]) -> set[tuple[int, int]]:
    return {*pairs, *((j, i) for i, j in pairs)}


def laplacian(mixing: np.ndarray) -> np.ndarray:
    adjacent = (mixing > 0) & ~np.eye(len(mixing), dtype=bool)
    return np.diag(adjacent.sum(axis=1)) - adjacent.astype(float)


def reached(mixing: np.ndarray) -> bool:
    """Return True if the undirected graph is connected, by propagation from node 0."""
    word = np.eye(len(mixing))[0]
    for _ in range(len(mixing)):
        word = mixing @ word
    return bool((word > 0).all())


@st.composite
def any_edges(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    nodes = draw(st.integers(2, 12))
    pairs = [list(pair) for pair in itertools.combinations(range(nodes), 2)]
    return nodes, draw(st.lists(st.sampled_from(pairs), unique_by=tuple))


@pytest.mark.parametrize(
    ("block", "nodes", "expected"),
    [
        ({"name": "wheel"}, 5, both((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (2, 3), (3, 4), (4, 1))),
        ({"name": "cycle"}, 4, both((0, 1), (1, 2), (2, 3), (3, 0))),
        ({"name": "star"}, 4, both((0, 1), (0, 2), (0, 3))),
        ({"name": "path"}, 4, both((0, 1), (1, 2), (2, 3))),
        ({"name": "complete"}, 3, both((0, 1), (0, 2), (1, 2))),
        ({"name": "grid"}, 6, both((0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5))),
        ({"name": "grid", "columns": 2}, 4, both((0, 1), (2, 3), (0, 2), (1, 3))),
        ({"name": "grid", "rows": 1}, 4, both((0, 1), (1, 2), (2, 3))),
        ({"name": "torus", "rows": 1}, 4, both((0, 1), (1, 2), (2, 3), (3, 0))),
        ({"name": "hypercube"}, 4, both((0, 1), (0, 2), (1, 3), (2, 3))),
        ({"name": "complete_bipartite"}, 5, both((0, 1), (0, 3), (2, 1), (2, 3), (4, 1), (4, 3))),
        ({"name": "edges", "edges": [[2, 0], [0, 2], [1, 2]]}, 3, both((0, 2), (1, 2))),
        ({"name": "directed_edges", "edges": [[0, 1], [1, 2]]}, 3, {(1, 0), (2, 1)}),
        ({"name": "exponential"}, 5, {((i + hop) % 5, i) for i in range(5) for hop in (1, 2, 4)}),
    ],
)
def test_graphs_are_those_of_the_textbook(block, nodes, expected):
    assert links(matrix(nodes, **block)) == expected


@pytest.mark.parametrize("name", [*UNDIRECTED, *DIRECTED, *GIVEN, "hypercube"])
def test_one_node_keeps_everything_and_two_share_one_link(name):
    assert matrix(1, name=name).tolist() == [[1.0]]
    assert made(1, name=name).spectral_gap == 1
    assert matrix(2, name=name).tolist() == [[0.5, 0.5], [0.5, 0.5]]


@settings(max_examples=50)
@given(any_edges())
def test_weights_are_symmetric_doubly_stochastic_and_those_of_the_papers(graph):
    nodes, edges = graph
    degree = [sum(node in edge for edge in edges) for node in range(nodes)]
    rules = {
        "metropolis": lambda i, j: 1 / (1 + max(degree[i], degree[j])),
        "lazy_metropolis": lambda i, j: 0.5 / (1 + max(degree[i], degree[j])),
        "max_degree": lambda i, j: 1 / (1 + max(degree)),
    }
    for weights, rule in rules.items():
        mixing = matrix(nodes, name="edges", edges=edges, weights=weights)
        assert links(mixing) == both(*map(tuple, edges))
        np.testing.assert_array_equal(mixing, mixing.T)
        np.testing.assert_allclose(mixing.sum(axis=0), 1, atol=1e-14)
        assert (mixing.diagonal() > 0).all()
        for i, j in edges:
            assert mixing[i, j] == pytest.approx(rule(i, j))


@settings(max_examples=50)
@given(any_edges())
def test_directed_weights_split_what_a_node_sends(graph):
    nodes, edges = graph
    topo = made(nodes, name="directed_edges", edges=edges)
    sent = topo.at(0).matrix
    np.testing.assert_allclose(sent.sum(axis=0), 1, atol=1e-14)
    for node in range(nodes):
        receivers = sorted(to for start, to in edges if start == node)
        assert topo.at(0).receivers(node) == receivers
        assert topo.at(0).self_weight(node) == pytest.approx(1 / (1 + len(receivers)))


@pytest.mark.parametrize(("name", "degree"), [("cycle", 2), ("complete", 5)])
def test_uniform_weights_are_one_over_degree_plus_one(name, degree):
    mixing = made(6, name=name, weights="uniform").at(0)
    assert set(mixing.neighbors(3).values()) == {1 / (1 + degree)}
    assert mixing.self_weight(3) == pytest.approx(1 / (1 + degree))


@pytest.mark.parametrize("block", [{"name": name} for name in UNDIRECTED + DIRECTED + GIVEN] + RANDOM)
def test_receivers_are_the_transpose_of_neighbours(block):
    topo = made(12, **block)
    for round in range(5):
        mixing = topo.at(round)
        received = {(i, j) for i in range(12) for j in mixing.neighbors(i)}
        sent = {(i, j) for j in range(12) for i in mixing.receivers(j)}
        assert received == sent == links(mixing.matrix)
        for i in range(12):
            assert list(mixing.neighbors(i)) == sorted(mixing.neighbors(i))
            assert mixing.receivers(i) == sorted(mixing.receivers(i))
            assert mixing.self_weight(i) + sum(mixing.neighbors(i).values()) == pytest.approx(1)
            assert topo.directed or mixing.receivers(i) == list(mixing.neighbors(i))


def test_a_mixing_matrix_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        matrix(4, name="cycle")[0, 0] = 1


@pytest.mark.parametrize("nodes", [3, 4, 5, 10, 33])
def test_spectral_gaps_in_closed_form(nodes):
    around = [2 * math.cos(2 * math.pi * k / nodes) for k in range(1, nodes)]
    cycle = 1 - max(abs(1 + wave) / 3 for wave in around)
    lazy = 1 - max(0.5 + (1 + wave) / 6 for wave in around)
    assert made(nodes, name="cycle").spectral_gap == pytest.approx(cycle, abs=1e-12)
    assert made(nodes, name="cycle", weights="lazy_metropolis").spectral_gap == pytest.approx(lazy, abs=1e-12)
    assert made(nodes, name="complete").spectral_gap == pytest.approx(1, abs=1e-12)
    assert made(nodes, name="star").spectral_gap == pytest.approx(1 / nodes, abs=1e-12)
    path = 1 - (1 + 2 * math.cos(math.pi / nodes)) / 3
    assert made(nodes, name="path").spectral_gap == pytest.approx(path, abs=1e-12)


@pytest.mark.parametrize("name", ["hypercube", "exponential"])
@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_spectral_gap_of_hypercube_and_static_exponential_graph(name, bits):
    """The latter is 2 / (1 + ceil(log2 n)) for even n (Ying et al. 2021, proposition 1)."""
    expected = 1 if (name, bits) == ("hypercube", 1) else 2 / (1 + bits)
    assert made(2**bits, name=name).spectral_gap == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("drop", [0.25, 0.5])
def test_lost_links_slow_the_expected_mixing(drop):
    assert made(7, name="complete", drop=drop).spectral_gap == pytest.approx(1 - drop)


@pytest.mark.parametrize("bits", [1, 2, 3, 6])
def test_one_peer_exponential_averages_exactly_in_log2_rounds(bits):
    """The product of log2 n rounds is the exact average (Assran et al. 2019, appendix A)."""
    nodes = 2**bits
    topo = made(nodes, name="one_peer_exponential")
    for start in (0, 1, bits):
        product = np.eye(nodes)
        for round in range(start, start + bits):
            product = topo.at(round).matrix @ product
        np.testing.assert_array_equal(product, np.full((nodes, nodes), 1 / nodes))
    assert topo.spectral_gap == 1
    assert topo.static == (bits == 1)


def test_effective_neighbors_in_closed_form_and_by_variances_of_many_rounds():
    """Vogels et al. 2022, section 4.1: of symmetric matrices by their eigenvalues, of others by propagation of the variance."""
    assert made(7, name="complete").effective_neighbors == pytest.approx(7, rel=1e-12)
    assert made(5, name="edges", edges=[]).effective_neighbors == pytest.approx(1, rel=1e-12)
    assert made(3, name="directed_edges", edges=[[0, 1], [1, 2]]).effective_neighbors is None
    square = np.linalg.eigvalsh(matrix(12, name="cycle")) ** 2
    expected = 10 / (square / (1 - 0.9 * square)).mean()
    assert made(12, name="cycle").effective_neighbors == pytest.approx(expected, rel=1e-12)
    topo, covariance, variances = made(11, name="one_peer_exponential"), np.zeros((11, 11)), []
    for round in range(400):
        mixing = topo.at(round).matrix
        covariance = mixing @ (0.9 * covariance + np.eye(11)) @ mixing.T
        variances.append(np.trace(covariance) / 11)
    assert topo.effective_neighbors == pytest.approx(10 / np.mean(variances[-topo.period :]), rel=1e-12)


@pytest.mark.parametrize("nodes", [3, 5, 6, 12])
def test_spectral_gap_of_one_peer_exponential_is_per_round(nodes):
    """The matrices are circulant, so Fourier modes multiply."""
    hops = [2**power for power in range(math.ceil(math.log2(nodes)))]
    modes = [math.prod(abs(math.cos(math.pi * k * hop / nodes)) for hop in hops) for k in range(1, nodes)]
    expected = 1 - max(modes) ** (1 / len(hops))
    assert made(nodes, name="one_peer_exponential").spectral_gap == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_k_averages_exactly_within_the_bound_of_the_paper(k):
    """Theorem 1 of Takezawa et al. 2023; of degree 1, their figures have 5 rounds for 5 nodes, and 4 for 6."""
    for nodes in range(1, 41):
        topo = made(nodes, name="base_k", k=k)
        product = np.eye(nodes)
        for round in range(topo.period):
            mixing = topo.at(round).matrix
            np.testing.assert_array_equal(mixing, mixing.T)
            np.testing.assert_allclose(mixing.sum(axis=0), 1, atol=1e-14)
            assert mixing.min() >= 0
            assert max(map(topo.at(round).degree, range(nodes))) <= k
            product = mixing @ product
        np.testing.assert_allclose(product, 1 / nodes, atol=1e-12)
        assert topo.period <= 2 * math.log(nodes, k + 1) + 2
        np.testing.assert_array_equal(topo.at(topo.period + 1).matrix, topo.at(1).matrix)
    assert [made(nodes, name="base_k", k=1).period for nodes in (5, 6, 8)] == [5, 4, 3]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("nodes", [2, 3, 8, 13])
def test_equitopo_agrees_at_the_rate_of_the_paper(nodes, directed):
    """Song et al. 2022: of deviations, E |Wx|^2 / |x|^2 is (n - 1) / 2n for directed graphs with eta = 1/2 (by E P = (nJ - I) / (n - 1)), and
    at most 2/3 for undirected ones.
    """
    topo, rates, orders = made(nodes, name="equitopo", directed=directed), [], set()
    deviation = np.random.default_rng(1).normal(size=nodes)
    deviation -= deviation.mean()
    for turn in range(300 if nodes > 2 else 1):
        rounds = range(turn * (nodes - 1), (turn + 1) * (nodes - 1))
        found = [topo.at(round).matrix for round in rounds]
        for mixing in found:
            assert mixing.sum(axis=0) == pytest.approx(1)
            assert mixing.sum(axis=1) == pytest.approx(1)
            others = mixing - np.diag(mixing.diagonal())
            np.testing.assert_allclose(others[others > 0], 0.5 * (nodes - 1) / nodes)
            if directed:
                assert ((others > 0).sum(axis=0) == 1).all()
            else:
                np.testing.assert_array_equal(mixing, mixing.T)
                assert (others > 0).sum(axis=0).max() == 1
            rates.append(((mixing @ deviation) ** 2).sum() / (deviation**2).sum())
        orders.add(tuple(int(np.flatnonzero(mixing[:, 0])[-1]) for mixing in found))
        union = sum(found) > 0
        assert np.linalg.matrix_power(union, nodes).all(), "each pass connects all nodes"
    alone = Topology(topo.settings, nodes, 0).at(rounds[-1]).matrix
    np.testing.assert_array_equal(alone, found[-1])
    if directed:
        assert np.mean(rates) == pytest.approx((nodes - 1) / (2 * nodes), rel=1e-9)
    else:
        assert np.mean(rates) < 2 / 3
    assert len(orders) > (nodes > 2), "the order differs from pass to pass"


@given(st.integers(3, 40), st.integers(0, 100))
def test_one_peer_exponential_sends_to_one_and_receives_from_one(nodes, round):
    topo = made(nodes, name="one_peer_exponential")
    hop = 2 ** (round % math.ceil(math.log2(nodes)))
    assert links(topo.at(round).matrix) == {((i + hop) % nodes, i) for i in range(nodes)}


@pytest.mark.parametrize("block", RANDOM)
def test_random_graphs_follow_the_seed_and_are_connected_and_static(block):
    graphs = [made(12, seed, **block) for seed in range(5)]
    drawn = [graph.at(0).matrix.tobytes() for graph in graphs]
    assert drawn == [matrix(12, seed=seed, **block).tobytes() for seed in range(5)]
    assert len(set(drawn)) == 5
    for graph in graphs:
        assert reached(graph.at(0).matrix)
        assert graph.connected
        assert graph.static
        assert graph.at(7) is graph.at(0)


@pytest.mark.parametrize("block", RANDOM)
def test_a_redrawn_graph_changes_every_so_many_rounds(block):
    topo = made(12, redraw_every=3, **block)
    drawn = [topo.at(round).matrix.tobytes() for round in range(9)]
    assert [len(set(drawn[start : start + 3])) for start in (0, 3, 6)] == [1, 1, 1]
    assert len(set(drawn)) == 3
    assert not topo.static
    assert all(reached(topo.at(round).matrix) for round in range(9))


def test_erdos_renyi_links_a_fraction_p():
    count = sum(len(links(matrix(40, seed=seed, name="erdos_renyi", p=0.4))) for seed in range(20))
    pairs = 20 * 40 * 39
    assert abs(count / pairs - 0.4) < 5 * math.sqrt(0.4 * 0.6 / (pairs / 2))


def test_random_regular_and_small_world_have_their_degrees():
    regular = matrix(20, name="random_regular", degree=3)
    assert all(sum(i == node for i, _ in links(regular)) == 3 for node in range(20))
    ring = {((i + hop) % 10, i) for i in range(10) for hop in (-2, -1, 1, 2)}
    assert links(matrix(10, name="watts_strogatz", k=4, p=0)) == ring
    assert len(links(matrix(30, name="watts_strogatz", k=4, p=0.5))) == 30 * 4


@pytest.mark.parametrize(("nodes", "target"), [(10, 1.0), (20, 0.5), (50, 1.0), (10, 10.0)])
def test_disk_reaches_its_algebraic_connectivity(nodes, target):
    for seed in range(3):
        values = np.linalg.eigvalsh(laplacian(matrix(nodes, seed=seed, name="disk", connectivity=target)))
        assert abs(values[1] - target) <= 0.0100001


def empty_circles(points: np.ndarray) -> set[tuple[int, int]]:
    """Return the sides of all triangles whose circumcircle contains no other point, by the determinant of the lifted points."""
    found: set[tuple[int, int]] = set()
    for three in itertools.combinations(range(len(points)), 3):
        corners = points[list(three)]
        one, two = corners[1:] - corners[0]
        # A positive determinant means `inside` only for corners in counterclockwise order.
        corners = corners if one[0] * two[1] > one[1] * two[0] else corners[::-1]
        others = (corners - points[index] for index in range(len(points)) if index not in three)
        if all(np.linalg.det(np.c_[each, (each**2).sum(axis=1)]) < 0 for each in others):
            found |= both(*itertools.combinations(three, 2))
    return found


@given(st.integers(3, 12), st.integers(0, 1000))
@settings(max_examples=20)
def test_delaunay_links_the_points_with_an_empty_circumcircle(nodes, seed):
    points = np.random.default_rng(derive_seed(seed, "topology", 0)).random((nodes, 2))
    assert links(matrix(nodes, seed=seed, name="delaunay")) == empty_circles(points)


def test_delaunay_of_two_nodes_is_a_link_and_of_one_node_empty():
    assert links(matrix(2, name="delaunay")) == both((0, 1))
    assert links(matrix(1, name="delaunay")) == set()


@given(st.sampled_from(["cycle", "wheel", "complete"]), st.integers(0, 1000), st.integers(0, 50))
def test_lost_links_are_lost_both_ways_and_keep_the_mean(name, round, seed):
    whole = matrix(8, seed=seed, name=name)
    mixing = matrix(8, round, seed, name=name, drop=0.4)
    np.testing.assert_array_equal(mixing, mixing.T)
    np.testing.assert_allclose(mixing.sum(axis=1), 1, atol=1e-14)
    for i, j in links(whole):
        assert mixing[i, j] in (0, whole[i, j])
    assert links(mixing) <= links(whole)
    fresh = Topology(BLOCK.validate_python({"name": name, "drop": 0.4}), 8, seed)
    np.testing.assert_array_equal(fresh.at(round).matrix, mixing)


def test_links_are_lost_as_often_as_the_probability_and_differ_between_rounds():
    topo = made(20, name="complete", drop=0.3)
    kept = [len(links(topo.at(round).matrix)) / (20 * 19) for round in range(100)]
    assert abs(np.mean(kept) - 0.7) < 5 * math.sqrt(0.3 * 0.7 / (100 * 190))
    assert len(set(kept)) > 1


def test_a_sequence_gives_every_graph_its_rounds():
    topo = made(6, name="sequence", of=[{"name": "cycle"}, {"name": "star"}], rounds=2)
    turns = [matrix(6, name=name) for name in ("cycle", "cycle", "star", "star")]
    for round in range(12):
        np.testing.assert_array_equal(topo.at(round).matrix, turns[round % 4])
    assert not topo.static


def test_a_sequence_goes_on_where_a_graph_left_off():
    topo = made(8, name="sequence", of=[{"name": "one_peer_exponential"}, {"name": "path"}], rounds=2)
    hops = [4, 1, 2, 4, 1, 2]
    seen = [topo.at(round).receivers(0) for round in range(20) if round % 4 < 2]
    assert seen == [[hops[(index + 1) % 6]] for index in range(10)]
    assert topo.period == 12


def test_random_graphs_of_a_sequence_differ():
    pair = [{"name": "erdos_renyi", "p": 0.5}] * 2
    topo = made(12, name="sequence", of=pair)
    assert links(topo.at(0).matrix) != links(topo.at(1).matrix)
    assert topo.at(0) is topo.at(2)


def test_matchings_connect_in_turn_though_neither_does_alone():
    even, odd = [[0, 1], [2, 3]], [[1, 2], [3, 0]]
    of = [{"name": "edges", "edges": pairs} for pairs in (even, odd)]
    topo = made(4, name="sequence", of=of)
    assert topo.connected
    assert not made(4, **of[0]).connected
    assert made(4, **of[0]).spectral_gap == pytest.approx(0)
    assert topo.spectral_gap == 1, "average in pairs, then across: exact for four"


@pytest.mark.parametrize(
    ("block", "facts"),
    [
        ({"name": "cycle"}, "connected symmetric doubly_stochastic bipartite static"),
        ({"name": "complete"}, "connected symmetric doubly_stochastic static"),
        ({"name": "complete_bipartite"}, "connected symmetric doubly_stochastic bipartite static"),
        ({"name": "grid", "drop": 0.1}, "connected symmetric doubly_stochastic bipartite"),
        ({"name": "exponential"}, "connected doubly_stochastic directed static"),
        ({"name": "one_peer_exponential"}, "connected doubly_stochastic directed"),
        ({"name": "base_k", "k": 2}, "connected symmetric doubly_stochastic"),
        ({"name": "equitopo"}, "connected symmetric doubly_stochastic"),
        ({"name": "equitopo", "directed": True}, "connected doubly_stochastic directed"),
        ({"name": "directed_edges", "edges": [[0, 1], [1, 0], [1, 2]]}, "bipartite directed static"),
        ({"name": "edges", "edges": [[0, 1]]}, "symmetric doubly_stochastic bipartite static"),
        ({"name": "watts_strogatz", "k": 2, "p": 0, "redraw_every": 2}, "connected symmetric doubly_stochastic"),
        ({"name": "random_regular", "redraw_every": 2}, "connected symmetric doubly_stochastic"),
    ],
)  # fmt: skip
def test_what_a_topology_says_of_itself(block, facts):
    topo = made(6, **block)
    known = ("connected", "symmetric", "doubly_stochastic", "bipartite", "directed", "static")
    assert {fact for fact in known if getattr(topo, fact)} == set(facts.split())


@pytest.mark.parametrize(
    ("block", "nodes", "sentence"),
    [
        ({"name": "erdos_renyi", "p": 1e-6}, 10, r"topology\.p: none of 100 graphs of 10 .*raise topology\.gen_attempts"),
        ({"name": "random", "p": 1e-6, "gen_attempts": 3}, 10, r"topology\.p: none of 3 graphs"),
        ({"name": "watts_strogatz"}, 4, r"topology\.k: 4 neighbors need more than 4 nodes"),
        ({"name": "random_regular"}, 7, r"topology\.degree: .* degree x nodes must be even; use 2 or 4"),
        ({"name": "random_regular"}, 3, r"topology\.degree: 3 neighbors need more than 3 nodes"),
        ({"name": "random_regular", "degree": 1}, 6, r"topology\.degree: none of 100 graphs"),
        ({"name": "disk", "radius": 1e-4}, 10, r"topology\.radius: none of 100 .* radius 0\.0001"),
        ({"name": "disk", "connectivity": 30}, 10, r"topology\.connectivity: 30 is impossible"),
        ({"name": "disk", "connectivity": 9}, 10, r"topology\.connectivity: none of 100 graphs"),
        ({"name": "disk", "connectivity": 1}, 1, r"topology\.connectivity: 1 is impossible"),
        ({"name": "hypercube"}, 12, r"needs a power of two as the number of nodes \(12\); use 16"),
        ({"name": "grid", "rows": 4}, 10, r"topology\.rows: no grid with rows 4 has 10 nodes"),
        ({"name": "torus", "rows": 2, "columns": 3}, 8, r"no grid with rows 2 and columns 3 has 8 nodes"),
        ({"name": "grid", "columns": 20}, 10, r"no grid with columns 20 has 10 nodes"),
        ({"name": "edges", "edges": [[0, 5]]}, 5, r"topology\.edges: \[0, 5\] contains a node that does not exist \(nodes: 0 to 4\)"),
        ({"name": "directed_edges", "edges": [[7, 0]]}, 5, r"topology\.edges: \[7, 0\]"),
        ({"name": "star", "weights": "uniform"}, 5, r"topology\.weights: .* 1 to 4 neighbors; use metropolis"),
        ({"name": "sequence", "of": [{"name": "cycle"}, {"name": "hypercube"}]}, 6, r"power of two"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_in_a_sentence(block, nodes, sentence):
    with pytest.raises(UserError, match=sentence):
        made(nodes, **block)


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ({"name": "disk"}, "either `radius` or `connectivity`"),
        ({"name": "disk", "radius": 0.5, "connectivity": 1}, "either `radius` or `connectivity`"),
        ({"name": "edges", "edges": [[1, 1]]}, "links a node with itself"),
        ({"name": "edges", "edges": [[-1, 1]]}, "greater than or equal to 0"),
        ({"name": "erdos_renyi", "p": 0.5, "weights": "uniform"}, "set `weights: metropolis`"),
        ({"name": "cycle", "drop": 1}, "less than 1"),
        ({"name": "exponential", "drop": 0.5}, "Extra inputs"),
        ({"name": "watts_strogatz", "k": 3}, "multiple of 2"),
        ({"name": "sequence", "of": []}, "at least 1 item"),
        ({"name": "ring"}, "does not match"),
    ],
)
def test_settings_that_no_graph_could_have_are_refused(block, sentence):
    with pytest.raises(ValidationError, match=sentence):
        BLOCK.validate_python(block)


@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_rounds_may_be_asked_for_in_any_order(round):
    block = BLOCK.validate_python({"name": "erdos_renyi", "p": 0.5, "redraw_every": 2, "drop": 0.2})
    asked, fresh = Topology(block, 8, 1), Topology(block, 8, 1)
    for other in (round + 3, 0, round + 1):
        asked.at(other)
    np.testing.assert_array_equal(asked.at(round).matrix, fresh.at(round).matrix)
