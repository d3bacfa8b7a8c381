"""Graphs of moving robots, compared with the places from which the points of their scans were taken."""

from pathlib import Path

import numpy as np
import pytest

from nnlo_lib.config import Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.topology import DiskGraphConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.lidar import read
from nnlo_lib.topology.topology import build_topology, topology_error

ROBOTS, SCANS, ROUNDS = 3, 40, 8
READER = {"robots": ROBOTS, "scans": SCANS, "width": 220, "height": 200, "beams": 3, "points": 4}
DATA = DataConfig.model_validate(
    {
        "dataset": "lidar",
        "reader": {"name": "lidar", **READER},
        "partition": {"name": "contiguous"},
        "validation": "validation",
    }
)


def run(
    radius: float, rounds: int = ROUNDS, algorithm: str = "dinno", ranks: int = ROBOTS, **graph: object
) -> Run:
    topology = {"name": "disk", "positions": "trajectory", "radius": radius, "rounds": rounds, **graph}
    return Run.model_validate(
        {
            "data": DATA.model_dump(), "problem": "regression", "loss": "binary_cross_entropy",
            "topology": topology, "algorithm": {"name": algorithm}, "parallel": {"ranks": ranks},
        }
    )  # fmt: skip


def distances() -> np.ndarray:
    """Return the distance of each pair in each round: the first point of a scan's beams is where the robot is."""
    units = [unit for unit in read(Path(), 10**6, **READER).units if unit.split == "train"]
    places = np.concatenate([unit.read().inputs[0] for unit in units]).reshape(ROBOTS, SCANS, 12, 2)[:, :, 0]
    places = places[:, [round * SCANS // ROUNDS for round in range(ROUNDS)]].astype(float)
    return np.linalg.norm(places[:, None] - places[None], axis=-1).transpose(2, 0, 1)


def test_links_of_a_round_follow_from_where_the_robots_are():
    apart, pairs = distances(), ~np.eye(ROBOTS, dtype=bool)
    # Between the shortest distance of the last pair that meets, and the longest one.
    nearest = np.sort(apart.min(0)[np.triu_indices(ROBOTS, 1)])
    radius = float(nearest[1]) + 1e-4
    graph = build_topology(run(radius).topology, ROBOTS, 0, DATA)
    for round in range(2 * ROUNDS):
        linked = (graph.at(round).matrix > 0) & pairs
        np.testing.assert_array_equal(linked, (apart[round % ROUNDS] <= radius) & pairs)
    assert graph.connected
    assert graph.doubly_stochastic
    assert not graph.static
    assert min(graph.at(round).degree(0) for round in range(ROUNDS)) < 2, "some robots come apart"
    assert topology_error(run(radius), 0) is None
    assert "a static graph" in str(topology_error(run(radius, algorithm="prox_pda"), 0))
    lost = build_topology(run(radius, drop=0.9).topology, ROBOTS, 0, DATA)
    assert any((lost.at(round).matrix != graph.at(round).matrix).any() for round in range(ROUNDS))


def test_positions_come_from_files_for_any_data(tmp_path):
    places = np.random.default_rng(0).random((3, 12, 2))
    files = tuple(f"{tmp_path}/{node}.{'csv' if node else 'npy'}" for node in range(3))
    np.save(files[0], places[0])
    for node in (1, 2):
        np.savetxt(files[node], places[node], delimiter=",")
    np.savetxt(tmp_path / "stay.csv", places[:, 0], delimiter=",")
    moving = DiskGraphConfig(positions=files, rounds=4, radius=0.5)
    static = DiskGraphConfig(positions=f"{tmp_path}/stay.csv", radius=2)
    for settings, rows in ((moving, places[:, ::3]), (static, places[:, :1])):
        graph = build_topology(settings, 3, 0)
        for round in range(2 * rows.shape[1]):
            now = rows[:, round % rows.shape[1]]
            near = np.linalg.norm(now[:, None] - now, axis=-1) <= settings.radius
            np.testing.assert_array_equal(graph.at(round).matrix > 0, near | np.eye(3, dtype=bool))
            np.testing.assert_array_equal(graph.positions(round), now)
    assert build_topology(static, 3, 0).static
    stays = run(0.5).model_copy(update={"topology": moving})
    assert list(stays.input_files) == [*files], "an edited file trains the run again"
    (tmp_path / "1.csv").write_text("0.1\n")
    other = DiskGraphConfig(positions=files, rounds=5, radius=0.5)
    message = r"1\.csv: expected rows of two numbers, x and y, found the shape \(1, 1\)"
    with pytest.raises(UserError, match=message):
        build_topology(other, 3, 0)


def test_a_radius_that_never_connects_all_robots_is_refused_with_place_and_value():
    nearest = np.sort(distances().min(0)[np.triu_indices(ROBOTS, 1)])
    message = rf"topology\.radius: 0\.01 never connects all nodes.*, {nearest[1]:.3g} apart, at x "
    with pytest.raises(UserError, match=message):
        build_topology(run(0.01).topology, ROBOTS, 0, DATA)
    message = r"topology\.positions: positions of 3 nodes, but the graph has 4 nodes"
    with pytest.raises(UserError, match=message):
        build_topology(run(0.5).topology, 4, 0, DATA)


@pytest.mark.parametrize(
    ("graph", "message"),
    [({"rounds": None}, "set the rounds in which nodes pass"), ({"redraw_every": 3}, "remove it"), ({"positions": "random"}, "only nodes with paths move")],
)  # fmt: skip
def test_settings_that_contradict_moving_robots_are_refused(graph, message):
    with pytest.raises(ValueError, match=message):
        run(0.5, **graph)
