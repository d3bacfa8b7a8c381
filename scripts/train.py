"""Train one job of an experiment: `train.py --config CONFIG --manifest MANIFEST --folder FOLDER --seed S`."""

import argparse
import json
import sys
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.errors import reported
from nnlo_lib.launch.attempt import Wishes
from nnlo_lib.launch.command import train
from nnlo_lib.launch.parting import POLICIES
from nnlo_lib.train.task import Task


def main() -> int:
    """Start the ranks and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="resolved run, written by configure.py")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the data store")
    parser.add_argument("--folder", type=Path, required=True, help="where the results go")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--fold", type=int)
    parser.add_argument(
        "--minutes", type=float, help="time limit; under a scheduler the ranks save before it"
    )
    parser.add_argument("--launcher", default="mpiexec", help="command that starts ranks, taking -n N")
    parser.add_argument("--attempt", type=int, default=1, help="how often Snakemake has started this job")
    parser.add_argument(
        "--on-preemption",
        choices=POLICIES,
        default="exit",
        help="under a scheduler, after saving: see profiles/slurm",
    )
    options = parser.parse_args()
    settings = json.loads(options.config.read_text())
    task = Task(
        settings["experiment"], settings["name"], Run.model_validate(settings["run"]), options.seed, options.fold,
        settings["folds"], options.manifest, options.folder,
    )  # fmt: skip
    return train(task, Wishes(options.launcher, options.minutes, options.attempt, options.on_preemption))


if __name__ == "__main__":
    sys.exit(reported(main)())
