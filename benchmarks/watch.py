"""Measure the looks of `nnlo watch` at many trainings: `python benchmarks/watch.py [--trainings 1000] [--quick]`.

The folder of one finished training of the digits is copied. Every second copy loses its results and gets a lease of this
process, so that it runs, and all of these have a new epoch before each later look.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.state.lease import LeaseOwner
from nnlo_lib.workflow.live_jobs import LiveJobs
from nnlo_lib.workflow.live_view import as_text

EXPERIMENT = {"name": "one", "train": {"epochs": 4}, "parallel": {"transport": "simulated"}}


def copies(folder: Path, trainings: int) -> list[RunPaths]:
    """Train one run in `folder`, copy it, and return the copies that seem to run."""
    (folder / "one.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    command = [sys.executable, "-m", "nnlo_lib.cli", "run", "one.yaml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    [original] = (folder / "results/one").glob("*/seed-0")
    running = []
    for number in range(trainings):
        copy = folder / f"results/many/run{number}/seed-0"
        shutil.copytree(original, copy)
        shutil.copy(original.parent / "config.json", copy.parent)
        if number % 2:
            running.append(RunPaths(copy))
            for path in (RunPaths(copy).summary, RunPaths(copy).evaluation, RunPaths(copy).state.attempts):
                path.unlink()
            LeaseOwner.for_this_process().write(copy / "state/lease.json")
    return running


def main() -> None:
    """Print the seconds of each look and of its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainings", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="20 trainings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        running = copies(Path(place), 20 if options.quick else options.trainings)
        row = running[0].state.history.read_text().splitlines(keepends=True)[-1]
        watch = LiveJobs(Path(place, "results/many"))
        for look in range(4):
            start = time.perf_counter()
            jobs = watch.look()
            looked = time.perf_counter()
            as_text(jobs)
            states = {state: sum(job.state == state for job in jobs) for state in ("running", "finished")}
            print(
                f"look {look + 1}: {looked - start:.3f} s, table {time.perf_counter() - looked:.3f} s, {states}"
            )
            for paths in running:
                os.utime(paths.state.folder / "lease.json")
                with paths.state.history.open("a") as file:
                    file.write(row)


if __name__ == "__main__":
    main()
