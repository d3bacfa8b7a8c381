"""`nnlo init`, `nnlo docs` and `nnlo import`: write files that are derived from something else."""

import argparse
from pathlib import Path

from nnlo_lib.core.errors import EXIT_PARTIAL_IMPORT, UserError
from nnlo_lib.core.logging_setup import get_logger

INIT_HELP = (
    "write an experiment, profiles and a Snakefile into a folder, in which snakemake and nnlo then work"
)
INIT_EXAMPLE = "nnlo init my_project"
DOCS_HELP = "write the files that are generated from the configuration's types"
DOCS_EXAMPLE = "nnlo docs --check"
IMPORT_HELP = "translate a command or file of NNLO, mpi_learn, PyDTNN, Theano-MPI or DiNNO into an experiment; status 3: only in part"
IMPORT_EXAMPLE = "nnlo import 'mpirun -np 3 TrainingDriver --model mnist_arch.json' > mine.yaml"


def add_init_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder."""
    parser.add_argument(
        "folder", nargs="?", default=Path(), type=Path, help="new or existing folder; default: this one"
    )


def run_init(options: argparse.Namespace) -> None:
    """Write the files and print the next commands."""
    from nnlo_lib.workflow.whole_experiment import EXPERIMENT_FILE, write_folder

    for path in write_folder(options.folder):
        print(f"wrote {path}")
    if options.folder != Path():
        print(f"cd {options.folder}")
    print(f"nnlo all {EXPERIMENT_FILE}      # or, on a cluster: snakemake --profile slurm")


def add_docs_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option `--check`."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with status 1 if a generated file is outdated",
    )


def run_docs(options: argparse.Namespace) -> int:
    """Write the files; with --check, print the differences instead and return 1 if there are any."""
    from nnlo_lib.config.docgen import write_all

    return write_all(options.check, options.parser)


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command or file to translate."""
    parser.add_argument(
        "words",
        # Options of the imported command, such as -n 3, belong to it and not to nnlo.
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="the command to translate, as one quoted string or as separate words; or the path of a file, such as a job script",
    )


def run_import(options: argparse.Namespace) -> int:
    """Print the experiment as YAML; return 3 if options are not translated."""
    from nnlo_lib.compat.importers.translate import import_experiment

    # argparse keeps a leading `--` in REMAINDER (Python 3.11).
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise UserError(
            "COMMAND: missing; pass a command or a file, such as nnlo import 'mpirun -np 3 TrainingDriver ...'"
        )
    imported = import_experiment(words)
    print(imported.text, end="")
    if not imported.count_line:
        return 0
    get_logger(__name__).warning(f"nnlo import: {imported.count_line}; see the comments in the experiment")
    return EXIT_PARTIAL_IMPORT
