"""Translation of DiNNO's density experiments: robots that map a building with a lidar."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.core.errors import UserError

DATA = {
    "num_beams": ("beams", 20), "beam_samps": ("points", 25), "beam_length": ("reach", 0.2), "collision_samps": ("coarse", 50),
    "fine_samps": ("fine", 3), "samp_distribution_factor": ("exponent", 1.0), "border_width": ("border", 30),
    "num_validation_scans": ("validation_scans", 500),
}  # fmt: skip
# DiNNO's own files, which are the defaults if the folder is not at hand: 7 paths of 82 waypoints in an image of 2,167 pixels.
ROBOTS, WAYPOINTS, SIDE, IMAGE = 7, 82, 2167, "floor_img.png"
WINDOW = 800  # scans
KEYS = {*DATA, "data_dir", "waypoint_subdir", "split_type", "round_density", "spline_res", "num_scans_in_window", "num_scans", "clipped_lidar"}  # fmt: skip


@dataclass(frozen=True)
class DensityData:
    """Data of a density experiment.

    Attributes:
        nodes: number of robots.
        points: number of samples of a robot.
        side: longer side of the image in pixels.
        has_maps: whether nnlo can write what each node predicts of the plan.
    """

    nodes: int
    points: int
    side: int
    has_maps: bool

    def rounds(self, batch: int, steps: int) -> float:
        """Return the rounds of `steps` steps in which a robot passes its path once."""
        return ceil(self.points / batch) / steps


def set_density(draft: ExperimentDraft, experiment: Mapping[str, Any], folder: Path) -> DensityData:
    """Translate building, paths, windows and network; paths of the file are relative to `folder`.

    Raises UserError if the scans of the robots do not follow paths.
    """
    data, model = experiment["data"], experiment.get("model") or {}
    if not data.get("waypoint_subdir"):
        raise UserError(
            "experiment.data: no waypoint_subdir; robots at random places are not translated, only robots on paths"
        )
    source, found = Path(str(data.get("data_dir", "."))), f"experiment.data.data_dir {data.get('data_dir')}"
    place = next((each for each in (folder / source, source) if (each / IMAGE).is_file()), None)
    paths = sorted((place / str(data["waypoint_subdir"])).glob("*.npy")) if place else []
    side, count = SIDE, WAYPOINTS
    if place and paths:
        with Image.open(place / IMAGE) as image:
            side = max(image.size)
        count = len(np.load(paths[0], allow_pickle=False))
    else:
        draft.remarks.append(
            f"{found} has no {IMAGE} and waypoints here: the sizes are those of DiNNO's own files; correct data.source and "
            "data.reader.waypoints, or import the file in DiNNO's folder"
        )
    names = [path.stem for path in paths] or [str(number) for number in range(1, ROBOTS + 1)]
    scans = int(data.get("spline_res", 30)) * (count - 1)
    reader = {key: data.get(name, default) for name, (key, default) in DATA.items()} | {
        "name": "lidar", "image": IMAGE, "dark_walls": False, "scans": scans, "seed": int(experiment.get("seed", 0)),
        "waypoints": [f"{data['waypoint_subdir']}/{name}.npy" for name in names],
    }  # fmt: skip
    points = reader["beams"] * reader["points"]
    window = int(data.get("num_scans_in_window", WINDOW))
    draft.set(
        "data",
        {
            "dataset": "density", "source": str(place or source), "reader": reader, "partition": {"name": "contiguous"},
            "stream": {"window": window * points}, "validation": "validation",
        },
        f"experiment.data: {', '.join(data)}",
    )  # fmt: skip
    draft.set("problem", "regression", "the density problem")
    loss = {"BCE": "binary_cross_entropy", "MSE": "mse", "L1": "mae"}[str(experiment.get("loss", "BCE"))]
    draft.set("loss", loss, f"experiment.loss {experiment.get('loss', 'BCE')}")
    draft.set(
        "metrics", ["binary_accuracy"] if loss == "binary_cross_entropy" else ["mae"], "nnlo's own measure"
    )
    factor = float(model.get("scale", 0.05))
    args = {
        "hidden": list(model.get("shape", [2, 256, 64, 64, 64, 1]))[1:-1],
        "scale": round(factor * side / 2, 6), "phase": round(factor / sqrt(2), 6),
    }  # fmt: skip
    draft.set(
        "model", {"name": "fourier", "args": args},
        "experiment.model: shape, scale (of pixels in DiNNO; here the longer side reaches from -1 to 1, and `phase` keeps the "
        "initial phases)",
    )  # fmt: skip
    draft.set("parallel.ranks", len(names), "the files of waypoints")
    draft.set("parallel.transport", "simulated", "DiNNO runs all nodes in one process")
    draft.set("parallel.simulation.compute", "batched", "fastest mode for many small models")
    if loss != "binary_cross_entropy":
        draft.remarks.append(
            f"DiNNO's network ends in a sigmoid; in nnlo, its output is linear with the loss {loss}"
        )
    draft.remarks += [
        f"data_split_type {experiment.get('data_split_type')}, split_type, round_density, num_scans, clipped_lidar: in nnlo, a robot "
        "has the scans of its own path, and occupancy is 0 or 1",
        "DiNNO sums the validation loss over the batches of 10,000 points; nnlo has the mean: 25 batches, a 25th.",
    ]
    return DensityData(len(names), scans * points, side, loss == "binary_cross_entropy")
