"""Check evaluation.json against its confusion matrix, the data, and the model evaluated again."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnlo_lib.core.content_checksum import CHECKSUM_KEY
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.partition.partition_file import load_partition
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.reliability.verify.files import checksum_faults
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.reliability.verify.recorded_numbers.number_comparison import (
    Comparison,
    agree,
    check_comparisons,
)
from nnlo_lib.reliability.verify.recorded_numbers.summary_numbers import check_content
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest
from nnlo_lib.state.trusted_run import code_files, trusted_config

OTHER_MACHINE = 1e-3  # relative: kernels of another processor round differently, and few predictions change


def check_evaluation(run: FinishedRun, again: bool, trust: bool) -> Iterator[Finding]:
    """Check the numbers of evaluation.json, if it exists.

    Args:
        run: the finished run.
        again: evaluate the model and compare.
        trust: allow that the evaluation runs code that the run names.
    """
    if not run.paths.evaluation.exists():
        return  # check_outputs notes that the file is missing.
    yield from check_content(run.paths.evaluation.name, run.evaluation)
    faults = checksum_faults(run.folder, run.evaluation.get("outputs", {}))
    yield from (failed(f"{fault}; evaluate the model again") for fault in faults)
    manifest = find_data_manifest(run.folder, run.summary.get("data", {}).get("manifest", ""))
    try:
        comparisons = list(_comparisons(run, manifest))
    except (UserError, OSError, KeyError, TypeError, ValueError) as error:
        # Other checks report a missing model, partition or manifest.
        yield note(f"evaluation.json: the numbers were not compared: {error}")
        return
    yield from check_comparisons(run.paths.evaluation.name, comparisons) if comparisons else ()
    if again and not trust and (code := code_files(run)):
        yield note(
            f"evaluation.json: the model was not evaluated again, because that runs {', '.join(code)}; add --trust if "
            "you trust the author of these results and files"
        )
    elif again:
        yield _evaluate_again(run, manifest)


def _comparisons(run: FinishedRun, manifest: Path | None) -> Iterator[Comparison]:
    evaluation = run.evaluation
    if "model_sha256" in evaluation:
        yield Comparison(
            "model_sha256", evaluation["model_sha256"], file_sha256(run.paths.model), run.paths.model.name
        )
    if confusion := evaluation.get("confusion"):
        yield from _confusion_values(evaluation, confusion)
    if manifest:
        data = DataManifest.load(manifest)
        yield Comparison("samples", evaluation["samples"], _sample_count(run, data), "the data")
        yield Comparison("classes", evaluation.get("classes"), data.class_labels, "the data")


def _confusion_values(evaluation: dict[str, Any], confusion: list[list[int]]) -> Iterator[Comparison]:
    counts = sum(map(sum, confusion))
    yield Comparison("samples", evaluation["samples"], counts, "the confusion matrix")
    if "accuracy" in evaluation and counts:
        right = sum(row[number] for number, row in enumerate(confusion))
        yield Comparison("accuracy", evaluation["accuracy"], right / counts, "the confusion matrix")


def _sample_count(run: FinishedRun, data: DataManifest) -> int:
    """Return the number of samples of the evaluated split; the partition holds those held back."""
    split = run.evaluation.get("split", "test")
    if split in data.splits:
        return data.splits[split].samples
    return len(load_partition(run.paths.partition)[0])


def _evaluate_again(run: FinishedRun, manifest: Path | None) -> Finding:
    if manifest is None:
        return note("evaluation.json: the model was not evaluated again: the data were not found")
    try:
        present = _evaluation_of(run, manifest)
    except UserError as error:
        return note(f"evaluation.json: the model was not evaluated again: {error}")
    differing = {
        key: value
        for key, value in present.items()
        if key not in ("confusion", "outputs", CHECKSUM_KEY)
        and not agree(run.evaluation.get(key), value, OTHER_MACHINE)
    }
    if len(_cells(present)) != len(_cells(run.evaluation)) or not _is_same_confusion(run.evaluation, present):
        differing["confusion"] = "another matrix"
    if not differing:
        return ok("evaluation.json: the model, evaluated again, gives the same numbers")
    texts = [f"{key} is {run.evaluation.get(key)} ({value})" for key, value in differing.items()]
    return failed(
        f"evaluation.json: the model, evaluated again, gives other numbers: {'; '.join(texts)}"[:500]
    )


def _is_same_confusion(recorded: dict[str, Any], present: dict[str, Any]) -> bool:
    moved = (
        sum(abs(before - after) for before, after in zip(_cells(recorded), _cells(present), strict=True)) / 2
    )
    # Equal losses prove equal kernels, which give equal predictions.
    allowed = 0 if recorded.get("loss") == present.get("loss") else OTHER_MACHINE * present["samples"]
    return bool(moved <= allowed)


def _cells(evaluation: dict[str, Any]) -> list[int]:
    return [count for row in evaluation.get("confusion", []) for count in row]


def _evaluation_of(run: FinishedRun, manifest: Path) -> dict[str, Any]:
    # Imported here, because the other checks start faster without torch.
    from nnlo_lib.train.evaluation.evaluate import evaluate_model

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / run.paths.evaluation.name
        evaluate_model(trusted_config(run), manifest, run.paths.model, output)
        return dict(json.loads(output.read_text()))
