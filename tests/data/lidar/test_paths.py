"""Paths are shortest, keep their distance from walls, and meet none; bad plans and waypoints are named."""

import networkx
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import distance_transform_edt

from nnlo_lib.config.reader import LidarReaderConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.lidar.floor_plan import Occupancy, floor_plan
from nnlo_lib.data.lidar.trajectories import STEPS, Planner, evenly_spaced, planned_path
from nnlo_lib.data.readers.lidar import read

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


def test_evenly_spaced():
    path = np.array([[0.0, 0], [3, 0], [3, 1]])
    assert evenly_spaced(path, 5).tolist() == [[0, 0], [1, 0], [2, 0], [3, 0], [3, 1]]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a plan of two rooms without a door, and waypoints in the left one."""
    walls = np.full((100, 200), 255, np.uint8)
    walls[:4] = walls[-4:] = walls[:, :4] = walls[:, -4:] = walls[:, 98:102] = 0
    Image.fromarray(walls).save(tmp_path / "plan.png")
    np.save(tmp_path / "left.npy", [[-0.8, -0.5], [-0.2, -0.5], [-0.2, 0.5], [-0.8, 0.5]])
    (tmp_path / "through.csv").write_text("-0.5,0\n0.5,0\n")
    (tmp_path / "words.csv").write_text("x,y\n0,0\n")
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
        ({"waypoints": ["through.csv"]}, r"through.csv: scan 14 of 30 is in a wall of .*plan.png, at x 98, y 50"),
        ({"waypoints": ["words.csv"]}, "words.csv: no places"),
        ({"waypoints": ["none.npy"]}, "none.npy: No such file"),
        ({"clearance": 60.0}, "data.reader.clearance: no place is so far from all walls"),
        ({"robots": 9}, "no path from x .* with 8 pixels from all walls"),
        ({"border": 60}, "no pixel is free space"),
        ({"image": "left.npy"}, "left.npy: cannot be read as an image"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_with_its_place(folder, options, said):
    with pytest.raises(UserError, match=said):
        read(folder, 300, **{"image": "plan.png", **QUICK, **options})


def test_all_points_depend_on_the_seed_alone(tmp_path):
    def drawn(seed, size):
        units = read(tmp_path, size, seed=seed, robots=2, width=240, height=200, **QUICK).units
        return np.concatenate([unit.read().inputs[0] for unit in units])

    assert np.array_equal(drawn(1, 40), drawn(1, 10_000))
    assert not np.array_equal(drawn(1, 40), drawn(2, 40))


def test_a_room_fits_into_its_floor_plan():
    assert LidarReaderConfig(width=640, height=480, room=480).room == 480
    with pytest.raises(
        ValueError, match="a room of 481 pixels is larger than the floor plan, whose shorter side has 480"
    ):
        LidarReaderConfig(width=640, height=480, room=481)
