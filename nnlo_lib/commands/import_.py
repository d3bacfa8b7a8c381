"""`nnlo import`: translate a command or file of another system into an experiment."""

import argparse

from nnlo_lib.core.errors import UserError

HELP = "translate a command or file of NNLO, mpi_learn, PyDTNN, Theano-MPI or DiNNO into an experiment"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command or file to translate."""
    parser.add_argument(
        "words",
        # Options of the imported command, such as -n 3, belong to it and not to nnlo.
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="the command to translate, as one quoted string or as separate words; or the path of a file",
    )


def run(options: argparse.Namespace) -> None:
    """Print the experiment as YAML."""
    from nnlo_lib.compat.importers.translate import translate

    # argparse keeps a leading `--` in REMAINDER (Python 3.11).
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise UserError(
            "COMMAND: missing; pass a command or a file, such as nnlo import 'mpirun -np 3 TrainingDriver ...'"
        )
    print(translate(words), end="")
