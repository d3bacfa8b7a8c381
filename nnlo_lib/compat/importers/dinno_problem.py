"""Translation of one problem of DiNNO's files, an algorithm with its constants, to a run.

Keys and values are checked, so that no misspelled key is ignored.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft, named
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

PROBLEM = {
    "problem_name", "train_batch_size", "val_batch_size", "evaluate_frequency", "verbose_evals", "metrics",
    "metrics_config", "optimizer_config", "comm_radius", "dynamic_graph", "save_models",
}  # fmt: skip
EVALUATION_KEYS = {"evaluate_frequency", "tloss_decay", "mesh_only_at_end"}
COMMON = {"alg_name", "outer_iterations", "profile"}
# `persistant` is DiNNO's spelling; primal_lr is a key of its older files.
PRIMAL = {
    "rho_init", "rho_scaling", "primal_iterations", "primal_optimizer", "primal_lr", "primal_lr_start",
    "primal_lr_finish", "lr_decay_type", "persistant_primal_opt",
}  # fmt: skip
KEYS = {"dinno": PRIMAL, "cadmm": PRIMAL, "dsgd": {"alpha0", "mu"}, "dsgt": {"alpha", "init_grads"}}
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
OPTIMIZERS, DECAYS = ("adam", "sgd", "adamw"), ("constant", "linear", "log")
MNIST_TRAIN_SAMPLES = 60_000
Put = Callable[[str, Any, str], None]  # sets a key of a run: key, value, source


@dataclass(frozen=True)
class DensityData:
    """Data of a density experiment.

    Attributes:
        points: number of samples of a robot.
        side: longer side of the image in pixels.
        has_maps: whether nnlo can write what each node predicts of the plan.
        moves: whether the links follow from the places of the robots.
    """

    nodes: int
    points: int
    side: int
    has_maps: bool
    moves: bool


def leaf_keys(block: Any) -> set[str]:
    """Return the keys, at any depth, whose values are not mappings."""
    inner = [block] if isinstance(block, Mapping) else []
    keys = {key for each in inner for key, value in each.items() if not isinstance(value, Mapping)}
    return keys.union(*(leaf_keys(value) for each in inner for value in each.values()))


def number(block: Mapping[str, Any], key: str, default: float, least: int | None = None) -> float:
    """Return a number of a section of the file; a `default` of type int allows only integers.

    `least` is the smallest allowed value; None: only positive numbers. Raises UserError if the value is not such a number.
    """
    value: Any = block.get(key, default)
    kinds, kind = ((int,), "an integer") if isinstance(default, int) else ((int, float), "a number")
    # bool is a subclass of int.
    is_number = isinstance(value, kinds) and not isinstance(value, bool) and value < math.inf
    if is_number and (value > 0 if least is None else value >= least):
        found: float = value
        return found
    expected = f"a positive {kind.split()[1]}" if least is None else f"{kind} of at least {least}"
    raise UserError(f"{key}: expected {expected}, got {value!r}")


def choice(
    block: Mapping[str, Any], key: str, default: str, known: Iterable[str], kind: str, where: str
) -> str:
    """Return a name in a section of the file, one of `known`. Raises UserError if it is another one."""
    name = str(block.get(key, default))
    if name not in known:
        raise UserError(f"{where}.{key}: DiNNO has no {kind} '{name}'; {suggest_name(name, known)}")
    return name


def check_keys(block: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Raise UserError if a section of the file is not a mapping, or has a key that is not in `keys`."""
    if not isinstance(block, Mapping):
        raise UserError(f"{where}: expected a mapping of keys, got {block!r}")
    for key in block:
        if key not in set(keys):
            raise UserError(f"{where}: DiNNO has no key '{key}'; {suggest_name(key, keys)}")


def section(block: Mapping[str, Any], key: str, keys: Iterable[str], where: str) -> Mapping[str, Any]:
    """Return a section of the file, empty if it is missing or null. Raises UserError as `check_keys` does."""
    found: Mapping[str, Any] = {} if block.get(key) is None else block[key]
    check_keys(found, keys, where)
    return found


def set_problem(
    draft: ExperimentDraft,
    settings: Mapping[str, Any],
    nodes: int,
    where: str,
    alone: bool,
    density: DensityData | None = None,
) -> None:
    """Translate a problem of DiNNO to a run, or to the experiment if it is `alone` in its file.

    Raises UserError if a key, value or algorithm is unknown, or if two problems have the same name.
    """
    # A dot would divide the key `runs.<name>.<key>` in the wrong place.
    name = named(str(settings.get("problem_name", where.rpartition(" ")[2]))).replace(".", "_")
    if any(each.key.startswith(f"runs.{name}.") for each in draft.settings):
        raise UserError(f"{where}: another problem has the name {name}; set a unique problem_name")
    start = "" if alone else f"runs.{name}."

    def put(key: str, value: Any, source: str) -> None:
        draft.set(start + key, value, source)

    config = section(settings, "optimizer_config", COMMON.union(*KEYS.values()), f"{where}: optimizer_config")
    algorithm = choice(config, "alg_name", "dinno", KEYS, "algorithm", f"{where}: optimizer_config")
    check_keys(config, COMMON | KEYS[algorithm], f"{where}: optimizer_config")
    evaluation = section(settings, "metrics_config", EVALUATION_KEYS, f"{where}: metrics_config")
    # evaluate_frequency is a key of the problem in older files, and of metrics_config in newer ones.
    settings = {**settings, **evaluation}
    steps = int(number(config, "primal_iterations", 2)) if algorithm in ("dinno", "cadmm") else 1
    put("train.batch_size", int(number(settings, "train_batch_size", 64)), "train_batch_size")
    rounds = int(number(config, "outer_iterations", 1))
    if density and density.moves:
        if "comm_radius" not in settings:
            raise UserError(
                f"{where}: comm_radius is missing; add it, or for links that stay, add experiment.graph and remove each comm_radius"
            )
        if advice := _set_passes(put, settings, density, rounds, steps):
            draft.note(f"{name}: {advice}")
    else:
        samples = density.points if density else MNIST_TRAIN_SAMPLES // nodes
        _set_rounds(put, settings, samples, rounds, steps)
    {"dsgd": _set_dsgd, "dsgt": _set_dsgt}.get(algorithm, _set_dinno)(put, config)
    if config.get("profile"):
        # DiNNO's torch.profiler waits for one round, warms up for one and records three, repeatedly; nnlo
        # records the first three.
        profile = {"tool": "torch", "first": 2 * steps + 1, "steps": 3 * steps}
        put("observe.profile", profile, "profile, for three rounds")
    if "init_grads" in config:
        draft.note(f"{name}: init_grads {config['init_grads']}: {INIT_GRADS[bool(config['init_grads'])]}")
    _set_metrics(draft, put, settings, name, density)
    draft.note(*(f"{key} {settings[key]}: {text}" for key, text in NOTES.items() if key in settings))


def _set_passes(put: Put, settings: Mapping[str, Any], density: DensityData, rounds: int, steps: int) -> str:
    """Set the epochs and the graph of robots that move: an epoch is one pass of their paths.

    Returns the difference between scans and graph if the rounds of a pass are not whole, else an empty string.
    """
    batch = int(number(settings, "train_batch_size", 64))
    epoch_steps = math.ceil(density.points / batch)
    passed = epoch_steps / steps
    whole = max(1, round(passed))
    source = f"outer_iterations {rounds}: an epoch of {passed:g} rounds passes the paths"
    put("train.epochs", math.ceil(rounds / passed), source)
    every = int(number(settings, "evaluate_frequency", rounds))
    if every < passed:
        put("train.validate_every", every * steps, f"evaluate_frequency {every}, in steps")
    radius = round(2 * number(settings, "comm_radius", 1.0) / density.side, 6)
    graph = {"name": "disk", "positions": "trajectory", "radius": radius, "rounds": whole}
    put("topology", graph, "comm_radius, of which half of the longer side is 1")
    if whole == passed:
        return ""
    advice = ""
    # Batch sizes for whole numbers of rounds, the most similar number first.
    for count in sorted(range(1, 2 * whole + 1), key=lambda count: abs(count - passed)):
        size = math.ceil(density.points / count / steps)
        if math.ceil(density.points / size) == count * steps:
            advice = (
                f"; with train.batch_size {size}, train.epochs {math.ceil(rounds / count)} and topology.rounds {count}, both "
                f"take {count}"
            )
            break
    return (
        f"the scans of an epoch take {passed:g} rounds ({epoch_steps} steps of {batch} points, {steps} a round), the "
        f"graph {whole} (topology.rounds), so that links and scans get out of step{advice}"
    )


def _set_rounds(put: Put, settings: Mapping[str, Any], samples: int, rounds: int, steps: int) -> None:
    """Divide the rounds of `steps` gradient steps into equal epochs, of at most `evaluate_frequency` rounds or all samples."""
    every = int(number(settings, "evaluate_frequency", rounds))
    longest = max(1, samples // int(number(settings, "train_batch_size", 64)) // steps)
    # All epochs of a run have the same number of steps, so the length must divide the number of rounds.
    length = max(each for each in range(1, min(every, longest, rounds) + 1) if rounds % each == 0)
    source = f"outer_iterations {rounds}, evaluate_frequency {every}: epochs of {length} rounds"
    put("train.epochs", rounds // length, source)
    put("train.steps_per_epoch", length * steps, f"{length} rounds of {steps} step{'s' * (steps > 1)}")


def _set_dinno(put: Put, config: Mapping[str, Any]) -> None:
    scaling = float(number(config, "rho_scaling", 1.0))
    block = {
        "name": config.get("alg_name", "dinno"),
        "rho": round(float(number(config, "rho_init", 0.5)) * scaling, 12),
        "rho_scaling": scaling,
        "primal_iterations": int(number(config, "primal_iterations", 2)),
        "persistent_optimizer": bool(config.get("persistant_primal_opt", False)),
    }
    source = (
        "alg_name, rho_init (DiNNO multiplies it by rho_scaling before the first round), rho_scaling, "
        "primal_iterations, persistant_primal_opt"
    )
    put("algorithm", block, source)
    # Older files have the constant primal_lr instead of primal_lr_start and primal_lr_finish.
    start = float(
        number({"primal_lr_start": number(config, "primal_lr", 0.001), **config}, "primal_lr_start", 0.001)
    )
    rule = choice(config, "primal_optimizer", "adam", OPTIMIZERS, "optimizer", "optimizer_config")
    put("train.optimizer", {"name": rule, "lr": start}, "primal_optimizer, primal_lr or primal_lr_start")
    kind = choice(config, "lr_decay_type", "constant", DECAYS, "learning-rate decay", "optimizer_config")
    if kind != "constant":
        schedule = {"name": kind, "final": float(number(config, "primal_lr_finish", start))}
        put("train.schedule", schedule, f"lr_decay_type {kind}, primal_lr_finish")


def _set_dsgd(put: Put, config: Mapping[str, Any]) -> None:
    alpha, mu = float(number(config, "alpha0", 0.005)), float(number(config, "mu", 0.0, least=0))
    put("algorithm", {"name": "dsgd"}, "alg_name")
    # DiNNO applies alpha <- alpha (1 - mu alpha) before its first use; rounding keeps floating-point errors
    # out of the experiment file.
    rule = {"name": "sgd", "lr": round(alpha * (1 - mu * alpha), 15)}
    put("train.optimizer", rule, "alpha0, which DiNNO reduces with mu before the first round")
    if mu:
        put("train.schedule", {"name": "diminishing", "mu": mu}, "mu")


def _set_dsgt(put: Put, config: Mapping[str, Any]) -> None:
    put("algorithm", {"name": "dsgt"}, "alg_name")
    put("train.optimizer", {"name": "sgd", "lr": float(number(config, "alpha", 0.005))}, "alpha")


def _set_metrics(
    draft: ExperimentDraft, put: Put, settings: Mapping[str, Any], name: str, density: DensityData | None
) -> None:
    """Name where nnlo writes the metrics of a problem, and request the arrays and the column that they need."""
    metrics = settings.get("metrics") or []
    if not isinstance(metrics, list):
        raise UserError(f"{name}: metrics: expected a list, got {metrics!r}")
    # Only robots that move have places.
    maps = {
        key: text for key, text in MAPS.items() if density and (density.moves or key != "current_position")
    }
    known = METRICS | (maps if density and density.has_maps else {})
    for metric in metrics:
        if str(metric) not in known:
            draft.lose(f"{name}: metrics {metric}", "nnlo does not measure it")
    measured = [metric for metric in map(str, metrics) if metric in known]
    if measured:
        draft.note(f"metrics: {'; '.join(f'{metric} is {known[metric]}' for metric in measured)}")
    if mapped := [metric for metric in MAPS if metric in measured]:
        put("observe.maps", True, f"metrics {', '.join(mapped)}")
    if "consensus_error" in measured:
        put("observe.consensus_matrix", True, "metrics consensus_error")
    if "validation_as_vector" in measured:
        put("observe.sample_metrics", True, "metrics validation_as_vector")
    if "train_loss_moving_average" in measured:
        # DiNNO's tloss_decay is the weight of the newest loss.
        decay = number(settings, "tloss_decay", 0.02)
        if decay > 1:
            raise UserError(f"tloss_decay: expected a number of at most 1, got {decay!r}")
        put("observe.loss_average", round(1 - decay, 12), "metrics train_loss_moving_average, tloss_decay")
