"""Checks that settings of a loss or a metric belong to one that the run computes."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault, default, suggest_name
from nnlo_lib.config.metrics import METRICS

# Settings of a problem, and the functions that read them as a loss or as a metric.
READERS = {
    "huber_delta": ("huber",),
    "outputs": ("binary_cross_entropy", "binary_accuracy"),
}


def loss_setting_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of the problem of a run (config.Run) that neither its loss nor its metrics read."""
    if run.problem.name == "classification":
        yield from _smoothing_faults(run)
        yield from _nll_faults(run)
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


def _losses(run: Any) -> set[str]:
    return set(run.loss.values()) if isinstance(run.loss, dict) else {run.loss}


def _is_changed(section: Any, key: str) -> bool:
    return bool(getattr(section, key) != default(type(section), key))
