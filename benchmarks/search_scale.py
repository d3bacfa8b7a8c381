"""Measure a search with many workers in virtual time: `python benchmarks/search_scale.py [--workers 1000] [--trials 10000]`.

The real driver (`run_study`) decides on fold tasks that last N(60 s, 15 s) on virtual workers. The driver is one process: the
processor time that it uses is added to its virtual clock, in which free workers wait. Reported are the busy share of the
workers' time after the first task of each, the seconds of a decision and of a proposal, and what each reader of the search
needs at 100, 1,000 and 10,000 trials.
"""

import argparse
import heapq
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Set before numpy is imported, because its libraries read it when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.progress import ProgressLogger
from nnlo_lib.report.page import write_search_page
from nnlo_lib.search.best import write_outcome
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.storage import config_text, load_study
from nnlo_lib.search.study.study import Study, run_study
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial
from nnlo_lib.workflow.live_jobs import LiveJobs
from nnlo_lib.workflow.live_view import as_text

SPACE = {
    "train.optimizer.lr": {"log_uniform": [1e-4, 1.0]},
    "train.optimizer.weight_decay": {"log_uniform": [1e-6, 1e-1]},
    "train.clip_norm": {"uniform": [0.1, 10.0]},
    "train.batch_size": {"log_integer": [8, 1024]},
}
SIZES = (100, 1000, 10_000)  # trials of a search
PROPOSALS, PENDING = (100, 500, 1000, 5000), (0, 8, 1000)  # trials with a value, trials without one
COLUMNS = (
    "trials", "busy", "makespan", "ms a decision: median / p95", "the same, wall time", "MB trials", "MB results",
    "s restart", "s load", "s trials.csv", "s page", "MB page", "s watch", "s again", "MB memory",
)  # fmt: skip
FAILING = 50  # one of so many fold tasks fails


def value_at(space: Any, point: dict[str, Any], noise: float) -> float:
    """Return a noisy quadratic function of the point's position in the unit cube; its minimum is 0.1."""
    return float(0.1 + ((space.unit_row(point) - 0.4) ** 2).sum() + 0.02 * noise)


class Workers:
    """Virtual workers: a fold task ends after a drawn time, and a driver that computes lets its workers wait."""

    def __init__(self, study: "TimedStudy", folder: Path, options: argparse.Namespace) -> None:
        self._study, self._folder, self._options = study, folder, options
        self._random, self._space = random.Random(0), build_sampler(study.search).space
        self._running: list[tuple[float, float, FoldTask]] = []
        self.now, self._since, self.spans = 0.0, time.process_time(), list[tuple[float, float]]()

    def start(self, fold_task: FoldTask) -> None:
        """Start a fold task at the present time of the driver."""
        self.now += time.process_time() - self._since
        lasts = max(1.0, self._random.gauss(self._options.mean, self._options.deviation))
        heapq.heappush(self._running, (self.now + lasts, self.now, fold_task))
        self._since = time.process_time()

    def wait(self) -> bool:
        """Wait for the next end, and write the results of all fold tasks that have ended by now."""
        self.now += time.process_time() - self._since
        self.now = max(self.now, self._running[0][0])
        while self._running and self._running[0][0] <= self.now:
            end, begun, fold_task = heapq.heappop(self._running)
            self.spans.append((begun, end))
            point = self._study.trials[fold_task.trial].point
            value = value_at(self._space, point, self._random.gauss(0, 1))
            row = {"seconds": end - begun, "train_loss": value, "val_loss": value}
            rows = tuple({"epoch": epoch + 1, **row} for epoch in range(fold_task.epochs))
            status, error = (
                ("finished", "") if self._random.randrange(FAILING) else ("failed", "the loss is not finite")
            )
            Result(fold_task, status, rows, error, begun, end, cores=4, point=point).write(self._folder)
        self._since = time.process_time()
        return True

    def busy_share(self, workers: int) -> float:
        """Return the busy share of the workers' time from the last first start to the last decision of the search."""
        starts = sorted(begun for begun, _ in self.spans)
        low, high = starts[min(workers, len(starts)) - 1], starts[-1]
        busy = sum(max(0.0, min(end, high) - max(begun, low)) for begun, end in self.spans)
        return busy / (workers * (high - low)) if high > low else float("nan")


class TimedStudy(Study):
    """A study that records the processor time and the wall time of each decision."""

    search: Any
    costs: list[tuple[float, float]]

    def decide(self) -> SchedulingDecision | None:
        """Decide as the study does."""
        before = time.process_time(), time.perf_counter()
        decision = super().decide()
        if decision:
            self.costs.append((time.process_time() - before[0], time.perf_counter() - before[1]))
        return decision


def seconds(call: Callable[[], Any]) -> str:
    """Return the processor time of a call as text."""
    begun = time.process_time()
    call()
    return f"{time.process_time() - begun:.3g}"


def search(folder: Path, trials: int, options: argparse.Namespace) -> None:
    """Run a search of this size, and print its row of the first table and its readers' row of the second."""
    experiment = Experiment.model_validate({
        "name": "scale", "train": {"epochs": 9 if options.fidelity != "full" else 1},
        "search": {
            "space": SPACE, "trials": trials, "parallel": options.workers,
            "method": {"name": options.method}, "fidelity": {"name": options.fidelity},
        },
    })  # fmt: skip
    SearchPaths(folder).config.write_text(config_text(experiment))
    study = TimedStudy.of(folder, experiment)
    study.search, study.costs = experiment.search, []
    workers = Workers(study, folder, options)
    assert run_study(study, ProgressLogger(workers, study))
    last = study.costs[-100:]
    cells = [f"{workers.busy_share(options.workers):.1%}", f"{workers.now:.0f} s"]
    for kind in (0, 1):
        used = sorted(cost[kind] for cost in last)
        cells.append(f"{1e3 * statistics.median(used):.3g} / {1e3 * used[int(0.95 * len(used))]:.3g}")
    sizes = [sum(path.stat().st_size for path in paths) for paths in (
        SearchPaths(folder).trials.glob("*.json"), SearchPaths(folder).results()
    )]  # fmt: skip
    cells += [f"{size / 2**20:.2f}" for size in sizes]
    cells.append(seconds(lambda: Study.of(folder, experiment).decide()))
    page = folder.parent / "report.html"
    cells += [seconds(lambda: load_study(folder)), seconds(lambda: write_outcome(folder))]
    cells += [seconds(lambda: write_search_page(page, folder)), f"{page.stat().st_size / 2**20:.2f}"]
    watch = LiveJobs(folder.parent, lambda: None)
    cells += [seconds(lambda: as_text(watch.look())) for _ in range(2)]
    cells.append(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f}")
    print(f"| {trials} | {' | '.join(cells)} |", flush=True)


def proposal(method: str, trials: int, pending: int) -> str:
    """Return the seconds of a proposal with so many trials that have a value, the last one new, and so many that have none."""
    settings = {"space": SPACE, "method": {"name": method}, "trials": 10**6}
    wanted = SearchConfig.model_validate(settings)
    propose, source = build_sampler(wanted), np.random.default_rng(0)
    tasks = [FoldTask(number, 0, 1) for number in range(trials + pending)]
    known = [
        Trial(task.trial, propose.space.sample(source), (SchedulingDecision(task.trial, task, ()),))
        for task in tasks
    ]
    results = {}
    for task in tasks[:trials]:
        value = value_at(propose.space, known[task.trial].point, source.normal())
        results[task] = Result(task, "finished", ({"val_loss": value, "seconds": 1.0},))
    last = results.pop(tasks[trials - 1])
    before = StudySnapshot(wanted, 1, known, dict(results))
    propose(len(known), before)
    results[last.fold_task] = last
    return seconds(lambda: propose(len(known), before.successor(known, results)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=10_000, help="of the largest search")
    parser.add_argument("--method", default="random")
    parser.add_argument("--fidelity", default="full")
    parser.add_argument("--mean", type=float, default=60.0, help="seconds of a fold task")
    parser.add_argument("--deviation", type=float, default=15.0, help="standard deviation of these")
    parser.add_argument("--quick", action="store_true", help="a small search")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.trials = 10, 40
    get_logger("nnlo_lib").setLevel("ERROR")  # a line per trial is formatted, but not printed
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' ---: |' * len(COLUMNS)}")
    for size in sorted({*(each for each in SIZES if each < options.trials), options.trials}):
        with tempfile.TemporaryDirectory(prefix="search-scale-") as place:
            folder = Path(place, "results/scale/search")
            folder.mkdir(parents=True)
            search(folder, size, options)
    print(f"\n| s a proposal of {options.method} | {' | '.join(f'{each} pending' for each in PENDING)} |")
    print(f"| ---: |{' ---: |' * len(PENDING)}")
    for size in PROPOSALS[: 1 if options.quick else None]:
        cells = [proposal(options.method, size, pending) for pending in PENDING]
        print(f"| {size} trials | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
