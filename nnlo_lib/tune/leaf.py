"""Train one leaf of a search in a process of its own: `python -m nnlo_lib.tune.leaf FOLDER TRIAL FOLD EPOCHS`."""

import argparse
import sys
from pathlib import Path

from nnlo_lib.errors import reported
from nnlo_lib.launch.attempt import Wishes
from nnlo_lib.launch.parting import POLICIES
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.tune.config_file import read_config
from nnlo_lib.tune.seats import seated
from nnlo_lib.tune.trial_run import leaf_run
from nnlo_lib.tune.work import train_leaf


def main() -> int:
    """Train it; exit 0 with a result, 75 saved and stopped, 1 to be tried again, 2 where the disk refuses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="results/<experiment>/search")
    for name in ("trial", "fold", "epochs"):
        parser.add_argument(name, type=int)
    parser.add_argument(
        "--minutes", type=float, help="time limit; under a scheduler the ranks save before it"
    )
    parser.add_argument("--launcher", default="mpiexec", help="command that starts ranks, taking -n N")
    parser.add_argument("--attempt", type=int, help="how often Snakemake has started this job")
    parser.add_argument(
        "--on-preemption", choices=POLICIES, default="exit", help="under a scheduler, after saving"
    )
    options = parser.parse_args()
    leaf = Leaf(options.trial, options.fold, options.epochs)
    wishes = Wishes(options.launcher, options.minutes, options.attempt, options.on_preemption, patient=True)
    experiment = read_config(options.folder)
    with seated(leaf_run(experiment, options.folder, leaf)) as has_gpus:
        return train_leaf(experiment, options.folder, leaf, wishes) if has_gpus else EXIT_PREEMPTED


if __name__ == "__main__":
    sys.exit(reported(main)())
