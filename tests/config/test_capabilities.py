"""The matrix of capabilities has a row for every algorithm and agrees with the classes."""

import re

import pytest
import yaml

from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import ALGORITHMS, BuiltInAlgorithmConfig
from nnlo_lib.config.base import block_types
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.topology.requirements import topology_error

NAMES = {block.model_fields["name"].default for block in block_types(BuiltInAlgorithmConfig)} - {"cadmm"}
GRAPHS = {"adpsgd": {"name": "cycle"}, "d2": {"name": "cycle", "weights": "lazy_metropolis"}}


def settings(name, **changes):
    return {
        "algorithm": {"name": name}, "topology": GRAPHS.get(name, {"name": "cycle"}),
        "parallel": {"ranks": 4, "transport": "simulated"}, **changes,
    }  # fmt: skip


def refusal(tmp_path, **changes):
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(changes))
    with pytest.raises(UserError) as caught:
        load_experiment(tmp_path / "x.yaml")
    return str(caught.value)


def test_every_algorithm_has_a_row():
    assert set(ALGORITHMS) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_one_model_is_what_the_class_says(name):
    run = Run.model_validate(settings(name))
    apart = SimulatedWorld(4).run(lambda comm: build_algorithm(run, comm, 0).replicas_differ)[1]
    assert apart == (not ALGORITHMS[name].one_model and not ALGORITHMS[name].supports_server_tree)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_compression_is_allowed_where_the_matrix_says(name, tmp_path):
    for compression, kinds in (("sign", {"any"}), ("fp16", {"any", "cast"})):
        wanted = settings(name, compression={"name": compression})
        if ALGORITHMS[name].compression in kinds:
            Run.model_validate(wanted)
        else:
            assert f"{name} does not support {compression}; set `compression.name` to" in refusal(
                tmp_path, **wanted
            )


@pytest.mark.parametrize("name", sorted(NAMES))
def test_groups_are_allowed_where_the_matrix_says(name, tmp_path):
    ranks = 5 if ALGORITHMS[name].supports_server_tree else 4
    wanted = settings(name, parallel={"ranks": ranks, "processes_per_worker": 2})
    if ALGORITHMS[name].supports_worker_groups:
        Run.model_validate(wanted)
    else:
        assert "does not support workers of several processes" in refusal(tmp_path, **wanted)


REFUSALS = {
    "not connected": ("dsgd", {"name": "edges", "edges": [[0, 1], [2, 3]]}, "connected"),
    "directed": ("dsgt", {"name": "exponential"}, "symmetric"),
    "not bipartite": ("adpsgd", {"name": "complete"}, "bipartite"),
    "not static": ("choco_sgd", {"name": "cycle", "drop": 0.1}, "static"),
    "not static, on whose links duals lie": ("prox_pda", {"name": "cycle", "drop": 0.1}, "static"),
    "several in turn": (
        "prox_pda",
        {"name": "sequence", "of": [{"name": "cycle"}, {"name": "path"}]},
        "static",
    ),
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
    assert "needs a static graph" in refusal(tmp_path, **settings("dsgd") | changes)


def test_workers_that_wait_for_each_other_cannot_take_batches_as_they_like(tmp_path):
    dynamic = {"train": {"dealing": "dynamic"}}
    assert "wait for each other" in refusal(tmp_path, **settings("allreduce") | dynamic)
    own = {"data": {"partition": {"name": "by_class"}}}
    assert "separate samples" in refusal(tmp_path, **settings("gosgd") | dynamic | own)
    Run.model_validate(settings("gosgd") | dynamic)


def test_masters_need_workers(tmp_path):
    text = refusal(tmp_path, **settings("easgd", algorithm={"name": "easgd", "masters": 3}))
    assert "3 masters require at least 2 workers" in text


def test_a_server_has_no_schedule(tmp_path):
    text = refusal(tmp_path, **settings("downpour", train={"schedule": {"name": "linear", "final": 0.1}}))
    assert "does not support learning-rate schedules; set `train.schedule.name: constant`" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [("schedule", {"name": "linear", "final": 0.1}), ("warm_up", {"steps": 3}), ("scale_lr", "linear"),
     ("optimizer", {"name": "sgd", "lr": 50.0, "weight_decay": 0.5})],
)  # fmt: skip
def test_prox_pda_has_no_optimizer(tmp_path, key, value):
    text = refusal(tmp_path, **settings("prox_pda", train={key: value}))
    assert f"train.{key}: prox_pda has no optimizer" in text
    assert "algorithm.beta" in text


def accepted(tmp_path, **changes):
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(changes))
    return load_experiment(tmp_path / "x.yaml")


WITHOUT_GRAPH = sorted(name for name, row in ALGORITHMS.items() if not row.graph_properties)
OPTIMIZER = {"optimizer": {"name": "sgd", "lr": 0.5}}


@pytest.mark.parametrize("name", WITHOUT_GRAPH)
def test_a_graph_that_nobody_would_use_is_refused(tmp_path, name):
    assert f"topology: {name} does not use a graph" in refusal(tmp_path, **settings(name))
    accepted(tmp_path, **settings(name) | {"topology": {"name": "complete"}})


def test_what_runs_share_need_not_serve_each(tmp_path):
    base = settings("dsgd") | {"train": OPTIMIZER}
    runs = {
        "gossip": {},
        "pushed": {"algorithm": {"name": "gosgd"}},
        "dual": {"algorithm": {"name": "prox_pda"}},
    }
    accepted(tmp_path, **base, runs=runs)
    own = runs | {"pushed": runs["pushed"] | {"topology": {"name": "star"}}}
    assert "runs.pushed.topology: gosgd does not use a graph" in refusal(tmp_path, **base, runs=own)
    own = runs | {"dual": runs["dual"] | {"train": OPTIMIZER}}
    assert "runs.dual.train.optimizer: prox_pda has no optimizer" in refusal(tmp_path, **base, runs=own)
    none = {name: run for name, run in runs.items() if name == "pushed"}
    assert "topology: gosgd does not use a graph" in refusal(tmp_path, **base, runs=none)


def test_a_search_of_what_nobody_would_use_is_refused(tmp_path):
    space = {"train.optimizer.lr": {"log_uniform": [0.001, 0.1]}}
    text = refusal(tmp_path, **settings("prox_pda"), search={"space": space, "trials": 2})
    assert "search.space.train.optimizer.lr: prox_pda has no optimizer" in text
    either = settings("allreduce"), {"space": {"algorithm.name": ["allreduce", "dsgd"]}, "trials": 2}
    accepted(tmp_path, **either[0], search=either[1])


OWN_OPTIMIZER = {"name": "downpour", "optimizer": {"name": "sgd", "lr": 0.1}}


def test_a_server_with_its_own_optimizer_leaves_none_to_the_workers(tmp_path):
    block = {"algorithm": OWN_OPTIMIZER, "topology": {"name": "complete"}}
    text = refusal(tmp_path, **settings("downpour") | block | {"train": OPTIMIZER})
    assert "train.optimizer: downpour with `algorithm.optimizer` and `sync_every: 1`" in text
    text = refusal(tmp_path, **settings("downpour") | block | {"train": {"scale_lr": "linear"}})
    assert "train.scale_lr: downpour with `algorithm.optimizer`" in text
    block["algorithm"] = OWN_OPTIMIZER | {"sync_every": 2}
    accepted(tmp_path, **settings("downpour") | block | {"train": OPTIMIZER | {"scale_lr": "linear"}})


@pytest.mark.parametrize("name", ["adpsgd", "dinno", "prox_pda"])
def test_mixing_weights_that_nobody_would_use_are_refused(tmp_path, name):
    lazy = {"name": "cycle", "weights": "lazy_metropolis"}
    text = refusal(tmp_path, **settings(name, topology=lazy))
    assert f"topology.weights: {name} uses the links of the graph, but no mixing weights" in text
    turns = {"name": "sequence", "of": [{"name": "path"}, lazy]}
    if name == "dinno":
        assert "topology.of: dinno uses the links" in refusal(tmp_path, **settings(name, topology=turns))
    runs = {"mixed": {}, "links": {"algorithm": {"name": name}}}
    accepted(tmp_path, **settings("dsgd", topology=lazy), runs=runs)


LOSS_SETTINGS = {
    "label_smoothing": ({"name": "classification", "label_smoothing": 0.1}, "hinge", "cross_entropy"),
    "huber_delta": ({"name": "regression", "huber_delta": 2.0}, "mae", "huber"),
    "outputs": ({"name": "regression", "outputs": "probabilities"}, "mse", "binary_cross_entropy"),
}


@pytest.mark.parametrize("key", LOSS_SETTINGS)
def test_a_setting_of_another_loss_is_refused(tmp_path, key):
    problem, wrong, right = LOSS_SETTINGS[key]
    text = refusal(tmp_path, problem=problem, loss=wrong, metrics=[])
    assert f"problem.{key}: only" in text
    assert right in text
    accepted(tmp_path, problem=problem, loss=right, metrics=[])
    accepted(tmp_path, problem=problem, loss={"0": wrong, "1": right}, metrics=[])
    if key != "label_smoothing":
        accepted(tmp_path, problem=problem, loss=wrong, metrics=[right])


def test_springs_that_overshoot_are_refused(tmp_path):
    for force, ranks in ((5, 2), (3, 4), (1, 2)):
        block = {"algorithm": {"name": "easgd", "elastic_force": force}, "parallel": {"ranks": ranks}}
        text = refusal(tmp_path, **block)
        assert f"algorithm.elastic_force: alpha = elastic_force / workers is {force / (ranks - 1):g}" in text
    Run.model_validate({"algorithm": {"name": "easgd", "elastic_force": 2.9}, "parallel": {"ranks": 4}})
    Run.model_validate({"algorithm": {"name": "easgd", "elastic_force": 5, "alpha": 0.5}})


REDRAWN = {"name": "erdos_renyi", "p": 0.25, "redraw_every": 1, "gen_attempts": 5}


def drawn(train=None, **topology):
    block = {"topology": REDRAWN | topology, "parallel": {"ranks": 10, "transport": "simulated"}}
    return settings("dsgd") | block | {"train": train or {}}


def test_a_graph_that_a_later_round_does_not_find_is_refused_before(tmp_path):
    assert re.search(
        r"none of 5 graphs of 10 nodes drawn for round \d+ of this graph is", refusal(tmp_path, **drawn())
    )
    turns = {"name": "sequence", "rounds": 2, "of": [{"name": "cycle"}, REDRAWN]}
    assert "drawn for round" in refusal(tmp_path, **drawn() | {"topology": turns})


def test_a_graph_that_a_later_round_may_not_find_is_refused_before(tmp_path):
    text = refusal(tmp_path, **drawn(gen_attempts=12))
    assert "one of the first 200 graphs took" in text
    assert "change p or raise topology.gen_attempts" in text
    accepted(tmp_path, **drawn(gen_attempts=1000))
    accepted(tmp_path, **drawn(p=1, gen_attempts=1))


def test_of_a_run_of_few_rounds_all_are_drawn(tmp_path):
    def faults(rounds):
        graph = drawn({"epochs": 1, "steps_per_epoch": rounds})
        run = Run.model_validate(graph)
        return topology_error(run, 0)

    first = int(re.search(r"for round (\d+)", faults(100))[1])
    assert faults(first) is None  # checks rounds 0 to first - 1
    assert faults(first + 1) is not None


def test_what_the_sender_keeps_needs_no_static_graph(tmp_path):
    (tmp_path / "x.yaml").write_text(
        yaml.safe_dump(
            settings("sgp", topology={"name": "one_peer_exponential"}, compression={"name": "fp16"})
        )
    )
    load_experiment(tmp_path / "x.yaml")
