"""Metrics of a trained model without training: a finished run, or a weights file, on its own or other data."""

from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.readers import Indices
from nnlo_lib.data.store.split import Split
from nnlo_lib.train.evaluation.evaluate import evaluation_samples, test_result_of_run
from nnlo_lib.workflow.evaluation.evaluated_model import (
    EvaluatedModel,
    EvaluationRequest,
    load_evaluated_model,
)

EVALUATED_SPLITS = ("test", "validation")  # in this order, if no split is named


def evaluate_target(request: EvaluationRequest, wanted_split: str | None = None) -> dict[str, Any]:
    """Return weights, data, samples, loss, metrics and confusion matrix of a model, as evaluation.json has them.

    Without `wanted_split`, the split is that of evaluation.json for the data of the training; for other data, the test
    split or the validation split.

    Raises UserError if the target is no model, or if the data do not fit it.
    """
    model = load_evaluated_model(request)
    name, split, samples = _samples(model, wanted_split)
    result = test_result_of_run(model.run, model.module, model.tensors, split, samples, model.classes)
    return {
        "model": str(model.weights),
        "model_sha256": file_sha256(model.weights),
        "data": str(model.data.folder),
        "classes": model.class_labels,
        "split": name,
        "samples": len(samples),
        **result.report,
    }


def evaluation_line(target: Path, report: dict[str, Any]) -> str:
    """Return samples, loss and metrics of a report as one line."""
    found = ((name, value) for name, value in report.items() if isinstance(value, float))
    figures = "  ".join(f"{name} {value:.6g}" for name, value in found)
    return f"{target}: {report['split']} ({report['samples']:,} samples): {figures}"


def refuse_published_output(output: Path | None) -> None:
    """Raise UserError if a file to write is a folder, or exists among the results of a training."""
    if output is None:
        return
    if output.is_dir():
        raise UserError(f"--output: {output} is a folder; name a file")
    if output.exists() and RunPaths(output.parent).summary.exists():
        raise UserError(f"--output: {output} exists in the folder of a training; name a new file")


def _samples(model: EvaluatedModel, wanted: str | None) -> tuple[str, Split, Indices]:
    """Return the name, the split and the indices of the samples to evaluate."""
    data = model.data
    if wanted is None and model.partition is not None:
        return evaluation_samples(data, model.partition)
    name = wanted or next((each for each in EVALUATED_SPLITS if each in data.splits), "")
    if name not in data.splits:
        reason = f"no split '{name}'" if name else "neither a test nor a validation split"
        raise UserError(f"--split: {data.folder} has {reason}; choose one of: {', '.join(data.splits)}")
    split = Split(data, name)
    return name, split, np.arange(len(split), dtype=np.int64)
