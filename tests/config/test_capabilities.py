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

NAMES = {block.model_fields["name"].default for block in block_types(BuiltInAlgorithmConfig)} - {"cadmm"}
GRAPHS = {"adpsgd": {"name": "cycle"}, "d2": {"name": "cycle", "weights": "lazy_metropolis"}}
COMPLETE = {"topology": {"name": "complete"}}
OPTIMIZER = {"optimizer": {"name": "sgd", "lr": 0.5}}


def settings(name, **changes):
    return {
        "algorithm": {"name": name}, "topology": GRAPHS.get(name, {"name": "cycle"}),
        "parallel": {"ranks": 4, "transport": "simulated"}, **changes,
    }  # fmt: skip


@pytest.fixture
def accepted(tmp_path):
    """Return a function that loads a file with these settings."""

    def load(**settings):
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(settings))
        return load_experiment(tmp_path / "x.yaml")

    return load


@pytest.fixture
def refusal(accepted):
    """Return a function that returns the message about a file with these settings."""

    def message(**settings):
        with pytest.raises(UserError) as caught:
            accepted(**settings)
        return str(caught.value)

    return message


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_row_of_an_algorithm_agrees_with_its_class_and_its_refusals(name, accepted, refusal):
    row, run = ALGORITHMS[name], Run.model_validate(settings(name))
    apart = SimulatedWorld(4).run(lambda comm: build_algorithm(run, comm, 0).replicas_differ)[1]
    assert apart == (not row.one_model and not row.supports_server_tree)
    for compression, kinds in (("sign", {"any"}), ("fp16", {"any", "cast"})):
        wanted = settings(name, compression={"name": compression})
        if row.compression in kinds:
            Run.model_validate(wanted)
        else:
            assert f"{name} does not support {compression}; set `compression.name` to" in refusal(**wanted)
    ranks = 5 if row.supports_server_tree else 4
    wanted = settings(name, parallel={"ranks": ranks, "processes_per_worker": 2})
    if row.supports_worker_groups:
        Run.model_validate(wanted)
    else:
        assert "does not support workers of several processes" in refusal(**wanted)
    if not row.graph_properties:
        assert f"topology: {name} does not use a graph" in refusal(**settings(name))
        accepted(**settings(name) | COMPLETE)


UNFIT = {
    "not connected": ("dsgd", {"name": "edges", "edges": [[0, 1], [2, 3]]}, "connected"),
    "directed": ("dsgt", {"name": "exponential"}, "symmetric"),
    "not static, on whose links duals lie": ("prox_pda", {"name": "cycle", "drop": 0.1}, "static"),
    "an eigenvalue of -1/3 or below": ("d2", {"name": "complete_bipartite"}, "eigenvalues above -1/3"),
    "no such graph": ("dsgd", {"name": "random_regular", "degree": 5}, "degree"),
}


@pytest.mark.parametrize(("name", "topology", "word"), UNFIT.values(), ids=UNFIT)
def test_an_unfit_graph_is_refused(refusal, name, topology, word):
    text = refusal(**settings(name) | {"topology": topology})
    assert re.search(rf"x\.yaml:\d+: topology.*{word}", text)


def test_only_compression_of_what_neighbors_remember_needs_a_static_graph(accepted, refusal):
    fp16 = {"compression": {"name": "fp16"}}
    assert "needs a static graph" in refusal(
        **settings("dsgd", topology={"name": "cycle", "drop": 0.1}, **fp16)
    )
    accepted(**settings("sgp", topology={"name": "one_peer_exponential"}, **fp16))


def test_workers_that_wait_for_each_other_cannot_take_batches_as_they_like(refusal):
    dynamic = {"train": {"dealing": "dynamic"}}
    assert "wait for each other" in refusal(**settings("allreduce") | dynamic)
    own = {"data": {"partition": {"name": "by_class"}}}
    assert "separate samples" in refusal(**settings("gosgd") | dynamic | own)
    Run.model_validate(settings("gosgd") | dynamic)


@pytest.mark.parametrize(
    ("key", "value"),
    [("schedule", {"name": "linear", "final": 0.1}), ("warm_up", {"steps": 3}), ("scale_lr", "linear"),
     ("optimizer", {"name": "sgd", "lr": 50.0, "weight_decay": 0.5})],
)  # fmt: skip
def test_prox_pda_has_no_optimizer(refusal, key, value):
    text = refusal(**settings("prox_pda", train={key: value}))
    assert f"train.{key}: prox_pda has no optimizer" in text
    assert "algorithm.beta" in text


def test_shared_settings_need_to_serve_one_run_only(accepted, refusal):
    base = settings("dsgd") | {"train": OPTIMIZER}
    pushed, dual = {"algorithm": {"name": "gosgd"}}, {"algorithm": {"name": "prox_pda"}}
    runs = {"gossip": {}, "pushed": pushed, "dual": dual}
    accepted(**base, runs=runs)
    own = runs | {"pushed": pushed | {"topology": {"name": "star"}}}
    assert "runs.pushed.topology: gosgd does not use a graph" in refusal(**base, runs=own)
    own = runs | {"dual": dual | {"train": OPTIMIZER}}
    assert "runs.dual.train.optimizer: prox_pda has no optimizer" in refusal(**base, runs=own)
    assert "topology: gosgd does not use a graph" in refusal(**base, runs={"pushed": pushed})


def test_a_search_of_a_setting_without_effect_is_refused(accepted, refusal):
    space = {"train.optimizer.lr": {"log_uniform": [0.001, 0.1]}}
    text = refusal(**settings("prox_pda"), search={"space": space, "trials": 2})
    assert "search.space.train.optimizer.lr: prox_pda has no optimizer" in text
    accepted(
        **settings("allreduce"), search={"space": {"algorithm.name": ["allreduce", "dsgd"]}, "trials": 2}
    )


def test_a_server_with_its_own_optimizer_leaves_none_to_the_workers(accepted, refusal):
    own = {"name": "downpour", "optimizer": {"name": "sgd", "lr": 0.1}}
    block = settings("downpour") | COMPLETE | {"algorithm": own}
    text = refusal(**block | {"train": OPTIMIZER})
    assert "train.optimizer: downpour with `algorithm.optimizer` and `sync_every: 1`" in text
    text = refusal(**block | {"train": {"scale_lr": "linear"}})
    assert "train.scale_lr: downpour with `algorithm.optimizer`" in text
    accepted(**block | {"algorithm": own | {"sync_every": 2}, "train": OPTIMIZER | {"scale_lr": "linear"}})


@pytest.mark.parametrize("name", ["dinno", "prox_pda"])
def test_mixing_weights_without_effect_are_refused(accepted, refusal, name):
    lazy = {"name": "cycle", "weights": "lazy_metropolis"}
    text = refusal(**settings(name, topology=lazy))
    assert f"topology.weights: {name} uses the links of the graph, but no mixing weights" in text
    turns = {"name": "sequence", "of": [{"name": "path"}, lazy]}
    if name == "dinno":
        assert "topology.of: dinno uses the links" in refusal(**settings(name, topology=turns))
    accepted(**settings("dsgd", topology=lazy), runs={"mixed": {}, "links": {"algorithm": {"name": name}}})


@pytest.mark.parametrize(
    ("key", "problem", "wrong", "right"),
    [
        ("label_smoothing", {"name": "classification", "label_smoothing": 0.1}, "hinge", "cross_entropy"),
        ("huber_delta", {"name": "regression", "huber_delta": 2.0}, "mae", "huber"),
        ("outputs", {"name": "regression", "outputs": "probabilities"}, "mse", "binary_cross_entropy"),
    ],
)
def test_a_setting_of_another_loss_is_refused(accepted, refusal, key, problem, wrong, right):
    text = refusal(problem=problem, loss=wrong, metrics=[])
    assert f"problem.{key}: only" in text
    assert right in text
    accepted(problem=problem, loss=right, metrics=[])
    accepted(problem=problem, loss={"0": wrong, "1": right}, metrics=[])
    if key != "label_smoothing":
        accepted(problem=problem, loss=wrong, metrics=[right])


def test_springs_that_overshoot_are_refused(refusal):
    for force, ranks in ((5, 2), (3, 4)):
        text = refusal(algorithm={"name": "easgd", "elastic_force": force}, parallel={"ranks": ranks})
        assert f"algorithm.elastic_force: alpha = elastic_force / workers is {force / (ranks - 1):g}" in text
    Run.model_validate({"algorithm": {"name": "easgd", "elastic_force": 2.9}, "parallel": {"ranks": 4}})
    Run.model_validate({"algorithm": {"name": "easgd", "elastic_force": 5, "alpha": 0.5}})


def test_samples_on_the_device_without_gradients_of_each_rank_are_refused(accepted, refusal):
    parallel = {"transport": "simulated", "simulation": {"compute": "batched"}}
    assert "data.placement: not supported with simulation.compute: batched; set" in refusal(
        data={"placement": "device"}, parallel=parallel
    )
    accepted(data={"placement": "host"}, parallel=parallel)
