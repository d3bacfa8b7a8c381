"""Places of scans: random ones, paths through random stops, and splines through waypoints of the user."""

import csv
from pathlib import Path

import numpy as np
from scipy.interpolate import make_interp_spline

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.lidar.occupancy import Occupancy, Points
from nnlo_lib.data.lidar.planner import Planner

SPLINE_DEGREE = 3


def random_places(space: Occupancy, count: int, draw: np.random.Generator) -> Points:
    """Return random pixels of the free space, (count, 2).

    Args:
        space: the building.
        count: number of places.
        draw: random numbers.
    """
    rows, columns = np.nonzero(~space.walls)
    chosen = draw.integers(len(rows), size=count)
    return np.stack([columns[chosen], rows[chosen]], 1).astype(np.float64)


def planned_path(planner: Planner, stops: int, scans: int, draw: np.random.Generator) -> Points:
    """Return places at equal distances on a closed path through random stops, (scans, 2).

    Args:
        planner: planner of the building.
        stops: number of stops.
        scans: number of places.
        draw: random numbers.

    Raises:
        UserError: if no cell is far enough from all walls, or a stop cannot be reached.
    """
    cells = np.argwhere(planner.free)
    if not len(cells):
        raise UserError("data.reader.clearance: no place is so far from all walls; lower it")
    chosen = cells[draw.integers(len(cells), size=stops)]
    around = np.array([planner.center((row, column)) for row, column in [*chosen, chosen[0]]], np.float64)
    return evenly_spaced(planner.path(around), scans)


def evenly_spaced(path: Points, count: int) -> Points:
    """Return `count` places at equal distances along a path of straight segments, (count, 2)."""
    lengths = np.concatenate([[0.0], np.hypot(*np.diff(path, axis=0).T).cumsum()])
    places = np.linspace(0, lengths[-1], count)
    return np.stack([np.interp(places, lengths, path[:, axis]) for axis in (0, 1)], 1)


def spline_path(space: Occupancy, file: Path, scans: int) -> Points:
    """Return places of a cubic spline through the waypoints of a file, (scans, 2) in pixels.

    Args:
        space: the building.
        file: `.npy` or `.csv` with rows x, y, both sides of the building from -1 to 1.
        scans: number of places.

    Raises:
        UserError: if the file has no such rows, or a place is in a wall.
    """
    waypoints = space.from_relative(_waypoints(file))
    parameter = np.arange(len(waypoints))
    spline = make_interp_spline(parameter, waypoints, min(SPLINE_DEGREE, len(waypoints) - 1))
    places: Points = spline(np.linspace(0, len(waypoints) - 1, scans))
    hits = np.flatnonzero(space.is_wall(places))
    if len(hits):
        x, y = places[hits[0]]
        raise UserError(
            f"{file}: scan {hits[0]} of {scans} is in a wall of {space.name}, at x {x:.0f}, y {y:.0f} (pixels); move the waypoints"
        )
    return places


def _waypoints(file: Path) -> Points:
    rows: Points
    try:
        if file.suffix == ".npy":
            rows = np.load(file, allow_pickle=False).astype(np.float64)
        else:
            with file.open(newline="") as text:
                rows = np.array([[float(value) for value in row] for row in csv.reader(text) if row])
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{file}: no waypoints ({error}); write rows of two numbers, x and y") from error
    if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise UserError(
            f"{file}: expected at least two rows of two finite numbers, x and y from -1 to 1, found {rows.shape}"
        )
    return rows
