"""Each algorithm compared with numpy versions of the equations in its docstring, to 1e-9 over 50 steps."""

import numpy as np
import pytest
from helpers.least_squares import (
    BATCH,
    DIMENSION,
    START,
    Momentum,
    allreduce,
    downpour,
    gradient,
    periodic,
    rows,
    served,
)
from helpers.run_on_ranks import EVERYWHERE, on_ranks

STEPS = 50


class Adam:
    """Adam (Kingma and Ba 2015, algorithm 1)."""

    def __init__(self, lr=0.01, b1=0.9, b2=0.999, eps=1e-8):
        self.lr, self.b1, self.b2, self.eps = lr, b1, b2, eps
        self.m, self.v, self.t = np.zeros(DIMENSION), np.zeros(DIMENSION), 0

    def step(self, theta, g):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g**2
        m, v = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        return theta - self.lr * m / (np.sqrt(v) + self.eps)


RULES = {"sgd": Momentum, "adam": Adam}


def uneven(workers):
    """Return batch sizes: full batches for every worker, and a last step with samples for the first worker only."""
    return [[BATCH] * (STEPS - 1) + [2 if worker == 0 else 0] for worker in range(workers)]


@EVERYWHERE
@pytest.mark.parametrize("optimizer", RULES)
def test_allreduce(transport, ranks, optimizer):
    counts = uneven(ranks)
    results = on_ranks(allreduce, transport, ranks, optimizer, counts)
    theta, rule, path = START, RULES[optimizer](), []
    for step in range(STEPS):
        together = np.concatenate([rows(rank, step, counts[rank][step]) for rank in range(ranks)])
        theta = rule.step(theta, gradient(theta, together.astype(int)))
        path.append(theta)
    for result in results:
        np.testing.assert_allclose(result["path"], path, rtol=0, atol=1e-9)
        assert result["path"] == results[0]["path"]  # all replicas are equal after each step
        assert result["bytes"] == STEPS * 8 * DIMENSION * (ranks - 1)


class Mean:
    """Mean of all replicas: theta <- (1/n) sum_i theta_i."""

    def meet(self, thetas):
        return np.mean(thetas, axis=0)


class Outer:
    """DiLoCo (Douillard et al. 2023, algorithm 1) with Nesterov's SGD as the outer optimizer."""

    def __init__(self, lr, mu):
        self.lr, self.mu, self.theta, self.v = lr, mu, START, np.zeros(DIMENSION)

    def meet(self, thetas):
        d = np.mean([self.theta - theta for theta in thetas], axis=0)
        self.v = self.mu * self.v + d
        self.theta = self.theta - self.lr * (d + self.mu * self.v)
        return self.theta


MEETINGS = {
    "average, always": ("average", Mean, [1]),
    "average": ("average", Mean, [4]),
    "diloco": ("diloco", lambda: Outer(0.7, 0.9), [4, 0.7, 0.9]),
    "diloco as local SGD": ("diloco", Mean, [4, 1.0, 0.0]),
}


@EVERYWHERE
@pytest.mark.parametrize(("name", "outer", "settings"), MEETINGS.values(), ids=MEETINGS)
def test_local_steps_and_meetings(transport, ranks, name, outer, settings):
    counts, sync_every = uneven(ranks), settings[0]
    results = on_ranks(periodic, transport, ranks, name, counts, *settings)
    thetas, rules, outer = [START] * ranks, [Momentum() for _ in range(ranks)], outer()
    for step in range(STEPS):
        for rank in range(ranks):
            count = counts[rank][step]
            g = gradient(thetas[rank], rows(rank, step, count)) if count else np.zeros(DIMENSION)
            thetas[rank] = rules[rank].step(thetas[rank], g)
        if (step + 1) % sync_every == 0:
            thetas = [outer.meet(thetas)] * ranks
        for result, theta in zip(results, thetas, strict=True):
            np.testing.assert_allclose(result["path"][step], theta, rtol=0, atol=1e-9)
    pending = STEPS % sync_every > 0
    end = outer.meet(thetas) if pending else thetas[0]
    start = 8 * DIMENSION * (ranks - 1)
    for rank, result in enumerate(results):
        np.testing.assert_allclose(result["theta"], end, rtol=0, atol=1e-9)
        assert result["theta"] == results[0]["theta"]
        assert result["bytes"] == start * (STEPS // sync_every) + start * (rank == 0)
        assert result["end"] == start * pending


@EVERYWHERE
@pytest.mark.parametrize("sync_every", [1, 3])
def test_synchronous_downpour(transport, ranks, sync_every):
    workers = ranks - 1
    counts = uneven(workers)
    results = on_ranks(downpour, transport, ranks, "sgd", counts, True, sync_every)
    theta, server = START, Momentum()
    local, rules = [START] * workers, [Momentum() for _ in range(workers)]
    accrued, rounds = [np.zeros(DIMENSION) for _ in range(workers)], 0
    for step in range(STEPS):
        total = sum(counts[worker][step] for worker in range(workers))
        for worker in range(workers):
            count = counts[worker][step]
            if count:
                g = gradient(local[worker], rows(worker, step, count))
                accrued[worker] = accrued[worker] + count / total * g
            if sync_every > 1:
                local[worker] = rules[worker].step(local[worker], g if count else np.zeros(DIMENSION))
        if (step + 1) % sync_every == 0 or step == STEPS - 1:
            theta = server.step(theta, sum(accrued))
            local, accrued, rounds = (
                [theta] * workers,
                [np.zeros(DIMENSION) for _ in range(workers)],
                rounds + 1,
            )
    for result in results:
        np.testing.assert_allclose(result["theta"], theta, rtol=0, atol=1e-9)
    assert results[0]["updates"] == rounds
    pushes = [-(-sum(map(bool, counts[worker])) // sync_every) for worker in range(workers)]
    assert [result["gradient"] for result in results] == [0, *(8 * DIMENSION * n for n in pushes)]


@EVERYWHERE
def test_asynchronous_downpour_applies_every_push_once(transport, ranks):
    counts = [[BATCH] * (10 + 5 * worker) + [0] * (20 - 5 * worker) for worker in range(ranks - 1)]
    results = on_ranks(downpour, transport, ranks, "sgd", counts, False, 1)
    pushes = sum(bool(count) for worker in counts for count in worker)
    assert results[0]["updates"] == pushes
    assert sum(result["gradient"] for result in results) == 8 * DIMENSION * pushes
    start_and_end = 2 * 8 * DIMENSION * (ranks - 1)
    assert results[0]["parameters"] == 8 * DIMENSION * pushes + start_and_end
    assert all(result["theta"] == results[0]["theta"] for result in results)


def test_asynchronous_downpour_equals_a_replay_of_its_events():
    """Each worker computes its gradient at the parameters that it received last, despite later updates of the server."""
    steps, workers = 20, 3
    events = on_ranks(served, "simulated", workers + 1, steps)[0]
    assert len(events) == steps * workers
    theta, server = START, Momentum()
    known, done = [START] * workers, [0] * workers
    for rank, answered in events:
        worker = rank - 1
        theta = server.step(theta, gradient(known[worker], rows(worker, done[worker])))
        np.testing.assert_allclose(answered, theta, rtol=0, atol=1e-9)
        known[worker], done[worker] = theta, done[worker] + 1
    order = [rank for rank, _ in events]
    assert order[: 3 * steps : 1] != sorted(order), "workers of unequal speed take turns"
    assert events == on_ranks(served, "simulated", workers + 1, steps)[0]
