"""Translation of DiNNO's YAML files: one experiment with one or several problems, or the scaling study.

The scaling study is one run for each number of nodes, or for each algebraic connectivity of the graph.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.compat.importers.dinno_density import LOSSES as DENSITY_LOSSES
from nnlo_lib.compat.importers.dinno_density import set_density
from nnlo_lib.compat.importers.dinno_problem import (
    OPTIMIZERS,
    PROBLEM,
    DensityData,
    check_keys,
    choice,
    leaf_keys,
    number,
    section,
    set_problem,
)
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.yaml_source import read_yaml

KEYS = {"const", "min_N", "max_N", "target_fied", "min_fied", "max_fied", "num_nodes", "num_trials"}
REQUIRED = {
    "fiedler": ("min_N", "max_N", "target_fied", "num_trials"),
    "num_nodes": ("num_nodes", "min_fied", "max_fied", "num_trials"),
}
EXPERIMENT = {
    "name", "data_dir", "output_metadir", "writeout", "use_cuda", "seed", "data_split_type", "loss", "graph", "model",
    "individual_training", "scaling", "data",
}  # fmt: skip
GRAPH = {"num_nodes", "type", "p", "gen_attempts"}
# `kernal_width` is the spelling of DiNNO's README; its code reads kernel_size.
MODEL = {"num_filters": "filters", "kernel_size": "kernel", "kernal_width": "kernel", "linear_width": "width"}
INDIVIDUAL_KEYS = {"train_solo", "optimizer", "lr", "epochs", "train_batch_size", "val_batch_size", "verbose"}
LOSSES = {"NLL": "cross_entropy", **DENSITY_LOSSES}
SPLITS = {"hetero": "by_class", "random": "iid"}


def translate_study(path: Path) -> ExperimentDraft:
    """Translate a YAML file of DiNNO. Raises UserError if a key or value is not valid in DiNNO."""
    written, _ = read_yaml(path)
    check_keys(written, {"experiment", "problem_configs", "problem"}, str(path))
    experiment = section(written, "experiment", EXPERIMENT, f"{path}: experiment")
    alone = section(experiment, "individual_training", INDIVIDUAL_KEYS, f"{path}: individual_training")
    draft = ExperimentDraft("Imported from a DiNNO file; start: nnlo simulate FILE")
    draft.set("name", named(str(experiment.get("name", path.stem))), "experiment.name")
    draft.set("train.precision", "float64", "DiNNO computes in float64; float32 is faster")
    draft.set(
        "parallel.transport",
        "simulated",
        "DiNNO runs all nodes in one process; with mpi, each node is a process",
    )
    draft.set("parallel.simulation.compute", "batched", "fastest mode for many small models")
    density = None
    if "data" in experiment:
        if "scaling" in experiment:
            raise UserError(f"{path}: experiment: a scaling study trains with MNIST; remove data or scaling")
        # DiNNO's program for robots with radios reads no graph, that for links that stay no comm_radius.
        stays = "graph" in experiment and "comm_radius" not in leaf_keys(written)
        if "graph" in experiment and not stays:
            draft.ineffective.append("experiment.graph (the links follow from comm_radius)")
        nodes = _graph(draft, experiment) if stays else None
        density = set_density(draft, experiment, path.parent, nodes)
        nodes = density.nodes
    elif not {"graph", "scaling"} & set(experiment):
        raise UserError(
            f"{path}: experiment: add the section graph, scaling, or data with the robots of a building"
        )
    else:
        nodes = _graph(draft, experiment)
        _data(draft, experiment)
        _model(draft, experiment)
    _other_keys(draft, experiment)
    _problems(draft, written, nodes, path, density)
    _individual_baseline(draft, alone, bool(density and density.has_maps))
    draft.given_words += sorted(leaf_keys(written))
    draft.remarks += [
        "DiNNO's DSGD and DSGT mix in place, one node after another; in nnlo, all nodes mix at the same time "
        "(`algorithm.mixing: in_place` is the DSGD of DiNNO).",
        "DiNNO evaluates all nodes before every evaluate_frequency-th round, and never after the last round; nnlo "
        "evaluates them after each epoch, and at most evaluate_frequency rounds apart.",
    ]
    return draft


def _graph(draft: ExperimentDraft, experiment: Mapping[str, Any]) -> int:
    graph = section(experiment, "graph", GRAPH, "experiment.graph")
    trials = _trials(experiment)
    nodes = trials[0].nodes if trials else int(number(graph, "num_nodes", 2))
    draft.set("parallel.ranks", nodes, "experiment.scaling" if trials else "experiment.graph.num_nodes")
    if trials:
        kind = {"name": "disk", "connectivity": trials[0].connectivity}
        draft.set("topology", kind, "random disk graphs of experiment.scaling")
        return nodes
    kind = {"name": graph.get("type", "wheel")}
    source = f"experiment.graph.type {kind['name']}"
    if kind["name"] == "random":
        kind |= {"p": number(graph, "p", 0.5), "gen_attempts": number(graph, "gen_attempts", 100)}
    elif unused := [key for key in ("p", "gen_attempts") if key in graph]:
        draft.ineffective.append(f"experiment.graph: {', '.join(unused)} (used only by random graphs)")
    draft.set("topology", kind, source)
    return nodes


def _data(draft: ExperimentDraft, experiment: Mapping[str, Any]) -> None:
    draft.set("data.dataset", "mnist", "DiNNO's experiment with MNIST")
    draft.set("data.normalize", "standard", "DiNNO's Normalize(0.1307, 0.3081)")
    draft.set("data.validation", "test", "DiNNO validates on the test images")
    if "scaling" in experiment:
        draft.set("data.partition", {"name": "sorted"}, "the sorted split of DiNNO's scaling study")
        return
    split = choice(experiment, "data_split_type", "random", SPLITS, "split", "experiment")
    draft.set("data.partition", {"name": SPLITS[split]}, f"experiment.data_split_type {split}")
    draft.remarks.append(
        "hetero: DiNNO drops classes if the number of nodes does not divide 10; nnlo drops no class."
        if split == "hetero"
        else "random: in DiNNO, each node keeps its samples; nnlo shuffles all samples among the nodes in each epoch."
    )


def _model(draft: ExperimentDraft, experiment: Mapping[str, Any]) -> None:
    model = section(experiment, "model", MODEL, "experiment.model")
    loss = choice(experiment, "loss", "NLL", LOSSES, "loss", "experiment")
    draft.set("loss", LOSSES[loss], f"experiment.loss {loss}")
    args = {MODEL[key]: number(model, key, 1) for key in model}
    draft.set("model", {"name": "dinno_conv", "args": args}, f"experiment.model: {', '.join(model)}")


def _other_keys(draft: ExperimentDraft, experiment: Mapping[str, Any]) -> None:
    if "seed" in experiment:
        draft.set("seeds", [number(experiment, "seed", 0, least=0)], "experiment.seed")
    notes = {
        "data_dir": "density experiments read only data.data_dir"
        if "data" in experiment
        else "nnlo downloads MNIST; to use your own copy, set data.source to the folder of its four files",
        "output_metadir": "nnlo writes results to results/<name>/",
        "writeout": "nnlo always writes results; to keep none, run it in a temporary folder",
        "use_cuda": "set parallel.gpus_per_rank instead",
    }
    draft.remarks += [
        f"experiment.{key} {experiment[key]}: {text}" for key, text in notes.items() if key in experiment
    ]


def _problems(
    draft: ExperimentDraft, written: Mapping[str, Any], nodes: int, path: Path, density: DensityData | None
) -> None:
    """Translate the problems of a file, and the trials of a scaling study."""
    # Problems may have any names. Files of the scaling study have a single `problem` instead of `problem_configs`.
    problems = section(
        written, "problem_configs", written.get("problem_configs") or (), f"{path}: problem_configs"
    )
    if "problem" in written:
        problems = {"problem": written["problem"]}
    if not problems:
        raise UserError(f"{path}: problem_configs contains no problem; add at least one problem")
    for name, settings in problems.items():
        check_keys(settings, PROBLEM, f"{path}: {name}")
    trials = _trials(written.get("experiment") or {})
    if trials and len(problems) > 1:
        raise UserError(
            f"{path}: experiment.scaling requires one problem, got {len(problems)}; remove the others"
        )
    for trial in trials:
        settings = {**next(iter(problems.values())), "problem_name": trial.name}
        set_problem(draft, settings, trial.nodes, f"{path}: problem {trial.name}", alone=False)
        draft.set(f"runs.{trial.name}.parallel.ranks", trial.nodes, "experiment.scaling")
        graph = {"name": "disk", "connectivity": trial.connectivity}
        draft.set(f"runs.{trial.name}.topology", graph, "experiment.scaling")
    # Beside the baseline, a single problem is a run, too: an experiment with runs does not train its own settings.
    solo = (written["experiment"].get("individual_training") or {}).get("train_solo")
    for count, settings in enumerate(problems.values() if not trials else (), start=1):
        set_problem(
            draft, settings, nodes, f"{path}: problem {count}", len(problems) == 1 and not solo, density
        )


@dataclass(frozen=True)
class ScalingTrial:
    """One run of the sweep.

    Attributes:
        name: name of the run.
        nodes: number of nodes.
        connectivity: algebraic connectivity (Fiedler value) of the graph.
    """

    name: str
    nodes: int
    connectivity: float


def _trials(experiment: Mapping[str, Any]) -> list[ScalingTrial]:
    """Return the trials of section `scaling`, whose values have equal distances; none without this section.

    Raises UserError if a key is unknown, missing, or not valid.
    """
    if "scaling" not in experiment:
        return []
    scaling, where = experiment["scaling"], "experiment.scaling"
    check_keys(scaling, KEYS, where)
    const = str(scaling.get("const"))
    if const not in REQUIRED:
        raise UserError(f"{where}: const: expected fiedler or num_nodes, got '{const}'")
    if missing := [key for key in REQUIRED[const] if key not in scaling]:
        raise UserError(f"{where}: the key {missing[0]} is missing; a sweep with const {const} requires it")
    count = int(number(scaling, "num_trials", 1))
    if const == "fiedler":
        ends = int(number(scaling, "min_N", 1)), int(number(scaling, "max_N", 1))
        fixed = float(number(scaling, "target_fied", 1.0))
        trials = [ScalingTrial(f"nodes-{int(value)}", int(value), fixed) for value in _spaced(*ends, count)]
    else:
        nodes = int(number(scaling, "num_nodes", 1))
        bounds = float(number(scaling, "min_fied", 1.0)), float(number(scaling, "max_fied", 1.0))
        values = [round(value, 6) for value in _spaced(*bounds, count)]
        trials = [ScalingTrial(f"fiedler-{value:g}".replace(".", "_"), nodes, value) for value in values]
    return list(dict.fromkeys(trials))


def _spaced(first: float, last: float, count: int) -> Iterator[float]:
    for index in range(count):
        yield first + (last - first) * index / max(1, count - 1)


def _individual_baseline(draft: ExperimentDraft, alone: Mapping[str, Any], maps: bool) -> None:
    """Add the baseline in which every node trains only on its own samples.

    `alone` is the section `experiment.individual_training`, empty if the file has no such section. `maps`: also write what each
    node predicts of the plan.
    """
    if not alone.get("train_solo"):
        draft.ineffective += ["experiment.individual_training.train_solo false"] if alone else []
        return
    # A run inherits the keys of the experiment: the number of steps and the schedule of DiNNO's rounds are
    # reset to their defaults below.
    name = choice(alone, "optimizer", "adam", OPTIMIZERS, "optimizer", "experiment.individual_training")
    rule = {"name": name, "lr": number(alone, "lr", 0.001)}
    train = {
        "epochs": number(alone, "epochs", 1),
        "batch_size": number(alone, "train_batch_size", 64),
        "steps_per_epoch": None,
    }
    changes = {
        "algorithm": {"name": "individual"},
        "train": {**train, "optimizer": rule, "schedule": {"name": "constant"}},
    } | ({"observe": {"maps": True}} if maps else {})
    draft.set("runs.alone", changes, f"experiment.individual_training: {', '.join(alone)}")
