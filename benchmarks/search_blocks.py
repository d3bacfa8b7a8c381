"""Measure the utilization of an allocation's rank groups with trainings of unequal length that only sleep.

python benchmarks/search_blocks.py [--ranks 7] [--size 3] [--trials 40] [--seconds 3] [--quick]
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.launch.diagnosis import LauncherOutput
from nnlo_lib.launch.launcher import relay_output
from nnlo_lib.search.study.trial import FoldTask, Result

FOLDER = Path("results/sleeping/search")


def main() -> None:
    """Search with trainings that sleep for unequal times; print the share of the rank groups' time spent in them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=7, help="ranks of the allocation; default: %(default)s")
    parser.add_argument("--size", type=int, default=3, help="ranks of a rank group; default: %(default)s")
    parser.add_argument("--trials", type=int, default=40, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="mean duration of a training; default: %(default)s"
    )
    parser.add_argument("--method", default="auto", help="search method; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="four short trials on two ranks")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.ranks, options.size, options.trials, options.seconds = 2, 1, 4, 0.1
        options.method = "random"
    if options.rank:
        be_a_rank(options.size, options.seconds)
    from nnlo_lib.executors.mpi_pool.pool_launcher import start_ranks
    from nnlo_lib.search.study.storage import write_config

    # Resolved before the change of folder, because the ranks start this file from there.
    path = Path(__file__).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        experiment = _experiment(options)
        write_config(experiment)
        arguments = ["--rank", "--size", str(options.size), "--seconds", str(options.seconds)]
        started = time.time()
        process = start_ranks(experiment, "mpiexec", options.ranks, [str(path), *arguments])
        relay_output(process, LauncherOutput())
        process.wait()
        row = json.loads((FOLDER / "state/blocks.jsonl").read_text())
        whole = row["trained"] / (row["blocks"] * (time.time() - started))
        print(f"utilization {row['utilisation']:.1%}; including start and exit of all processes {whole:.1%}")


def be_a_rank(size: int, seconds: float) -> None:
    """Run as a rank of the pool whose trainings sleep between 0.2 and 1.8 times `seconds`."""
    from nnlo_lib.executors.mpi_pool.rank import run_pool_rank
    from nnlo_lib.executors.mpi_pool.rank_group import PoolStopFlag
    from nnlo_lib.executors.mpi_pool.worker import report, serve
    from nnlo_lib.executors.mpi_pool.world import PoolWorld
    from nnlo_lib.launch.stop_request import TimeLimit

    def part(world: PoolWorld, _: PoolStopFlag) -> bool:
        def work(numbers: list[int]) -> None:
            report(world, lambda fold_task: _sleep(fold_task, seconds), numbers)

        return serve(world, work)

    run_pool_rank(FOLDER, size, part, TimeLimit(None, None))


def _sleep(fold_task: FoldTask, seconds: float) -> int:
    started, draw = time.time(), random.Random(fold_task.trial)
    time.sleep(seconds * draw.uniform(0.2, 1.8))
    rows = ({"epoch": 1, "val_loss": draw.random(), "seconds": time.time() - started},)
    Result(fold_task, "finished", rows, started=started, ended=time.time()).write(FOLDER)
    return 0


def _experiment(options: argparse.Namespace) -> Experiment:
    space = {"train.optimizer.lr": {"log_uniform": [1e-4, 1.0]}, "train.batch_size": {"integer": [8, 64]}}
    search = {
        "space": space, "trials": options.trials, "method": {"name": options.method},
        "blocks": {"size": options.size},
    }  # fmt: skip
    return Experiment.model_validate({"name": "sleeping", "train": {"epochs": 1}, "search": search})


if __name__ == "__main__":
    sys.exit(main())
