"""Runs whose nodes have models of their own: their metrics, their distances, and what each predicts of a building."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import MISSING, number, plural
from nnlo_lib.report.figure import thinned
from nnlo_lib.report.formatting import RunTable, percent, plus_minus, run_table
from nnlo_lib.report.sections.origin import published_epoch
from nnlo_lib.report.tables import group_by_run, spread_of
from nnlo_lib.state.finished_run import FinishedRun

MAX_FRAMES = 24  # validations of which maps are shown
MAX_ROUNDS = 12  # rounds before each of them of which places are shown
MAP_WIDTH, MAP_GRAYS = 512, 52  # units of a picture's width; gray levels: fewer than 256 make a PNG smaller
DISTANCES = {"consensus_error": "distance to mean", "consensus_error_normalised": "normalized"}


class NodeMetricRange(NamedTuple):
    """A validation metric of node models: mean over nodes and jobs; worst and best node of any job."""

    metric: str
    nodes: int
    mean: float
    worst: float
    best: float

    def __str__(self) -> str:
        ends = f"worst {self.format_value(self.worst)}, best {self.format_value(self.best)}"
        return f"{self.format_value(self.mean)}, mean over {plural(self.nodes, 'node')} ({ends})"

    def format_value(self, value: float) -> str:
        """Format a value of the metric."""
        return percent(value) if self.metric.endswith("accuracy") else number(value)


def node_metric_ranges(table: pd.DataFrame, metric: str) -> dict[str, NodeMetricRange]:
    """Return the final validation metric of the nodes' own models, for each run with node models."""
    names = [f"val_{metric}{end}" for end in ("", "_min", "_max")]
    if not set(names) <= set(table):
        return {}
    known = table.dropna(subset=names)
    mean = known.get(f"val_{metric}_mean", known[names[0]]).fillna(known[names[0]])
    found = {}
    for run, rows in known.assign(mean=mean).groupby("run", sort=False):
        # Each row has the minimum and maximum over the nodes of one job.
        ends = rows[names[1]].min(), rows[names[2]].max()
        worst, best = ends if better_direction(metric) == "larger" else reversed(ends)
        found[str(run)] = NodeMetricRange(metric, int(rows["ranks"].max()), rows["mean"].mean(), worst, best)
    return found


def runs_with_node_models(jobs: Sequence[FinishedRun]) -> list[str]:
    """Return the runs in which each node keeps its own model."""
    runs = group_by_run(jobs)
    return [run for run in runs if any(name in job.history for job in runs[run] for name in DISTANCES)]


def consensus_table(jobs: Sequence[FinishedRun], found: dict[str, NodeMetricRange]) -> RunTable:
    """Return graph, spectral gap, final metrics and distances of the nodes, by run."""
    table = {}
    for run, group in group_by_run(jobs).items():
        cells: dict[str, str] = {}
        # Only runs on a graph have a spectral gap; a random graph differs between seeds.
        if gaps := [gap for job in group if (gap := job.summary.get("spectral_gap")) is not None]:
            graph = str(group[0].config_section("topology").get("name", MISSING))
            cells |= {"graph": graph, "spectral gap": _format_values(gaps)}
            # Summaries of older versions have no such number.
            if counts := [each for job in group if (each := job.summary.get("effective_neighbors"))]:
                cells["effective neighbors"] = _format_values(counts)
        if span := found.get(run):
            ends = {f"validation {span.metric}": span.mean, "worst node": span.worst, "best node": span.best}
            cells |= {"nodes": str(span.nodes)}
            cells |= {name: span.format_value(value) for name, value in ends.items()}
        rows = [row for job in group if (row := published_epoch(job)) is not None]
        for name, heading in DISTANCES.items():
            if values := [row[name] for row in rows if name in row]:
                cells[heading] = _format_values(values)
        table[run] = cells
    return run_table(table)


def _format_values(values: Sequence[float]) -> str:
    return number(values[0]) if len(set(values)) == 1 else plus_minus(spread_of(values))


def consensus_matrices(jobs: Sequence[FinishedRun]) -> dict[str, tuple[list[list[str]], NDArray[np.float64]]]:
    """Return by run the distances of nodes at the published step of its first training task: texts, shares of the largest.

    Raises UserError if a matrix is not square, or is missing in its file.
    """
    matrices = {}
    for run, group in group_by_run([job for job in jobs if job.paths.consensus.exists()]).items():
        job = group[0]
        step = job.summary.get("published_step") or int(job.history["step"].iloc[-1])
        found = job.consensus.get(f"distance_{step}", np.zeros(0))
        if found.ndim != 2 or found.shape[0] != found.shape[1]:
            raise UserError(
                f"{job.paths.consensus} is damaged: it has no square array distance_{step}; train the task again"
            )
        texts = [[number(value) for value in row] for row in found.tolist()]
        matrices[run] = texts, found / (found.max(initial=0) or 1)
    return matrices


Places = list[list[int]]  # of the nodes: x and y from 0 to the width and height of a plane
Links = list[list[int]]  # pairs of linked nodes


class MapFrame(NamedTuple):
    """A plane at one validation as data URL of a PNG in which dark is occupied, and its height if its width is MAP_WIDTH."""

    step: int
    plan: str
    height: float
    # places and links of the nodes in rounds since the last validation; empty unless they have positions
    rounds: list[tuple[Places, Links]]
    # data URL of each model's map, and its intersection over union with the plane, in cells whose content is known
    models: list[tuple[str, float]]


def node_maps(jobs: Sequence[FinishedRun]) -> dict[str, list[MapFrame]]:
    """Return the maps at validations of each run that has some. Raises UserError if a file is damaged."""
    found = {}
    for run, group in group_by_run([job for job in jobs if job.paths.maps.exists()]).items():
        arrays = group[0].maps
        steps = sorted(int(name.removeprefix("map_")) for name in arrays if name.startswith("map_"))
        if not steps:
            raise UserError(f"{group[0].paths.maps} is damaged: it has no map; train the task again")
        found[run] = [_frame(arrays, step) for step in thinned(steps, MAX_FRAMES)]
    return found


def _frame(arrays: dict[str, NDArray[np.float64]], step: int) -> MapFrame:
    plan, maps = arrays[f"plan_{step}"], arrays[f"map_{step}"] / 255
    walls, seen, scale = plan >= 0.5, np.isfinite(plan), MAP_WIDTH / plan.shape[1]
    models = []
    for each in maps:
        occupied = each >= 0.5
        union = ((occupied | walls) & seen).sum()
        models.append((_picture(each), float((occupied & walls).sum() / max(1, union))))
    rounds: list[tuple[Places, Links]] = []
    if (places := arrays.get(f"positions_{step}")) is not None:
        for number in thinned(range(len(places)), MAX_ROUNDS):
            pairs = np.argwhere(np.triu(arrays[f"links_{step}"][number], 1)).tolist()
            rounds.append(((scale * (places[number] + 0.5)).round().astype(int).tolist(), pairs))
    return MapFrame(step, _picture(np.nan_to_num(plan)), scale * plan.shape[0], rounds, models)


def _picture(occupied: NDArray[np.float64]) -> str:
    """Return the data URL of a PNG with a pixel for each cell, dark for 1."""
    levels = (1 - occupied.astype(float).clip(0, 1)) * (MAP_GRAYS - 1)
    gray = levels.round() * (255 // (MAP_GRAYS - 1))
    file = BytesIO()
    Image.fromarray(gray.astype(np.uint8)).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
