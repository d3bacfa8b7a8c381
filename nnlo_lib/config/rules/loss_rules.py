"""Checks of what a run computes and records: gan, loss settings, observed arrays, watched metrics.

Each fault is `key: sentence`. Runs have the type Any, because config.Run imports these checks.
"""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import default, suggest_name
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.metrics import METRICS, metric_direction
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.models.zoo_registry import GANS, MODELS

# Network that rests in some steps because of a key, and the value with which it does not.
RESTING = {
    "critic_steps": ("the generator", "1"),
    "critic_warm_up": ("the generator", "null"),
    "half_steps": ("the resting network", "false"),
}
# Settings of a regression, and the functions that read them as a loss or as a metric.
READERS = {
    "huber_delta": ("huber",),
    "outputs": ("binary_cross_entropy", "binary_accuracy"),
}
SUPERVISED = ("classification", "regression", "dense_classification")
# Keys that are usually a name, which has no place for the direction.
NAMES_OF_METRICS = ("train.restore_best", "checkpoint.best")


def gan_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run whose problem or model is a gan."""
    model, problem, algorithm = run.model.name, run.problem, run.algorithm
    if problem.name != "gan":
        if model in GANS:
            yield f"problem: {model} is a generator with a critic; set `problem: gan`"
        return
    if model in MODELS.keys() - GANS.keys():
        yield f"model.name: {model} is not a generator with a critic; {suggest_name(model, GANS)}"
    if problem.energy_weight is not None and model in GANS.keys() - {"calorimeter_gan"}:
        yield (
            f"problem.energy_weight: the critic of {model} does not predict energies; remove `problem.energy_weight`, "
            "or set `model.name: calorimeter_gan`"
        )
    if isinstance(run.loss, dict) or run.loss_weights:
        yield (
            "loss: a gan has one loss, computed from the critic's outputs for real and generated samples; "
            "set one name and remove `loss_weights`"
        )
    if run.loss == "wasserstein" and not (problem.weight_clip or problem.gradient_penalty):
        yield (
            "problem: wasserstein requires a critic of bounded slope; set `problem.gradient_penalty: 10` or "
            "`problem.weight_clip: 0.01`"
        )
    for name in run.metrics:
        if name not in METRICS["gan"]:
            yield f"metrics: '{name}' is not a metric of a gan; use {', '.join(METRICS['gan'])}"
    if algorithm.capabilities.step == "algorithm's" and (problem.weight_clip or problem.generator_optimizer):
        yield (
            f"algorithm.name: {algorithm.name} has no optimizer; remove `problem.generator_optimizer`, and use "
            "`problem.gradient_penalty` instead of `problem.weight_clip`"
        )
    # What the algorithm, or the compression, would break.
    broken = {"no": (algorithm.name, "")}
    if not isinstance(run.compression, NoCompressionConfig):
        broken["without compression"] = f"{algorithm.name} with compression", ", or `compression.name: none`"
    row, key = algorithm.capabilities, problem.resting_key
    if problem.weight_clip and row.keeps_weight_clip in broken:
        what, remedy = broken[row.keeps_weight_clip]
        yield (
            f"problem.weight_clip: {what} changes weights after the optimizer has bounded them; "
            f"set `problem.gradient_penalty: 10` instead{remedy}"
        )
    if key and row.keeps_critic_steps in broken:
        (what, remedy), (moved, off) = broken[row.keeps_critic_steps], RESTING[key]
        yield (
            f"problem.{key}: {what} also passes parts of earlier gradients to the optimizer, which would move {moved} in every "
            f"step; set `problem.{key}: {off}`{remedy}"
        )


def loss_setting_faults(run: Any) -> Iterator[str]:
    """Yield the settings of the problem of a run that neither its loss nor its metrics read, and the reverse."""
    problem = run.problem
    losses = set(run.loss.values()) if isinstance(run.loss, dict) else {run.loss}
    metrics = [metric.partition("@")[0] for metric in run.metrics]
    if getattr(run.data.reader, "weight", None) and problem.name not in SUPERVISED:
        yield f"data.reader.weight: a problem {problem.name} has no losses of single samples to weigh; remove this key"
    if problem.name == "classification":
        # Metrics compare with the labels themselves.
        if _is_changed(problem, "label_smoothing") and "cross_entropy" not in losses:
            yield (
                "problem.label_smoothing: only the loss cross_entropy smooths labels; set `loss: cross_entropy`, "
                "or remove this key"
            )
        for key, names in {
            "loss": losses,
            **{f"metrics.{place}": {each} for place, each in enumerate(metrics)},
        }.items():
            if problem.outputs == "probabilities" and "nll" in names:
                yield (
                    f"{key}: nll needs logarithms, but the outputs are probabilities (`problem.outputs`); use cross_entropy"
                )
        without = losses - {"cross_entropy", "nll", "binary_cross_entropy"}
        if "calibration_error" in run.metrics and problem.outputs == "scores" and without:
            yield (
                f"metrics.{run.metrics.index('calibration_error')}: calibration_error needs probabilities, which the loss "
                f"{min(without)} does not give; remove it, or set `loss: cross_entropy`, or "
                "`problem: {name: classification, outputs: probabilities}` if the model returns them"
            )
    elif problem.name == "dense_classification":
        if run.loss != "cross_entropy" or run.loss_weights:
            yield (
                "loss: dense_classification has the loss cross_entropy of one output; remove `loss` and `loss_weights`"
            )
        for place, metric in enumerate(run.metrics):
            if metric not in METRICS["dense_classification"]:
                yield (
                    f"metrics.{place}: dense_classification measures one output, by counts of its places; "
                    f"{suggest_name(metric, METRICS['dense_classification'])}"
                )
    elif problem.name == "regression":
        for key, readers in READERS.items():
            if _is_changed(problem, key) and not {*losses, *metrics}.intersection(readers):
                yield (
                    f"problem.{key}: only {' and '.join(readers)} use it; set `loss: {readers[0]}`, add {readers[0]} to "
                    "`metrics`, or remove this key"
                )


def _is_changed(section: Any, key: str) -> bool:
    return bool(getattr(section, key) != default(type(section), key))


def observed_array_faults(run: Any) -> Iterator[str]:
    """Yield the settings of `observe` for which a run has nothing to write."""
    observe, known = run.observe, CATALOG.get(run.data.dataset)
    if observe.consensus_matrix and not run.algorithm.capabilities.replicas_differ:
        yield (
            f"observe.consensus_matrix: {run.algorithm.name} has one common model, which has no distances between nodes; "
            "remove this key, or use an algorithm whose nodes have their own models, such as dinno or dsgd"
        )
    if observe.sample_metrics and run.problem.name not in SUPERVISED:
        yield (
            f"observe.sample_metrics: a problem {run.problem.name} has no metrics of single samples; remove this key, "
            f"or use {' or '.join(SUPERVISED)}"
        )
    if observe.maps and known and known.reader != "lidar":
        yield (
            f"observe.maps: maps need points of a plane, which the samples of {known.name} are not; remove this key"
        )
    if observe.maps and (run.loss != "binary_cross_entropy" or run.data.validation == 0):
        yield (
            "observe.maps: maps need points, of which the model predicts whether they are occupied, and some to validate; "
            "set `loss: binary_cross_entropy` and `data.validation`, or remove this key"
        )
    if observe.sample_metrics and run.data.validation == 0:
        yield (
            "observe.sample_metrics: the run has no validation samples; set data.validation, for example 0.1, "
            "or remove this key"
        )


def watched_metric_faults(run: Any) -> Iterator[str]:
    """Yield a fault for each watched metric that a run does not measure, or that improves in an unknown direction."""
    watched = {f"train.{key}": (metric, getattr(run.train, key)) for key, metric in run.train.watched.items()}
    if best := run.checkpoint.best_rule:
        watched["checkpoint.best"] = best.metric, best
    for key, (metric, rule) in watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; or add it to `metrics`" if name not in ("", "loss") else ""
            remedy = run.of_set_reason(name) or f"; {suggest_name(name, run.measured)}{also}"
            yield f"{key}: '{metric}' is not measured{remedy}"
        elif metric_direction(metric) is None and not getattr(rule, "better", None):
            better = (
                f"{key}: {{metric: {metric}, better: larger}}, or smaller"
                if key in NAMES_OF_METRICS
                else f"{key}.better"
            )
            yield (
                f"{key}: '{metric}': its name does not say whether smaller or larger values are better; set {better}"
            )


def unvalidated_metrics(run: Any) -> Iterator[str]:
    """Yield a fault for each watched validation metric of a run without validation samples."""
    for key, metric in run.train.watched.items() if run.data.validation == 0 else ():
        if metric.startswith("val_"):
            yield f"train.{key}: '{metric}' requires validation samples; set `data.validation` above 0"
