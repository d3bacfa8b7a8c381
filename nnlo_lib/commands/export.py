"""`nnlo export`: write the weights of a finished run for another system."""

import argparse
from pathlib import Path

HELP = "write the weights of a finished run as an NPZ file in PyDTNN's layout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run and the file."""
    parser.add_argument(
        "folder", type=Path, help="folder of a finished run: results/<experiment>/<run>/seed-<s>"
    )
    parser.add_argument("output", type=Path, help="file to write, with the suffix .npz")
    parser.add_argument(
        "--order",
        choices=["NHWC", "NCHW"],
        default="NHWC",
        help="order of the axes, as PyDTNN's option --tensor_format; default: %(default)s",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow that files that the model needs run their code: Python files and saved torch networks",
    )


def run(options: argparse.Namespace) -> None:
    """Write the file and print the number of its arrays."""
    from nnlo_lib.workflow.evaluation.weights_export import export_weights

    count = export_weights(options.folder, options.output, options.order, options.trust)
    print(f"{options.output}: {count} arrays in PyDTNN's layout ({options.order})")
