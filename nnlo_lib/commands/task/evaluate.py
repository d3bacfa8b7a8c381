"""`nnlo task evaluate`: a trained model on the test split."""

import argparse
import json
from pathlib import Path

HELP = "measure a trained model on the test split"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, its data and its model."""
    parser.add_argument("--config", type=Path, required=True, help="resolved run")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the data store")
    parser.add_argument("--model", type=Path, required=True, help="model.safetensors")
    parser.add_argument("--output", type=Path, required=True)


def run(options: argparse.Namespace) -> None:
    """Write samples, loss, metrics and confusion matrix as JSON."""
    from nnlo_lib.config import Run
    from nnlo_lib.train.evaluation.evaluate import evaluate_model

    run = Run.model_validate(json.loads(options.config.read_text())["run"])
    evaluate_model(run, options.manifest, options.model, options.output)
