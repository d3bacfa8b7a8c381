"""Meaning of the columns of a job: the loss behind a metric's name, values within epochs, the clock of the seconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nnlo_lib.report.formatting import MAX_NAMED_RUNS, listing
from nnlo_lib.state.finished_run import FinishedRun

# Settings of a problem that change a loss, the value without effect, and their text.
LOSS_SETTINGS = {
    "label_smoothing": (0.0, "label smoothing"),
    "gradient_penalty": (0.0, "gradient penalty"),
    "energy_weight": (None, "energy weight"),
}
COLUMNS = ["epoch", "step", "seconds", "value"]


def quantity_name(job: FinishedRun, metric: str) -> str:
    """Return the loss function and the settings on which a metric depends, or an empty string.

    Values of the same metric with different texts are different quantities and belong on different axes.

    Args:
        metric: column of the history, for example `train_loss`.
    """
    split, _, name = metric.partition("_")
    is_gan = job.config_section("problem").get("name") == "gan"
    if name == "loss" or (is_gan and split in ("train", "val")):
        return _loss_name(job, split, is_gan and name == "loss")
    if name.split("_")[-1] == "huber":
        return _huber(job)
    return ""


def _loss_name(job: FinishedRun, split: str, is_sum: bool) -> str:
    problem, loss = job.config_section("problem"), job.summary["config"].get("loss")
    if not loss:
        return ""
    settings = [
        f"{text} {problem[key]:g}"
        for key, (without, text) in LOSS_SETTINGS.items()
        # The validation of a GAN leaves out the gradient penalty.
        if problem.get(key, without) != without and (key, split) != ("gradient_penalty", "val")
    ]
    names = [f"{_loss_text(loss)}, critic + generator" if is_sum else _loss_text(loss)]
    if weights := job.config_section("loss_weights"):
        names.append(f"weights {', '.join(f'{output}: {value:g}' for output, value in weights.items())}")
    return ", ".join([*names, *settings, *([_huber(job)] if "huber" in _loss_text(loss) else [])])


def _loss_text(loss: Any) -> str:
    """Return a loss, or the losses of several outputs, as text."""
    if isinstance(loss, dict):
        return ", ".join(f"{output}: {name}" for output, name in loss.items())
    return str(loss).rpartition(":")[2]


def _huber(job: FinishedRun) -> str:
    delta = job.config_section("problem").get("huber_delta")
    return "" if delta is None else f"delta {delta:g}"


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


@dataclass(frozen=True)
class TimeBase:
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
        runs = some if self.measured else "every run"
        return (
            f"Simulated: the ranks of {runs} took turns in one process. Their seconds and samples per second are "
            "virtual: they follow the machine model of parallel.simulation, not the speed of the host."
        )

    def unit(self, run: str) -> str:
        """Return the unit of a run's seconds."""
        return "virtual s" if run in self.virtual else "s"


def time_base_of(jobs: Sequence[FinishedRun]) -> TimeBase:
    """Return the runs of `jobs`, split into simulated and measured ones."""
    # All jobs of a run have the same transport.
    transports = {job.run: job.transport for job in jobs}
    virtual = tuple(run for run, transport in transports.items() if transport == "simulated")
    return TimeBase(virtual, tuple(run for run in transports if run not in virtual))
