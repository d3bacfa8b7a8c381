"""Reader that simulates robots with a lidar in a building: points and whether they are occupied."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nnlo_lib.data.lidar.floor_plan import Points
from nnlo_lib.data.lidar.scanner import Scanner
from nnlo_lib.data.lidar.trajectories import Building
from nnlo_lib.data.readers.base import (
    PLAN_SPLIT,
    ConversionUnit,
    DatasetContents,
    SampleBlock,
    shard_ranges,
)

BYTES_PER_POINT = 12
PLAN_SIDE = 128  # cells of the longer side of the plan: a wall of lidar-dinno.yaml, 42 of 2,167 pixels, is wider than a cell


def read(
    folder: Path,
    shard_size: int,
    *,
    image: str | None = None,
    threshold: float = 0.5,
    dark_walls: bool = True,
    border: int = 0,
    width: int = 640,
    height: int = 480,
    room: int = 80,
    robots: int = 7,
    waypoints: Sequence[str] = (),
    stops: int = 6,
    clearance: float = 8.0,
    scans: int = 500,
    beams: int = 20,
    points: int = 25,
    reach: float = 0.2,
    coarse: int = 50,
    fine: int = 3,
    exponent: float = 1.0,
    validation_scans: int = 500,
    test_scans: int = 500,
    seed: int = 0,
) -> DatasetContents:
    """Return scans of all robots, in the order of robots and places, scans at random places to validate and test, and the plan.

    A sample is a point, (2,) with the longer side of the building from -1 to 1, and 1 if it is occupied, else 0.

    Raises UserError if the building or a path cannot be used.
    """
    building = Building(
        folder, image, threshold, dark_walls, border, width, height, room, robots, tuple(waypoints), stops, clearance,
        scans, seed,
    )  # fmt: skip
    places = building.places(validation_scans, test_scans)
    per_scan = beams * points
    settings = (beams, points, reach, coarse, fine, exponent)
    units = (
        ConversionUnit(
            split, name, folder, partial(_block, building, settings, each[start:end]), files=building.files
        )
        for split, each in places.items()
        for name, start, end in shard_ranges(
            split, len(each), max(1, shard_size // per_scan), per_scan * BYTES_PER_POINT
        )
    )
    plan = ConversionUnit(
        PLAN_SPLIT, "plan-00000-of-00001", folder, partial(_plan, building), files=building.files
    )
    return DatasetContents((*units, plan), inputs=("points",), labels="occupied")


def _block(
    building: Building, settings: tuple[int, int, float, int, int, float], places: Points
) -> SampleBlock:
    """Return the points of the scans at `places`, (scans, 2) in pixels.

    The settings are beams, points, reach, coarse, fine and exponent of the scanner.
    """
    space = building.space
    found, occupied = Scanner(space, *settings).scan(places)
    return SampleBlock((space.normalized(found),), occupied)


def _plan(building: Building) -> SampleBlock:
    """Return every n-th pixel of the building row by row, at most PLAN_SIDE in a row or column."""
    space = building.space
    step = -(-max(space.size) // PLAN_SIDE)
    columns, rows = (np.arange(step // 2, side, step) for side in space.size)
    places = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2).astype(np.float64)
    return SampleBlock((space.normalized(places),), space.is_wall(places).astype(np.float32))
