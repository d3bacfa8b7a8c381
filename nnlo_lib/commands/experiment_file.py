"""What commands share that read an experiment file: FILE, --set, and which of its runs."""

import argparse
from typing import TYPE_CHECKING

from nnlo_lib.core.errors import UserError

if TYPE_CHECKING:
    from nnlo_lib.config import Experiment


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, and changes of what is in it."""
    parser.add_argument("file", help="experiment file (YAML)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="change a key of the file, for example train.epochs=5; may be repeated",
    )  # fmt: skip


def add_launcher_argument(parser: argparse.ArgumentParser) -> None:
    """Add the command that starts MPI ranks."""
    parser.add_argument("--launcher", default="mpiexec", help="command that starts ranks, taking -n N")


def read_experiment(options: argparse.Namespace, first: bool = False) -> tuple["Experiment", list[str]]:
    """Return the experiment and the names of the runs asked for; of all runs only the first where `first` is set."""
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.experiment.overrides import reject_ineffective_overrides

    experiment = load_experiment(options.file, options.changes)
    names = _selected_runs(options, experiment)[: 1 if first else None]
    reject_ineffective_overrides(experiment, names, options.changes)
    return experiment, names


def chosen_seed(options: argparse.Namespace, experiment: "Experiment") -> int:
    """Return --seed, or the first seed of the experiment."""
    return experiment.seeds[0] if options.seed is None else int(options.seed)


def print_warnings(experiment: "Experiment") -> None:
    """Warn of what is possible, and hardly meant."""
    from nnlo_lib.core.logging_setup import get_logger
    from nnlo_lib.search.space.validate import test_split_warning

    if warning := test_split_warning(experiment):
        get_logger(__name__).warning(warning)


def _selected_runs(options: argparse.Namespace, experiment: "Experiment") -> list[str]:
    """Return the names of the runs, or the one asked for."""
    names, wanted = list(experiment.variants), getattr(options, "run", None)
    if wanted and wanted not in names:
        raise UserError(f"{options.file} has no run '{wanted}'; it has {', '.join(names)}")
    return [wanted] if wanted else names
