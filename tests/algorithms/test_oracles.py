"""Collective algorithms compared with numpy versions of the equations in their docstrings, with and without compression."""

import numpy as np
import pytest
from helpers.least_squares import (
    CLOSE,
    DIMENSION,
    SEED,
    START,
    STEPS,
    VECTOR,
    Momentum,
    gradient,
    gradient_of,
    rows,
    train,
    uneven,
)
from helpers.reference_compressors import BYTES, SETTINGS, Sender
from helpers.run_on_ranks import on_ranks

from nnlo_lib.core.rng import derive_seed

RANKS = 4


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


RULES = {"momentum": Momentum, "adam": Adam}


@pytest.mark.parametrize("optimizer", RULES)
def test_allreduce(optimizer):
    counts = uneven(RANKS)
    results = on_ranks(
        train, "simulated", RANKS, {"algorithm": {"name": "allreduce"}, "optimizer": optimizer}, counts
    )
    theta, rule, path = START, RULES[optimizer](), []
    for step in range(STEPS):
        together = np.concatenate([rows(rank, step, counts[rank][step]) for rank in range(RANKS)])
        theta = rule.step(theta, gradient(theta, together.astype(int)))
        path.append(theta)
    for result in results:
        np.testing.assert_allclose(result["path"], path, **CLOSE)
        assert result["path"] == results[0]["path"]  # all replicas are equal after each step
        assert result["sent"]["gradient"] == STEPS * VECTOR * (RANKS - 1)


class Mean:
    """Mean of all replicas, of which rank i sends its change (Qsparse-local-SGD, Basu et al. 2019, algorithm 1)."""

    def __init__(self, kind):
        self.theta, self.senders = START, [Sender(kind, rank) for rank in range(RANKS)]

    def difference(self, thetas):
        sent = [sender.send(self.theta - theta) for sender, theta in zip(self.senders, thetas, strict=True)]
        return np.mean(sent, axis=0)

    def meet(self, thetas):
        self.theta = self.theta - self.difference(thetas)
        return self.theta


class Outer(Mean):
    """DiLoCo (Douillard et al. 2023, algorithm 1) with Nesterov's SGD as the outer optimizer."""

    v = 0.0

    def meet(self, thetas, lr=0.7, mu=0.9):
        d = self.difference(thetas)
        self.v = mu * self.v + d
        self.theta = self.theta - lr * (d + mu * self.v)
        return self.theta


AVERAGE = {"name": "average", "sync_every": 4}
MEETINGS = {
    "average, always": ({"name": "average", "sync_every": 1}, Mean, "none"),
    **{f"average, {kind}": (AVERAGE, Mean, kind) for kind in SETTINGS},
    "diloco": ({"name": "diloco", "sync_every": 4}, Outer, "none"),
    "diloco, top_k": ({"name": "diloco", "sync_every": 4}, Outer, "top_k"),
    "diloco as local SGD": ({"name": "diloco", "sync_every": 4, "outer_lr": 1, "outer_momentum": 0}, Mean, "none"),
}  # fmt: skip


@pytest.mark.parametrize(("algorithm", "outer", "kind"), MEETINGS.values(), ids=MEETINGS)
def test_local_steps_and_averages(algorithm, outer, kind):
    counts, sync_every = uneven(RANKS), algorithm["sync_every"]
    settings = {"algorithm": algorithm, "compression": SETTINGS[kind]}
    results = on_ranks(train, "simulated", RANKS, settings, counts)
    thetas, rules, outer = [START] * RANKS, [Momentum() for _ in range(RANKS)], outer(kind)
    for step in range(STEPS):
        for i in range(RANKS):
            thetas[i] = rules[i].step(thetas[i], gradient_of(thetas[i], i, step, counts[i][step]))
        if (step + 1) % sync_every == 0:
            thetas = [outer.meet(thetas)] * RANKS
        for result, theta in zip(results, thetas, strict=True):
            np.testing.assert_allclose(result["path"][step], theta, **CLOSE)
    # The evaluation synchronizes first, unless the last step did.
    end = outer.meet(thetas) if STEPS % sync_every else thetas[0]
    for result in results:
        np.testing.assert_allclose(result["centre"], end, **CLOSE)
        assert result["centre"] == results[0]["centre"]
        assert result["sent"]["parameters"] == STEPS // sync_every * (RANKS - 1) * BYTES[kind]
        assert result["telemetry"][-1]["invariant"] == 0


HALF = {"sync_every": 4, "participation": 0.5}
FEDERATED = {  # clients per round
    "fedavg": ({"name": "average", **HALF}, 2),
    "fedprox": ({"name": "average", "sync_every": 4, "proximal": 0.3}, 4),
    "fedavg, fedprox": ({"name": "average", "proximal": 0.3, "sync_every": 4, "participation": 0.1}, 1),
    "scaffold": ({"name": "scaffold", "sync_every": 4}, 4),
    "scaffold, half": ({"name": "scaffold", **HALF}, 2),
}


@pytest.mark.parametrize(("algorithm", "clients"), FEDERATED.values(), ids=FEDERATED)
def test_rounds_of_clients(algorithm, clients):
    """FedAvg, FedProx and SCAFFOLD as in their papers, with option II; clients have unequal numbers of samples."""
    counts = [[4 - i] * (STEPS - 1) + [2 * (i == 0)] for i in range(RANKS)]
    whole, parts = (
        on_ranks(
            train, "simulated", RANKS, {"algorithm": algorithm, "optimizer": "sgd", "stops": stops}, counts
        )
        for stops in ([], [5, 22])
    )
    assert [result["path"] for result in whole] == [result["path"] for result in parts]
    lr, mu, scaffold = 0.05, algorithm.get("proximal", 0), algorithm["name"] == "scaffold"
    x, c, own = START, np.zeros(DIMENSION), np.zeros((RANKS, DIMENSION))
    for first in range(0, STEPS, 4):
        seed = derive_seed(SEED, "participants", first // 4)
        drawn = sorted(np.random.default_rng(seed).choice(RANKS, clients, replace=False))
        y, steps, before = [x] * RANKS, range(first, min(first + 4, STEPS)), own.copy()
        for i in drawn:
            made = [step for step in steps if counts[i][step]]
            for step in made:
                g = gradient_of(y[i], i, step, counts[i][step])
                y[i] = y[i] - lr * (g + mu * (y[i] - x) - before[i] + c)
                if step % 4 < 3:
                    np.testing.assert_allclose(whole[i]["path"][step], y[i], **CLOSE)
            own[i] += (x - y[i]) / (len(made) * lr) - c
        for i in set(range(RANKS)) - set(drawn):
            np.testing.assert_allclose(whole[i]["path"][first], x, **CLOSE)  # a client that rests
        weights = [1 if scaffold else sum(counts[i][step] for step in steps) for i in drawn]
        x, c = np.average([y[i] for i in drawn], axis=0, weights=weights), c + (own - before).sum(0) / RANKS
        c *= scaffold
        own *= scaffold
        for result in whole if len(steps) == 4 else ():
            np.testing.assert_allclose(result["path"][steps[-1]], x, **CLOSE)
    for result in whole:
        np.testing.assert_allclose(result["centre"], x, **CLOSE)
        assert result["telemetry"][-1]["invariant"] < 1e-12
    vectors = RANKS * (RANKS - 1) if clients == RANKS else clients - 1 + RANKS - 1
    sent = sum(result["sent"]["parameters"] for result in whole)
    assert sent == STEPS // 4 * vectors * (2 * VECTOR if scaffold else VECTOR + 8)


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_checkpoint_of_average_has_the_compression_errors(kind):
    settings = {"algorithm": AVERAGE, "compression": SETTINGS[kind]}
    whole, parts = (
        on_ranks(train, "simulated", RANKS, settings | {"stops": stops}, uneven(RANKS))
        for stops in ([], [5, 22])
    )
    assert parts[0]["pauses"] == [6, 23]
    assert [result["path"] for result in whole] == [result["path"] for result in parts]
