"""`nnlo import`: a command or file of another system becomes an experiment."""

import argparse

from nnlo_lib.core.errors import UserError

HELP = (
    "translate a command of NNLO, mpi_learn, PyDTNN or Theano-MPI, or a file of DiNNO's, into an experiment"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of the command."""
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="one string, or the words as they are; or a file",
    )


def run(options: argparse.Namespace) -> None:
    """Print the experiment as YAML."""
    from nnlo_lib.compat.importers.translate import translate

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise UserError("import what? nnlo import 'mpirun -np 3 TrainingDriver ...', or a file")
    print(translate(words), end="")
