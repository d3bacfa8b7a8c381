"""`nnlo task evaluate`: evaluate a trained model on the test split."""

import argparse
import json
from pathlib import Path

HELP = "evaluate a trained model on the test split"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run, its data, its model and the output file."""
    parser.add_argument("--config", type=Path, required=True, help="config.json of the run")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the store")
    parser.add_argument("--model", type=Path, required=True, help="model.safetensors of the job")
    parser.add_argument("--output", type=Path, required=True, help="evaluation.json to write")


def run(options: argparse.Namespace) -> None:
    """Write samples, loss, metrics and confusion matrix as JSON."""
    from nnlo_lib.config import Run
    from nnlo_lib.train.evaluation.evaluate import evaluate_model

    run = Run.model_validate(json.loads(options.config.read_text())["run"])
    evaluate_model(run, options.manifest, options.model, options.output)
