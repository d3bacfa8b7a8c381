"""The matrix of what goes with what: every algorithm has a row, and every row is true of the classes."""

import pytest
import yaml

from nnlo_lib.algorithms.build import build
from nnlo_lib.comm.simulated import World
from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import Algorithm
from nnlo_lib.config.strict import blocks
from nnlo_lib.config.validity import MATRIX
from nnlo_lib.errors import UserError
from nnlo_lib.experiment_file import load

NAMES = {block.model_fields["name"].default for block in blocks(Algorithm)} - {"cadmm"}
GRAPHS = {"adpsgd": {"name": "cycle"}, "d2": {"name": "cycle", "weights": "lazy_metropolis"}}


def settings(name, **changes):
    return {
        "algorithm": {"name": name}, "topology": GRAPHS.get(name, {"name": "cycle"}),
        "parallel": {"ranks": 4, "transport": "simulated"}, **changes,
    }  # fmt: skip


def refusal(tmp_path, **changes):
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(changes))
    with pytest.raises(UserError) as caught:
        load(tmp_path / "x.yaml")
    return str(caught.value)


def test_every_algorithm_has_a_row():
    assert set(MATRIX) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_one_model_is_what_the_class_says(name):
    run = Run.model_validate(settings(name))
    apart = World(4).run(lambda comm: build(run, comm, 0).apart)[1]
    assert apart == (not MATRIX[name].one_model and not MATRIX[name].masters)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_compression_is_allowed_where_the_matrix_says(name, tmp_path):
    for compression, kinds in (("sign", {"any"}), ("fp16", {"any", "cast"})):
        wanted = settings(name, compression={"name": compression})
        if MATRIX[name].compression in kinds:
            Run.model_validate(wanted)
        else:
            assert "cannot go on from compressed vectors" in refusal(tmp_path, **wanted)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_groups_are_allowed_where_the_matrix_says(name, tmp_path):
    ranks = 5 if MATRIX[name].masters else 4
    wanted = settings(name, parallel={"ranks": ranks, "processes_per_worker": 2})
    if MATRIX[name].groups:
        Run.model_validate(wanted)
    else:
        assert "has no workers of several processes" in refusal(tmp_path, **wanted)


REFUSALS = {
    "not connected": ("dsgd", {"name": "edges", "edges": [[0, 1], [2, 3]]}, "connected"),
    "directed": ("dsgt", {"name": "exponential"}, "symmetric"),
    "not bipartite": ("adpsgd", {"name": "complete"}, "bipartite"),
    "not static": ("choco_sgd", {"name": "cycle", "drop": 0.1}, "static"),
    "an eigenvalue of -1/3 or below": ("d2", {"name": "complete_bipartite"}, "eigenvalues above -1/3"),
    "no such graph": ("dsgd", {"name": "random_regular", "degree": 5}, "degree"),
}


@pytest.mark.parametrize(("name", "topology", "word"), REFUSALS.values(), ids=REFUSALS)
def test_a_graph_that_does_not_serve_is_refused(tmp_path, name, topology, word):
    text = refusal(tmp_path, **settings(name) | {"topology": topology})
    assert "x.yaml:" in text
    assert "topology" in text
    assert word in text


def test_what_neighbours_remember_needs_a_static_graph(tmp_path):
    changes = {"topology": {"name": "cycle", "drop": 0.1}, "compression": {"name": "fp16"}}
    assert "needs a graph that is static" in refusal(tmp_path, **settings("dsgd") | changes)


def test_workers_that_wait_for_each_other_cannot_take_batches_as_they_like(tmp_path):
    dynamic = {"train": {"dealing": "dynamic"}}
    assert "wait for each other" in refusal(tmp_path, **settings("allreduce") | dynamic)
    own = {"data": {"partition": {"name": "by_class"}}}
    assert "samples of their own" in refusal(tmp_path, **settings("gosgd") | dynamic | own)
    Run.model_validate(settings("gosgd") | dynamic)


def test_masters_need_workers(tmp_path):
    text = refusal(tmp_path, **settings("easgd", algorithm={"name": "easgd", "masters": 3}))
    assert "3 masters need 2 workers at least" in text


def test_a_server_has_no_schedule(tmp_path):
    text = refusal(tmp_path, **settings("downpour", train={"schedule": {"name": "linear", "final": 0.1}}))
    assert "knows no schedule" in text
