"""Meaning of the columns of a job: the loss behind a metric's name, values within epochs, the clock of the seconds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nnlo_lib.report.formatting import MAX_NAMED_RUNS, listing
from nnlo_lib.state.finished_run import FinishedRun

# Settings of a problem that change a loss, the value without effect, and their text.
LOSS_SETTINGS = {
    "label_smoothing": (0.0, "label smoothing"),
    "mixup": (0.0, "mixup"),
    "cutmix": (0.0, "cutmix"),
    "gradient_penalty": (0.0, "gradient penalty"),
    "energy_weight": (None, "energy weight"),
}
COLUMNS = ["epoch", "step", "seconds", "value"]


def quantity_name(job: FinishedRun, metric: str) -> str:
    """Return the loss function and the settings on which a metric depends, or an empty string.

    Values of the same metric with different texts are different quantities and belong on different axes.
    """
    problem, loss = job.config_section("problem"), job.summary["config"].get("loss")
    split, _, name = metric.partition("_")
    is_gan, delta = problem.get("name") == "gan", problem.get("huber_delta")
    huber = "" if delta is None else f"delta {delta:g}"
    if not (name == "loss" or (is_gan and split in ("train", "val"))):
        return huber if name.split("_")[-1] == "huber" else ""
    if not loss:
        return ""
    # The loss, or the losses of several outputs.
    losses = loss.items() if isinstance(loss, dict) else ()
    text = ", ".join(f"{output}: {each}" for output, each in losses) or str(loss).rpartition(":")[2]
    weights = [f"{output}: {value:g}" for output, value in job.config_section("loss_weights").items()]
    settings = [
        f"{words} {problem[key]:g}"
        for key, (without, words) in LOSS_SETTINGS.items()
        # The validation of a GAN leaves out the gradient penalty.
        if problem.get(key, without) != without and (key, split) != ("gradient_penalty", "val")
    ]
    parts = [f"{text}, critic + generator" if is_gan and name == "loss" else text]
    parts += [f"weights {', '.join(weights)}"] if weights else []
    return ", ".join([*parts, *settings, *([huber] if "huber" in text else [])])


def measured_values(job: FinishedRun, metric: str) -> pd.DataFrame:
    """Return `epoch`, `step`, `seconds` and `value` of each finite value of a metric, in the order of the training.

    The epoch of a validation within an epoch is fractional, and 0 before the first step.
    """
    tables = [job.history, _validations(job)]
    known = [
        table.reindex(columns=[*COLUMNS[:-1], metric]).set_axis(COLUMNS, axis=1)
        for table in tables
        if metric in table
    ]
    if not known:
        return pd.DataFrame(columns=COLUMNS, dtype=float)
    values = pd.concat(known).astype(float).sort_values("epoch", kind="stable", ignore_index=True)
    finite: pd.DataFrame = values[np.isfinite(values["value"])]
    return finite


def validations_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return what the points between and before whole epochs are, or an empty string if there are none."""
    epochs = {epoch for job in jobs for epoch in _validations(job).get("epoch", ())}
    within = "Points between whole epochs are validations within an epoch." if epochs - {0} else ""
    before = "The point at epoch 0 is the model before its first step." if 0 in epochs else ""
    return f"{within} {before}".strip()


def _validations(job: FinishedRun) -> pd.DataFrame:
    """Return the validations within epochs, with fractional epochs; empty if the training made none."""
    table = job.validations
    if table is None or table.empty:
        return pd.DataFrame()
    ends = {0: 0} | dict(zip(job.history["epoch"].astype(int), job.history["step"].astype(int), strict=True))
    first = table["epoch"].map(ends)
    length = (table["epoch"] + 1).map(ends) - first
    # A validation that ended the training is also the last row of the history.
    steps = table["step"] - first
    within = steps < length
    # Rounded, because the means over trainings compare the epochs.
    epochs = (table["epoch"] + steps / length).round(9)
    drawn: pd.DataFrame = table.assign(epoch=epochs)[within]
    return drawn


class TimeBase(NamedTuple):
    """The runs of a report, by the clock of their seconds."""

    virtual: tuple[str, ...]
    measured: tuple[str, ...]

    @property
    def mixed(self) -> bool:
        """Whether some runs have virtual and others measured seconds, so that times cannot be compared."""
        return bool(self.virtual and self.measured)

    @property
    def word(self) -> str:
        """`virtual` if the seconds of every run are virtual, else an empty string."""
        return "" if self.measured else "virtual"

    @property
    def note(self) -> str:
        """Sentence that names the runs with virtual seconds and explains them, or an empty string."""
        if not self.virtual:
            return ""
        few = len(self.virtual) <= MAX_NAMED_RUNS
        some = listing(self.virtual) if few else f"{len(self.virtual)} runs"
        return (
            f"Simulated: the ranks of {some if self.measured else 'every run'} took turns in one process. Their seconds and "
            "samples per second are virtual: they follow the machine model of parallel.simulation, not the speed of the host."
        )


def time_base_of(jobs: Sequence[FinishedRun]) -> TimeBase:
    """Return the runs of `jobs`, split into simulated and measured ones."""
    # All jobs of a run have the same transport.
    transports = {job.run: job.transport for job in jobs}
    virtual = tuple(run for run, transport in transports.items() if transport == "simulated")
    return TimeBase(virtual, tuple(run for run in transports if run not in virtual))
