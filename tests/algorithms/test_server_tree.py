"""Relays between workers and server, workers of several processes, pauses, and the invariants in all these cases."""

import numpy as np
import pytest
from helpers.least_squares import BATCH, CLOSE, START, STEPS, Momentum, full, gradient_of, train
from helpers.reference_compressors import BYTES, SETTINGS, Sender
from helpers.run_on_ranks import on_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.algorithms.server import server_of

MASTERS, WORKERS, LENGTH = 4, 7, 24
SYNCHRONOUS = {
    "downpour": {"name": "downpour", "synchronous": True, "sync_every": 3},
    "easgd": {"name": "easgd", "synchronous": True, "sync_every": 4},
}
ASYNCHRONOUS = {
    "downpour": {"name": "downpour", "sync_every": 2},
    "easgd": {"name": "easgd", "sync_every": 3},
    "gem": {"name": "gem", "sync_every": 2},
}
COMPRESSED = [kind for kind in SETTINGS if kind != "none"]


def gaps(workers):
    """Return batch sizes with steps in which only some workers have samples."""
    return [[BATCH] * (LENGTH - 5 - worker) + [0] * worker + [1] for worker in range(workers)]


def trained(algorithm, masters, counts, joint=1, **sections):
    """Return the results of all simulated ranks; `joint` processes of `counts` belong to one rank."""
    sections = {"algorithm": algorithm | {"masters": masters}, "joint": joint} | sections
    if algorithm["name"] == "gem":
        sections["optimizer"] = "sgd"
    return on_ranks(train, "simulated", masters + len(counts) // joint, sections, counts)


@pytest.mark.parametrize("masters", [1, 2, 3, 5])
def test_every_relay_serves_its_share(masters):
    for workers in range(masters - 1 or 1, 20):
        clients = [server_of(rank, masters + workers, masters) for rank in range(masters, masters + workers)]
        assert clients == sorted(clients)
        shares = [clients.count(relay) for relay in (range(1, masters) if masters > 1 else [0])]
        assert max(shares) - min(shares) <= 1
        assert all(server_of(relay, masters + workers, masters) == 0 for relay in range(1, masters))


@pytest.mark.parametrize("algorithm", SYNCHRONOUS.values(), ids=SYNCHRONOUS)
def test_relays_change_nothing_when_synchronous(algorithm):
    flat, tree = (trained(algorithm, masters, gaps(WORKERS)) for masters in (1, MASTERS))
    for alone, relayed in zip(flat[1:], tree[MASTERS:], strict=True):
        np.testing.assert_allclose(relayed["path"], alone["path"], **CLOSE)
        np.testing.assert_allclose(relayed["own"], alone["own"], **CLOSE)
        assert relayed["staleness"] == alone["staleness"]
    assert (tree[0]["updates"], tree[0]["pushes"]) == (flat[0]["updates"], flat[0]["pushes"])
    for result in tree:
        np.testing.assert_allclose(result["published"], flat[0]["published"], **CLOSE)
        assert result["published"] == tree[0]["published"]
        assert result["telemetry"][0]["invariant"] < 1e-14


@pytest.mark.parametrize("algorithm", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_relays_pass_every_push_on_once(algorithm):
    counts = [[BATCH] * (LENGTH - 2 * worker) for worker in range(WORKERS)]
    results = trained(algorithm, MASTERS, counts)
    pushes = [-(-len(steps) // algorithm["sync_every"]) for steps in counts]
    counted = [sum(number for _, number in result["staleness"]) for result in results]
    assert counted == [0] * MASTERS + pushes
    assert results[0]["updates"] < results[0]["pushes"] == sum(pushes), "relays add up what arrives together"
    for result in results:
        assert result["telemetry"][0]["invariant"] < 1e-14
        assert result["published"] == results[0]["published"]


@pytest.mark.parametrize("kind", COMPRESSED)
def test_relays_send_their_compression_errors_later(kind):
    """With a root, two relays and two workers, each sender keeps its compression error and sends it later."""
    sections = {"compression": SETTINGS[kind]}
    root, *relays, one, other = trained({"name": "downpour", "synchronous": True}, 3, full(2), **sections)
    theta, rule, senders = START, Momentum(), [Sender(kind, rank) for rank in range(5)]
    for step in range(STEPS):
        pushed = [senders[3 + i].send(gradient_of(theta, i, step) / 2) for i in range(2)]
        theta = rule.step(theta, sum(senders[1 + i].send(pushed[i]) for i in range(2)))
        for worker in (one, other):
            np.testing.assert_allclose(worker["path"][step], theta, **CLOSE)
    for sender in (*relays, one, other):
        assert sender["sent"]["gradient"] == STEPS * BYTES[kind]
    assert root["pushes"] == 2 * STEPS


GROUPED = {  # algorithm, servers
    "average": ({"name": "average", "sync_every": 3}, 0),
    "diloco": ({"name": "diloco", "sync_every": 3}, 0),
    "diloco, streaming": ({"name": "diloco", "sync_every": 3, "fragments": 2, "overlap": 2}, 0),
    "downpour": ({"name": "downpour", "synchronous": True}, 1),
    "downpour, relays": (SYNCHRONOUS["downpour"] | {"masters": 3}, 3),
    "easgd, relays": (SYNCHRONOUS["easgd"] | {"masters": 3}, 3),
}


@pytest.mark.parametrize(("algorithm", "servers"), GROUPED.values(), ids=GROUPED)
@pytest.mark.parametrize("group", [2, 3])
def test_a_group_is_a_worker_with_the_samples_of_its_processes(group, algorithm, servers):
    counts, sections = gaps(2 * group), {"algorithm": algorithm, "epochs": 2}
    joint = on_ranks(train, "simulated", servers + 2, sections | {"joint": group}, counts)
    grouped = on_ranks(train, "simulated", servers + 2 * group, sections | {"group": group}, counts)
    for rank, result in enumerate(grouped):
        alone = joint[rank if rank < servers else servers + (rank - servers) // group]
        for what in ("path", "own", "centre", "published"):
            np.testing.assert_allclose(result[what], alone[what], **CLOSE)
        assert result["telemetry"] == grouped[0]["telemetry"]
        assert all(one.get("invariant", 0) < 1e-14 for one in result["telemetry"])
        leads = rank < servers or (rank - servers) % group == 0
        assert result["staleness"] == (alone["staleness"] if leads else [])


def stopped(algorithm, masters, group, kind="none", stops=(4, 11, 12)):
    algorithm = {**SYNCHRONOUS, "gem": ASYNCHRONOUS["gem"]}[algorithm]
    sections = {"group": group, "compression": SETTINGS[kind], "stops": list(stops)}
    return trained(algorithm, masters, full(4, LENGTH), **sections)


@pytest.mark.parametrize(
    ("algorithm", "masters", "group", "kind"),
    [
        *(
            (algorithm, masters, group, "none")
            for algorithm in SYNCHRONOUS
            for masters, group in ((1, 1), (3, 2))
        ),
        *(("downpour", 3, 2, kind) for kind in COMPRESSED),
    ],
)
def test_a_pause_changes_no_bit_of_a_synchronous_training(algorithm, masters, group, kind):
    whole = stopped(algorithm, masters, group, kind, stops=())
    results = stopped(algorithm, masters, group, kind)
    assert not whole[-1]["pauses"]
    assert len(results[-1]["pauses"]) >= 2
    for one, other in zip(whole, results, strict=True):
        assert (one["path"], one["centre"]) == (other["path"], other["centre"])
        assert other["telemetry"][0]["invariant"] < 1e-14


@pytest.mark.parametrize(("masters", "group"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("algorithm", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_a_pause_of_an_asynchronous_training_loses_no_push(algorithm, masters, group):
    results = trained(algorithm, masters, full(4, LENGTH), group=group, stops=[4, 11, 12])
    assert len(results[-1]["pauses"]) >= 2
    assert all(len(result["path"]) == LENGTH for result in results[masters:])
    assert all(result["telemetry"][0]["invariant"] < 1e-14 for result in results)


@pytest.mark.parametrize(
    ("name", "kind"), [("easgd", "fp16"), ("easgd", "bf16"), *(("gem", kind) for kind in COMPRESSED)]
)
def test_the_invariant_of_a_center_includes_unsent_compression_errors(name, kind):
    """It holds over epochs, with relays and after pauses."""
    sections = {"compression": SETTINGS[kind]}
    epochs = trained(ASYNCHRONOUS[name], 3, full(4, LENGTH), **sections, epochs=3)
    stops = trained(ASYNCHRONOUS[name], 3, full(4, LENGTH), **sections, stops=[4, 11, 12])
    assert len(stops[-1]["pauses"]) >= 2
    assert all(told["invariant"] < 1e-13 for told in (*epochs[0]["telemetry"], *stops[0]["telemetry"]))
    purpose = "parameters" if name == "easgd" else "gradient"
    for result in epochs[3:]:
        assert result["sent"][purpose] == BYTES[kind] * sum(number for _, number in result["staleness"])


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 4),
    st.booleans(), st.sampled_from(["downpour", "easgd", "gem"]),
)  # fmt: skip
def test_no_batch_sizes_make_a_rank_hang_or_lose_a_push(counts, masters, sync_every, together, name):
    masters = min(masters, len(counts) + 1)
    algorithm = {"name": name, "sync_every": sync_every} | (
        {} if name == "gem" else {"synchronous": together}
    )
    if name == "easgd":
        algorithm["alpha"] = 0.2
    results = trained(algorithm, masters, counts, epochs=2)
    assert results[0]["pushes"] == sum(number for result in results for _, number in result["staleness"])
    for result in results:
        assert all(one["invariant"] < 1e-13 for one in result["telemetry"])
        assert result["published"] == results[0]["published"] == results[0]["centre"]
