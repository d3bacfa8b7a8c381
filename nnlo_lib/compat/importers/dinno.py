"""Translation of DiNNO's YAML files: one experiment with one or several problems, or the scaling study.

The scaling study is one run for each number of nodes, or for each algebraic connectivity of the graph.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nnlo_lib.compat.importers.dinno_density import LOSSES as DENSITY_LOSSES
from nnlo_lib.compat.importers.dinno_density import set_density
from nnlo_lib.compat.importers.dinno_problem import (
    OPTIMIZERS,
    PROBLEM,
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

# Keys of a scaling study, by what it keeps constant.
SCALING = {
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
SPLITS = {
    "hetero": (
        "by_class",
        "DiNNO drops classes if the number of nodes does not divide 10; nnlo drops no class.",
    ),
    "random": (
        "iid",
        "in DiNNO, each node keeps its samples; nnlo shuffles all samples among the nodes in each epoch.",
    ),
}
NOTES = {
    "data_dir": "nnlo downloads MNIST; to use your own copy, set data.source to the folder of its four files",
    "output_metadir": "nnlo writes results to results/<name>/",
    "writeout": "nnlo always writes results; to keep none, run it in a temporary folder",
    "use_cuda": "set parallel.gpus_per_rank instead",
}


def translate_study(path: Path) -> ExperimentDraft:
    """Translate a YAML file of DiNNO. Raises UserError if a key or value is not valid in DiNNO."""
    written, _ = read_yaml(path)
    check_keys(written, {"experiment", "problem_configs", "problem"}, str(path))
    experiment = section(written, "experiment", EXPERIMENT, f"{path}: experiment")
    alone = section(experiment, "individual_training", INDIVIDUAL_KEYS, f"{path}: individual_training")
    if "data" in experiment and "scaling" in experiment:
        raise UserError(f"{path}: experiment: a scaling study trains with MNIST; remove data or scaling")
    trials, density = _trials(experiment), None
    draft = ExperimentDraft("Imported from a DiNNO file; start: nnlo simulate FILE")
    draft.set("name", named(str(experiment.get("name", path.stem))), "experiment.name")
    draft.set("train.precision", "float64", "DiNNO computes in float64; float32 is faster")
    one_process = "DiNNO runs all nodes in one process; with mpi, each node is a process"
    draft.set("parallel.transport", "simulated", one_process)
    draft.set("parallel.simulation.compute", "batched", "fastest mode for many small models")
    if "data" in experiment:
        # DiNNO's program for robots with radios reads no graph, that for links that stay no comm_radius.
        stays = "graph" in experiment and "comm_radius" not in leaf_keys(written)
        if "graph" in experiment and not stays:
            draft.note("experiment.graph (the links follow from comm_radius)")
        nodes = _set_graph(draft, experiment, trials) if stays else None
        density = set_density(draft, experiment, path.parent, nodes)
        nodes = density.nodes
    elif "graph" in experiment or trials:
        nodes = _set_graph(draft, experiment, trials)
        _set_mnist(draft, experiment)
    else:
        raise UserError(
            f"{path}: experiment: add the section graph, scaling, or data with the robots of a building"
        )
    if "seed" in experiment:
        draft.set("seeds", [number(experiment, "seed", 0, least=0)], "experiment.seed")
    notes = NOTES | ({"data_dir": "density experiments read only data.data_dir"} if density else {})
    draft.note(
        *(f"experiment.{key} {experiment[key]}: {text}" for key, text in notes.items() if key in experiment)
    )
    problems = _problems(written, trials, path)
    for trial in trials:
        problem = {**problems[0], "problem_name": trial.name}
        set_problem(draft, problem, trial.nodes, f"{path}: problem {trial.name}", alone=False)
        draft.set(f"runs.{trial.name}.parallel.ranks", trial.nodes, "experiment.scaling")
        draft.set(f"runs.{trial.name}.topology", trial.graph, "experiment.scaling")
    # Beside the baseline, a single problem is a run, too: an experiment with runs does not train its own settings.
    is_alone = len(problems) == 1 and not alone.get("train_solo")
    for count, settings in enumerate(problems if not trials else (), start=1):
        set_problem(draft, settings, nodes, f"{path}: problem {count}", is_alone, density)
    if alone.get("train_solo"):
        _set_baseline(draft, alone, bool(density and density.has_maps))
    draft.given += sorted(leaf_keys(written))
    draft.note(
        "DiNNO's DSGD and DSGT mix in place, one node after another; in nnlo, all nodes mix at the same time "
        "(`algorithm.mixing: in_place` is the DSGD of DiNNO).",
        "DiNNO evaluates all nodes before every evaluate_frequency-th round, and never after the last round; nnlo "
        "evaluates them after each epoch, and at most evaluate_frequency rounds apart.",
    )
    return draft


class ScalingTrial(NamedTuple):
    """One run of a scaling study; `connectivity` is the Fiedler value of its graph."""

    name: str
    nodes: int
    connectivity: float

    @property
    def graph(self) -> dict[str, Any]:
        """Settings of the topology."""
        return {"name": "disk", "connectivity": self.connectivity}


def _trials(experiment: Mapping[str, Any]) -> list[ScalingTrial]:
    """Return the trials of section `scaling`, whose values have equal distances; none without this section.

    Raises UserError if a key is unknown, missing, or not valid.
    """
    if "scaling" not in experiment:
        return []
    scaling, where = experiment["scaling"], "experiment.scaling"
    check_keys(scaling, {"const"}.union(*SCALING.values()), where)
    const = str(scaling.get("const"))
    if const not in SCALING:
        raise UserError(f"{where}: const: expected fiedler or num_nodes, got '{const}'")
    if missing := [key for key in SCALING[const] if key not in scaling]:
        raise UserError(f"{where}: the key {missing[0]} is missing; a sweep with const {const} requires it")
    first, last = ("min_N", "max_N") if const == "fiedler" else ("min_fied", "max_fied")
    kind = 1 if const == "fiedler" else 1.0  # numbers of nodes are integers
    start, count = number(scaling, first, kind), int(number(scaling, "num_trials", 1))
    step = (number(scaling, last, kind) - start) / max(1, count - 1)
    values = [start + step * place for place in range(count)]
    if const == "fiedler":
        fixed = float(number(scaling, "target_fied", 1.0))
        trials = [ScalingTrial(f"nodes-{int(value)}", int(value), fixed) for value in values]
    else:
        nodes = int(number(scaling, "num_nodes", 1))
        names = [f"fiedler-{round(value, 6):g}".replace(".", "_") for value in values]
        trials = [
            ScalingTrial(name, nodes, round(value, 6)) for name, value in zip(names, values, strict=True)
        ]
    return list(dict.fromkeys(trials))


def _set_graph(draft: ExperimentDraft, experiment: Mapping[str, Any], trials: list[ScalingTrial]) -> int:
    """Set the graph and its nodes, and return their number; of a scaling study, those of the first trial."""
    graph = section(experiment, "graph", GRAPH, "experiment.graph")
    if trials:
        draft.set("parallel.ranks", trials[0].nodes, "experiment.scaling")
        draft.set("topology", trials[0].graph, "random disk graphs of experiment.scaling")
        return trials[0].nodes
    nodes, kind = int(number(graph, "num_nodes", 2)), {"name": graph.get("type", "wheel")}
    source = f"experiment.graph.type {kind['name']}"
    if kind["name"] == "random":
        kind |= {"p": number(graph, "p", 0.5), "gen_attempts": number(graph, "gen_attempts", 100)}
    elif unused := [key for key in ("p", "gen_attempts") if key in graph]:
        draft.note(f"experiment.graph: {', '.join(unused)} (used only by random graphs)")
    draft.set("parallel.ranks", nodes, "experiment.graph.num_nodes")
    draft.set("topology", kind, source)
    return nodes


def _set_mnist(draft: ExperimentDraft, experiment: Mapping[str, Any]) -> None:
    """Set data, network and loss of the experiments with MNIST."""
    draft.set("data.dataset", "mnist", "DiNNO's experiment with MNIST")
    draft.set("data.normalize", "standard", "DiNNO's Normalize(0.1307, 0.3081)")
    draft.set("data.validation", "test", "DiNNO validates on the test images")
    if "scaling" in experiment:
        draft.set("data.partition", {"name": "sorted"}, "the sorted split of DiNNO's scaling study")
    else:
        split = choice(experiment, "data_split_type", "random", SPLITS, "split", "experiment")
        name, difference = SPLITS[split]
        draft.set("data.partition", {"name": name}, f"experiment.data_split_type {split}")
        draft.note(f"{split}: {difference}")
    model = section(experiment, "model", MODEL, "experiment.model")
    loss = choice(experiment, "loss", "NLL", LOSSES, "loss", "experiment")
    draft.set("loss", LOSSES[loss], f"experiment.loss {loss}")
    args = {MODEL[key]: number(model, key, 1) for key in model}
    draft.set("model", {"name": "dinno_conv", "args": args}, f"experiment.model: {', '.join(model)}")


def _problems(written: Mapping[str, Any], trials: list[ScalingTrial], path: Path) -> list[Mapping[str, Any]]:
    """Return the problems of a file. Files of the scaling study have a single `problem` instead of `problem_configs`."""
    names = written.get("problem_configs") or ()  # problems may have any names
    problems = section(written, "problem_configs", names, f"{path}: problem_configs")
    if "problem" in written:
        problems = {"problem": written["problem"]}
    if not problems:
        raise UserError(f"{path}: problem_configs contains no problem; add at least one problem")
    for name, settings in problems.items():
        check_keys(settings, PROBLEM, f"{path}: {name}")
    if trials and len(problems) > 1:
        raise UserError(
            f"{path}: experiment.scaling requires one problem, got {len(problems)}; remove the others"
        )
    return list(problems.values())


def _set_baseline(draft: ExperimentDraft, alone: Mapping[str, Any], has_maps: bool) -> None:
    """Add the run in which every node trains only on its own samples; `has_maps`: it also writes maps of the plan."""
    name = choice(alone, "optimizer", "adam", OPTIMIZERS, "optimizer", "experiment.individual_training")
    # A run inherits the keys of the experiment: steps and schedule of DiNNO's rounds are reset to their defaults.
    train = {
        "epochs": number(alone, "epochs", 1),
        "batch_size": number(alone, "train_batch_size", 64),
        "steps_per_epoch": None,
        "optimizer": {"name": name, "lr": number(alone, "lr", 0.001)},
        "schedule": {"name": "constant"},
    }
    changes: dict[str, Any] = {"algorithm": {"name": "individual"}, "train": train}
    if has_maps:
        changes["observe"] = {"maps": True}
    draft.set("runs.alone", changes, f"experiment.individual_training: {', '.join(alone)}")
