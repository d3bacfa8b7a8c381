"""Places of scans in a building: random ones, planned paths through random stops, and splines through waypoints of the user.

Planned paths are shortest paths on a grid, found by A*, which keep a distance from walls.
"""

import csv
import heapq
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from math import hypot, sqrt
from pathlib import Path

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.ndimage import distance_transform_edt

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.data.fetch.record import Stamp, stamp_of
from nnlo_lib.data.lidar.floor_plan import Grid, Occupancy, Points, floor_plan

Cell = tuple[int, int]  # row, column
STEPS = [
    (rows, columns, hypot(rows, columns))
    for rows, columns in product((-1, 0, 1), repeat=2)
    if rows or columns
]
SPLINE_DEGREE = 3


def random_places(space: Occupancy, count: int, draw: np.random.Generator) -> Points:
    """Return random pixels of the free space, (count, 2)."""
    rows, columns = np.nonzero(~space.walls)
    chosen = draw.integers(len(rows), size=count)
    return np.stack([columns[chosen], rows[chosen]], 1).astype(np.float64)


class Planner:
    """Plans paths through a building; `free`: cells whose center is at least `clearance` pixels from all walls."""

    def __init__(self, space: Occupancy, clearance: float, cell: int) -> None:
        self.cell, self._space, self._clearance = cell, space, clearance
        centers = distance_transform_edt(~space.walls)[cell // 2 :: cell, cell // 2 :: cell]
        # A diagonal step passes pixels that are nearer to a wall than both of its ends.
        self.free: Grid = centers > clearance + cell / sqrt(2)

    def path(self, waypoints: Points) -> Points:
        """Return the places of a shortest path through all waypoints, (places, 2) in pixels.

        Raises UserError if a waypoint is near or in a wall, or cannot be reached.
        """
        cells = [self._cell(point) for point in waypoints]
        places = [cells[0]]
        for start, goal in pairwise(cells):
            places += self._leg(start, goal)[1:]
        return np.array([self.center(each) for each in places], np.float64)

    def center(self, cell: Cell) -> tuple[int, int]:
        """Return the pixel (x, y) in the middle of a cell."""
        return cell[1] * self.cell + self.cell // 2, cell[0] * self.cell + self.cell // 2

    def _cell(self, point: Points) -> Cell:
        x, y = point
        row, column = round((y - self.cell // 2) / self.cell), round((x - self.cell // 2) / self.cell)
        if not self._is_free((row, column)):
            raise UserError(
                f"{self._space.name}: the waypoint x {x:.0f}, y {y:.0f} (pixels) is less than {self._clearance:g} pixels from a "
                "wall; move it, or lower data.reader.clearance"
            )
        return row, column

    def _leg(self, start: Cell, goal: Cell) -> list[Cell]:
        """Return the cells of a shortest path; A* with the length of a path without walls as the estimate."""
        costs, before, closed = {start: 0.0}, {start: start}, set[Cell]()
        queue = [(self._estimate(start, goal), start)]
        while queue:
            _, cell = heapq.heappop(queue)
            if cell == goal:
                path = [goal]
                while before[path[-1]] != path[-1]:
                    path.append(before[path[-1]])
                return path[::-1]
            if cell in closed:
                continue
            closed.add(cell)
            for rows, columns, length in STEPS:
                other = cell[0] + rows, cell[1] + columns
                cost = costs[cell] + length
                if self._is_free(other) and cost < costs.get(other, float("inf")):
                    costs[other], before[other] = cost, cell
                    heapq.heappush(queue, (cost + self._estimate(other, goal), other))
        (x, y), (to_x, to_y) = self.center(start), self.center(goal)
        raise UserError(
            f"{self._space.name}: no path from x {x}, y {y} to x {to_x}, y {to_y} (pixels) with {self._clearance:g} pixels "
            "from all walls; lower data.reader.clearance, or use a plan whose rooms are connected"
        )

    def _is_free(self, cell: Cell) -> bool:
        rows, columns = self.free.shape
        return 0 <= cell[0] < rows and 0 <= cell[1] < columns and bool(self.free[cell])

    @staticmethod
    def _estimate(cell: Cell, goal: Cell) -> float:
        rows, columns = abs(cell[0] - goal[0]), abs(cell[1] - goal[1])
        return max(rows, columns) + (sqrt(2) - 1) * min(rows, columns)


def planned_path(planner: Planner, stops: int, scans: int, draw: np.random.Generator) -> Points:
    """Return places at equal distances on a closed path through random stops, (scans, 2) in pixels.

    Raises UserError if no cell is far enough from all walls, or a stop cannot be reached.
    """
    cells = np.argwhere(planner.free)
    if not len(cells):
        raise UserError("data.reader.clearance: no place is so far from all walls; lower it")
    chosen = cells[draw.integers(len(cells), size=stops)]
    around = np.array([planner.center((row, column)) for row, column in [*chosen, chosen[0]]], np.float64)
    path = planner.path(around)
    lengths = np.concatenate([[0.0], np.hypot(*np.diff(path, axis=0).T).cumsum()])
    places = np.linspace(0, lengths[-1], scans)
    return np.stack([np.interp(places, lengths, path[:, axis]) for axis in (0, 1)], 1)


def spline_path(space: Occupancy, file: Path, scans: int) -> Points:
    """Return places of a cubic spline through the waypoints of a file, (scans, 2) in pixels.

    The `.npy` or `.csv` has rows x, y, both sides of the building from -1 to 1. Raises UserError if it has no such rows,
    or a place is in a wall.
    """
    rows = read_places(file)
    for row in np.flatnonzero(abs(rows).max(1) > 1)[:1]:
        raise UserError(
            f"{file}: row {row}, {rows[row].tolist()}, is outside of {space.name}, whose sides reach from -1 to 1; correct the waypoints"
        )
    waypoints = space.from_relative(rows)
    spline = make_interp_spline(np.arange(len(rows)), waypoints, min(SPLINE_DEGREE, len(rows) - 1))
    # Also between the scans, pixel by pixel: a robot does not jump over a thin wall.
    length = np.hypot(*np.diff(spline(np.linspace(0, len(rows) - 1, 100 * len(rows))), axis=0).T).sum()
    steps = np.linspace(0, len(rows) - 1, 2 * int(length) + 2)
    curve = spline(steps)
    for hit in np.flatnonzero(space.is_wall(curve))[:1]:
        x, y = curve[hit]
        raise UserError(
            f"{file}: the path meets a wall of {space.name} after waypoint {int(steps[hit])}, at x {round(x)}, y {round(y)} "
            "(pixels); move the waypoints"
        )
    places: Points = spline(np.linspace(0, len(rows) - 1, scans))
    return places


def read_places(file: Path) -> Points:
    """Return the rows x, y of a `.npy` or `.csv` file, (places, 2). Raises UserError if it has no such rows."""
    rows: Points
    try:
        if file.suffix == ".npy":
            rows = np.load(file, allow_pickle=False).astype(np.float64)
        else:
            with file.open(newline="", encoding="utf-8-sig") as text:  # spreadsheets write such a mark
                rows = np.array([[float(value) for value in row] for row in csv.reader(text) if row])
    except FileNotFoundError as error:
        raise UserError(f"{file}: there is no such file; correct the name of the file of places") from error
    except Exception as error:  # numpy and zipfile raise many types of exceptions for damaged files
        raise UserError(f"{file}: no places ({error}); write rows of two numbers, x and y") from error
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows):
        raise UserError(f"{file}: expected rows of two numbers, x and y, found the shape {rows.shape}")
    for row in np.flatnonzero(~np.isfinite(rows).all(1))[:1]:
        raise UserError(f"{file}: row {row}, {rows[row].tolist()}, is not finite; write two numbers, x and y")
    return rows


@dataclass(frozen=True)
class Building:
    """Settings of a building and of the paths of its robots: keys of config.reader.LidarReaderConfig."""

    folder: Path
    image: str | None = None
    threshold: float = 0.5
    dark_walls: bool = True
    border: int = 0
    width: int = 640
    height: int = 480
    room: int = 80
    robots: int = 7
    waypoints: tuple[str, ...] = ()
    stops: int = 6
    clearance: float = 8.0
    scans: int = 500
    seed: int = 0

    @property
    def files(self) -> tuple[Path, ...]:
        """The image and the files of waypoints."""
        names = [*([self.image] if self.image else []), *self.waypoints]
        return tuple(self.folder / name for name in names)

    @property
    def space(self) -> Occupancy:
        """Walls and free space. Raises UserError if the image cannot be used."""
        if self.image is None:
            walls = floor_plan(derive_seed(self.seed, "floor plan"), self.width, self.height, self.room)
            return Occupancy(walls, f"floor plan of seed {self.seed}")
        return Occupancy.from_image(self.folder / self.image, self.threshold, self.dark_walls, self.border)

    def paths(self, space: Occupancy) -> list[Points]:
        """Return the places of the scans of each robot. Raises UserError for a path that meets a wall."""
        if self.waypoints:
            return [spline_path(space, self.folder / name, self.scans) for name in self.waypoints]
        planner = Planner(space, self.clearance, cell=max(1, int(self.clearance) // 2))
        streams = (
            np.random.default_rng(derive_seed(self.seed, "path", robot)) for robot in range(self.robots)
        )
        return [planned_path(planner, self.stops, self.scans, draw) for draw in streams]

    def places(self, validation_scans: int, test_scans: int) -> dict[str, Points]:
        """Return the places of all scans by split, in pixels; the training scans robot by robot.

        Raises UserError as `paths` does.
        """
        space = self.space
        places = {"train": np.concatenate(self._planned)}
        for split, count in (("validation", validation_scans), ("test", test_scans)):
            if count:
                places[split] = random_places(
                    space, count, np.random.default_rng(derive_seed(self.seed, split))
                )
        return places

    def robot_paths(self) -> Points:
        """Return the places of each robot's scans, (robots, scans, 2), the longer side of the building from -1 to 1."""
        places = np.stack(self._planned)
        return self.space.normalized(places).astype(np.float64)

    @property
    def _planned(self) -> list[Points]:
        """The paths, planned once as long as the files stay the same."""
        # A building without files has the same paths in any folder.
        building = self if self.files else replace(self, folder=Path())
        return _paths(building, tuple(map(stamp_of, self.files)))


@lru_cache(maxsize=4)
def _paths(building: Building, _versions: tuple[Stamp, ...]) -> list[Points]:
    return building.paths(building.space)
