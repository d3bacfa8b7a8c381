"""Scans equal those of a slow simulator that interpolates the plan by a cubic spline, as DiNNO's does."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.interpolate import RectBivariateSpline

from nnlo_lib.data.lidar.floor_plan import Occupancy, floor_plan
from nnlo_lib.data.lidar.scanner import Scanner
from nnlo_lib.data.lidar.trajectories import random_places

SPACE = Occupancy(floor_plan(1, 400, 300, 80), "plan")


class SplineScanner:
    """Scan beam by beam and point by point; the density of a point is a cubic spline through the pixels."""

    def __init__(self, scanner):
        self.s = scanner
        height, width = scanner.space.walls.shape
        self.spline = RectBivariateSpline(
            np.arange(height), np.arange(width), scanner.space.walls.astype(float)
        )

    def density(self, x, y):
        return float(self.spline(y, x)[0, 0])

    def end(self, x, y, dx, dy):
        shares = [number / (self.s.coarse - 1) for number in range(self.s.coarse)]
        for before, after in pairwise(shares):
            if self.density(x + after * dx, y + after * dy) >= 0.5:
                for number in range(self.s.fine):
                    share = before + (after - before) * number / (self.s.fine - 1)
                    if self.density(x + share * dx, y + share * dy) >= 0.5:
                        return share
        return 1.0

    def scan(self, places):
        length = self.s.reach * max(self.s.space.size)
        for x, y in places:
            for beam in range(self.s.beams):
                angle = -np.pi + 2 * np.pi * beam / self.s.beams
                dx, dy = length * np.cos(angle), length * np.sin(angle)
                end = self.end(x, y, dx, dy)
                for number in range(self.s.points):
                    share = end * (number / (self.s.points - 1)) ** self.s.exponent
                    yield x + share * dx, y + share * dy, self.density(x + share * dx, y + share * dy) >= 0.5


def test_labels_are_those_of_a_slow_simulator():
    scanner = Scanner(SPACE, beams=12, points=20, coarse=40, exponent=0.7)
    # Away from the outer walls, outside of which the spline repeats the border.
    places = random_places(SPACE, 400, np.random.default_rng(0))
    places = places[(places > 90).all(1) & (places < np.array(SPACE.size) - 90).all(1)]
    points, occupied = scanner.scan(places)
    expected = np.array([*SplineScanner(scanner).scan(places)])
    assert len(points) == len(expected) == len(places) * 12 * 20 > 10_000
    same = np.isclose(points, expected[:, :2], atol=1e-6).all(1)
    assert same.mean() > 0.99
    # Between two pixels, spline and nearest pixel differ by rounding.
    assert (occupied[same] == expected[same, 2]).mean() > 0.9999


def test_points_outside_of_the_plan_are_in_a_wall():
    assert SPACE.is_wall(np.array([[-1.0, 5], [400, 5], [5, -1], [5, 300]])).all()


@pytest.mark.parametrize("size", [(200, 200), (640, 480), (300, 900)])
@pytest.mark.parametrize("seed", range(2))
def test_the_free_space_of_a_plan_is_connected(seed, size):
    from scipy.ndimage import label

    walls = floor_plan(seed, *size, 60)
    assert walls.shape == size[::-1]
    assert label(~walls)[1] == 1
    assert walls[0].all()
    assert walls[:, -1].all()
    assert 0.05 < walls.mean() < 0.5
    assert np.array_equal(walls, floor_plan(seed, *size, 60))
    assert not np.array_equal(walls, floor_plan(seed + 1, *size, 60))
