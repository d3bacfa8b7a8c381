"""`nnlo check` refuses settings that an algorithm cannot use: file, line, key, reason and remedy, status 2."""

import pytest
import yaml
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.algorithms.factory import build_algorithm
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment

BIPARTITE = (
    "which needs a bipartite graph, because active nodes send requests to passive nodes only; use complete_bipartite, "
    "path, star, grid, hypercube, or cycle with an even number of nodes"
)
STATIC = (
    "which needs a static graph, because nodes keep roles or state of their links from round to round; use a single graph "
    "whose nodes do not move, without drop and redraw_every"
)
REFUSED = {
    "allreduce: moments in parts of layers": ("algorithm: {name: allreduce, shard: optimizer}\ntrain:\n  optimizer: lamb",
        "3: train.optimizer.name: not with `algorithm.shard: optimizer`: lamb needs all parameters; set `train.optimizer.name: adamw`, or `algorithm.shard: none`"),
    "allreduce: an overflow in one part": ("algorithm: {name: allreduce, shard: optimizer}\ntrain:\n  precision: fp16",
        "3: train.precision: not with `algorithm.shard: optimizer`: only one rank sees an overflow; set `train.precision: bf16`, or `algorithm.shard: none`"),
    "downpour: dynamic dealing with validations within an epoch": ("algorithm:\n  name: downpour\ntrain:\n  dealing: dynamic\n  validate_every: 5\nparallel: {ranks: 3}",
        "5: train.validate_every: with dynamic dealing, the number of steps per worker is not known in advance; set `train.dealing: static`, or remove `train.validate_every`"),
    "downpour: dynamic dealing to synchronous workers": ("algorithm:\n  name: downpour\n  synchronous: true\ntrain:\n  dealing: dynamic\nparallel: {ranks: 3}",
        "5: train.dealing: with `algorithm.synchronous: true`, the workers of downpour wait for each other; set `train.dealing: static`, or remove `algorithm.synchronous`"),
    "downpour: dynamic dealing of separate samples": ("algorithm:\n  name: downpour\ndata: {partition: {name: by_class}}\ntrain:\n  dealing: dynamic\nparallel: {ranks: 3}",
        "5: train.dealing: workers with separate samples (data.partition) cannot take batches of other workers; set `train.dealing: static`"),
    "downpour: dynamic dealing to groups": ("algorithm:\n  name: downpour\ntrain:\n  dealing: dynamic\nparallel: {ranks: 5, processes_per_worker: 2}",
        "4: train.dealing: the processes of a worker wait for each other; set `train.dealing: static`"),
    "downpour: batch normalization over all synchronous workers": ("algorithm:\n  name: downpour\n  synchronous: true\nparallel:\n  ranks: 3\n  sync_batch_norm: true",
        "6: parallel.sync_batch_norm: the ranks of downpour do not compute the gradient of a step together; set `parallel.sync_batch_norm: false`, or `algorithm.name: allreduce`"),
    "downpour: fp16 on a synchronous server": ("algorithm:\n  name: downpour\n  synchronous: true\ntrain:\n  precision: fp16\nparallel: {ranks: 3}",
        "5: train.precision: downpour keeps gradients, including infinite gradients that fp16 skips; set `train.precision: bf16`"),
    "downpour: one rank too many for the groups": ("algorithm:\n  name: downpour\nparallel:\n  processes_per_worker: 2\n  ranks: 6",
        "5: parallel.ranks: 6 ranks minus one server cannot be divided into workers of 2 ranks; set `parallel.ranks` to 5 or 7, or change `parallel.processes_per_worker`"),
    "downpour: groups larger than the ranks": ("algorithm:\n  name: downpour\nparallel:\n  processes_per_worker: 4\n  ranks: 3",
        "5: parallel.ranks: downpour requires at least 5 ranks (one server and one worker of 4 ranks); set `parallel.ranks: 5` or more"),
    "downpour: only masters": ("algorithm:\n  name: downpour\n  masters: 2\nparallel: {ranks: 2}",
        "3: algorithm.masters: 2 masters require at least 1 worker, one for each server below the root; lower `algorithm.masters`, or set `parallel.ranks: 3` or more"),
    "downpour: more masters than ranks, in groups": ("algorithm:\n  name: downpour\n  masters: 4\nparallel: {ranks: 3, processes_per_worker: 2}",
        "3: algorithm.masters: 4 masters require at least 3 workers, one for each server below the root; lower `algorithm.masters`, or set `parallel.ranks: 10` or more"),
    "downpour: graph of a server": ("algorithm:\n  name: downpour\ntopology: {name: cycle}\nparallel: {ranks: 3}",
        "3: topology: downpour does not use a graph; remove `topology`, or set `topology.name: complete`"),
    "downpour: schedule of a server": ("algorithm:\n  name: downpour\ntrain:\n  schedule: {name: linear, final: 0.1}",
        "4: train.schedule: downpour applies updates on the server, which does not support learning-rate schedules; set `train.schedule.name: constant`"),
    "dsgd: two momenta": ("algorithm:\n  name: dsgd\n  quasi_global_momentum: 0.9\ntrain: {optimizer: {name: sgd, momentum: 0.5}}",
        "3: algorithm.quasi_global_momentum: it replaces the momentum of the optimizer, and sgd has its own; set "
        "`train.optimizer: {name: sgd, momentum: 0}`, or `algorithm.quasi_global_momentum: 0`"),
    "dsgt: two momenta": ("algorithm:\n  name: dsgt\n  quasi_global_momentum: 0.9\n  momentum_tracking: 0.9\ntrain: {optimizer: {name: sgd}}",
        "4: algorithm.momentum_tracking: dsgt has one momentum; set `algorithm.quasi_global_momentum: 0`, or this key to 0"),
    "adpsgd: {name: wheel}": ("algorithm:\n  name: adpsgd\ntopology: {name: wheel}\nparallel: {ranks: 4}", f"3: topology: wheel with 4 nodes does not suit adpsgd, {BIPARTITE}"),
    "adpsgd: {name: exponential}": ("algorithm:\n  name: adpsgd\ntopology: {name: exponential}\nparallel: {ranks: 4}",
        "3: topology: exponential with 4 nodes does not suit adpsgd, which needs a symmetric mixing matrix; use an undirected graph"),
    "adpsgd: {name: cycle, drop: 0.1}": ("algorithm:\n  name: adpsgd\ntopology: {name: cycle, drop: 0.1}\nparallel: {ranks: 4}",
        f"3: topology: cycle with 4 nodes does not suit adpsgd, {STATIC}"),
    "adpsgd: {name: random_regular, degree: 2, redraw_every: 3}": ("algorithm:\n  name: adpsgd\ntopology: {name: random_regular, degree: 2, redraw_every: 3}\nparallel: {ranks: 4}",
        f"3: topology: random_regular with 4 nodes does not suit adpsgd, {STATIC}"),
    "adpsgd: {name: sequence, of: [{name: cycle}, {name: path}]}": ("algorithm:\n  name: adpsgd\ntopology: {name: sequence, of: [{name: cycle}, {name: path}]}\nparallel: {ranks: 4}",
        f"3: topology: sequence with 4 nodes does not suit adpsgd, {STATIC}"),
    "adpsgd: {name: edges, edges: [[0, 1], [2, 3]]}": ("algorithm:\n  name: adpsgd\ntopology: {name: edges, edges: [[0, 1], [2, 3]]}\nparallel: {ranks: 4}",
        "3: topology: edges with 4 nodes does not suit adpsgd, which needs a connected graph, so that every node reaches all others; add links"),
    "adpsgd: {name: edges, edges: [[0, 9]]}": ("algorithm:\n  name: adpsgd\ntopology: {name: edges, edges: [[0, 9]]}\nparallel: {ranks: 4}",
        "3: topology.edges: [0, 9] contains a node that does not exist (nodes: 0 to 3); remove the edge or use more nodes"),
    "adpsgd: {name: grid, rows: 3}": ("algorithm:\n  name: adpsgd\ntopology: {name: grid, rows: 3}\nparallel: {ranks: 4}",
        "3: topology.rows: no grid with rows 3 has 4 nodes; change or remove topology.rows and topology.columns"),
    "adpsgd: {name: cycle, weights: lazy_metropolis}": ("algorithm:\n  name: adpsgd\ntopology: {name: cycle, weights: lazy_metropolis}\nparallel: {ranks: 4}",
        "3: topology.weights: adpsgd uses the links of the graph, but no mixing weights; remove `weights`"),
    "adpsgd: default graph": ("algorithm:\n  name: adpsgd\nparallel: {ranks: 4}", f"1: topology: complete with 4 nodes does not suit adpsgd, {BIPARTITE}"),
    "adpsgd: hypercube of 3 nodes": ("algorithm:\n  name: adpsgd\ntopology: {name: hypercube}\nparallel: {ranks: 3}",
        "3: topology.name: hypercube needs a power of two as the number of nodes (3); use 4 nodes or another graph"),
    "adpsgd: one of several runs": ("algorithm:\n  name: adpsgd\ntopology: {name: star}\nparallel: {ranks: 4}\nruns:\n  a: {}\n  b:\n    topology: {name: wheel}",
        f"8: runs.b.topology: wheel with 4 nodes does not suit adpsgd, {BIPARTITE}"),
    "adpsgd: one node": ("algorithm:\n  name: adpsgd\ntopology: {name: path}\nparallel: {ranks: 1}",
        "4: parallel.ranks: adpsgd requires at least 2 ranks (a node exchanges vectors with another node); set `parallel.ranks: 2` or more"),
    "adpsgd: one node of two processes": ("algorithm:\n  name: adpsgd\ntopology: {name: path}\nparallel: {ranks: 2, processes_per_worker: 2}",
        "4: parallel.ranks: adpsgd requires at least 4 ranks (a node of 2 ranks exchanges vectors with another node); set `parallel.ranks: 4` or more"),
    "adpsgd: three nodes of two processes in a cycle": ("algorithm:\n  name: adpsgd\ntopology: {name: cycle}\nparallel: {ranks: 6, processes_per_worker: 2}",
        f"3: topology: cycle with 3 nodes does not suit adpsgd, {BIPARTITE}"),
    "adpsgd: compressor of changes": ("algorithm:\n  name: adpsgd\ntopology: {name: path}\ncompression: {name: sign}\nparallel: {ranks: 4}",
        "4: compression.name: adpsgd does not support sign; set `compression.name` to fp16, bf16 or none, or use another algorithm: allreduce, average, diloco, downpour, gem, choco_sgd"),
    "adpsgd: maps of images": ("algorithm:\n  name: adpsgd\ntopology: {name: path}\nparallel: {ranks: 4}\nobserve:\n  maps: true",
        "6: observe.maps: maps need points of a plane, which the samples of digits are not; remove this key"),
    "adpsgd: synchronous": ("algorithm:\n  name: adpsgd\n  synchronous: true", "3: algorithm.synchronous: unknown key 'synchronous'; known: name"),
    "diloco: parts without a turn": ("algorithm: {name: diloco, fragments: 51}",
        "1: algorithm.fragments: must be at most `sync_every`, 50, so that each part has a step"),
    "diloco: two messages of a part": ("algorithm: {name: diloco, sync_every: 4, overlap: 4}",
        "1: algorithm.overlap: must be below `sync_every`, 4, so that a part has one message"),
    "diloco: alpha without an overlap": ("algorithm: {name: diloco, alpha: 0.5}",
        "1: algorithm.alpha: has no effect without `algorithm.overlap`; set `algorithm.overlap: 1` or remove it"),
    "d2: an eigenvalue of -1/3 or below": ("algorithm: d2\nparallel: {ranks: 4, transport: simulated}\ntopology: complete_bipartite",
        "3: topology: complete_bipartite with 4 nodes does not suit d2, which needs a mixing matrix with eigenvalues above -1/3; set topology.weights: lazy_metropolis"),
    "dsgd: no such graph": ("algorithm: dsgd\nparallel: {ranks: 4, transport: simulated}\ntopology: {name: random_regular, degree: 5}",
        "3: topology.degree: 5 neighbors need more than 4 nodes; use a smaller degree"),
    "dsgd: compressed changes on a graph that is not static": ("algorithm: dsgd\nparallel: {ranks: 4, transport: simulated}\ntopology: {name: cycle, drop: 0.1}\ncompression: fp16",
        f"3: topology: cycle with 4 nodes does not suit dsgd, {STATIC}"),
    "allreduce: dynamic dealing": ("train: {dealing: dynamic}\nparallel: {ranks: 4, transport: simulated}",
        "1: train.dealing: the workers of allreduce wait for each other; set `train.dealing: static`"),
    "prox_pda: schedule": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: cycle\ntrain: {schedule: {name: linear, final: 0.1}}",
        "4: train.schedule: prox_pda has no optimizer: its step follows from algorithm.beta; set `train.schedule.name: constant`"),
    "prox_pda: warm-up": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: cycle\ntrain: {warm_up: {steps: 3}}",
        "4: train.warm_up: prox_pda has no optimizer: its step follows from algorithm.beta; remove `train.warm_up`"),
    "prox_pda: scaled rate": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: cycle\ntrain: {scale_lr: linear}",
        "4: train.scale_lr: prox_pda has no optimizer: its step follows from algorithm.beta; set `train.scale_lr: none`"),
    "prox_pda: optimizer": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: cycle\ntrain: {optimizer: {name: sgd, lr: 50.0}}",
        "4: train.optimizer: prox_pda has no optimizer: its step follows from algorithm.beta; remove `train.optimizer`"),
    "prox_pda: clipped gradients": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: cycle\ntrain: {clip_norm: 1}",
        "4: train.clip_norm: prox_pda has no optimizer, so gradients cannot be clipped; remove `train.clip_norm`"),
    "prox_pda: mixing weights": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: {name: cycle, weights: lazy_metropolis}",
        "3: topology.weights: prox_pda uses the links of the graph, but no mixing weights; remove `weights`"),
    "dinno: mixing weights of a sequence": ("algorithm: dinno\nparallel: {ranks: 4, transport: simulated}\ntopology: {name: sequence, of: [{name: path}, {name: cycle, weights: lazy_metropolis}]}",
        "3: topology.of: dinno uses the links of the graph, but no mixing weights; remove `weights`"),
    "search of a setting without effect": ("algorithm: prox_pda\nparallel: {ranks: 4, transport: simulated}\ntopology: cycle\nsearch: {space: {train.optimizer.lr: {log_uniform: [0.001, 0.1]}}, trials: 2}",
        "4: search.space.train.optimizer.lr: prox_pda has no optimizer: its step follows from algorithm.beta; remove `train.optimizer`"),
    "downpour: optimizer of server and workers": ("algorithm: {name: downpour, optimizer: sgd}\nparallel: {ranks: 4, transport: simulated}\ntrain: {optimizer: sgd}",
        "3: train.optimizer: downpour with `algorithm.optimizer` and `sync_every: 1` updates parameters only by the server's optimizer; remove `train.optimizer` or `algorithm.optimizer`"),
    "downpour: scaled rate of an optimizer on the server": ("algorithm: {name: downpour, optimizer: sgd}\nparallel: {ranks: 4, transport: simulated}\ntrain: {scale_lr: linear}",
        "3: train.scale_lr: downpour with `algorithm.optimizer` and `sync_every: 1` updates parameters only by the server's optimizer; set `train.scale_lr: none`"),
    "smoothing of another loss": ("problem: {name: classification, label_smoothing: 0.1}\nloss: hinge\nmetrics: []",
        "1: problem.label_smoothing: only the loss cross_entropy smooths labels; set `loss: cross_entropy`, or remove this key"),
    "weights of the samples of a gan": ("model: lsgan\nproblem: gan\ndata: {dataset: a, source: a.csv, reader: {name: table, label: y, weight: w}}\nloss: least_squares\nmetrics: []",
        "3: data.reader.weight: a problem gan has no losses of single samples to weigh; remove this key"),
    "delta of another loss": ("problem: {name: regression, huber_delta: 2.0}\nloss: mae\nmetrics: []",
        "1: problem.huber_delta: only huber use it; set `loss: huber`, add huber to `metrics`, or remove this key"),
    "outputs of another loss": ("problem: {name: regression, outputs: probabilities}\nloss: mse\nmetrics: []",
        "1: problem.outputs: only binary_cross_entropy and binary_accuracy use it; set `loss: binary_cross_entropy`, add binary_cross_entropy to `metrics`, or remove this key"),
    "easgd: springs that overshoot": ("algorithm: {name: easgd, elastic_force: 5}",
        "1: algorithm.elastic_force: alpha = elastic_force / workers is 5, but must be below 1; set `algorithm.elastic_force` below 1"),
    "easgd: springs of three workers": ("algorithm: {name: easgd, elastic_force: 3}\nparallel: {ranks: 4}",
        "1: algorithm.elastic_force: alpha = elastic_force / workers is 1, but must be below 1; set `algorithm.elastic_force` below 3"),
    "samples on the device, batched": ("data: {placement: device}\nparallel: {transport: simulated, simulation: {compute: batched}}",
        "1: data.placement: not supported with simulation.compute: batched; set `parallel.simulation.compute: exact`"),
    "a graph of a run that has none": ("algorithm: dsgd\ntopology: star\nparallel: {ranks: 4}\nruns:\n  gossip: {}\n  pushed: {algorithm: gosgd,\n    topology: star}",
        "7: runs.pushed.topology: gosgd does not use a graph; remove `topology`, or set `topology.name: complete`"),
    "an optimizer of a run that has none": ("algorithm: dsgd\ntopology: star\nparallel: {ranks: 4}\nruns:\n  gossip: {}\n  dual: {algorithm: prox_pda,\n    train: {optimizer: sgd}}",
        "7: runs.dual.train.optimizer: prox_pda has no optimizer: its step follows from algorithm.beta; remove `train.optimizer`"),
    "average: compressed clients": ("algorithm: {name: average, participation: 0.5}\ncompression: sign",
        "1: algorithm.participation: does not support compression; set `compression.name: none`, or remove `algorithm.participation`"),
    "average: clients in groups": ("algorithm: {name: average, participation: 0.5}\nparallel: {ranks: 4, processes_per_worker: 2}",
        "1: algorithm.participation: the processes of a worker cannot rest together; set `parallel.processes_per_worker: 1`"),
    "average: scaled gradients": ("algorithm: {name: average, proximal: 0.1}\ntrain: {precision: fp16}",
        "2: train.precision: fp16 would scale gradients without their proximal term; set `train.precision: bf16`"),
    "average: a resting generator": ("algorithm: {name: average, proximal: 0.1}\nmodel: wgan\nproblem: {name: gan, gradient_penalty: 10, critic_steps: 3}",
        "1: algorithm.proximal: the term would move the generator in every step; set `problem.critic_steps: 1`, or `algorithm.proximal: 0`"),
    "scaffold: momentum": ("algorithm: scaffold\ntrain: {optimizer: {name: sgd, momentum: 0.9}}",
        "2: train.optimizer: scaffold corrects steps of theta <- theta - lr g only; set `train.optimizer: {name: sgd, lr: 0.05}`, without momentum"),
    "scaffold: clipped gradients": ("algorithm: scaffold\ntrain: {optimizer: sgd, clip_norm: 1}",
        "2: train.clip_norm: scaffold corrects steps of theta <- theta - lr g only; remove `train.clip_norm`"),
    "a shared graph that no run uses": ("topology: star\nruns: {pushed: {algorithm: gosgd}}", "1: topology: gosgd does not use a graph; remove `topology`, or set `topology.name: complete`"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_check_refuses_with_the_line_the_reason_and_the_remedy(tmp_path, text, sentence):
    (tmp_path / "x.yaml").write_text(text)
    said = refused(nnlo("check", "x.yaml", folder=tmp_path))
    assert said == f"the experiment cannot run\n  x.yaml:{sentence}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"], "nothing is written"


@pytest.fixture
def accepts(tmp_path):
    """Return a function that returns True if settings are accepted."""

    def is_accepted(settings):
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(settings))
        try:
            return bool(load_experiment(tmp_path / "x.yaml"))
        except UserError:
            return False

    return is_accepted


GRAPHS = {"adpsgd": {"name": "cycle"}, "d2": {"name": "cycle", "weights": "lazy_metropolis"}}


def settings(name, **changes):
    parallel = {"ranks": 4, "transport": "simulated"}
    graph = GRAPHS.get(name, {"name": "cycle" if ALGORITHMS[name].graph_properties else "complete"})
    rule = {"train": {"optimizer": {"name": "sgd"}}} if name == "scaffold" else {}
    return {"algorithm": {"name": name}, "topology": graph, "parallel": parallel, **rule, **changes}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_row_of_an_algorithm_agrees_with_its_class_and_its_refusals(name, accepts):
    row, run = ALGORITHMS[name], Run.model_validate(settings(name))
    apart = SimulatedWorld(4).run(lambda comm: build_algorithm(run, comm, 0).replicas_differ)[1]
    assert apart == (not row.one_model and not row.supports_server_tree)
    for compression, kinds in (("sign", {"any"}), ("fp16", {"any", "cast"})):
        assert accepts(settings(name, compression=compression)) == (row.compression in kinds)
    ranks = 5 if row.supports_server_tree else 4
    grouped = settings(name, parallel={"ranks": ranks, "processes_per_worker": 2})
    if not row.graph_properties or row.supports_worker_groups:
        assert accepts(grouped) == row.supports_worker_groups
    assert row.graph_properties or not accepts(settings(name, topology={"name": "cycle"}))


OPTIMIZER, OWN = (
    {"optimizer": {"name": "sgd", "lr": 0.5}},
    {"name": "downpour", "optimizer": {"name": "sgd", "lr": 0.1}},
)
LAZY = {"name": "cycle", "weights": "lazy_metropolis"}
ACCEPTED = {
    "compressed values on a graph that is not static": settings("sgp", topology={"name": "one_peer_exponential"}, compression="fp16"),
    "dynamic dealing": settings("gosgd", train={"dealing": "dynamic"}),
    "shared settings that one run uses": settings(
        "dsgd", train=OPTIMIZER, runs={"gossip": {}, "pushed": {"algorithm": "gosgd"}, "dual": {"algorithm": "prox_pda"}}),
    "weights that one run uses": settings("dsgd", topology=LAZY, runs={"mixed": {}, "links": {"algorithm": "dinno"}}),
    "search of algorithms": settings("allreduce", search={"space": {"algorithm.name": ["allreduce", "dsgd"]}, "trials": 2}),
    "optimizers of workers and server": settings(
        "downpour", algorithm=OWN | {"sync_every": 2}, train=OPTIMIZER | {"scale_lr": "linear"}),
    "springs": {"algorithm": {"name": "easgd", "elastic_force": 2.9}, "parallel": {"ranks": 4}},
    "springs by alpha": {"algorithm": {"name": "easgd", "elastic_force": 5, "alpha": 0.5}},
    "smoothing": {"problem": {"name": "classification", "label_smoothing": 0.1}, "loss": {"0": "hinge", "1": "cross_entropy"}},
    "delta of a metric": {"problem": {"name": "regression", "huber_delta": 2.0}, "loss": "mae", "metrics": ["huber"]},
    "outputs": {"problem": {"name": "regression", "outputs": "probabilities"}, "loss": "binary_cross_entropy"},
    "samples on the host, batched": {"parallel": {"transport": "simulated", "simulation": {"compute": "batched"}}},
}  # fmt: skip


@pytest.mark.parametrize("settings", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(accepts, settings):
    assert accepts(settings)


@pytest.mark.parametrize(("masters", "group"), [(2, 1), (3, 2), (4, 3)])
def test_the_number_of_ranks_that_a_refusal_names_is_the_smallest(tmp_path, masters, group):
    """The remedy of `algorithm.masters` is accepted; one worker less is not."""

    def check(ranks):
        (tmp_path / "x.yaml").write_text(
            f"algorithm: {{name: downpour, masters: {masters}}}\n"
            f"parallel: {{ranks: {ranks}, processes_per_worker: {group}}}\n"
        )
        return nnlo("check", "x.yaml", folder=tmp_path)

    named = int(refused(check(2)).partition("`parallel.ranks: ")[2].partition("`")[0])
    assert check(named).returncode == 0
    assert "masters require" in refused(check(named - group))


@pytest.mark.parametrize("ranks", [6, 11])
def test_the_numbers_of_ranks_that_fit_groups_are_accepted(tmp_path, ranks):
    path = tmp_path / "x.yaml"
    path.write_text(f"algorithm: {{name: downpour}}\nparallel: {{ranks: {ranks}, processes_per_worker: 4}}\n")
    said = refused(nnlo("check", "x.yaml", folder=tmp_path))
    named = said.partition("`parallel.ranks` to ")[2].partition(",")[0].split(" or ")
    assert named
    for number in named:
        assert load_experiment(path, [f"parallel.ranks={number}"]).parallel.ranks == int(number)
