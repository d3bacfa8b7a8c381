"""`nnlo check` refuses settings that an algorithm cannot use: file, line, key, reason and remedy, status 2."""

import pytest
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.experiment.load import load_experiment

DOWNPOUR = {
    "dynamic dealing with validations within an epoch": (
        "train:\n  dealing: dynamic\n  validate_every: 5\nparallel: {ranks: 3}\n",
        "x.yaml:5: train.validate_every: with dynamic dealing, the number of steps per worker is not known in advance; "
        "set `train.dealing: static`, or remove `train.validate_every`",
    ),
    "dynamic dealing to synchronous workers": (
        "  synchronous: true\ntrain:\n  dealing: dynamic\nparallel: {ranks: 3}\n",
        "x.yaml:5: train.dealing: with `algorithm.synchronous: true`, the workers of downpour wait for each other; set "
        "`train.dealing: static`, or remove `algorithm.synchronous`",
    ),
    "dynamic dealing of separate samples": (
        "data: {partition: {name: by_class}}\ntrain:\n  dealing: dynamic\nparallel: {ranks: 3}\n",
        "x.yaml:5: train.dealing: workers with separate samples (data.partition) cannot take batches of other workers; "
        "set `train.dealing: static`",
    ),
    "dynamic dealing to groups": (
        "train:\n  dealing: dynamic\nparallel: {ranks: 5, processes_per_worker: 2}\n",
        "x.yaml:4: train.dealing: the processes of a worker wait for each other; set `train.dealing: static`",
    ),
    "batch normalization over all synchronous workers": (
        "  synchronous: true\nparallel:\n  ranks: 3\n  sync_batch_norm: true\n",
        "x.yaml:6: parallel.sync_batch_norm: the ranks of downpour do not compute the gradient of a step together; set "
        "`parallel.sync_batch_norm: false`, or `algorithm.name: allreduce`",
    ),
    "fp16 on a synchronous server": (
        "  synchronous: true\ntrain:\n  precision: fp16\nparallel: {ranks: 3}\n",
        "x.yaml:5: train.precision: downpour keeps gradients, including infinite gradients that fp16 skips; set "
        "`train.precision: bf16`",
    ),
    "one rank too many for the groups": (
        "parallel:\n  processes_per_worker: 2\n  ranks: 6\n",
        "x.yaml:5: parallel.ranks: 6 ranks minus one server cannot be divided into workers of 2 ranks; set "
        "`parallel.ranks` to 5 or 7, or change `parallel.processes_per_worker`",
    ),
    "groups larger than the ranks": (
        "parallel:\n  processes_per_worker: 4\n  ranks: 3\n",
        "x.yaml:5: parallel.ranks: downpour requires at least 5 ranks (one server and one worker of 4 ranks); set "
        "`parallel.ranks: 5` or more",
    ),
    "only masters": (
        "  masters: 2\nparallel: {ranks: 2}\n",
        "x.yaml:3: algorithm.masters: 2 masters require at least 1 worker, one for each server below the root; lower "
        "`algorithm.masters`, or set `parallel.ranks: 3` or more",
    ),
    "more masters than ranks, in groups": (
        "  masters: 4\nparallel: {ranks: 3, processes_per_worker: 2}\n",
        "x.yaml:3: algorithm.masters: 4 masters require at least 3 workers, one for each server below the root; lower "
        "`algorithm.masters`, or set `parallel.ranks: 10` or more",
    ),
    "graph of a server": (
        "topology: {name: cycle}\nparallel: {ranks: 3}\n",
        "x.yaml:3: topology: downpour does not use a graph; remove `topology`, or set `topology.name: complete`",
    ),
    "schedule of a server": (
        "train:\n  schedule: {name: linear, final: 0.1}\n",
        "x.yaml:4: train.schedule: downpour applies updates on the server, which does not support learning-rate schedules; set `train.schedule.name: constant`",
    ),
}  # fmt: skip
BIPARTITE = (
    "which needs a bipartite graph, because active nodes send requests to passive nodes only; use complete_bipartite, "
    "path, star, grid, hypercube, or cycle with an even number of nodes"
)
STATIC = (
    "which needs a static graph, because nodes keep roles or state of their links from round to round; use a single graph "
    "whose nodes do not move, without drop and redraw_every"
)
ADPSGD = {
    graph: (f"topology: {graph}\nparallel: {{ranks: 4}}\n", f"x.yaml:3: {sentence}")
    for graph, sentence in {
        "{name: wheel}": f"topology: wheel with 4 nodes does not suit adpsgd, {BIPARTITE}",
        "{name: exponential}": "topology: exponential with 4 nodes does not suit adpsgd, which needs a symmetric mixing "
        "matrix; use an undirected graph",
        "{name: cycle, drop: 0.1}": f"topology: cycle with 4 nodes does not suit adpsgd, {STATIC}",
        "{name: random_regular, degree: 2, redraw_every: 3}": f"topology: random_regular with 4 nodes does not suit adpsgd, {STATIC}",
        "{name: sequence, of: [{name: cycle}, {name: path}]}": f"topology: sequence with 4 nodes does not suit adpsgd, {STATIC}",
        "{name: edges, edges: [[0, 1], [2, 3]]}": "topology: edges with 4 nodes does not suit adpsgd, which needs a connected "
        "graph, so that every node reaches all others; add links",
        "{name: edges, edges: [[0, 9]]}": "topology.edges: [0, 9] contains a node that does not exist (nodes: 0 to 3); remove "
        "the edge or use more nodes",
        "{name: grid, rows: 3}": "topology.rows: no grid with rows 3 has 4 nodes; change or remove topology.rows and "
        "topology.columns",
        "{name: cycle, weights: lazy_metropolis}": "topology.weights: adpsgd uses the links of the graph, but no mixing "
        "weights; remove `weights`",
    }.items()
} | {
    "default graph": (
        "parallel: {ranks: 4}\n",
        f"x.yaml:1: topology: complete with 4 nodes does not suit adpsgd, {BIPARTITE}",
    ),
    "hypercube of 3 nodes": (
        "topology: {name: hypercube}\nparallel: {ranks: 3}\n",
        "x.yaml:3: topology.name: hypercube needs a power of two as the number of nodes (3); use 4 nodes or another graph",
    ),
    "one of several runs": (
        "topology: {name: star}\nparallel: {ranks: 4}\nruns:\n  a: {}\n  b:\n    topology: {name: wheel}\n",
        f"x.yaml:8: runs.b.topology: wheel with 4 nodes does not suit adpsgd, {BIPARTITE}",
    ),
    "one node": (
        "topology: {name: path}\nparallel: {ranks: 1}\n",
        "x.yaml:4: parallel.ranks: adpsgd requires at least 2 ranks (a node exchanges vectors with another node); set "
        "`parallel.ranks: 2` or more",
    ),
    "one node of two processes": (
        "topology: {name: path}\nparallel: {ranks: 2, processes_per_worker: 2}\n",
        "x.yaml:4: parallel.ranks: adpsgd requires at least 4 ranks (a node of 2 ranks exchanges vectors with another "
        "node); set `parallel.ranks: 4` or more",
    ),
    "three nodes of two processes in a cycle": (
        "topology: {name: cycle}\nparallel: {ranks: 6, processes_per_worker: 2}\n",
        f"x.yaml:3: topology: cycle with 3 nodes does not suit adpsgd, {BIPARTITE}",
    ),
    "compressor of changes": (
        "topology: {name: path}\ncompression: {name: sign}\nparallel: {ranks: 4}\n",
        "x.yaml:4: compression.name: adpsgd does not support sign; set `compression.name` to fp16, bf16 or none, or use "
        "another algorithm: allreduce, average, diloco, downpour, gem, choco_sgd",
    ),
    "maps of images": (
        "topology: {name: path}\nparallel: {ranks: 4}\nobserve:\n  maps: true\n",
        "x.yaml:6: observe.maps: maps need points of a plane, which the samples of digits are not; remove this key",
    ),
    "synchronous": ("  synchronous: true\n", "x.yaml:3: algorithm.synchronous: unknown key 'synchronous'; known: name"),
}  # fmt: skip
CASES = [
    pytest.param(f"algorithm:\n  name: {name}\n{text}", sentence, id=f"{name}: {title}")
    for name, cases in (("downpour", DOWNPOUR), ("adpsgd", ADPSGD))
    for title, (text, sentence) in cases.items()
]


@pytest.mark.parametrize(("text", "sentence"), CASES)
def test_check_refuses_with_the_line_the_reason_and_the_remedy(tmp_path, text, sentence):
    (tmp_path / "x.yaml").write_text(text)
    said = refused(nnlo("check", "x.yaml", folder=tmp_path))
    assert said == f"the experiment cannot run\n  {sentence}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"], "nothing is written"


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
