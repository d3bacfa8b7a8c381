"""`nnlo evaluate`: evaluate a trained model without training."""

import argparse
import json
from pathlib import Path

HELP = "evaluate a finished run, or a weights file, on its own or other data, without training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the model, the data and the output file."""
    parser.add_argument(
        "target",
        type=Path,
        help="folder of a finished run (results/<experiment>/<run>/seed-<s>), or a weights file",
    )
    parser.add_argument(
        "--experiment",
        dest="file",
        metavar="FILE",
        help="experiment file: for a weights file, model, data, problem and metrics; for a folder, only its data",
    )
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
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow that files that the model needs run their code: Python files and saved torch networks",
    )
    parser.set_defaults(error=parser.error)


def run(options: argparse.Namespace) -> None:
    """Print samples, loss and metrics; write them as JSON if `--output` is given."""
    from nnlo_lib.commands.experiment_file import read_experiment
    from nnlo_lib.core.atomic_file import atomic_write
    from nnlo_lib.workflow.evaluation.evaluated_model import EvaluationRequest
    from nnlo_lib.workflow.evaluation.model_evaluation import (
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
            part.write_text(json.dumps(report, indent=1))
