"""Paths are shortest, keep their distance from walls, and meet none; bad plans and waypoints are named."""

import re

import networkx
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import distance_transform_edt

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.lidar.floor_plan import Occupancy, floor_plan
from nnlo_lib.data.lidar.trajectories import STEPS, Planner, planned_path
from nnlo_lib.data.readers.lidar import read
from nnlo_lib.experiment.load import load_experiment

SPACE = Occupancy(floor_plan(2, 320, 240, 60), "plan")


@pytest.mark.parametrize("seed", range(3))
def test_a_leg_is_as_short_as_networkx_finds(seed):
    planner = Planner(SPACE, 6, 4)
    free = {tuple(cell) for cell in np.argwhere(planner.free).tolist()}
    graph = networkx.Graph()
    for row, column in free:
        for rows, columns, length in STEPS:
            if (row + rows, column + columns) in free:
                graph.add_edge((row, column), (row + rows, column + columns), weight=4 * length)
    start, goal = (sorted(free)[n] for n in np.random.default_rng(seed).integers(len(free), size=2))
    path = planner.path(np.array([planner.center(start), planner.center(goal)], float))
    length = np.hypot(*np.diff(path, axis=0).T).sum()
    assert length == pytest.approx(networkx.shortest_path_length(graph, start, goal, weight="weight"))


@pytest.mark.parametrize("seed", range(3))
def test_planned_paths_keep_their_distance_from_walls(seed):
    planner = Planner(SPACE, 6, 4)
    places = planned_path(planner, 5, 400, np.random.default_rng(seed))
    assert np.allclose(places[0], places[-1]), "the path is closed"
    steps = np.hypot(*np.diff(places, axis=0).T)
    assert steps.max() < 1.01 * np.median(steps)
    x, y = np.rint(places).astype(int).T
    assert distance_transform_edt(~SPACE.walls)[y, x].min() >= 6


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a plan of two rooms without a door, and waypoints in the left one."""
    walls = np.full((100, 200), 255, np.uint8)
    walls[:4] = walls[-4:] = walls[:, :4] = walls[:, -4:] = walls[:, 98:102] = 0
    Image.fromarray(walls).save(tmp_path / "plan.png")
    np.save(tmp_path / "left.npy", [[-0.8, -0.5], [-0.2, -0.5], [-0.2, 0.5], [-0.8, 0.5]])
    (tmp_path / "through.csv").write_text("-0.5,0\n0.5,0\n")
    (tmp_path / "words.csv").write_text("x,y\n0,0\n")
    (tmp_path / "far.csv").write_text("-0.5,0\n1e308,0\n")
    (tmp_path / "empty.npy").touch()
    np.savez(tmp_path / "archive.npz", walls)
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    return tmp_path


QUICK = {"scans": 30, "beams": 4, "points": 5, "validation_scans": 3, "test_scans": 2}


def test_an_image_and_waypoints_of_the_user(folder):
    contents = read(folder, 300, image="plan.png", waypoints=["left.npy", "left.npy"], **QUICK)
    assert [unit.split for unit in contents.units] == ["train"] * 4 + ["validation", "test", "plan"]
    block = contents.units[0].read()
    (points,) = block.inputs
    assert (points.shape, points.dtype, block.labels.shape) == ((300, 2), np.float32, (300,))
    # The first scan is at the first waypoint; the longer side is from -1 to 1.
    np.testing.assert_allclose(points[0], [-0.8, -0.25], atol=1e-6)
    assert contents.units[0].sources == (folder / "plan.png", folder / "left.npy", folder / "left.npy")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"waypoints": ["through.csv"]}, r"through.csv: the path meets a wall of .*plan.png after waypoint 0, at x 98, y 50"),
        ({"waypoints": ["through.csv"], "scans": 2}, "through.csv: the path meets a wall"),
        ({"waypoints": ["words.csv"]}, "words.csv: no places"),
        ({"waypoints": ["far.csv"]}, r"far.csv: row 1, \[1e\+308, 0.0\], is outside of .*plan.png"),
        ({"waypoints": ["empty.npy"]}, "empty.npy: no places"),
        ({"waypoints": ["archive.npy"]}, "archive.npy: no places"),
        ({"waypoints": ["none.npy"]}, "none.npy: No such file"),
        ({"clearance": 60.0}, "data.reader.clearance: no place is so far from all walls"),
        ({"robots": 9}, "no path from x .* with 8 pixels from all walls"),
        ({"border": 60}, "no pixel is free space with .* a border of 60 pixels"),
        ({"image": "left.npy"}, "left.npy: cannot be read as an image"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_with_its_place(folder, options, said):
    with pytest.raises(UserError, match=said):
        read(folder, 300, **{"image": "plan.png", **QUICK, **options})


WALLS = np.tri(20, 30, dtype=bool)  # dark pixels of an image, which was written in each of these ways
LEVELS = np.where(WALLS, 40, 230)
CLEAR = np.zeros((20, 30, 4), np.uint8)
CLEAR[..., 3] = 255 * WALLS
IMAGES = {
    "8 bits": Image.fromarray(LEVELS.astype(np.uint8)),
    "color": Image.fromarray(LEVELS.astype(np.uint8)).convert("RGB"),
    "palette": Image.fromarray(LEVELS.astype(np.uint8)).convert("P"),
    "16 bits": Image.fromarray((257 * LEVELS).astype(np.uint16)),
    "32 bits": Image.fromarray((257 * LEVELS).astype(np.int32)),
    "fractions": Image.fromarray((LEVELS / 255).astype(np.float32)),
    "black on transparent ground": Image.fromarray(CLEAR),
}


@pytest.mark.parametrize("case", IMAGES)
def test_walls_are_dark_pixels_in_any_kind_of_image(tmp_path, case):
    IMAGES[case].save(tmp_path / "plan.tiff")
    found = Occupancy.from_image(tmp_path / "plan.tiff", 0.5, dark_walls=True, border=0)
    assert (found.walls == WALLS).all()


def test_waypoints_of_a_spreadsheet(folder):
    (folder / "left.csv").write_text("\ufeff-0.8,-0.5\n-0.2,-0.5\n", "utf-8")
    assert read(folder, 300, image="plan.png", waypoints=["left.csv"], **QUICK).units


LIDAR = """
data:
  dataset: {dataset}
  source: {source}
  reader: {{name: lidar, {reader}}}
  partition: {{name: {partition}}}
  validation: {validation}
problem: regression
loss: binary_cross_entropy
model: {{name: fourier}}
algorithm: {{name: dsgd}}
parallel: {{ranks: 3}}
topology: {{name: cycle}}
"""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reader": "robots: 3, border: 4"}, "data.reader.border: has no effect without an image; remove it"),
        ({"dataset": "house", "source": ".", "reader": "image: plan.png, robots: 3, width: 300"}, "data.reader.width: has no effect with an image"),
        ({"dataset": "house", "source": ".", "reader": "image: plan.png, waypoints: [a.npy, a.npy, a.npy], robots: 3"}, "data.reader.robots: has no effect with waypoints"),
        ({"reader": "robots: 4"}, "data.reader.robots: 4 robots, but 3 workers, which would get scans of each other's robots"),
        ({"dataset": "house", "source": ".", "reader": "waypoints: [a.npy, b.npy]"}, "data.reader.waypoints: 2 robots, but 3 workers"),
        ({"dataset": "house", "source": "."}, "data.reader: set `image` or `waypoints`, or for a building that is drawn"),
        ({"source": "."}, "data.source: lidar reads no files; remove the key, or set `data.dataset` to a name of your own"),
        ({"reader": "robots: 3, image: plan.png"}, "data.reader.image: the data set lidar reads no files"),
        ({"validation": 0.1}, "data.validation: samples that are held out move the borders"),
        ({"reader": "robots: 4", "partition": "iid", "validation": 0.1}, ""),
        ({"dataset": "house", "source": ".", "reader": "robots: 3, image: plan.png, border: 4"}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_settings_of_robots_that_would_be_ignored_or_mixed(tmp_path, changes, said):
    settings = {"dataset": "lidar", "source": "null", "reader": "robots: 3", "partition": "contiguous"}
    (tmp_path / "x.yaml").write_text(LIDAR.format(**settings | {"validation": "validation"} | changes))
    if said:
        with pytest.raises(UserError, match=re.escape(said)):
            load_experiment(tmp_path / "x.yaml")
    else:
        load_experiment(tmp_path / "x.yaml")


def test_all_points_depend_on_the_seed_alone(tmp_path):
    def drawn(seed, size):
        units = read(tmp_path, size, seed=seed, robots=2, width=240, height=200, **QUICK).units
        return np.concatenate([unit.read().inputs[0] for unit in units])

    assert np.array_equal(drawn(1, 40), drawn(1, 10_000))
    assert not np.array_equal(drawn(1, 40), drawn(2, 40))
