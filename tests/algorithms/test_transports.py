"""Algorithms on MPI ranks: synchronous ones have the bits of simulated ranks, asynchronous ones keep their invariants."""

import pytest
from helpers.least_squares import BATCH, full, train
from helpers.reference_compressors import SETTINGS
from helpers.run_on_ranks import on_ranks

exhaustive = pytest.mark.exhaustive
CYCLE, STEPS = {"name": "cycle"}, 30
UNEQUAL = {"name": "directed_edges", "edges": [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]}


def case(algorithm, servers=0, kind="none", marks=exhaustive, **sections):
    """Return a test case: sections of a run, and its number of servers."""
    sections = {"algorithm": algorithm, "compression": SETTINGS[kind], "optimizer": "sgd", **sections}
    return pytest.param(sections, servers, marks=marks, id="-".join(map(str, [*algorithm.values(), kind])))


SYNCHRONOUS = [
    case({"name": "allreduce"}, marks=()),
    case({"name": "average", "sync_every": 3}),
    case({"name": "average", "sync_every": 3}, group=2),
    *(case({"name": "average", "sync_every": 4}, kind=kind) for kind in SETTINGS),
    case({"name": "diloco", "sync_every": 4}),
    *(
        case({"name": "diloco", "sync_every": 5, "fragments": 3, "overlap": 3}, kind=kind)
        for kind in ("none", "sign")
    ),
    case({"name": "noloco", "sync_every": 4}),
    case({"name": "average", "sync_every": 3, "participation": 0.5, "proximal": 0.2}),
    case({"name": "scaffold", "sync_every": 3, "participation": 0.5}),
    case({"name": "scaffold", "sync_every": 3}),
    *(case({"name": name}, topology=CYCLE) for name in ("dsgd", "dsgt", "dinno", "prox_pda", "next")),
    case({"name": "d2"}, topology=CYCLE | {"weights": "lazy_metropolis"}),
    *(
        case({"name": "dsgt", key: 0.8}, topology={"name": "base_k"}, train={"optimizer": {"name": "sgd"}})
        for key in ("quasi_global_momentum", "momentum_tracking")
    ),
    case({"name": "choco_sgd"}, kind="top_k", topology=CYCLE),
    *(case({"name": "downpour", "synchronous": True, "sync_every": 2}, 1, kind) for kind in SETTINGS),
    case({"name": "downpour", "synchronous": True, "masters": 3}, 3, group=2),
    *(case({"name": "easgd", "synchronous": True, "masters": 2}, 2, kind) for kind in ("none", "fp16")),
    case({"name": "easgd", "synchronous": True, "momentum": 0.8}, 1),
    case({"name": "gosgd", "synchronous": True, "probability": 0.4}),
    case({"name": "gosgd", "synchronous": True, "probability": 0.4}, kind="bf16"),
    *(case({"name": "sgp"}, kind=kind, topology=UNEQUAL) for kind in ("none", "fp16")),
]
ASYNCHRONOUS = [
    case({"name": "downpour"}, 1, marks=()),
    case({"name": "downpour", "sync_every": 2, "masters": 3}, 3),
    case({"name": "easgd", "sync_every": 3}, 1),
    case({"name": "gem", "sync_every": 2}, 1),
    case({"name": "gosgd", "probability": 0.4}),
    case({"name": "adpsgd"}, topology={"name": "path"}),
    case({"name": "adpsgd"}, topology={"name": "path"}, group=2),
]


@pytest.mark.mpi
@pytest.mark.parametrize(("sections", "servers"), SYNCHRONOUS)
def test_synchronous_algorithms_have_the_bits_of_simulated_ranks(sections, servers):
    workers = max(4 - servers, 2 * sections.get("group", 1))
    real, simulated = (
        on_ranks(train, transport, servers + workers, sections, full(workers, STEPS))
        for transport in ("mpi", "simulated")
    )
    assert real == simulated


@pytest.mark.mpi
@pytest.mark.parametrize(("sections", "servers"), ASYNCHRONOUS)
def test_asynchronous_algorithms_apply_each_message_once(sections, servers):
    """Ranks have unequal numbers of steps; those that finished first answer the others."""
    group = sections.get("group", 1)
    workers = max(4 - servers, 2 * group)
    counts = [[BATCH] * (STEPS - 5 * (worker // group)) for worker in range(workers)]
    results = on_ranks(train, "mpi", servers + workers, sections, counts)
    for result in results:
        assert result["telemetry"][0]["invariant"] < 1e-12
        assert result["published"] == results[0]["published"]
    assert [len(result["path"]) for result in results[servers:]] == [len(steps) for steps in counts]
    pushes = sum(number for result in results for _, number in result["staleness"])
    assert not servers or results[0]["pushes"] == pushes > 0


@pytest.mark.mpi
@exhaustive
@pytest.mark.parametrize("sections", [each.values[0] for each in ASYNCHRONOUS if not each.values[1]])
def test_a_requested_stop_pauses_asynchronous_ranks_on_mpi(sections):
    results = on_ranks(train, "mpi", 4, sections | {"stops": [5]}, full(4, 200))
    assert [len(result["path"]) for result in results] == [200] * 4
    assert len(results[-1]["pauses"]) == 1
    assert all(result["telemetry"][0]["invariant"] < 1e-12 for result in results)
