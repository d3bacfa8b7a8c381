"""Compare the vectorized lidar with a loop over scans, beams and searches: `python benchmarks/lidar.py [--quick]`.

Both scan the same places of one floor plan with DiNNO's settings, 20 beams of 25 points; the loop uses NumPy for the points
of a beam, as a simulator without vectorization does. Runs alternate, and the results are medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from nnlo_lib.data.lidar.floor_plan import Occupancy, Points, floor_plan
from nnlo_lib.data.lidar.scanner import Scanner
from nnlo_lib.data.lidar.trajectories import random_places

SIZE = 2167, 1608  # DiNNO's plan in pixels


def scan_one_by_one(scanner: Scanner, places: Points) -> Points:
    """Return the points of all scans, beam by beam."""
    length = scanner.reach * max(scanner.space.size)
    found = []
    for place in places:
        for angle in np.linspace(-np.pi, np.pi, scanner.beams, endpoint=False):
            beam = length * np.array([np.cos(angle), np.sin(angle)])
            found.append(
                place + _end(scanner, place, beam) * np.linspace(0, 1, scanner.points)[:, None] * beam
            )
    return np.concatenate(found)


def _end(scanner: Scanner, place: Points, beam: Points) -> float:
    shares = np.linspace(0, 1, scanner.coarse)
    first = int(scanner.space.is_wall(place + shares[:, None] * beam).argmax())
    if not first:
        return 1.0
    fine = np.linspace(shares[first - 1], shares[first], scanner.fine)
    return float(fine[scanner.space.is_wall(place + fine[:, None] * beam).argmax()])


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few scans, one repetition")
    quick = parser.parse_args().quick
    scanner = Scanner(Occupancy(floor_plan(0, *SIZE, 200), "plan"))
    places = random_places(scanner.space, 40 if quick else 500, np.random.default_rng(0))
    assert np.allclose(scan_one_by_one(scanner, places[:20]), scanner.scan(places[:20])[0])
    loop, vectorized = [], []
    for _ in range(1 if quick else 7):
        loop.append(seconds(lambda: scan_one_by_one(scanner, places)))
        vectorized.append(seconds(lambda: scanner.scan(places)))
    rates = [len(places) / statistics.median(each) for each in (loop, vectorized)]
    ratios = [slow / fast for slow, fast in zip(loop, vectorized, strict=True)]
    print(f"scans per second: loop {rates[0]:,.0f}, vectorized {rates[1]:,.0f}")
    print(f"ratio: median {statistics.median(ratios):.1f}, {min(ratios):.1f} to {max(ratios):.1f}")


if __name__ == "__main__":
    main()
