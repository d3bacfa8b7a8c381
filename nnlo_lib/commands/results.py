"""`nnlo verify`, `evaluate`, `predict`, `export` and `reproduce`: work with finished trainings."""

import argparse
import json
from pathlib import Path

from nnlo_lib.commands.arguments import command, option, read_experiment
from nnlo_lib.core.errors import UserError

RUN_OR_BEST = option(
    "folder", "folder of a finished run, results/<experiment>/<run>/seed-<s>; or results/<experiment>: its best run", type=Path
)  # fmt: skip
TRUST = option(
    "--trust", "allow that files that the model needs run their code: Python files and saved torch networks", action="store_true"
)  # fmt: skip


@command(
    "nnlo verify results/mine",
    option("folder", "results/<experiment>/<run>/seed-<s>, or a folder above it", nargs="+"),
    option(
        "--shards", "also read all shards of the data set and compare their checksums", action="store_true"
    ),
    *(option(name, argparse.SUPPRESS, action="store_true") for name in ("--evaluate", "--trust")),
)
def run_verify(options: argparse.Namespace) -> int:
    """Check the files of finished trainings: checksums, samples used per epoch, reproducibility."""
    from nnlo_lib.reliability.file_checks import verify_runs

    if options.evaluate or options.trust:
        raise UserError(
            "nnlo verify: --evaluate and --trust are no longer possible; to evaluate a model again: nnlo evaluate FOLDER"
        )
    return verify_runs(options.folder, options.shards)


@command(
    "nnlo evaluate results/mine/four/seed-1 --split test",
    option(
        "target",
        "folder of a finished run (results/<experiment>/<run>/seed-<s>), or a weights file",
        type=Path,
    ),
    option(
        "--experiment",
        "experiment file: for a weights file, model, data, problem and metrics; for a folder, only its data",
        dest="file",
        metavar="FILE",
    ),
    option(
        "--set",
        "set a key of the experiment file or, without one, a key of the folder's data, such as "
        "data.source=other; may be repeated",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
    ),
    option("--run", "name of the run in `runs:` of the experiment file; default: the first"),
    option("--split", "split to evaluate: test, validation or train; default: test, else validation"),
    option("--output", "JSON file to write: metrics and confusion matrix", type=Path),
    TRUST,
)
def run_evaluate(options: argparse.Namespace) -> None:
    """Evaluate a finished run, or a weights file, on its own or other data, without training."""
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


@command(
    "nnlo predict results/mine new_rows.csv --output predictions.csv",
    RUN_OR_BEST,
    option(
        "input",
        "samples: CSV, Parquet, Arrow or ROOT for a model of tables; images, or folders of images, for one of images; else NPZ, NPY "
        "or HDF5 without labels",
        type=Path,
        nargs="+",
    ),
    option(
        "--output",
        "CSV or Parquet file to write: row, file of an image, predicted class and probability of each class, or predicted numbers",
        type=Path,
        required=True,
        metavar="FILE",
    ),
    TRUST,
)
def run_predict(options: argparse.Namespace) -> None:
    """Predict the samples of a file, or images, by a finished run, or by the best run of an experiment."""
    from nnlo_lib.workflow.prediction import predict_file

    print(predict_file(options.folder, options.input, options.output, options.trust))


@command(
    "nnlo export results/mine model.pt2 --to torch",
    RUN_OR_BEST,
    option(
        "output",
        "file to write: .pt2 (torch), .onnx, .npz (PyDTNN's weights), or .db (Optuna; default: optuna.db in the search)",
        type=Path,
        nargs="?",
    ),
    option(
        "--to", "format; default: by the suffix of the file", choices=["torch", "onnx", "pydtnn", "optuna"]
    ),
    option(
        "--order",
        "order of the axes, as PyDTNN's option --tensor_format; default: %(default)s",
        choices=["NHWC", "NCHW"],
        default="NHWC",
    ),
    TRUST,
)
def run_export(options: argparse.Namespace) -> None:
    """Write a trained model for torch or ONNX, its weights in PyDTNN's layout, or a search as a study of Optuna."""
    if options.to == "optuna" or (options.to is None and options.output and options.output.suffix == ".db"):
        from nnlo_lib.workflow.study_export import export_study

        print(export_study(options.folder, options.output))
        return
    if options.output is None:
        raise UserError("output: missing; name the file to write, such as model.pt2")
    from nnlo_lib.workflow.model_export import export_model

    print(export_model(options.folder, options.output, options.to, options.order, options.trust))


@command(
    "nnlo reproduce results/mine/four/seed-1 again",
    option("folder", "results/<experiment>/<run>/seed-<s>[/fold-<k>]", type=Path),
    option("target", "new folder for experiment.yaml and the user's files", type=Path),
)
def run_reproduce(options: argparse.Namespace) -> None:
    """Write an experiment file, and the user's files, that repeat a finished training bit for bit."""
    from nnlo_lib.reliability.reproduce import write_reproduction

    print(write_reproduction(options.folder, options.target))
