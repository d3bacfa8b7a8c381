"""`nnlo verify`, `evaluate`, `predict`, `export` and `reproduce`: work with finished trainings."""

import argparse
import json
from pathlib import Path

from nnlo_lib.commands.arguments import read_experiment
from nnlo_lib.core.errors import UserError

VERIFY_HELP = "check the files of finished trainings: checksums, samples used per epoch, reproducibility"
VERIFY_EXAMPLE = "nnlo verify results/mine"
EVALUATE_HELP = "evaluate a finished run, or a weights file, on its own or other data, without training"
EVALUATE_EXAMPLE = "nnlo evaluate results/mine/four/seed-1 --split test"
PREDICT_HELP = (
    "predict the samples of a file, or images, by a finished run, or by the best run of an experiment"
)
PREDICT_EXAMPLE = "nnlo predict results/mine new_rows.csv --output predictions.csv"
EXPORT_HELP = "write a trained model for torch or ONNX, its weights in PyDTNN's layout, or a search as a study of Optuna"
EXPORT_EXAMPLE = "nnlo export results/mine model.pt2 --to torch"
RUN_OR_BEST_HELP = (
    "folder of a finished run, results/<experiment>/<run>/seed-<s>; or results/<experiment>: its best run"
)
REPRODUCE_HELP = "write an experiment file, and the user's files, that repeat a finished training bit for bit"
REPRODUCE_EXAMPLE = "nnlo reproduce results/mine/four/seed-1 again"


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the trainings and the option `--shards`."""
    parser.add_argument("folder", nargs="+", help="results/<experiment>/<run>/seed-<s>, or a folder above it")
    parser.add_argument(
        "--shards",
        action="store_true",
        help="also read all shards of the data set and compare their checksums",
    )
    for option in ("--evaluate", "--trust"):  # of earlier versions
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)


def run_verify(options: argparse.Namespace) -> int:
    """Print a line for each check; return 1 if a check failed, else 0."""
    from nnlo_lib.reliability.file_checks import verify_runs

    if options.evaluate or options.trust:
        raise UserError(
            "nnlo verify: --evaluate and --trust are no longer possible; to evaluate a model again: nnlo evaluate FOLDER"
        )
    return verify_runs(options.folder, options.shards)


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the model, the data and the output file."""
    parser.add_argument(
        "target",
        type=Path,
        help="folder of a finished run (results/<experiment>/<run>/seed-<s>), or a weights file",
    )
    parser.add_argument(
        "--experiment", dest="file", metavar="FILE",
        help="experiment file: for a weights file, model, data, problem and metrics; for a folder, only its data",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="set a key of the experiment file or, without one, a key of the folder's data, such as "
        "data.source=other; may be repeated",
    )  # fmt: skip
    parser.add_argument("--run", help="name of the run in `runs:` of the experiment file; default: the first")
    parser.add_argument(
        "--split", help="split to evaluate: test, validation or train; default: test, else validation"
    )
    parser.add_argument("--output", type=Path, help="JSON file to write: metrics and confusion matrix")
    _add_trust_argument(parser)
    parser.set_defaults(error=parser.error)


def run_evaluate(options: argparse.Namespace) -> None:
    """Print samples, loss and metrics; write them as JSON if `--output` is given."""
    from nnlo_lib.core.atomic_file import atomic_write, without_nan
    from nnlo_lib.workflow.model_evaluation import (
        EvaluationRequest,
        evaluate_target,
        evaluation_line,
        refuse_published_output,
    )

    refuse_published_output(options.output)
    described = None
    if options.file:
        experiment, (name,) = read_experiment(options, first=True)
        described = experiment.variants[name]
    elif options.run:
        options.error("--run names a run of an experiment file; add --experiment FILE")
    request = EvaluationRequest(options.target, described, options.changes, options.trust)
    report = evaluate_target(request, options.split)
    print(evaluation_line(options.target, report))
    if options.output:
        with atomic_write(options.output) as part:
            part.write_text(json.dumps(without_nan(report), indent=1))


def add_predict_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run, the samples and the file of the predictions."""
    parser.add_argument("folder", type=Path, help=RUN_OR_BEST_HELP)
    parser.add_argument(
        "input",
        type=Path,
        nargs="+",
        help="samples: CSV, Parquet, Arrow or ROOT for a model of tables; images, or folders of images, for one of images; else NPZ, NPY "
        "or HDF5 without labels",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE",
        help="CSV or Parquet file to write: row, file of an image, predicted class and probability of each class, or predicted numbers",
    )  # fmt: skip
    _add_trust_argument(parser)


def run_predict(options: argparse.Namespace) -> None:
    """Write the predictions and print their number."""
    from nnlo_lib.workflow.prediction import predict_file

    print(predict_file(options.folder, options.input, options.output, options.trust))


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run and the file."""
    parser.add_argument("folder", type=Path, help=RUN_OR_BEST_HELP)
    parser.add_argument(
        "output", type=Path, nargs="?",
        help="file to write: .pt2 (torch), .onnx, .npz (PyDTNN's weights), or .db (Optuna; default: optuna.db in the search)",
    )  # fmt: skip
    parser.add_argument(
        "--to",
        choices=["torch", "onnx", "pydtnn", "optuna"],
        help="format; default: by the suffix of the file",
    )
    parser.add_argument(
        "--order", choices=["NHWC", "NCHW"], default="NHWC",
        help="order of the axes, as PyDTNN's option --tensor_format; default: %(default)s",
    )  # fmt: skip
    _add_trust_argument(parser)


def run_export(options: argparse.Namespace) -> None:
    """Write the file and print what it holds."""
    if options.to == "optuna" or (options.to is None and options.output and options.output.suffix == ".db"):
        from nnlo_lib.workflow.study_export import export_study

        print(export_study(options.folder, options.output))
        return
    if options.output is None:
        raise UserError("output: missing; name the file to write, such as model.pt2")
    from nnlo_lib.workflow.model_export import export_model

    print(export_model(options.folder, options.output, options.to, options.order, options.trust))


def _add_trust_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow that files that the model needs run their code: Python files and saved torch networks",
    )


def add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the training and the folder to write."""
    parser.add_argument("folder", type=Path, help="results/<experiment>/<run>/seed-<s>[/fold-<k>]")
    parser.add_argument("target", type=Path, help="new folder for experiment.yaml and the user's files")


def run_reproduce(options: argparse.Namespace) -> None:
    """Write the files and print the command that repeats the training."""
    from nnlo_lib.reliability.reproduce import write_reproduction

    print(write_reproduction(options.folder, options.target))
