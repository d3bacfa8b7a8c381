"""Parameter-server algorithms compared with numpy versions of the papers, to 1e-9 over 50 steps."""

import functools

import numpy as np
import pytest
from helpers.energy_matching import EnergyMatching
from helpers.least_squares import BATCH, DIMENSION, START, Momentum, gradient, gradient_of
from helpers.parameter_server_programs import recorded, several
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks

from nnlo_lib.algorithms.parameter_server.client import FETCH, PUSH

STEPS, VECTOR = 50, 8 * DIMENSION
EVERYWHERE = pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)
CLOSE = {"rtol": 0, "atol": 1e-9}


def uneven(workers):
    """Return batch sizes: full batches for every worker, and a last step with samples for the first worker only."""
    return [[BATCH] * (STEPS - 1) + [2 if worker == 0 else 0] for worker in range(workers)]


def elastic(counts, tau, alpha):
    """Return all x_i at each step and the last c (Zhang, Choromanska and LeCun 2015, equations (5) and (6)).

    Args:
        counts: batch sizes per worker and step.
        tau: number of steps between two exchanges.
        alpha: elastic force.
    """
    workers = range(len(counts))
    x, c, rules, path = [START for _ in workers], START, [Momentum() for _ in workers], []
    for t in range(STEPS):
        g = [gradient_of(x[i], i, t, counts[i][t]) for i in workers]
        if t % tau == 0:
            spring = [alpha * (x[i] - c) * (counts[i][t] > 0) for i in workers]
            x, c = [x[i] - spring[i] for i in workers], c + sum(spring)
        x = [rules[i].step(x[i], g[i]) for i in workers]
        path.append(x)
    return path, c


def shorter(workers):
    """Return batch sizes; every worker has fewer batches than the previous one."""
    return [[BATCH] * (STEPS - 6 * worker) for worker in range(workers)]


CASES = {
    "easgd, always": ("easgd", {"synchronous": True, "sync_every": 1, "alpha": 0.2}, uneven),
    "easgd, at times": ("easgd", {"synchronous": True, "sync_every": 7, "elastic_force": 0.6}, uneven),
    "easgd": ("easgd", {"sync_every": 3, "elastic_force": 0.6}, shorter),
    "gem": ("gem", {"sync_every": 1, "kappa": 1.0, "momentum": 0.9}, shorter),
    "gem, at times": ("gem", {"sync_every": 3, "kappa": 2.0, "momentum": 0.9}, shorter),
}


@functools.cache
def every_case(transport, ranks):
    calls = [[name, settings, counts(ranks - 1)] for name, settings, counts in CASES.values()]
    everyones = on_ranks(several, transport, ranks, calls)
    return dict(zip(CASES, zip(*everyones, strict=True), strict=True))


@EVERYWHERE
@pytest.mark.parametrize("case", ["easgd, always", "easgd, at times"])
def test_synchronous_easgd(transport, ranks, case):
    workers = ranks - 1
    settings, counts = CASES[case][1], uneven(workers)
    tau, alpha = settings["sync_every"], settings.get("alpha")
    server, *results = every_case(transport, ranks)[case]
    bits = [result["path"] for result in every_case("simulated", ranks)[case]]
    assert [result["path"] for result in (server, *results)] == bits, "the same on every transport"
    path, c = elastic(counts, tau, alpha or 0.6 / workers)
    exchanges = [sum(t % tau == 0 and counts[i][t] > 0 for t in range(STEPS)) for i in range(workers)]
    for i, result in enumerate(results):
        np.testing.assert_allclose(result["path"], [x[i] for x in path], **CLOSE)
        np.testing.assert_allclose(result["own"], path[-1][i], **CLOSE)
        assert result["sent"] == {"parameters": VECTOR * exchanges[i]}
        assert result["staleness"] == [[0, exchanges[i]]]
    assert server["sent"] == {"parameters": VECTOR * sum(exchanges)}
    assert server["pushes"] == sum(exchanges)
    for result in [server, *results]:
        np.testing.assert_allclose(result["centre"], c, **CLOSE)
        assert result["published"] == result["centre"] == server["centre"]
        assert result["telemetry"] == server["telemetry"]
        assert result["telemetry"][0]["invariant"] < 1e-14
        distance = np.mean([np.linalg.norm(x - c) for x in path[-1]])
        np.testing.assert_allclose(result["telemetry"][0]["distance"], distance, **CLOSE)


@EVERYWHERE
def test_asynchronous_easgd(transport, ranks):
    """Algorithm 1 of the paper: one worker follows the exact trajectory; with several workers each push is applied once."""
    counts = shorter(ranks - 1)
    server, *results = every_case(transport, ranks)["easgd"]
    exchanges = [-(-len(steps) // 3) for steps in counts]
    assert server["updates"] == server["pushes"] == sum(exchanges)
    assert [sum(number for _, number in result["staleness"]) for result in results] == exchanges
    assert [result["sent"]["parameters"] for result in results] == [VECTOR * number for number in exchanges]
    assert server["telemetry"][0]["invariant"] < 1e-14
    if ranks == 2:
        path, c = elastic(counts, 3, 0.6)
        np.testing.assert_allclose(results[0]["path"], [x[0] for x in path], **CLOSE)
        np.testing.assert_allclose(server["centre"], c, **CLOSE)


def test_asynchronous_easgd_equals_a_replay_of_its_events():
    steps, workers, tau, alpha = 30, 3, 4, 0.3
    settings = {"sync_every": tau, "alpha": alpha}
    server, *results = on_ranks(recorded, "simulated", workers + 1, "easgd", settings, steps)
    x, c, rules = [START] * workers, START, [Momentum() for _ in range(workers)]
    t, paths, seen, stale = (
        [0] * workers,
        [[] for _ in range(workers)],
        [0] * workers,
        [[] for _ in range(workers)],
    )
    for update, (rank, kind, answered) in enumerate(server["events"]):
        i = rank - 1
        np.testing.assert_allclose(answered, c, **CLOSE)
        stale[i].append(update - seen[i])
        seen[i] = update + 1
        for step in range(tau):
            if t[i] == steps:
                break
            g = gradient_of(x[i], i, t[i])
            if step == 0:
                x[i], c = x[i] - alpha * (x[i] - c), c + alpha * (x[i] - c)
            x[i], t[i] = rules[i].step(x[i], g), t[i] + 1
            paths[i].append(x[i])
        assert kind == PUSH
    np.testing.assert_allclose(server["theta"], c, **CLOSE)
    for i, result in enumerate(results):
        np.testing.assert_allclose(result["path"], paths[i], **CLOSE)
        assert result["staleness"] == [[s, stale[i].count(s)] for s in sorted(set(stale[i]))]
    order = [rank for rank, _, _ in server["events"]]
    assert order != sorted(order), "workers of unequal speed take turns"


@EVERYWHERE
@pytest.mark.parametrize("case", ["gem", "gem, at times"])
def test_gem(transport, ranks, case):
    tau, kappa, _ = CASES[case][1].values()
    counts = shorter(ranks - 1)
    server, *results = every_case(transport, ranks)[case]
    exchanges = [-(-len(steps) // tau) for steps in counts]
    assert server["updates"] == server["pushes"] == sum(exchanges)
    assert server["sent"] == {"parameters": VECTOR * sum(exchanges)}
    assert [result["sent"]["gradient"] for result in results] == [VECTOR * number for number in exchanges]
    # Requests for the model carry no vector.
    assert [result["messages"]["gradient"] for result in results] == exchanges
    assert [sum(number for _, number in result["staleness"]) for result in results] == exchanges
    assert server["telemetry"][0]["invariant"] < 1e-14
    if ranks == 2:
        worker, c = EnergyMatching(0, tau, kappa=kappa), START
        while worker.step < STEPS:
            u = worker.compute(counts[0])
            update = worker.scaled(u, c)
            worker.move(c, update)
            c = c + update
        np.testing.assert_allclose(results[0]["path"][:-1], worker.path[:-1], **CLOSE)
        np.testing.assert_allclose(results[0]["own"], worker.path[-1], **CLOSE)
        np.testing.assert_allclose(server["centre"], c, **CLOSE)


def test_gem_equals_a_replay_of_its_events():
    steps, workers = 50, 3
    server, *results = on_ranks(
        recorded, "simulated", workers + 1, "gem", {"kappa": 3.0, "momentum": 0.9}, steps, 1
    )
    replicas, c = [EnergyMatching(i, kappa=3.0) for i in range(workers)], START
    under_way, fetched, stale, updates = {}, {}, [[] for _ in range(workers)], 0
    for rank, kind, answered in server["events"]:
        i = rank - 1
        if kind == FETCH:
            np.testing.assert_allclose(answered, c, **CLOSE)
            under_way[i] = replicas[i].scaled(replicas[i].compute([BATCH] * steps), c)
            replicas[i].move(c, under_way[i])
            fetched[i] = updates
        else:
            assert answered == []
            c = c + under_way.pop(i)
            stale[i].append(updates - fetched[i])
            updates += 1
    np.testing.assert_allclose(server["theta"], c, **CLOSE)
    for i, result in enumerate(results):
        np.testing.assert_allclose(result["path"], replicas[i].path, **CLOSE)
        assert result["staleness"] == [[s, stale[i].count(s)] for s in sorted(set(stale[i]))]
    assert np.concatenate(stale).max() > 0, "some updates come late"


@pytest.mark.long
def test_gem_stays_near_the_optimum_with_many_workers():
    """Nine asynchronous workers do not diverge, because their total energy equals that of one worker with momentum."""
    counts = [[BATCH] * 200] * 9
    server = on_ranks(several, "simulated", 10, [["gem", {"kappa": 1.0, "momentum": 0.9}, counts]])[0][0]
    everything = np.arange(96)
    assert np.linalg.norm(gradient(np.array(server["centre"]), everything)) < 0.2 * np.linalg.norm(
        gradient(START, everything)
    )
