"""Runs whose nodes have models of their own: their metrics, their distances, and what each predicts of a building."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import MISSING, number
from nnlo_lib.report.figure import thinned
from nnlo_lib.report.formatting import RunTable, percent, plus_minus, run_table
from nnlo_lib.report.sections.origin import published_epoch
from nnlo_lib.report.tables import group_by_run, spread_of
from nnlo_lib.state.finished_run import FinishedRun

MAX_SHOWN_NODES = 20  # nodes; a larger matrix is not readable on a page
MAX_FRAMES, FRAME_MS = 24, 400  # of an animation of maps
MAP_SCALE, MAP_GAP, MAPS_ACROSS = 2, 4, 4  # pixels of a cell and between maps; maps in a row
DISTANCES = {"consensus_error": "distance to mean", "consensus_error_normalised": "normalized"}


@dataclass(frozen=True)
class NodeMetricRange:
    """A validation metric of node models: mean over nodes and jobs; worst and best node of any job."""

    metric: str
    nodes: int
    mean: float
    worst: float
    best: float

    def __str__(self) -> str:
        ends = f"worst {self.format_value(self.worst)}, best {self.format_value(self.best)}"
        return f"{self.format_value(self.mean)}, mean over {self.nodes} nodes ({ends})"

    def format_value(self, value: float) -> str:
        """Format a value of the metric."""
        return percent(value) if self.metric.endswith("accuracy") else number(value)


def node_metric_ranges(table: pd.DataFrame, metric: str) -> dict[str, NodeMetricRange]:
    """Return the final validation metric of the nodes' own models, for each run with node models."""
    names = [f"val_{metric}{end}" for end in ("", "_min", "_max")]
    if not set(names) <= set(table):
        return {}
    known = table.dropna(subset=names)
    # Summaries of older versions have the mean over nodes in the column of the published weights.
    mean = f"val_{metric}_mean"
    known = known.assign(**{mean: known[mean].fillna(known[names[0]]) if mean in known else known[names[0]]})
    return {str(run): _span(metric, rows) for run, rows in known.groupby("run", sort=False)}


def _span(metric: str, rows: pd.DataFrame) -> NodeMetricRange:
    # Each row has the minimum and maximum over the nodes of one job.
    low, high = rows[f"val_{metric}_min"].min(), rows[f"val_{metric}_max"].max()
    worst, best = (low, high) if better_direction(metric) == "larger" else (high, low)
    return NodeMetricRange(metric, int(rows["ranks"].max()), rows[f"val_{metric}_mean"].mean(), worst, best)


def runs_with_node_models(jobs: Sequence[FinishedRun]) -> list[str]:
    """Return the runs in which each node keeps its own model."""
    runs = group_by_run(jobs)
    return [run for run in runs if any(name in job.history for job in runs[run] for name in DISTANCES)]


def consensus_table(jobs: Sequence[FinishedRun], found: dict[str, NodeMetricRange]) -> RunTable:
    """Return graph, spectral gap, final metrics and distances of the nodes, by run."""
    return run_table(
        {
            run: {
                **_graph(group),
                **(_final_metrics(found[run]) if run in found else {}),
                **_distances(group),
            }
            for run, group in group_by_run(jobs).items()
        }
    )


def _graph(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    gaps = [job.summary["spectral_gap"] for job in jobs if job.summary.get("spectral_gap") is not None]
    name = jobs[0].config_section("topology").get("name", MISSING)
    # Only runs on a graph have a spectral gap; a random graph differs between seeds.
    return {"graph": str(name), "spectral gap": _format_values(gaps)} if gaps else {}


def _final_metrics(span: NodeMetricRange) -> dict[str, str]:
    name = f"validation {span.metric}"
    return {
        "nodes": str(span.nodes),
        name: span.format_value(span.mean),
        "worst node": span.format_value(span.worst),
        "best node": span.format_value(span.best),
    }


def _distances(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    rows = [row for job in jobs if (row := published_epoch(job)) is not None]
    ends = {name: [row[name] for row in rows if name in row] for name in DISTANCES}
    return {DISTANCES[name]: _format_values(values) for name, values in ends.items() if values}


def _format_values(values: Sequence[float]) -> str:
    return number(values[0]) if len(set(values)) == 1 else plus_minus(spread_of(values))


@dataclass(frozen=True)
class ConsensusMatrix:
    """L2 distance of each pair of nodes at the step of the published weights, in the first training task of a run."""

    run: str
    distances: NDArray[np.float64]

    @property
    def readable(self) -> bool:
        """Whether the matrix is small enough to be shown."""
        return len(self.distances) <= MAX_SHOWN_NODES

    @property
    def shares(self) -> NDArray[np.float64]:
        """Distances divided by the largest one."""
        shares: NDArray[np.float64] = self.distances / (self.distances.max(initial=0) or 1)
        return shares

    @property
    def texts(self) -> list[list[str]]:
        """Distances as text."""
        return [[number(value) for value in row] for row in self.distances.tolist()]


def consensus_matrices(jobs: Sequence[FinishedRun]) -> list[ConsensusMatrix]:
    """Return the matrix of each run that has one.

    Raises UserError if a matrix is not square, or is missing in its file.
    """
    known = group_by_run([job for job in jobs if job.paths.consensus.exists()])
    return [ConsensusMatrix(run, _distance_matrix(group[0])) for run, group in known.items()]


def _distance_matrix(job: FinishedRun) -> NDArray[np.float64]:
    step = job.summary.get("published_step") or int(job.history["step"].iloc[-1])
    found = job.consensus.get(f"distance_{step}", np.zeros(0))
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise UserError(
            f"{job.paths.consensus} is damaged: it has no square array distance_{step}; train the task again"
        )
    return found


@dataclass(frozen=True)
class NodeMaps:
    """What the nodes of a run predict in a plane: the last validation as a picture, all as an animation.

    Attributes:
        seed: seed of the first job that has maps.
        last: data URL of a PNG.
        animation: data URL of a GIF.
        overlaps: intersection over union of each model's map and the plane, in cells with validation samples.
    """

    run: str
    seed: int
    last: str
    animation: str
    overlaps: tuple[float, ...]


def node_maps(jobs: Sequence[FinishedRun]) -> list[NodeMaps]:
    """Return the maps of each run that has some. Raises UserError if a file is damaged."""
    known = group_by_run([job for job in jobs if job.paths.maps.exists()])
    return [_maps(run, group[0]) for run, group in known.items()]


def _maps(run: str, job: FinishedRun) -> NodeMaps:
    steps = sorted(int(name.removeprefix("map_")) for name in job.maps if name.startswith("map_"))
    if not steps:
        raise UserError(f"{job.paths.maps} is damaged: it has no map; train the task again")
    drawn = [_map_picture(job.maps, step) for step in thinned(steps, MAX_FRAMES)]
    last, moving = BytesIO(), BytesIO()
    drawn[-1].save(last, "PNG", optimize=True)
    drawn[0].save(moving, "GIF", save_all=True, append_images=drawn[1:], duration=FRAME_MS, loop=0)
    plan, maps = job.maps[f"plan_{steps[-1]}"], job.maps[f"map_{steps[-1]}"] >= 0.5
    walls, seen = plan >= 0.5, np.isfinite(plan)
    overlaps = [float((each & walls).sum() / max(1, ((each | walls) & seen).sum())) for each in maps]
    png, gif = (b64encode(file.getvalue()).decode() for file in (last, moving))
    return NodeMaps(
        run,
        job.summary["seed"],
        f"data:image/png;base64,{png}",
        f"data:image/gif;base64,{gif}",
        tuple(overlaps),
    )


def _map_picture(arrays: dict[str, NDArray[np.float64]], step: int) -> Image.Image:
    """Return the plane with the robots and their links, and the map of each model, side by side in rows."""
    plan, maps = arrays[f"plan_{step}"], arrays[f"map_{step}"].astype(float)
    tiles = [np.where(np.isfinite(plan), plan, 0).astype(float), *maps]
    height, width = (MAP_SCALE * side for side in plan.shape)
    across = min(len(tiles), MAPS_ACROSS)
    sheet = Image.new("L", (across * (width + MAP_GAP), -(-len(tiles) // across) * (height + MAP_GAP)), 255)
    for index, tile in enumerate(tiles):
        picture = Image.fromarray((255 * (1 - tile.clip(0, 1))).astype(np.uint8)).resize((width, height))
        row, column = divmod(index, across)
        sheet.paste(picture, (column * (width + MAP_GAP), row * (height + MAP_GAP)))
    if (places := arrays.get(f"positions_{step}")) is not None:
        draw = ImageDraw.Draw(sheet)
        centers = (MAP_SCALE * (places + 0.5)).tolist()
        for one, other in zip(*np.nonzero(np.triu(arrays[f"links_{step}"], 1)), strict=True):
            draw.line([*centers[one], *centers[other]], fill=160)
        for node, (x, y) in enumerate(centers):
            draw.ellipse([x - 3, y - 3, x + 3, y + 3], fill=96)
            draw.text((x + 4, y - 5), str(node), fill=96)
    return sheet
