"""Parameter-server algorithms compared with numpy versions of the papers, with and without compression."""

import numpy as np
import pytest
from helpers.least_squares import (
    BATCH,
    CLOSE,
    DIMENSION,
    ROWS,
    START,
    STEPS,
    VECTOR,
    Momentum,
    full,
    gradient,
    gradient_of,
    shorter,
    train,
    uneven,
)
from helpers.reference_compressors import BYTES, CASTS, SETTINGS, Sender
from helpers.run_on_ranks import on_ranks

from nnlo_lib.algorithms.server_client import FETCH, Header

WORKERS = 3


def trained(counts, kind="none", optimizer="momentum", **algorithm):
    """Return the results of the server and of the workers of a training on simulated ranks."""
    settings = {"algorithm": algorithm, "compression": SETTINGS[kind], "optimizer": optimizer}
    server, *workers = on_ranks(train, "simulated", 1 + len(counts), settings, counts)
    return server, workers


def recorded(steps, kind="none", optimizer="momentum", pace=10, **algorithm):
    """Return the same of workers of unequal speed, and the server's answers as (worker, kind, values), in order."""
    settings = {
        "algorithm": algorithm, "compression": SETTINGS[kind], "optimizer": optimizer, "pace": pace, "record": True,
    }  # fmt: skip
    server, *workers = on_ranks(train, "simulated", 1 + WORKERS, settings, full(WORKERS, steps))
    sent = [event[1:] for event in server["events"] if event[0] == "send"]
    answers = [(to - 1, Header.from_tag(tag).kind, values) for to, tag, values in sent]
    order = [worker for worker, _, _ in answers]
    assert order != sorted(order), "workers of unequal speed take turns"
    return server, workers, answers


def histogram(values):
    return [[value, values.count(value)] for value in sorted(set(values))]


@pytest.mark.parametrize(
    ("sync_every", "kind"), [(1, "none"), (3, "none"), *((2, kind) for kind in SETTINGS if kind != "none")]
)
def test_synchronous_downpour(sync_every, kind):
    """Workers send the compression error of their gradients later; the server sends uncompressed parameters."""
    counts = uneven(WORKERS)
    server, results = trained(counts, kind, name="downpour", synchronous=True, sync_every=sync_every)
    theta, root, local = START, Momentum(), [START] * WORKERS
    rules, senders = [Momentum() for _ in range(WORKERS)], [Sender(kind, 1 + i) for i in range(WORKERS)]
    accrued, rounds, pushes = {}, 0, [0] * WORKERS
    for step in range(STEPS):
        total = sum(counts[i][step] for i in range(WORKERS))
        for i in range(WORKERS):
            g = gradient_of(local[i], i, step, counts[i][step])
            if counts[i][step]:
                accrued[i] = accrued.get(i, 0) + counts[i][step] / total * g
            local[i] = rules[i].step(local[i], g)
        if (step + 1) % sync_every == 0 or step == STEPS - 1:
            theta = root.step(theta, sum(senders[i].send(value) for i, value in accrued.items()))
            pushes = [count + (i in accrued) for i, count in enumerate(pushes)]
            local, accrued, rounds = [theta] * WORKERS, {}, rounds + 1
            if step < STEPS - 1:
                np.testing.assert_allclose([result["path"][step] for result in results], local, **CLOSE)
    for result in (server, *results):
        np.testing.assert_allclose(result["centre"], theta, **CLOSE)
        assert result["telemetry"][0]["invariant"] == 0
    assert (server["updates"], server["pushes"]) == (rounds, sum(pushes))
    assert [result["sent"]["gradient"] for result in results] == [BYTES[kind] * number for number in pushes]
    assert server["sent"]["parameters"] == VECTOR * sum(pushes)


@pytest.mark.parametrize("kind", SETTINGS)
def test_asynchronous_downpour_equals_a_replay_of_its_events(kind):
    """Each worker computes its gradient at the parameters that it received last, despite later updates of the server."""
    server, results, answers = recorded(20, kind, name="downpour")
    theta, rule, known, done = START, Momentum(), [START] * WORKERS, [0] * WORKERS
    senders = [Sender(kind, 1 + i) for i in range(WORKERS)]
    for i, _, answered in answers:
        theta = rule.step(theta, senders[i].send(gradient_of(known[i], i, done[i])))
        np.testing.assert_allclose(answered, theta, **CLOSE)
        known[i], done[i] = theta, done[i] + 1
        np.testing.assert_allclose(results[i]["path"][done[i] - 1], theta, **CLOSE)
    assert done == [20] * WORKERS
    assert server["updates"] == server["pushes"] == 20 * WORKERS
    assert all(result["sent"]["gradient"] == 20 * BYTES[kind] for result in results)
    assert answers == recorded(20, kind, name="downpour")[2], "a simulated training is reproducible"


class ElasticWorker:
    """A worker of Zhang, Choromanska and LeCun 2015, algorithm 1, or 2 (EAMSGD) with delta > 0.

    With compression it pushes rounded parameters and sends the rounding errors later.
    """

    def __init__(self, number, alpha, tau, delta=0.0, kind="none"):
        self.number, self.alpha, self.tau, self.delta = number, alpha, tau, delta
        self.sender, self.rule = Sender(kind, 1 + number), Momentum()
        self.x, self.v, self.t, self.path, self.exchanges = START, np.zeros(DIMENSION), 0, [], 0

    def step(self, c, count=BATCH):
        """Take a step; return the center after the exchange, if one is due."""
        g = gradient_of(self.x + self.delta * self.v, self.number, self.t, count)
        if count and self.t % self.tau == 0:
            pushed, self.exchanges = self.sender.send(self.x), self.exchanges + 1
            self.x, c = self.x - self.alpha * (self.x - c), c + self.alpha * (pushed - c)
        if not self.delta:
            self.x = self.rule.step(self.x, g)
        elif count:
            self.v = self.delta * self.v - 0.05 * g
            self.x = self.x + self.v
        self.t += 1
        self.path.append(self.x)
        return c


ELASTIC = {  # settings, kind of compression
    "always": ({"sync_every": 1, "alpha": 0.2}, "none"),
    "elastic_force": ({"sync_every": 7, "elastic_force": 0.6}, "none"),
    **{f"at times, {kind}": ({"sync_every": 3, "alpha": 0.2}, kind) for kind in CASTS},
    "eamsgd": ({"sync_every": 3, "alpha": 0.2, "momentum": 0.8}, "none"),
}


def elastic_workers(settings, kind):
    alpha = settings.get("alpha", 0.6 / WORKERS)
    return [
        ElasticWorker(i, alpha, settings["sync_every"], settings.get("momentum", 0), kind)
        for i in range(WORKERS)
    ]


@pytest.mark.parametrize(("settings", "kind"), ELASTIC.values(), ids=ELASTIC)
def test_synchronous_easgd(settings, kind):
    """All workers exchange with the same center before the step, equations (5) and (6)."""
    counts, optimizer = uneven(WORKERS), "sgd" if "momentum" in settings else "momentum"
    server, results = trained(counts, kind, optimizer, name="easgd", synchronous=True, **settings)
    workers, c = elastic_workers(settings, kind), START
    for t in range(STEPS):
        c = c + sum(worker.step(c, counts[worker.number][t]) - c for worker in workers)
    for worker, result in zip(workers, results, strict=True):
        np.testing.assert_allclose(result["path"], worker.path, **CLOSE)
        np.testing.assert_allclose(result["own"], worker.x, **CLOSE)
        assert result["sent"] == {"gradient": 0, "parameters": BYTES[kind] * worker.exchanges}
        assert result["staleness"] == [[0, worker.exchanges]]
    assert server["pushes"] * VECTOR == server["sent"]["parameters"]
    for result in (server, *results):
        np.testing.assert_allclose(result["centre"], c, **CLOSE)
        assert result["published"] == result["centre"] == server["centre"]
        assert result["telemetry"][0]["invariant"] < 1e-14
        distance = np.mean([np.linalg.norm(worker.x - c) for worker in workers])
        np.testing.assert_allclose(result["telemetry"][0]["distance"], distance, **CLOSE)
    stopped = on_ranks(
        train, "simulated", 1 + WORKERS,
        {"algorithm": {"name": "easgd", "synchronous": True, **settings}, "compression": SETTINGS[kind],
         "optimizer": optimizer, "stops": [5, 13]}, counts,
    )  # fmt: skip
    assert len(stopped[1]["pauses"]) == 2
    assert [result["path"] for result in stopped] == [result["path"] for result in (server, *results)]


@pytest.mark.parametrize("momentum", [0.0, 0.8], ids=["easgd", "eamsgd"])
def test_asynchronous_easgd_equals_a_replay_of_its_events(momentum):
    settings, steps = {"sync_every": 4, "alpha": 0.3, "momentum": momentum}, 30
    optimizer = "sgd" if momentum else "momentum"
    server, results, answers = recorded(steps, "none", optimizer, name="easgd", **settings)
    workers, c = elastic_workers(settings, "none"), START
    seen, stale = [0] * WORKERS, [[] for _ in range(WORKERS)]
    for update, (i, _, answered) in enumerate(answers):
        np.testing.assert_allclose(answered, c, **CLOSE)
        stale[i].append(update - seen[i])
        seen[i], c = update + 1, workers[i].step(c)
        while workers[i].t % 4 and workers[i].t < steps:
            workers[i].step(c)
    np.testing.assert_allclose(server["centre"], c, **CLOSE)
    assert server["updates"] == server["pushes"] == len(answers) == WORKERS * 8
    for i, result in enumerate(results):
        np.testing.assert_allclose(result["path"], workers[i].path, **CLOSE)
        assert result["staleness"] == histogram(stale[i])
        assert result["telemetry"][0]["invariant"] < 1e-14


class EnergyMatchingWorker:
    """A worker of Hermans and Louppe 2018 with plain SGD and learning rate eta."""

    def __init__(self, number, tau, kappa, mu=0.9, largest=5.0, eta=0.05):
        self.number, self.tau, self.kappa = number, tau, kappa
        self.mu, self.largest, self.eta = mu, largest, eta
        self.theta = self.stale = START
        self.m, self.step, self.path = np.zeros(DIMENSION), 0, []

    def exchange(self, center, steps):
        """Take up to tau local steps from theta and move to the center plus the scaled sum of them; return the move."""
        u = np.zeros(DIMENSION)
        for _ in range(min(self.tau, steps - self.step)):
            u = u - self.eta * gradient_of(self.theta + u, self.number, self.step)
            self.step += 1
            self.path.append(self.theta + u)
        self.m = self.mu * self.m + u
        pi = (self.kappa * abs(self.m) - abs(center - self.stale)) / (abs(u) + 1e-12)
        self.stale, update = center, np.clip(pi, 0, self.largest) * u
        self.path[-1] = self.theta = center + update
        return update


# PowerSGD is excluded: if GEM scales an update to zero, rounding determines the direction that is sent.
@pytest.mark.parametrize(
    ("tau", "kappa", "kind"), [(3, 2.0, "none"), *((1, 3.0, kind) for kind in SETTINGS if kind != "powersgd")]
)
def test_gem_equals_a_replay_of_its_events(tau, kappa, kind):
    settings = {"sync_every": tau, "kappa": kappa, "momentum": 0.9}
    server, results, answers = recorded(STEPS, kind, "sgd", pace=1, name="gem", **settings)
    workers, c = [EnergyMatchingWorker(i, tau, kappa) for i in range(WORKERS)], START
    senders, under_way = [Sender(kind, 1 + i) for i in range(WORKERS)], {}
    fetched, stale, updates = {}, [[] for _ in range(WORKERS)], 0
    for i, request, answered in answers:
        if request == FETCH:
            np.testing.assert_allclose(answered, c, **CLOSE)
            under_way[i], fetched[i] = senders[i].send(workers[i].exchange(c, STEPS)), updates
        else:
            assert answered == []
            c = c + under_way.pop(i)
            stale[i].append(updates - fetched[i])
            updates += 1
    np.testing.assert_allclose(server["centre"], c, **CLOSE)
    assert server["updates"] == server["pushes"] == updates == WORKERS * -(-STEPS // tau)
    assert server["sent"]["parameters"] == VECTOR * updates
    for i, result in enumerate(results):
        np.testing.assert_allclose(result["path"][:-1], workers[i].path[:-1], **CLOSE)
        np.testing.assert_allclose(result["own"], workers[i].path[-1], **CLOSE)
        assert result["sent"]["gradient"] == BYTES[kind] * len(stale[i])
        assert result["staleness"] == histogram(stale[i])
        assert result["telemetry"][0]["invariant"] < 1e-13
    assert max(map(max, stale)) > 0, "some updates come late"


@pytest.mark.parametrize("name", ["downpour", "easgd", "gem"])
def test_workers_with_unequal_numbers_of_batches_push_each_gradient_once(name):
    counts = shorter(WORKERS)
    server, results = trained(counts, optimizer="sgd", name=name, sync_every=4)
    pushes = [-(-len(steps) // 4) for steps in counts]
    assert server["updates"] == server["pushes"] == sum(pushes)
    assert [sum(number for _, number in result["staleness"]) for result in results] == pushes
    purpose = "parameters" if name == "easgd" else "gradient"
    assert [result["sent"][purpose] for result in results] == [VECTOR * number for number in pushes]
    assert server["sent"]["parameters"] == VECTOR * sum(pushes)
    for result in (server, *results):
        assert result["telemetry"][0]["invariant"] < 1e-14
        assert result["published"] == server["published"]


def test_gem_stays_near_the_optimum_with_many_workers():
    """Nine asynchronous workers do not diverge, because their total energy equals that of one worker with momentum."""
    server, _ = trained(full(9, 100), optimizer="sgd", name="gem", sync_every=1, kappa=1.0, momentum=0.9)
    at_start, at_end = (
        np.linalg.norm(gradient(theta, np.arange(ROWS))) for theta in (START, np.array(server["centre"]))
    )
    assert at_end < 0.2 * at_start
