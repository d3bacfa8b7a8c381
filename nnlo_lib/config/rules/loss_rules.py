"""Checks of what a run computes and records: gan, loss settings, observed arrays, watched metrics."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm_base import GanGuarantee
from nnlo_lib.config.base import ConfigFault, default, suggest_name
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
# Settings of a problem, and the functions that read them as a loss or as a metric.
READERS = {
    "huber_delta": ("huber",),
    "outputs": ("binary_cross_entropy", "binary_accuracy"),
}
SUPERVISED = ("classification", "regression", "dense_classification")
# Of keys that are usually a name, which has no place for the direction.
DIRECTION_REMEDIES = {
    "train.restore_best": "set train.restore_best: {{metric: {}, better: larger}}, or smaller",
    "checkpoint.best": "set checkpoint.best: {{metric: {}, better: larger}}, or smaller",
}


def gan_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) whose problem or model is a gan."""
    model = run.model.name
    if run.problem.name == "gan":
        if model in MODELS.keys() - GANS.keys():
            yield ConfigFault(
                f"{model} is not a generator with a critic; {suggest_name(model, GANS)}", ("model", "name")
            )
        yield from _measure_faults(run)
        yield from _step_faults(run)
        yield from _guarantee_faults(run)
    elif model in GANS:
        yield ConfigFault(f"{model} is a generator with a critic; set `problem: gan`", ("problem",))


def _measure_faults(run: Any) -> Iterator[ConfigFault]:
    problem = run.problem
    if problem.energy_weight is not None and run.model.name in GANS.keys() - {"calorimeter_gan"}:
        yield ConfigFault(
            f"the critic of {run.model.name} does not predict energies; remove `problem.energy_weight`, "
            "or set `model.name: calorimeter_gan`",
            ("problem", "energy_weight"),
        )
    if isinstance(run.loss, dict) or run.loss_weights:
        yield ConfigFault(
            "a gan has one loss, computed from the critic's outputs for real and generated samples; "
            "set one name and remove `loss_weights`",
            ("loss",),
        )
    if run.loss == "wasserstein" and not (problem.weight_clip or problem.gradient_penalty):
        yield ConfigFault(
            "wasserstein requires a critic of bounded slope; set `problem.gradient_penalty: 10` or "
            "`problem.weight_clip: 0.01`",
            ("problem",),
        )
    unknown = [name for name in run.metrics if name not in METRICS["gan"]]
    if unknown:
        yield ConfigFault(
            f"'{unknown[0]}' is not a metric of a gan; use {', '.join(METRICS['gan'])}", ("metrics",)
        )


def _guarantee_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of a gan that the algorithm, or the compression, would break."""
    name, row, problem = run.algorithm.name, run.algorithm.capabilities, run.problem
    compressed = not isinstance(run.compression, NoCompressionConfig)
    broken = {"no": name, "without compression": f"{name} with compression" if compressed else ""}
    if problem.weight_clip and (what := broken.get(row.keeps_weight_clip)):
        yield ConfigFault(
            f"{what} changes weights after the optimizer has bounded them; set `problem.gradient_penalty: 10` instead"
            f"{_or_without_compression(row.keeps_weight_clip)}",
            ("problem", "weight_clip"),
        )
    if (key := problem.resting_key) and (what := broken.get(row.keeps_critic_steps)):
        moved, off = RESTING[key]
        yield ConfigFault(
            f"{what} also passes parts of earlier gradients to the optimizer, which would move {moved} in every "
            f"step; set `problem.{key}: {off}`{_or_without_compression(row.keeps_critic_steps)}",
            ("problem", key),
        )


def _or_without_compression(guarantee: GanGuarantee) -> str:
    return ", or `compression.name: none`" if guarantee == "without compression" else ""


def _step_faults(run: Any) -> Iterator[ConfigFault]:
    simulation = run.parallel.simulation
    has_no_optimizer = run.algorithm.capabilities.step == "algorithm's"
    if has_no_optimizer and (run.problem.weight_clip or run.problem.generator_optimizer):
        yield ConfigFault(
            f"{run.algorithm.name} has no optimizer; remove `problem.generator_optimizer`, and use "
            "`problem.gradient_penalty` instead of `problem.weight_clip`",
            ("algorithm", "name"),
        )
    if run.parallel.sync_batch_norm:
        yield ConfigFault(
            "not supported for a gan, whose networks normalize the samples of each rank; "
            "set `parallel.sync_batch_norm: false`",
            ("parallel", "sync_batch_norm"),
        )
    if run.parallel.transport == "simulated" and simulation.compute == "batched":
        yield ConfigFault(
            "batched is not supported for a gan; set `parallel.simulation.compute: exact`",
            ("parallel", "simulation", "compute"),
        )


def loss_setting_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of the problem of a run (config.Run) that neither its loss nor its metrics read."""
    if run.problem.name == "classification":
        yield from _smoothing_faults(run)
        yield from _nll_faults(run)
        yield from _calibration_faults(run)
    elif run.problem.name == "dense_classification":
        yield from _dense_faults(run)
    elif run.problem.name == "regression":
        computed = {*_losses(run), *(metric.partition("@")[0] for metric in run.metrics)}
        for key, readers in READERS.items():
            if _is_changed(run.problem, key) and not computed.intersection(readers):
                yield ConfigFault(
                    f"only {' and '.join(readers)} use it; set `loss: {readers[0]}`, add {readers[0]} to `metrics`, "
                    "or remove this key",
                    ("problem", key),
                )


def _dense_faults(run: Any) -> Iterator[ConfigFault]:
    if run.loss != "cross_entropy" or run.loss_weights:
        yield ConfigFault(
            "dense_classification has the loss cross_entropy of one output; remove `loss` and `loss_weights`",
            ("loss",),
        )
    for place, metric in enumerate(run.metrics):
        if metric not in METRICS["dense_classification"]:
            yield ConfigFault(
                f"dense_classification measures one output, by counts of its places; "
                f"{suggest_name(metric, METRICS['dense_classification'])}",
                ("metrics", str(place)),
            )


def _smoothing_faults(run: Any) -> Iterator[ConfigFault]:
    # Metrics compare with the labels themselves.
    if _is_changed(run.problem, "label_smoothing") and "cross_entropy" not in _losses(run):
        yield ConfigFault(
            "only the loss cross_entropy smooths labels; set `loss: cross_entropy`, or remove this key",
            ("problem", "label_smoothing"),
        )


def _nll_faults(run: Any) -> Iterator[ConfigFault]:
    if run.problem.outputs == "scores":
        return
    uses: list[tuple[tuple[str, ...], str]] = [(("loss",), each) for each in _losses(run)]
    uses += [(("metrics", str(place)), each.partition("@")[0]) for place, each in enumerate(run.metrics)]
    for key, name in uses:
        if name == "nll":
            yield ConfigFault(
                "nll needs logarithms, but the outputs are probabilities (`problem.outputs`); use cross_entropy",
                key,
            )


def _calibration_faults(run: Any) -> Iterator[ConfigFault]:
    without = _losses(run) - {"cross_entropy", "nll", "binary_cross_entropy"}
    if "calibration_error" in run.metrics and run.problem.outputs == "scores" and without:
        yield ConfigFault(
            f"calibration_error needs probabilities, which the loss {min(without)} does not give; remove it, or set "
            "`loss: cross_entropy`, or `problem: {name: classification, outputs: probabilities}` if the model returns them",
            ("metrics", str(run.metrics.index("calibration_error"))),
        )


def _losses(run: Any) -> set[str]:
    return set(run.loss.values()) if isinstance(run.loss, dict) else {run.loss}


def _is_changed(section: Any, key: str) -> bool:
    return bool(getattr(section, key) != default(type(section), key))


def observed_array_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of `observe` for which a run (config.Run) has nothing to write."""
    if run.observe.consensus_matrix and not run.algorithm.capabilities.replicas_differ:
        yield ConfigFault(
            f"{run.algorithm.name} has one common model, which has no distances between nodes; remove this key, or use "
            "an algorithm whose nodes have their own models, such as dinno or dsgd",
            ("observe", "consensus_matrix"),
        )
    if run.observe.sample_metrics and run.problem.name not in SUPERVISED:
        yield ConfigFault(
            f"a problem {run.problem.name} has no metrics of single samples; remove this key, or use "
            f"{' or '.join(SUPERVISED)}",
            ("observe", "sample_metrics"),
        )
    known = CATALOG.get(run.data.dataset)
    if run.observe.maps and known and known.reader != "lidar":
        yield ConfigFault(
            f"maps need points of a plane, which the samples of {known.name} are not; remove this key",
            ("observe", "maps"),
        )
    if run.observe.maps and (run.loss != "binary_cross_entropy" or run.data.validation == 0):
        yield ConfigFault(
            "maps need points, of which the model predicts whether they are occupied, and some to validate; set "
            "`loss: binary_cross_entropy` and `data.validation`, or remove this key",
            ("observe", "maps"),
        )
    if run.observe.sample_metrics and run.data.validation == 0:
        yield ConfigFault(
            "the run has no validation samples; set data.validation, for example 0.1, or remove this key",
            ("observe", "sample_metrics"),
        )


def watched_metric_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield a fault for each watched metric that a run (config.Run) does not measure."""
    for key, metric in run.train.watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; or add it to `metrics`" if name not in ("", "loss") else ""
            remedy = run.of_set_reason(name) or f"; {suggest_name(name, run.measured)}{also}"
            yield ConfigFault(f"'{metric}' is not measured{remedy}", ("train", key))
        elif metric_direction(metric) is None and not getattr(getattr(run.train, key), "better", None):
            yield ConfigFault(_unknown_direction(metric, f"train.{key}"), ("train", key))
    best = run.checkpoint.best_rule
    if best and not best.better and metric_direction(best.metric) is None:
        yield ConfigFault(_unknown_direction(best.metric, "checkpoint.best"), ("checkpoint", "best"))


def _unknown_direction(metric: str, key: str) -> str:
    remedy = DIRECTION_REMEDIES.get(key, f"set {key}.better").format(metric)
    return f"'{metric}': its name does not say whether smaller or larger values are better; {remedy}"


def unvalidated_metrics(run: Any) -> Iterator[tuple[str, str]]:
    """Yield (key, metric) for each watched validation metric of a run (config.Run) without validation samples."""
    if run.data.validation == 0:
        yield from ((key, metric) for key, metric in run.train.watched.items() if metric.startswith("val_"))
