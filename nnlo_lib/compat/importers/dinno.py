"""Translation of DiNNO's YAML files: one experiment with one or several problems, or the scaling study.

The scaling study is one run for each number of nodes, or for each algebraic connectivity of the graph.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nnlo_lib.compat.importers.dinno_density import set_density
from nnlo_lib.compat.importers.dinno_file import (
    CONVOLUTION,
    EXPERIMENT,
    OPTIMIZERS,
    PROBLEM,
    Section,
    check_name,
    read_section,
)
from nnlo_lib.compat.importers.dinno_problem import DensityData, set_problem
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.yaml_source import read_yaml

# First and last value of a scaling study, and what it keeps constant.
ENDS = {"fiedler": ("min_N", "max_N", "target_fied"), "num_nodes": ("min_fied", "max_fied", "num_nodes")}
MODEL = {"num_filters": "filters", "kernel_size": "kernel", "kernal_width": "kernel", "linear_width": "width"}
LOSSES = {"NLL": "cross_entropy", "MSE": "mse", "L1": "mae", "BCE": "binary_cross_entropy"}
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
    file = read_section(dict.fromkeys(("experiment", "problem_configs", "problem")), written, str(path))
    experiment = read_section(EXPERIMENT, file.experiment, f"{path}: experiment")
    alone = experiment.individual_training
    if {"data", "scaling"} <= set(experiment.given):
        raise UserError(f"{path}: experiment: a scaling study trains with MNIST; remove data or scaling")
    trials, problems = _trials(experiment), _problems(file, path)
    draft = ExperimentDraft("Imported from a DiNNO file; start: nnlo simulate FILE")
    draft.set("name", named(str(experiment.name or path.stem)), "experiment.name")
    draft.set("train.precision", "float64", "DiNNO computes in float64; float32 is faster")
    one_process = "DiNNO runs all nodes in one process; with mpi, each node is a process"
    draft.set("parallel.transport", "simulated", one_process)
    draft.set("parallel.simulation.compute", "batched", "fastest mode for many small models")
    density: DensityData | None = None
    if "data" in experiment.given:
        # DiNNO's program for robots with radios reads no graph, that for links that stay no comm_radius.
        has_graph = "graph" in experiment.given
        stays = has_graph and not any("comm_radius" in each.given for each in problems)
        if has_graph and not stays:
            draft.note("experiment.graph (the links follow from comm_radius)")
        nodes = _set_graph(draft, experiment, trials) if stays else None
        density = set_density(draft, experiment, path.parent, nodes)
        nodes = density.nodes
    elif "graph" in experiment.given or trials:
        nodes = _set_graph(draft, experiment, trials)
        _set_mnist(draft, experiment)
    else:
        raise UserError(
            f"{path}: experiment: add the section graph, scaling, or data with the robots of a building"
        )
    if "seed" in experiment.given:
        draft.set("seeds", [experiment.seed], "experiment.seed")
    notes = NOTES | ({"data_dir": "density experiments read only data.data_dir"} if density else {})
    draft.note(
        *(
            f"experiment.{key} {getattr(experiment, key)}: {notes[key]}"
            for key in notes
            if key in experiment.given
        )
    )
    for trial in trials:
        problem = Section(**{**vars(problems[0]), "problem_name": trial.name})
        set_problem(draft, problem, trial.nodes, f"{path}: problem {trial.name}", alone=False)
        draft.set(f"runs.{trial.name}.parallel.ranks", trial.nodes, "experiment.scaling")
        draft.set(f"runs.{trial.name}.topology", trial.graph, "experiment.scaling")
    # Beside the baseline, a single problem is a run, too: an experiment with runs does not train its own settings.
    is_alone = len(problems) == 1 and not alone.train_solo
    for count, problem in enumerate(problems if not trials else (), start=1):
        set_problem(draft, problem, nodes, f"{path}: problem {count}", is_alone, density)
    if alone.train_solo:
        _set_baseline(draft, alone, bool(density and density.has_maps))
    draft.given += sorted(_leaf_keys(written))
    draft.note(
        "DiNNO's DSGD and DSGT mix in place, one node after another; in nnlo, all nodes mix at the same time "
        "(`algorithm.mixing: in_place` is the DSGD of DiNNO).",
        "DiNNO evaluates all nodes before every evaluate_frequency-th round, and never after the last round; nnlo "
        "evaluates them after each epoch, and at most evaluate_frequency rounds apart.",
    )
    return draft


def _leaf_keys(block: Any) -> set[str]:
    """Return the keys, at any depth, whose values are not mappings."""
    inner = list(block.items()) if isinstance(block, dict) else []
    return {key for key, value in inner if not isinstance(value, dict)}.union(
        *(_leaf_keys(value) for _, value in inner)
    )


class ScalingTrial(NamedTuple):
    """One run of a scaling study; `connectivity` is the Fiedler value of its graph."""

    name: str
    nodes: int
    connectivity: float

    @property
    def graph(self) -> dict[str, Any]:
        """Settings of the topology."""
        return {"name": "disk", "connectivity": self.connectivity}


def _trials(experiment: Section) -> list[ScalingTrial]:
    """Return the trials of a scaling study, whose values have equal distances. Raises UserError if a key is missing."""
    scaling = experiment.scaling
    if "scaling" not in experiment.given:
        return []
    if "const" not in scaling.given:
        raise UserError("experiment.scaling: the key const is missing; set fiedler or num_nodes")
    start, last, fixed = (getattr(scaling, key) for key in ENDS[scaling.const])
    if missing := [key for key in (*ENDS[scaling.const], "num_trials") if key not in scaling.given]:
        raise UserError(
            f"experiment.scaling: the key {missing[0]} is missing; a sweep with const {scaling.const} requires it"
        )
    step = (last - start) / max(1, scaling.num_trials - 1)
    values = [start + step * place for place in range(scaling.num_trials)]
    if scaling.const == "fiedler":
        trials = [ScalingTrial(f"nodes-{int(value)}", int(value), fixed) for value in values]
    else:
        rounded = [round(value, 6) for value in values]
        trials = [ScalingTrial(f"fiedler-{value:g}".replace(".", "_"), fixed, value) for value in rounded]
    return list(dict.fromkeys(trials))


def _set_graph(draft: ExperimentDraft, experiment: Section, trials: list[ScalingTrial]) -> int:
    """Set the graph and its nodes, and return their number; of a scaling study, those of the first trial."""
    if trials:
        draft.set("parallel.ranks", trials[0].nodes, "experiment.scaling")
        draft.set("topology", trials[0].graph, "random disk graphs of experiment.scaling")
        return trials[0].nodes
    graph, kind = experiment.graph, {"name": experiment.graph.type}
    if graph.type == "random":
        kind |= {"p": graph.p, "gen_attempts": graph.gen_attempts}
    elif unused := [key for key in ("p", "gen_attempts") if key in graph.given]:
        draft.note(f"experiment.graph: {', '.join(unused)} (used only by random graphs)")
    draft.set("parallel.ranks", graph.num_nodes, "experiment.graph.num_nodes")
    draft.set("topology", kind, f"experiment.graph.type {graph.type}")
    return int(graph.num_nodes)


def _set_mnist(draft: ExperimentDraft, experiment: Section) -> None:
    """Set data, network and loss of the experiments with MNIST."""
    draft.set("data.dataset", "mnist", "DiNNO's experiment with MNIST")
    draft.set("data.normalize", "standard", "DiNNO's Normalize(0.1307, 0.3081)")
    draft.set("data.validation", "test", "DiNNO validates on the test images")
    split = check_name(experiment.data_split_type, SPLITS, "experiment.data_split_type")
    loss = check_name(experiment.loss or "NLL", LOSSES, "experiment.loss")
    if "scaling" in experiment.given:
        draft.set("data.partition", {"name": "sorted"}, "the sorted split of DiNNO's scaling study")
    else:
        name, difference = SPLITS[split]
        draft.set("data.partition", {"name": name}, f"experiment.data_split_type {split}")
        draft.note(f"{split}: {difference}")
    draft.set("loss", LOSSES[loss], f"experiment.loss {loss}")
    model = read_section(CONVOLUTION, experiment.model, "experiment.model")
    args = {MODEL[key]: getattr(model, key) for key in model.given}
    draft.set("model", {"name": "dinno_conv", "args": args}, f"experiment.model: {', '.join(model.given)}")


def _problems(file: Section, path: Path) -> list[Section]:
    """Return the problems of a file; those of the scaling study have a single `problem` instead of `problem_configs`."""
    if file.problem or ("problem" in file.given and file.problem is not None):
        return [read_section(PROBLEM, file.problem, f"{path}: problem")]
    blocks = {} if file.problem_configs is None else file.problem_configs
    if not isinstance(blocks, Mapping):
        raise UserError(f"{path}: problem_configs: expected a mapping of keys, got {blocks!r}")
    if not blocks:
        raise UserError(f"{path}: problem_configs contains no problem; add at least one problem")
    if "scaling" in (file.experiment or {}) and len(blocks) > 1:
        raise UserError(
            f"{path}: experiment.scaling requires one problem, got {len(blocks)}; remove the others"
        )
    return [read_section(PROBLEM, block, f"{path}: problem_configs.{name}") for name, block in blocks.items()]


def _set_baseline(draft: ExperimentDraft, alone: Section, has_maps: bool) -> None:
    """Add the run in which every node trains only on its own samples; `has_maps`: it also writes maps of the plan."""
    name = check_name(alone.optimizer, OPTIMIZERS, "experiment.individual_training.optimizer")
    # A run inherits the keys of the experiment: steps and schedule of DiNNO's rounds are reset to their defaults.
    train = {
        "epochs": alone.epochs,
        "batch_size": alone.train_batch_size,
        "steps_per_epoch": None,
        "optimizer": {"name": name, "lr": alone.lr},
        "schedule": {"name": "constant"},
    }
    changes: dict[str, Any] = {"algorithm": {"name": "individual"}, "train": train}
    if has_maps:
        changes["observe"] = {"maps": True}
    draft.set("runs.alone", changes, f"experiment.individual_training: {', '.join(alone.given)}")
