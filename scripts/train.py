"""Train one job of an experiment: `train.py --config CONFIG --manifest MANIFEST --folder FOLDER --seed S`."""

import argparse
import json
import os
import sys
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.errors import reported
from nnlo_lib.train.command import train
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
    options = parser.parse_args()
    settings = json.loads(options.config.read_text())
    task = Task(
        settings["experiment"], settings["name"], Run.model_validate(settings["run"]), options.seed, options.fold,
        settings["folds"], options.manifest, options.folder,
    )  # fmt: skip
    limited = any(name in os.environ for name in ("SLURM_JOB_ID", "LSB_JOBID"))
    return train(task, options.launcher, options.minutes if limited else None)


if __name__ == "__main__":
    sys.exit(reported(main)())
