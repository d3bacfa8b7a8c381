"""`nnlo init`, `nnlo docs` and `nnlo import`: write files that are derived from something else."""

import argparse
from pathlib import Path

from nnlo_lib.commands.arguments import command, option
from nnlo_lib.core.errors import EXIT_PARTIAL_IMPORT, UserError
from nnlo_lib.core.logging_setup import get_logger


@command(
    "nnlo init my_project",
    option("folder", "new or existing folder; default: this one", nargs="?", default=Path(), type=Path),
)
def run_init(options: argparse.Namespace) -> None:
    """Write an experiment, profiles and a Snakefile into a folder, in which snakemake and nnlo then work."""
    from nnlo_lib.workflow.whole_experiment import EXPERIMENT_FILE, write_folder

    for path in write_folder(options.folder):
        print(f"wrote {path}")
    if options.folder != Path():
        print(f"cd {options.folder}")
    print(f"nnlo all {EXPERIMENT_FILE}      # or, on a cluster: snakemake --profile slurm")


@command(
    "nnlo docs --check",
    option(
        "--check", "write nothing; exit with status 1 if a generated file is outdated", action="store_true"
    ),
)
def run_docs(options: argparse.Namespace) -> int:
    """Write the files that are generated from the configuration's types."""
    from nnlo_lib.config.docgen import write_all

    return write_all(options.check, options.parser)


@command(
    "nnlo import 'mpirun -np 3 TrainingDriver --model mnist_arch.json' > mine.yaml",
    option(
        "words",
        "the command to translate, as one quoted string or as separate words; or the path of a file, such as a job script",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
    ),
)
def run_import(options: argparse.Namespace) -> int:
    """Translate a command or file of NNLO, mpi_learn, PyDTNN, Theano-MPI or DiNNO into an experiment; status 3: only in part."""
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
