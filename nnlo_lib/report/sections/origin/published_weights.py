"""The step of the weights that each training published: the last one, or the best by train.restore_best."""

from collections.abc import Sequence

import pandas as pd

from nnlo_lib.report.charts.measured_values import measured_values
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import listing
from nnlo_lib.state.finished_run import FinishedRun

MAX_NAMED_TASKS = 5  # training tasks of a run; the steps of more are not listed


def published_epoch(job: FinishedRun) -> "pd.Series[float] | None":
    """Return the row of the history at the published step, or None if this step is within an epoch."""
    step = job.summary.get("published_step")
    if step is None:
        return job.history.iloc[-1]
    found = job.history[job.history["step"] == step]
    return None if found.empty else found.iloc[-1]


def published_weights_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return sentences on the published weights of each run with train.restore_best; else an empty string."""
    groups = group_by_run(jobs).items()
    restored = {run: group for run, group in groups if group[0].config_section("train").get("restore_best")}
    return " ".join(_sentence(run, group) for run, group in restored.items())


def _sentence(run: str, jobs: Sequence[FinishedRun]) -> str:
    best = jobs[0].config_section("train")["restore_best"]
    metric = best["metric"] if isinstance(best, dict) else best
    places = [place for job in jobs if (place := _place(job, metric))]
    if not places:
        return ""
    shown = places[:MAX_NAMED_TASKS] + [f"{len(places) - MAX_NAMED_TASKS} more"] * (
        len(places) > MAX_NAMED_TASKS
    )
    return (
        f"Test results and model file of {run} are of the weights with the best {metric} (train.restore_best): after "
        f"{listing(shown)}."
    )


def _place(job: FinishedRun, metric: str) -> str:
    """Return the step and the epoch of the published weights as text; empty if the weights of the last step were published."""
    step = job.summary.get("published_step")
    if step is None:
        return ""
    epoch = _epoch(job, step, metric)
    return f"step {step:,}" + ("" if epoch is None else f" (epoch {round(epoch, 2):g} of {job.epochs})")


def _epoch(job: FinishedRun, step: int, metric: str) -> float | None:
    values = measured_values(job, metric)
    found = values["epoch"][values["step"] == step]
    return None if found.empty else float(found.iloc[-1])
