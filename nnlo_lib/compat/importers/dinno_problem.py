"""Translation of one problem of DiNNO's files, an algorithm with its constants, to a run."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from nnlo_lib.compat.importers.dinno_file import RULE, RULES, Section, read_section
from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.core.errors import UserError

METRICS = {
    "validation_loss": "val_loss in history.csv", "top1_accuracy": "val_accuracy in history.csv",
    "consensus_error": "consensus_error and consensus_error_normalised in history.csv, the distance of nodes to their mean, "
    "and consensus.npz, the distance of every pair of nodes",
    "validation_as_vector": "validation_metrics.npz, accuracy and loss of each validation sample",
    "train_loss_moving_average": "train_loss_average in history.csv",
    "forward_pass_count": "samples in history.csv", "current_epoch": "epoch in history.csv",
}  # fmt: skip
MAPS = {
    "mesh_grid_density": "maps.npz, what each node predicts of the plan at each validation",
    "current_position": "positions in maps.npz", "current_graph": "links in maps.npz",
}  # fmt: skip
INIT_GRADS = {
    True: "as in nnlo, trackers start with the first gradients",
    False: "in DiNNO, trackers start with 0, so that the first round averages equal weights and changes nothing; nnlo starts "
    "with the first gradients, so its round k is round k + 1 of DiNNO",
}
NOTES = {
    "val_batch_size": "nnlo uses a fixed batch size for validation", "verbose_evals": "DiNNO never reads it",
    "dynamic_graph": "DiNNO never reads it", "save_models": "nnlo always saves models",
    "mesh_only_at_end": "nnlo writes maps at each validation",
}  # fmt: skip
MNIST_TRAIN_SAMPLES = 60_000
Put = Callable[[str, Any, str], None]  # sets a key of a run: key, value, source


class DensityData(NamedTuple):
    """Data of a density experiment: samples of a robot, longer side of the image, and what nnlo can do with them."""

    nodes: int
    points: int
    side: int  # pixels
    has_maps: bool  # of what each node predicts of the plan
    moves: bool  # so that the links follow from the places of the robots


def set_problem(
    draft: ExperimentDraft,
    problem: Section,
    nodes: int,
    where: str,
    alone: bool,
    density: DensityData | None = None,
) -> None:
    """Translate a problem of DiNNO to a run, or to the experiment if it is `alone` in its file."""
    # A dot would divide the key `runs.<name>.<key>` in the wrong place.
    name = named(str(problem.problem_name or where.rpartition(" ")[2])).replace(".", "_")
    if any(each.key.startswith(f"runs.{name}.") for each in draft.settings):
        raise UserError(f"{where}: another problem has the name {name}; set a unique problem_name")
    start = "" if alone else f"runs.{name}."

    def put(key: str, value: Any, source: str) -> None:
        draft.set(start + key, value, source)

    rule, evaluation = problem.optimizer_config, problem.metrics_config
    own = {key: getattr(rule, key) for key in rule.given}
    read_section(RULE | RULES[rule.alg_name], own, f"{where}: optimizer_config")
    steps = rule.primal_iterations if rule.alg_name in ("dinno", "cadmm") else 1
    put("train.batch_size", problem.train_batch_size, "train_batch_size")
    values = {key: getattr(each, key) for each in (problem, evaluation) for key in each.given}
    every = values.get("evaluate_frequency", rule.outer_iterations)
    if not (density and density.moves):
        _set_rounds(put, problem, density.points if density else MNIST_TRAIN_SAMPLES // nodes, every, steps)
    elif "comm_radius" not in problem.given:
        raise UserError(
            f"{where}: comm_radius is missing; add it, or for links that stay, add experiment.graph and remove each comm_radius"
        )
    elif advice := _set_passes(put, problem, density, every, steps):
        draft.note(f"{name}: {advice}")
    _set_rule(put, rule)
    if rule.profile:
        # DiNNO's torch.profiler waits for one round, warms up for one and records three, repeatedly; nnlo
        # records the first three.
        profile = {"tool": "torch", "first": 2 * steps + 1, "steps": 3 * steps}
        put("observe.profile", profile, "profile, for three rounds")
    if "init_grads" in rule.given:
        draft.note(f"{name}: init_grads {rule.init_grads}: {INIT_GRADS[bool(rule.init_grads)]}")
    _set_metrics(draft, put, problem, name, density)
    draft.note(*(f"{key} {values[key]}: {text}" for key, text in NOTES.items() if key in values))


def _set_passes(put: Put, problem: Section, density: DensityData, every: int, steps: int) -> str:
    """Set the epochs and the graph of robots that move: an epoch is one pass of their paths.

    Returns the difference between scans and graph if the rounds of a pass are not whole, else an empty string.
    """
    batch, rounds = problem.train_batch_size, problem.optimizer_config.outer_iterations
    epoch_steps = math.ceil(density.points / batch)
    passed = epoch_steps / steps
    whole = max(1, round(passed))
    source = f"outer_iterations {rounds}: an epoch of {passed:g} rounds passes the paths"
    put("train.epochs", math.ceil(rounds / passed), source)
    if every < passed:
        put("train.validate_every", every * steps, f"evaluate_frequency {every}, in steps")
    radius = round(2 * problem.comm_radius / density.side, 6)
    graph = {"name": "disk", "positions": "trajectory", "radius": radius, "rounds": whole}
    put("topology", graph, "comm_radius, of which half of the longer side is 1")
    if whole == passed:
        return ""
    # Batch sizes for whole numbers of rounds, the most similar number first.
    counts = sorted(range(1, 2 * whole + 1), key=lambda count: abs(count - passed))
    sizes = [(count, math.ceil(density.points / count / steps)) for count in counts]
    agreeing = (pair for pair in sizes if math.ceil(density.points / pair[1]) == pair[0] * steps)
    advice = [
        f"; with train.batch_size {size}, train.epochs {math.ceil(rounds / count)} and topology.rounds {count}, both take {count}"
        for count, size in agreeing
    ]
    return (
        f"the scans of an epoch take {passed:g} rounds ({epoch_steps} steps of {batch} points, {steps} a round), the "
        f"graph {whole} (topology.rounds), so that links and scans get out of step{''.join(advice[:1])}"
    )


def _set_rounds(put: Put, problem: Section, samples: int, every: int, steps: int) -> None:
    """Divide the rounds of `steps` gradient steps into equal epochs, of at most `every` rounds or all samples."""
    rounds = problem.optimizer_config.outer_iterations
    longest = max(1, samples // problem.train_batch_size // steps)
    # All epochs of a run have the same number of steps, so the length must divide the number of rounds.
    length = max(each for each in range(1, min(every, longest, rounds) + 1) if rounds % each == 0)
    source = f"outer_iterations {rounds}, evaluate_frequency {every}: epochs of {length} rounds"
    put("train.epochs", rounds // length, source)
    put("train.steps_per_epoch", length * steps, f"{length} rounds of {steps} step{'s' * (steps > 1)}")


def _set_rule(put: Put, rule: Section) -> None:
    """Set algorithm, optimizer and schedule. Rounding keeps floating-point errors out of the experiment file."""
    if rule.alg_name == "dsgd":
        put("algorithm", {"name": "dsgd"}, "alg_name")
        # DiNNO applies alpha <- alpha (1 - mu alpha) before its first use.
        lr = round(rule.alpha0 * (1 - rule.mu * rule.alpha0), 15)
        source = "alpha0, which DiNNO reduces with mu before the first round"
        put("train.optimizer", {"name": "sgd", "lr": lr}, source)
        if rule.mu:
            put("train.schedule", {"name": "diminishing", "mu": rule.mu}, "mu")
        return
    if rule.alg_name == "dsgt":
        put("algorithm", {"name": "dsgt"}, "alg_name")
        put("train.optimizer", {"name": "sgd", "lr": rule.alpha}, "alpha")
        return
    block = {
        "name": rule.alg_name,
        "rho": round(rule.rho_init * rule.rho_scaling, 12),
        "rho_scaling": rule.rho_scaling,
        "primal_iterations": rule.primal_iterations,
        "persistent_optimizer": bool(rule.persistant_primal_opt),
    }
    source = (
        "alg_name, rho_init (DiNNO multiplies it by rho_scaling before the first round), rho_scaling, "
        "primal_iterations, persistant_primal_opt"
    )
    put("algorithm", block, source)
    # Older files have the constant primal_lr instead of primal_lr_start and primal_lr_finish.
    start = float(rule.primal_lr_start if "primal_lr_start" in rule.given else rule.primal_lr)
    optimizer = {"name": rule.primal_optimizer, "lr": start}
    put("train.optimizer", optimizer, "primal_optimizer, primal_lr or primal_lr_start")
    if rule.lr_decay_type != "constant":
        schedule = {
            "name": rule.lr_decay_type,
            "final": float(rule.primal_lr_finish) if "primal_lr_finish" in rule.given else start,
        }
        put("train.schedule", schedule, f"lr_decay_type {rule.lr_decay_type}, primal_lr_finish")


def _set_metrics(
    draft: ExperimentDraft, put: Put, problem: Section, name: str, density: DensityData | None
) -> None:
    """Name where nnlo writes the metrics of a problem, and request the arrays and the column that they need."""
    metrics = problem.metrics or []
    if not isinstance(metrics, list):
        raise UserError(f"{name}: metrics: expected a list, got {metrics!r}")
    metrics = [*map(str, metrics)]
    # Only robots that move have places.
    maps = {
        key: text for key, text in MAPS.items() if density and (density.moves or key != "current_position")
    }
    known = METRICS | (maps if density and density.has_maps else {})
    for metric in metrics:
        if metric not in known:
            draft.lose(f"{name}: metrics {metric}", "nnlo does not measure it")
    measured = [metric for metric in metrics if metric in known]
    if measured:
        draft.note(f"metrics: {'; '.join(f'{metric} is {known[metric]}' for metric in measured)}")
    requests = {
        **dict.fromkeys(MAPS, ("maps", True)),
        "consensus_error": ("consensus_matrix", True),
        "validation_as_vector": ("sample_metrics", True),
        "train_loss_moving_average": ("loss_average", round(1 - problem.metrics_config.tloss_decay, 12)),
    }
    for key, value in dict.fromkeys(requests[metric] for metric in measured if metric in requests):
        asked = [metric for metric in requests if metric in measured and requests[metric][0] == key]
        put(f"observe.{key}", value, f"metrics {', '.join(asked)}{', tloss_decay' * (key == 'loss_average')}")
