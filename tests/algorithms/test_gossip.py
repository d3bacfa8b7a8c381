"""Gossip algorithms compared with numpy versions of the papers and with replays of recorded events; invariants."""

import functools

import numpy as np
import pytest
import torch
from helpers.least_squares import (
    CLOSE,
    SEED,
    START,
    STEPS,
    VECTOR,
    Momentum,
    algorithm_of,
    counters,
    full,
    gradient_of,
    make_replica,
    train,
    uneven,
)
from helpers.reference_compressors import BYTES, CASTS, RULES, SETTINGS
from helpers.run_on_ranks import on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config.parallel import SimulationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed

RANKS = 4
UNEQUAL = [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]  # a strongly connected graph with unequal out-degrees
PUSHES = {"algorithm": {"name": "gosgd", "probability": 0.4}}
TOGETHER = {"algorithm": {"name": "gosgd", "probability": 0.4, "synchronous": True}}
GRAPHS = {
    "exponential": {"name": "exponential"},
    "one peer": {"name": "one_peer_exponential"},
    "unequal": {"name": "directed_edges", "edges": UNEQUAL},
}


def sgp(graph):
    return {"algorithm": {"name": "sgp"}, "topology": GRAPHS[graph]}


def adpsgd(graph):
    return {"algorithm": {"name": "adpsgd"}, "topology": {"name": graph}}


@functools.cache
def outcome(program):
    """Return the results of a synchronous training: of (graph or "gosgd", kind of compression)."""
    graph, kind = program
    sections = TOGETHER if graph == "gosgd" else sgp(graph)
    return on_ranks(train, "simulated", RANKS, sections | {"compression": SETTINGS[kind]}, uneven(RANKS))


def packet(kind):
    """Return the bytes of compressed parameters and their weight."""
    return BYTES[kind] + 8


def targets(step, probability):
    """Return the target rank of each push in a step, by sender."""
    drawn = {}
    for rank in range(RANKS):
        if derive_seed(SEED, "gosgd push", rank, step) / 2**63 < probability:
            others = [other for other in range(RANKS) if other != rank]
            drawn[rank] = others[derive_seed(SEED, "gosgd target", rank, step) % (RANKS - 1)]
    return drawn


@pytest.mark.parametrize("kind", CASTS)
def test_synchronous_gosgd(kind):
    """With compression, the sender keeps the rounding error of the parameters."""
    counts, results, c = uneven(RANKS), outcome(("gosgd", kind)), RULES[kind]
    x, a, rules, pushes = [START] * RANKS, [1.0] * RANKS, [Momentum() for _ in range(RANKS)], [0] * RANKS
    for step in range(STEPS):
        x = [rules[i].step(x[i], gradient_of(x[i], i, step, counts[i][step])) for i in range(RANKS)]
        before, posted = np.dot(a, x), []
        for source, target in targets(step, 0.4).items():
            a[source], pushes[source] = a[source] / 2, pushes[source] + 1
            posted.append((target, a[source], c(x[source])))
            x[source] = 2 * x[source] - c(x[source])
        for i in range(RANKS):
            merged = [(a[i], x[i]), *((b, y) for target, b, y in posted if target == i)]
            a[i] = sum(b for b, _ in merged)
            x[i] = sum(b * y for b, y in merged) / a[i]
        np.testing.assert_allclose(np.dot(a, x), before, rtol=0, atol=1e-12)
        np.testing.assert_allclose([result["path"][step] for result in results], x, **CLOSE)
    assert [result["weight"] for result in results] == a
    for rank, result in enumerate(results):
        assert result["sent"]["parameters"] == packet(kind) * pushes[rank]
        assert result["telemetry"] == [{"invariant": 0.0, "mass_min": min(a), "mass_max": max(a)}]
        np.testing.assert_allclose(result["published"], np.average(x, axis=0, weights=a), **CLOSE)
        assert result["published"] == results[0]["published"]
    assert 0 < min(pushes) <= max(pushes) < STEPS


def mixing_matrix(graph, step):
    """Return the column-stochastic matrix of a step; p[i, j] is the weight that rank i receives from rank j."""
    p = np.eye(RANKS)
    for j in range(RANKS):
        match graph:
            case "exponential":
                p[[(j + 1) % RANKS, (j + 2) % RANKS], j] = 1
            case "one peer":
                p[(j + 2 ** (step % 2)) % RANKS, j] = 1
            case "unequal":
                p[[to for sender, to in UNEQUAL if sender == j], j] = 1
    return p / p.sum(axis=0)


@pytest.mark.parametrize(
    ("graph", "kind"), [*((graph, "none") for graph in GRAPHS), ("unequal", "fp16"), ("unequal", "bf16")]
)
def test_stochastic_gradient_push(graph, kind):
    """With compression, the sender keeps the rounding error of the parameters."""
    counts, results, c = uneven(RANKS), outcome((graph, kind)), RULES[kind]
    x, w, rules = np.tile(START, (RANKS, 1)), np.ones(RANKS), [Momentum() for _ in range(RANKS)]
    receivers = np.zeros(RANKS, int)
    for step in range(STEPS):
        z, p = x / w[:, None], mixing_matrix(graph, step)
        x = np.array([rules[i].step(x[i], gradient_of(z[i], i, step, counts[i][step])) for i in range(RANKS)])
        sent = c(x)
        x, w, receivers = p @ sent + (x - sent), p @ w, receivers + np.count_nonzero(p, axis=0) - 1
        np.testing.assert_allclose([result["path"][step] for result in results], x / w[:, None], **CLOSE)
    assert (np.ptp(w) > 0.1) == (graph == "unequal")
    for i, result in enumerate(results):
        assert result["weight"] == pytest.approx(w[i], abs=1e-12)
        assert result["sent"]["parameters"] == packet(kind) * receivers[i]
        assert result["telemetry"][0]["invariant"] < 1e-14
        np.testing.assert_allclose(result["published"], x.mean(axis=0), **CLOSE)


@pytest.mark.parametrize(
    "program", [("gosgd", "none"), ("gosgd", "fp16"), ("one peer", "none"), ("unequal", "bf16")]
)
def test_a_pause_changes_no_bit_of_a_synchronous_training(program):
    sections = TOGETHER if program[0] == "gosgd" else sgp(program[0])
    sections = sections | {"compression": SETTINGS[program[1]], "stops": [7, 30]}
    stopped = on_ranks(train, "simulated", RANKS, sections, uneven(RANKS))
    for one, other in zip(outcome(program), stopped, strict=True):
        assert other["pauses"] == [8, 31]
        assert all(one[key] == other[key] for key in ("path", "weight", "published"))


PUSH, ASK, ANSWER = 3, 3, 4


class Node:
    """One rank of a replay; each method applies the update that the paper defines for an event."""

    def __init__(self, rank, kind):
        self.rank, self.x, self.rule, self.g, self.rounded = rank, START, Momentum(), None, RULES[kind]

    def gradient(self, step):
        self.g = gradient_of(self.x, self.rank, step)

    def step(self):
        self.x = self.rule.step(self.x, self.g)


class Gossiper(Node):
    """GoSGD (Blot et al. 2016): a push sends the parameters and half of the sender's weight."""

    a = 1.0

    def send(self, tag):
        self.a /= 2
        return self.x, self.a

    def receive(self, message, tag):
        x, a = message
        self.x, self.a = (self.a * self.x + a * x) / (self.a + a), self.a + a


class Pairer(Node):
    """AD-PSGD (Lian et al. 2018): a passive node averages when it answers, an active node when the answer arrives.

    Both move by half of the difference of the rounded parameters that are sent.
    """

    def send(self, tag):
        self.sent = self.rounded(self.x)
        if tag == ANSWER:
            self.x = self.x + (self.asked - self.sent) / 2
        return self.sent

    def receive(self, message, tag):
        if tag == ASK:
            self.asked = message
        else:
            self.x = self.x + (message - self.sent) / 2


def replay(nodes, events):
    """Replay the events of all ranks; each message is received only after it was sent."""
    left, messages = [list(mine) for mine in events], {}
    while any(left):
        before = sum(map(len, left))
        for node, mine in zip(nodes, left, strict=True):
            while mine and proceed(node, mine[0], messages):
                mine.pop(0)
        assert sum(map(len, left)) < before, "a message was received that no rank had sent"
    assert not any(messages.values()), "a message was lost"


def proceed(node, event, messages):
    """Replay one event; return False if it receives a message that was not sent yet."""
    match event:
        case ["gradient", step]:
            node.gradient(step)
        case ["step"]:
            node.step()
        case ["send", to, tag, _] if tag >= PUSH:
            messages.setdefault((node.rank, to), []).append((node.send(tag), tag))
        case ["receive", source, tag] if tag >= PUSH:
            if not messages.get((source, node.rank)):
                return False
            message, sent_tag = messages[source, node.rank].pop(0)
            assert sent_tag == tag
            node.receive(message, tag)
    return True


ASYNCHRONOUS = {
    "gosgd": (PUSHES, "none"),
    "adpsgd, path": (adpsgd("path"), "none"),
    "adpsgd, star": (adpsgd("star"), "none"),
    **{f"adpsgd, {kind}": (adpsgd("cycle"), kind) for kind in CASTS},
}


@pytest.mark.parametrize(("sections", "kind"), ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_asynchronous_gossip_equals_a_replay_of_its_events(sections, kind):
    sections = sections | {"compression": SETTINGS[kind], "pace": 10, "record": True}
    results = on_ranks(train, "simulated", RANKS, sections, full(RANKS))
    events = [result["events"] for result in results]
    nodes = [(Gossiper if "gosgd" in str(sections) else Pairer)(rank, kind) for rank in range(RANKS)]
    replay(nodes, events)
    for result, node in zip(results, nodes, strict=True):
        np.testing.assert_allclose(result["own"], node.x, **CLOSE)
        assert result["weight"] == getattr(node, "a", 1)
        assert result["telemetry"][0]["invariant"] < 1e-14
        if isinstance(node, Pairer):
            answers = sum(event[0] == "receive" and event[2] == ANSWER for event in result["events"])
            assert sum(number for _, number in result["staleness"]) == answers
    assert sum(event[0] == "receive" and event[2] >= PUSH for mine in events for event in mine) > 30
    assert results == on_ranks(train, "simulated", RANKS, sections, full(RANKS))
    if sections.get("topology") == {"name": "cycle"}:
        # The side of node 0 asks, and fast nodes continue to train.
        assert [bool(result["staleness"]) for result in results] == [True, False] * 2
        assert {staleness for staleness, _ in results[0]["staleness"]} >= {1, 2}


@pytest.mark.parametrize("sections", [PUSHES, adpsgd("path"), adpsgd("star")], ids=["gosgd", "path", "star"])
def test_a_rank_that_finished_its_batches_answers_the_others(sections):
    """Ranks have unequal numbers of batches; only pushes and pairs send bytes."""
    steps = [5 + 10 * rank for rank in range(RANKS)]
    results = on_ranks(
        train, "simulated", RANKS, sections | {"pace": 10}, [full(1, count)[0] for count in steps]
    )
    assert [result["local_steps"] for result in results] == steps
    sent = sum(result["sent"]["parameters"] for result in results)
    pairs = sum(number for result in results for _, number in result["staleness"])
    pushes = sum(rank in targets(step, 0.4) for rank in range(RANKS) for step in range(steps[rank]))
    assert sent == (packet("none") * pushes if sections is PUSHES else 2 * VECTOR * pairs) > 0
    mean = sum(result["weight"] * np.array(result["own"]) for result in results) / RANKS
    for result in results:
        assert result["telemetry"][0]["invariant"] < 1e-12
        assert result["published"] == results[0]["published"]
        np.testing.assert_allclose(result["published"], mean, **CLOSE)


@pytest.mark.parametrize("sections", [PUSHES, adpsgd("star")], ids=["gosgd", "adpsgd"])
def test_a_requested_stop_pauses_all_ranks_in_the_middle_and_they_resume(sections):
    results = on_ranks(train, "simulated", RANKS, sections | {"pace": 10, "stops": [5]}, full(RANKS, 40))
    assert [len(result["pauses"]) for result in results] == [1] * RANKS
    assert all(0 < result["pauses"][0] < 40 for result in results)
    assert [result["local_steps"] for result in results] == [40] * RANKS
    assert all(result["telemetry"][0]["invariant"] < 1e-12 for result in results)


def test_adpsgd_averages_workers_of_several_processes():
    """The processes of a worker stay equal; pairs of workers, of which only the leaders send, keep the sum."""
    results = on_ranks(train, "simulated", 4, adpsgd("path") | {"group": 2, "pace": 10}, full(4, 30))
    leaders = results[::2]
    mean = np.mean([leader["own"] for leader in leaders], axis=0)
    for rank, result in enumerate(results):
        assert result["own"] == leaders[rank // 2]["own"]
        assert result["telemetry"][0]["invariant"] < 1e-12
        np.testing.assert_allclose(result["published"], mean, **CLOSE)
    assert sum(number for result in results for _, number in result["staleness"]) > 0


def mixed(comm, sections, durations, dtype="float64"):
    """Mix parameters that differ between ranks, without gradient steps: rank i starts with (i + 1) START."""
    replica, algorithm = make_replica("sgd", getattr(torch, dtype)), algorithm_of(comm, **sections)
    algorithm.start(replica)
    replica.theta.mul_(comm.rank + 1)
    for samples in durations[comm.rank]:
        comm.advance_clock(samples)
        algorithm.on_gradient(replica, SampleShare(1, 1))
        algorithm.on_parameters(replica)
        assert not algorithm.should_stop(False)
    algorithm.quiesce(replica)
    invariant = algorithm.telemetry(replica)["invariant"]
    return {"theta": replica.theta.tolist(), "invariant": invariant, **counters(algorithm)}


def assert_kept(results, error):
    """Assert that the total weight and the weighted sum of the parameters are unchanged."""
    ranks = len(results)
    assert sum(result["weight"] for result in results) == pytest.approx(ranks, rel=1e-14)
    total = sum(result["weight"] * np.array(result["theta"]) for result in results)
    np.testing.assert_allclose(total, START * ranks * (ranks + 1) / 2, rtol=error, atol=error)
    assert all(result["invariant"] < error for result in results)


MIXING = {
    "gosgd": PUSHES,
    "gosgd, synchronous": TOGETHER,
    "sgp": sgp("unequal"),
    "adpsgd": adpsgd("hypercube"),
}


@pytest.mark.parametrize("sections", MIXING.values(), ids=MIXING)
def test_mixing_keeps_the_mean_and_reaches_it(sections):
    results = on_ranks(mixed, "simulated", RANKS, sections, [[1] * 200] * RANKS)
    assert_kept(results, 1e-12)
    for result in results:
        np.testing.assert_allclose(result["theta"], (RANKS + 1) / 2 * START, atol=1e-9)


def test_rounded_weights_keep_the_total_weight():
    """The total stays exact although a third of a weight is sent in float32 500 times: the sender keeps the error."""
    results = on_ranks(mixed, "simulated", RANKS, sgp("unequal"), [[1] * 500] * RANKS, "float32")
    assert results[0]["invariant"] < 1e-13


SCHEDULES = st.integers(2, 5).flatmap(
    lambda ranks: st.lists(st.lists(st.integers(0, 30), max_size=25), min_size=ranks, max_size=ranks)
)


@settings(max_examples=30)
@given(
    SCHEDULES,
    st.floats(0.05, 1),
    st.sampled_from([0.0, 1e-5, 1e-3]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["gosgd", "complete_bipartite", "path"]),
)
def test_no_schedule_loses_a_message(durations, probability, latency, dtype, how):
    pushes = {"algorithm": {"name": "gosgd", "probability": probability}}
    sections = pushes if how == "gosgd" else adpsgd(how)
    world = SimulatedWorld(len(durations), SimulationConfig(latency=latency))
    results = world.run(lambda comm: mixed(comm, sections, durations, dtype))
    assert [result["local_steps"] for result in results] == list(map(len, durations))
    assert_kept(results, 1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("graph", [{"name": "complete"}, {"name": "cycle"}, {"name": "path", "drop": 0.1}])
def test_adpsgd_refuses_a_graph_that_is_not_bipartite(graph):
    with pytest.raises(UserError, match="bipartite"):
        on_ranks(mixed, "simulated", 3, {"algorithm": {"name": "adpsgd"}, "topology": graph}, [[1]] * 3)
