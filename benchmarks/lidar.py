"""Compare the vectorized lidar with a loop, and measure rounds of DiNNO with 7 robots: `python benchmarks/lidar.py [--quick]`.

Both scan the same places of one floor plan with DiNNO's settings, 20 beams of 25 points; the loop uses NumPy for the points
of a beam, as a simulator without vectorization does. Runs alternate, and the results are medians.

A round of DiNNO has 5 steps of 10,000 points for each robot, from a window that moves along its path, and 25,601 parameters; the
graph follows from where the robots are. Rounds are timed without evaluation, with one thread and with two.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from decentralized import Clocked, Spans, epochs_of

from nnlo_lib.config import Run
from nnlo_lib.data.lidar.floor_plan import Occupancy, Points, floor_plan
from nnlo_lib.data.lidar.scanner import Scanner
from nnlo_lib.data.lidar.trajectories import random_places
from nnlo_lib.models.zoo.coordinate_networks import fourier
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag, tune_malloc_and_timers
from nnlo_lib.train.task import Task, prepare_dataset

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


def seconds_per_round(batch: int, robots: int = 7, steps: int = 5, rounds: int = 4) -> float:
    """Return the median over epochs of `rounds` rounds; the first epoch is not counted."""
    scans = batch * steps * rounds // 500
    settings = {
        "data": {
            "dataset": "lidar", "partition": {"name": "contiguous"}, "validation": "validation",
            "reader": {"name": "lidar", "robots": robots, "scans": scans, "validation_scans": 1, "test_scans": 1},
            "stream": {"window": scans * 500 // 3},
        },
        "problem": "regression", "loss": "binary_cross_entropy", "model": {"name": "fourier", "args": {"scale": 54.0}},
        "train": {"epochs": 4, "batch_size": batch, "optimizer": {"name": "adam", "lr": 0.001}},
        "topology": {"name": "disk", "positions": "trajectory", "radius": 1.4, "rounds": rounds},
        "algorithm": {"name": "dinno", "rho": 0.3, "primal_iterations": steps},
        "parallel": {"ranks": robots, "transport": "simulated", "simulation": {"compute": "batched"}},
    }  # fmt: skip
    spans: Spans = defaultdict(list)
    run = Run.model_validate(settings)
    with tempfile.TemporaryDirectory() as folder, Clocked(spans):
        prepare_dataset(run.data, Path(folder, "store"))
        store = Path(folder, "store", "manifest.json")
        train_simulated(Task("d", "dinno", run, 1, None, 1, store, Path(folder, "run")), StopFlag())
    return statistics.median(list(epochs_of(spans["round"], robots))[1:]) / rounds


def plain_seconds_per_round(batch: int, robots: int = 7, steps: int = 5) -> float:
    """Return the seconds of as many forward and backward passes of one network, without data, optimizer and exchange."""
    network = fourier((2,), 0, scale=54.0)
    points, walls = torch.rand(batch, 2), (torch.rand(batch, 1) < 0.05).float()
    loss = torch.nn.BCEWithLogitsLoss()
    spans = [seconds(lambda: loss(network(points), walls).backward()) for _ in range(robots * steps)]
    return statistics.median(spans) * len(spans)


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
    tune_malloc_and_timers()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        batch = 500 if quick else 10_000
        found, plain = seconds_per_round(batch), plain_seconds_per_round(batch)
        print(
            f"seconds per round of DiNNO, {threads} threads: {found:.3g}; its passes in a plain loop: {plain:.3g} (load {os.getloadavg()[0]:.1f})"
        )


if __name__ == "__main__":
    main()
