"""Vectorized lidar: points along beams up to the first wall, with their occupancy."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnlo_lib.data.lidar.floor_plan import Occupancy, Points

POINTS_AT_ONCE = 1 << 16  # arrays of so many points fit in a cache


@dataclass(frozen=True)
class Scanner:
    """A lidar with beams in all directions.

    A beam is searched for a wall at `coarse` points of its length, then at `fine` points between the last free and the
    first occupied one, as in DiNNO's simulator.
    """

    space: Occupancy
    beams: int = 20
    points: int = 25
    reach: float = 0.2
    coarse: int = 50
    fine: int = 3
    # point number i of n is at (i / (n - 1))^exponent of the beam: below 1, points are near the wall
    exponent: float = 1.0

    def scan(self, positions: Points) -> tuple[Points, npt.NDArray[np.float32]]:
        """Return the points (scans * beams * points, 2) in pixels and their occupancy, 0 or 1.

        The scans are at `positions` in free space, (scans, 2) in pixels.
        """
        step = max(1, POINTS_AT_ONCE // (self.beams * max(self.coarse, self.points)))
        parts = [self._scan(positions[start : start + step]) for start in range(0, len(positions), step)]
        points = np.concatenate(parts) if parts else np.zeros((0, 2))
        return points, self.space.is_wall(points).astype(np.float32)

    def _scan(self, positions: Points) -> Points:
        angles = np.linspace(-np.pi, np.pi, self.beams, endpoint=False)
        length = self.reach * max(self.space.size)
        beams = length * np.stack([np.cos(angles), np.sin(angles)], 1)
        starts = np.repeat(positions, self.beams, 0)
        beams = np.tile(beams, (len(positions), 1))
        ends = self._free_share(starts, beams)
        shares = np.linspace(0, 1, self.points) ** self.exponent
        return (starts[:, None] + (ends[:, None] * shares)[..., None] * beams[:, None]).reshape(-1, 2)

    def _free_share(self, starts: Points, beams: Points) -> npt.NDArray[np.float64]:
        """Return the part of each beam up to the first occupied point that the searches find; 1 without a wall."""
        coarse = np.linspace(0, 1, self.coarse)
        first = self._first_wall(starts, beams, np.broadcast_to(coarse, (len(starts), self.coarse)))
        hit = first > 0  # the first point is the scanner itself
        shares = np.ones(len(starts))
        low, high = coarse[first[hit] - 1], coarse[first[hit]]
        fine = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, self.fine)
        found = self._first_wall(starts[hit], beams[hit], fine)
        shares[hit] = fine[np.arange(len(found)), found]
        return shares

    def _first_wall(
        self, starts: Points, beams: Points, shares: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.int64]:
        """Return the number of the first occupied point of each beam, at `shares` (beams, points) of its length; 0 if none is."""
        x, y = (starts[:, axis, None] + shares * beams[:, axis, None] for axis in (0, 1))
        occupied = self.space.is_wall_at(x, y)
        first: npt.NDArray[np.int64] = occupied.argmax(1)
        return first
