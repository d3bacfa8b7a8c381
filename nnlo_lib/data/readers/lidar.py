"""Reader that simulates robots with a lidar in a building: points and whether they are occupied."""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.data.lidar.floor_plan import Points
from nnlo_lib.data.lidar.scanner import Scanner
from nnlo_lib.data.lidar.trajectories import Building
from nnlo_lib.data.readers.base import PLAN_SPLIT, ConversionUnit, DatasetContents, SampleBlock, shard_ranges

BYTES_PER_POINT = 12
PLAN_SIDE = 128  # cells of the longer side of the plan: a wall of lidar-dinno.yaml, 42 of 2,167 pixels, is wider than a cell


def read(
    folder: Path, shard_size: int, *, validation_scans: int = 500, test_scans: int = 500, **keys: Any
) -> DatasetContents:
    """Return scans of all robots, in the order of robots and places, scans at random places to validate and test, and the plan.

    A sample is a point, (2,) with the longer side of the building from -1 to 1, and 1 if it is occupied, else 0. The `keys`
    are fields of Scanner and Building. Raises UserError if the building or a path cannot be used.
    """
    lidar = {each.name: keys.pop(each.name) for each in fields(Scanner) if each.name in keys}
    building = Building(folder, **keys | {"waypoints": tuple(keys.get("waypoints", ()))})
    per_scan = lidar.get("beams", Scanner.beams) * lidar.get("points", Scanner.points)
    units = (
        ConversionUnit(
            split, name, folder, partial(_block, building, lidar, each[start:end]), files=building.files
        )
        for split, each in building.places(validation_scans, test_scans).items()
        for name, start, end in shard_ranges(
            split, len(each), max(1, shard_size // per_scan), per_scan * BYTES_PER_POINT
        )
    )
    plan = ConversionUnit(
        PLAN_SPLIT, "plan-00000-of-00001", folder, partial(_plan, building), files=building.files
    )
    return DatasetContents((*units, plan), inputs=("points",), labels="occupied")


def _block(building: Building, lidar: dict[str, Any], places: Points) -> SampleBlock:
    """Return the points of the scans at `places`, (scans, 2) in pixels, by a Scanner with the fields `lidar`."""
    space = building.space
    found, occupied = Scanner(space, **lidar).scan(places)
    return SampleBlock((space.normalized(found),), occupied)


def _plan(building: Building) -> SampleBlock:
    """Return every n-th pixel of the building row by row, at most PLAN_SIDE in a row or column."""
    space = building.space
    step = -(-max(space.size) // PLAN_SIDE)
    columns, rows = (np.arange(step // 2, side, step) for side in space.size)
    places = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2).astype(np.float64)
    return SampleBlock((space.normalized(places),), space.is_wall(places).astype(np.float32))
