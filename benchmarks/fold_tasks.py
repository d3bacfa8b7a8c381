"""Measure the seconds of processor that a fold task costs beside its training: `python benchmarks/fold_tasks.py [--quick]`.

A search of the digits with trainings of one epoch runs with few and with many trials, under each executor in turn. The difference
of their processor times (user and system, of all processes, also those that have left the driver), by the difference of their
trials, has no share of the driver's start. The seconds of the epoch itself are subtracted. `slurm` is the DAG with profiles/slurm.
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.killed_searches import COMMANDS, SETTINGS, Search
from helpers.repository_copy import environment
from helpers.slurm_cluster import cluster, missing

PR_SET_CHILD_SUBREAPER = 36  # of <linux/prctl.h>; waits for the fork server and for Slurm's steps, too
SLURM = ("submitit", "slurm")
COMMANDS["slurm"] = [word.replace("profiles/local", "profiles/slurm") for word in COMMANDS["dag"]]


def settings(trials: int, more: dict[str, object]) -> dict[str, object]:
    """Return the settings of a search with trainings of one epoch."""
    search = SETTINGS["search"] | {"trials": trials, "method": {"name": "random"}} | more
    return SETTINGS | {
        "train": SETTINGS["train"] | {"epochs": 1, "batch_size": 64}, "search": search, "resources": {"mem_mb": 500, "runtime": 5},
    }  # fmt: skip


def processor_seconds(search: Search) -> float:
    """Run a search; return the processor seconds of all processes that have ended meanwhile."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    search.prepare().run()
    while _reap():
        pass
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _reap() -> bool:
    """Wait for the processes that have no other parent any more; return True if one of those has ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def training_seconds(search: Search) -> Iterator[float]:
    """Yield the seconds of the epochs of each fold task."""
    for path in (search.folder / f"results/{search.name}/search/trials").glob("*/fold-*/epochs-*.json"):
        yield json.loads(path.read_text())["rows"][-1]["seconds"]


def main() -> None:
    """Print a row for each executor: median, minimum and maximum of the repetitions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("executor", nargs="*", help=f"of {', '.join(COMMANDS)}; default: all that run here")
    parser.add_argument("--trials", type=int, nargs=2, default=[2, 12], help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--search", type=json.loads, default={}, help="more of `search:`, as JSON")
    parser.add_argument("--quick", action="store_true", help="one repetition of the local executor")
    options = parser.parse_args()
    if options.quick:
        options.executor, options.trials, options.repeat = ["local"], [1, 2], 1
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    executors = options.executor or [each for each in COMMANDS if each not in SLURM or not missing()]
    found: dict[str, list[float]] = {executor: [] for executor in executors}
    epochs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="nnlo-ft-") as folder, ExitStack() as stack:
        surroundings = environment()
        if set(SLURM) & set(executors):
            surroundings |= stack.enter_context(cluster(Path(folder, "slurm"))).environment
        # One store for all: its conversion is no part of the driver's start.
        for number in range(options.repeat + 1):
            for executor in executors if number else ["local"]:
                seconds = []
                for trials in options.trials:
                    name, what = f"{executor}-{number}-{trials}", settings(trials, options.search)
                    search = Search(Path(folder), name, executor, what, surroundings)
                    seconds.append(processor_seconds(search))
                    print(name, seconds[-1], file=sys.stderr, flush=True)
                    epochs += training_seconds(search)
                if number:
                    found[executor].append(
                        (seconds[1] - seconds[0]) / (options.trials[1] - options.trials[0])
                    )
    epoch = statistics.median(epochs)
    print(f"processor seconds of a fold task beside its epoch of {epoch:.2f} s (median, range)")
    for executor, values in found.items():
        rest = [value - epoch for value in values]
        print(f"{executor:<10}{statistics.median(rest):6.2f}{min(rest):8.2f} to {max(rest):.2f}", flush=True)


if __name__ == "__main__":
    main()
