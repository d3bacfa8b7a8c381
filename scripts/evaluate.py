"""Measure a trained model on the test split."""

import argparse
import json
import sys
from pathlib import Path

from nnlo_lib.errors import reported


def main() -> None:
    """Write samples, loss, metrics and confusion matrix as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="resolved run")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the data store")
    parser.add_argument("--model", type=Path, required=True, help="model.safetensors")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    from nnlo_lib.config import Run
    from nnlo_lib.train.measure.evaluate import evaluate_model

    run = Run.model_validate(json.loads(options.config.read_text())["run"])
    evaluate_model(run, options.manifest, options.model, options.output)


if __name__ == "__main__":
    sys.exit(reported(main)())
