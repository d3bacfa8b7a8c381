"""Collective algorithms compared with numpy versions of the equations in their docstrings, with and without compression."""

from itertools import pairwise

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


def streaming(counts, kind, cuts, overlap, alpha, sync_every=6, lr=0.7, mu=0.9):
    """Return all replicas after each step and after the evaluation (Streaming DiLoCo, 2025, algorithm 2)."""
    ends = np.cumsum([0, *cuts])
    parts = [slice(start, end) for start, end in pairwise(ends)]
    turns = [sync_every * (k + 1) // len(parts) for k in range(len(parts))]
    seeds = [derive_seed(SEED, "fragment", k) if k else SEED for k in range(len(cuts))]
    senders = [[Sender(kind, rank, *of) for rank in range(RANKS)] for of in zip(cuts, seeds, strict=True)]
    thetas, rules, path = [START] * RANKS, [Momentum() for _ in range(RANKS)], []
    theta, v, flying = START.copy(), np.zeros(DIMENSION), {}

    def send(k):
        flying[k] = np.mean([senders[k][i].send((theta - thetas[i])[parts[k]]) for i in range(RANKS)], axis=0)

    def arrive(k, kept):
        d, at = flying.pop(k), parts[k]
        v[at] = mu * v[at] + d
        theta[at] -= lr * (d + mu * v[at])
        for own in thetas:
            own[at] = kept * own[at] + (1 - kept) * theta[at]

    for step in range(STEPS):
        grads = [gradient_of(thetas[i], i, step, counts[i][step]) for i in range(RANKS)]
        thetas = [rules[i].step(thetas[i], grads[i]) for i in range(RANKS)]
        for k, turn in enumerate(turns):
            if step + 1 in range(turn, STEPS + 1, sync_every):
                send(k)
            if step + 1 in range(turn + overlap, STEPS + 1, sync_every):
                arrive(k, alpha if overlap else 0)
        path.append(np.array(thetas))
    for k in list(flying):
        arrive(k, alpha)
    for k, turn in enumerate(turns):
        if overlap or (STEPS - turn) % sync_every:
            send(k)
            arrive(k, 0)
    return path, thetas


STREAMS = {  # the settings, the sizes of the parts of 7 values, and a compression
    "turns": ({"fragments": 3}, (3, 2, 2), "random_k"),
    "overlap": ({"overlap": 4}, (7,), "sign"),
    "both": ({"fragments": 3, "overlap": 5, "alpha": 0.2}, (3, 2, 2), "powersgd"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("keys", "cuts", "kind"), STREAMS.values(), ids=STREAMS)
def test_streaming_diloco(keys, cuts, kind, compressed):
    """Checkpoints, also with parts in flight, change no bit."""
    counts, kind = uneven(RANKS), kind if compressed else "none"
    algorithm = {"name": "diloco", "sync_every": 6, **keys}
    settings = {"algorithm": algorithm, "compression": SETTINGS[kind]}
    path, end = streaming(counts, kind, cuts, keys.get("overlap", 0), keys.get("alpha", 0.5))
    whole, parts = (
        on_ranks(train, "simulated", RANKS, settings | {"stops": stops}, counts)
        for stops in ([], [5, 11, 22])
    )
    for rank, (result, part) in enumerate(zip(whole, parts, strict=True)):
        np.testing.assert_allclose(result["path"], [each[rank] for each in path], **CLOSE)
        np.testing.assert_allclose(result["centre"], end[rank], **CLOSE)
        assert result["telemetry"][-1]["invariant"] == 0
        assert (result["path"], result["centre"]) == (part["path"], part["centre"])
        assert part["pauses"] == [6, 12, 23]
        turns = [(STEPS - 6 * (k + 1) // len(cuts)) // 6 + 1 for k in range(len(cuts))]
        assert compressed or result["sent"]["parameters"] == 8 * (RANKS - 1) * np.dot(turns, cuts)


@pytest.mark.parametrize("ranks", [4, 5])
def test_noloco(ranks):
    """NoLoCo (Kolehmainen et al. 2025) in groups of two; of five ranks, one has no partner."""
    counts, sync_every, lr, mu, gamma = uneven(ranks), 4, 0.6, 0.4, 0.9
    keys = {"sync_every": sync_every, "outer_lr": lr, "outer_momentum": mu, "gamma": gamma}
    settings = {"algorithm": {"name": "noloco", **keys}}
    whole, parts = (
        on_ranks(train, "simulated", ranks, settings | {"stops": stops}, counts) for stops in ([], [5, 22])
    )
    thetas, rules = np.array([START] * ranks), [Momentum() for _ in range(ranks)]
    phi, v, meetings = thetas.copy(), np.zeros_like(thetas), np.zeros(ranks)
    for step in range(STEPS):
        grads = [gradient_of(thetas[i], i, step, counts[i][step]) for i in range(ranks)]
        thetas = np.array([rules[i].step(thetas[i], grads[i]) for i in range(ranks)])
        if (step + 1) % sync_every == 0:
            turn = step // sync_every
            order = sorted(range(ranks), key=lambda rank: derive_seed(SEED, "noloco", turn, rank))
            change, at = thetas - phi, phi.copy()
            for group in (order[place : place + 2] for place in range(0, ranks, 2)):
                v[group] = (
                    mu * v[group] + lr * change[group].mean(0) + gamma * (at[group].mean(0) - at[group])
                )
                meetings[group] += len(group) - 1
            phi = phi + v
            thetas = phi.copy()
        np.testing.assert_allclose([result["path"][step] for result in whole], thetas, **CLOSE)
    for rank, (result, part) in enumerate(zip(whole, parts, strict=True)):
        np.testing.assert_allclose(result["published"], thetas.mean(0), **CLOSE)
        assert result["telemetry"][0]["invariant"] < 1e-14
        assert result["sent"]["parameters"] == VECTOR * meetings[rank]
        assert (result["path"], result["published"]) == (part["path"], part["published"])


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
