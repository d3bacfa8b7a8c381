"""Translation of DiNNO's density experiments: robots that map a building with a lidar."""

from math import sqrt
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from nnlo_lib.compat.importers.dinno_file import FOURIER, Section, check_name, read_section
from nnlo_lib.compat.importers.dinno_problem import DensityData
from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.core.errors import UserError

# Keys of nnlo's reader.
READER_KEYS = {
    "num_beams": "beams", "beam_samps": "points", "beam_length": "reach", "collision_samps": "coarse", "fine_samps": "fine",
    "samp_distribution_factor": "exponent", "border_width": "border", "num_validation_scans": "validation_scans",
}  # fmt: skip
# DiNNO's own files, which are the defaults if the folder is not at hand: 7 paths of 82 waypoints in an image of 2,167 pixels.
ROBOTS, WAYPOINTS, SIDE, IMAGE = 7, 82, 2167, "floor_img.png"
UNUSED = ("split_type", "round_density", "num_scans", "clipped_lidar")
LOSSES = {"MSE": "mse", "L1": "mae", "BCE": "binary_cross_entropy"}


def set_density(draft: ExperimentDraft, experiment: Section, folder: Path, nodes: int | None) -> DensityData:
    """Translate building, paths, windows and network of a file in `folder`, to which its paths are relative.

    `nodes` robots have links that stay; None: one robot for each file of waypoints, with links of their places.
    """
    data = experiment.data
    building = _building(draft, data, folder, nodes)
    scans, robots = _scans(draft, data, building), len(building.waypoints)
    sizes = {key: getattr(data, name) for name, key in READER_KEYS.items()}
    points = data.num_beams * data.beam_samps
    reader = sizes | {
        "name": "lidar", "image": IMAGE, "dark_walls": False, "scans": scans, "seed": experiment.seed,
        "waypoints": [f"{data.waypoint_subdir}/{name}.npy" for name in building.waypoints],
    }  # fmt: skip
    settings = {
        "dataset": "density",
        "source": str(building.folder),
        "reader": reader,
        "validation": "validation",
    }
    settings["partition"] = {"name": "contiguous"}
    if nodes is None:
        settings["stream"] = {"window": data.num_scans_in_window * points}
        draft.set("parallel.ranks", robots, "the files of waypoints")
    elif "num_scans_in_window" in data.given:
        draft.note("experiment.data.num_scans_in_window (used only with comm_radius)")
    draft.set("data", settings, f"experiment.data: {', '.join(data.given)}")
    if unused := [key for key in ("data_split_type", *UNUSED) if key in (*experiment.given, *data.given)]:
        draft.note(
            f"{', '.join(unused)}: in nnlo, a robot has the scans of its own path, and occupancy is 0 or 1"
        )
    is_occupancy = _set_network(draft, experiment, building.side)
    return DensityData(robots, scans * points, building.side, is_occupancy, moves=nodes is None)


class DensityBuilding(NamedTuple):
    """An image of walls with the paths of robots: its longer side in pixels, and the waypoints of each file by its name."""

    folder: Path
    side: int
    waypoints: dict[str, int]


def _building(draft: ExperimentDraft, data: Section, folder: Path, nodes: int | None) -> DensityBuilding:
    """Return the building in the folder of the file or the working directory; DiNNO's own sizes if it is in neither."""
    if not data.waypoint_subdir:
        raise UserError(
            "experiment.data: no waypoint_subdir; robots at random places are not translated, only robots on paths"
        )
    # DiNNO reads split_type only if links stay.
    if nodes and data.split_type not in (None, "trajectory"):
        raise UserError(
            f"experiment.data.split_type: expected trajectory, got {data.split_type!r}; robots at random places are not translated"
        )
    source, written = Path(data.data_dir), f"experiment.data.data_dir {data.data_dir}"
    place = next((each for each in (folder / source, source) if (each / IMAGE).is_file()), source)
    paths = sorted((place / data.waypoint_subdir).glob("*.npy"))
    if not paths or not (place / IMAGE).is_file():
        draft.note(
            f"{written} has no {IMAGE} and waypoints here: the sizes are those of DiNNO's own files; correct data.source and "
            "data.reader.waypoints, or import the file in DiNNO's folder"
        )
        return DensityBuilding(
            place, SIDE, {str(robot): WAYPOINTS for robot in range(1, (nodes or ROBOTS) + 1)}
        )
    if nodes and len(paths) < nodes:
        raise UserError(
            f"experiment.graph.num_nodes: expected at most {len(paths)}, the files of waypoints in {paths[0].parent}, got {nodes}"
        )
    if nodes and len(paths) > nodes:
        draft.note(
            f"{written}: the robots have the first {nodes} of {len(paths)} files of waypoints by name; DiNNO takes any {nodes}, in "
            "the order of the file system"
        )
    # Its scipy takes a third of a second to import, which other imported commands do not need.
    from nnlo_lib.data.lidar.trajectories import read_places

    try:
        with Image.open(place / IMAGE) as image:
            side = max(image.size)
    except (OSError, Image.DecompressionBombError) as error:
        raise UserError(f"{place / IMAGE}: cannot be read as an image ({error}); use a PNG file") from error
    waypoints = {path.stem: len(read_places(path)) for path in paths[:nodes]}
    if short := [path for path in paths[:nodes] if waypoints[path.stem] < 2]:
        raise UserError(f"{short[0]}: expected at least two waypoints of a path, got one")
    return DensityBuilding(place, side, waypoints)


def _scans(draft: ExperimentDraft, data: Section, building: DensityBuilding) -> int:
    """Return the number of scans of a robot, which is that of the first robot for all robots."""
    (name, count), *others = building.waypoints.items()
    scans = int(data.spline_res) * (count - 1)
    if unequal := [f"{other}.npy ({each} waypoints)" for other, each in others if each != count]:
        draft.note(
            f"experiment.data.data_dir {data.data_dir}: every robot has {scans} scans, because {name}.npy has {count} "
            f"waypoints; in DiNNO, a robot has {data.spline_res} scans for each waypoint after the first, so that the number "
            f"differs for {', '.join(unequal)}"
        )
    return scans


def _set_network(draft: ExperimentDraft, experiment: Section, side: int) -> bool:
    """Set network, loss and metric; return True if the network predicts occupancy, of which maps can be drawn."""
    model = read_section(FOURIER, experiment.model, "experiment.model")
    written = check_name(experiment.loss or "BCE", LOSSES, "experiment.loss")
    loss, is_occupancy = LOSSES[written], written == "BCE"
    draft.set("problem", "regression", "the density problem")
    draft.set("loss", loss, f"experiment.loss {written}")
    draft.set("metrics", ["binary_accuracy"] if is_occupancy else ["mae"], "nnlo's own measure")
    if not is_occupancy:
        draft.note(f"DiNNO's network ends in a sigmoid; in nnlo, its output is linear with the loss {loss}")
    draft.note(
        "DiNNO sums the validation loss over the batches of 10,000 points; nnlo has the mean: 25 batches, a 25th."
    )
    shape = model.shape or [2, 256, 64, 64, 64, 1]
    is_list = isinstance(shape, list) and all(type(width) is int and width > 0 for width in shape)
    if not is_list or len(shape) < 3 or (shape[0], shape[-1]) != (2, 1):
        raise UserError(
            f"experiment.model.shape: expected a list of 2 (x, y), positive hidden widths and 1 (density), got {shape!r}"
        )
    scale, phase = round(model.scale * side / 2, 6), round(model.scale / sqrt(2), 6)
    args = {"hidden": shape[1:-1], "scale": scale, "phase": phase}
    source = (
        "experiment.model: shape, scale (of pixels in DiNNO; here the longer side reaches from -1 to 1, and `phase` keeps the "
        "initial phases)"
    )
    draft.set("model", {"name": "fourier", "args": args}, source)
    return is_occupancy
