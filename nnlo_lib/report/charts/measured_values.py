"""The values of a metric in the course of a training: at the ends of epochs, and at validations between them."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nnlo_lib.state.finished_run import FinishedRun

COLUMNS = ["epoch", "step", "seconds", "value"]


def measured_values(job: FinishedRun, metric: str) -> pd.DataFrame:
    """Return `epoch`, `step`, `seconds` and `value` of each finite value of a metric, in the order of the training.

    The epoch of a validation within an epoch is fractional, and 0 before the first step.

    Args:
        job: the training.
        metric: column of its tables.
    """
    tables = [job.history, _validations(job)]
    known = [
        table.reindex(columns=["epoch", "step", "seconds", metric]).set_axis(COLUMNS, axis=1)
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
