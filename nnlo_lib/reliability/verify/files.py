"""Checks of a job's files (outputs, checkpoints, training data) against their checksums."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnlo_lib.checkpoint.checkpoint_folder import checkpoint_folders
from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest as Checkpoint
from nnlo_lib.core.content_checksum import CHECKSUM_KEY, content_checksum
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest


def check_outputs(run: FinishedRun) -> Iterator[Finding]:
    """Compare the summary with its own checksum, and the published outputs with the checksums in the summary."""
    yield from _content_faults(run.paths.summary, run.summary)
    expected = run.summary.get("outputs")
    if not expected:
        yield failed("summary.json has no checksums of the outputs; an older version of nnlo wrote it")
        return
    faults = list(checksum_faults(run.folder, expected))
    yield from (failed(f"output {fault}") for fault in faults)
    if not faults:
        yield ok(f"{len(expected)} outputs match their checksums in summary.json")


def check_evaluation(run: FinishedRun) -> Iterator[Finding]:
    """Compare the evaluation with its own checksum, and with the checksums of the model and of its outputs in it."""
    path, model = run.paths.evaluation, run.paths.model
    if not path.exists():
        # Another job evaluates the model, and it may not have run yet.
        yield note(f"{path.name} is missing: the model was not evaluated after the training")
        return
    try:
        content = run.evaluation
    except UserError as error:
        yield failed(f"{error}; evaluate the model again")
        return
    faults = checksum_faults(run.folder, content.get("outputs", {}))
    findings = [*_content_faults(path, content), *map(failed, faults)]
    # check_outputs reports a missing model.
    if model.is_file() and file_sha256(model) != content.get("model_sha256"):
        findings.append(failed(f"{path.name} belongs to another {model.name}; evaluate the model again"))
    yield from findings or [ok(f"{path.name} matches its checksums and belongs to {model.name}")]


def check_checkpoints(run: FinishedRun) -> Iterator[Finding]:
    """Compare the files of each checkpoint with the checksums in its manifest."""
    folders = checkpoint_folders(run.paths.state.checkpoints)
    faults = {folder.name: fault for folder in folders if (fault := _checkpoint_fault(folder))}
    for name, fault in faults.items():
        yield failed(f"checkpoint {name}: {fault}; a resumed training will skip it")
    if intact := len(folders) - len(faults):
        yield ok(f"{intact} of {len(folders)} checkpoints in state/checkpoints are intact")
    if not folders:
        yield note("state/checkpoints contains no checkpoints")


def check_dataset(run: FinishedRun, shards: bool) -> Iterator[Finding]:
    """Compare the data's manifest with its checksum in the summary; if `shards`, verify every shard too."""
    recorded = run.summary.get("data")
    if not recorded:
        yield failed("summary.json does not record the training data; an older version of nnlo wrote it")
        return
    path = find_data_manifest(run.folder, recorded["manifest"])
    # The data may have been moved or deleted since, which does not affect the result of the training.
    if path is None:
        yield note(
            f"the manifest of the training data, {recorded['manifest']}, was not found; the data were not compared"
        )
    elif file_sha256(path) != recorded["sha256"]:
        yield failed(
            f"{path} is not the manifest of the training data: the data were converted again, or the file was modified"
        )
    else:
        yield ok(f"{path} is the manifest of the training data")
        yield from _shards(path) if shards else ()


def checksum_faults(folder: Path, checksums: Mapping[str, str]) -> Iterator[str]:
    """Yield the fault of each file in a folder that is missing or differs from its SHA-256."""
    for name, checksum in checksums.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif file_sha256(path) != checksum:
            yield f"{name} is damaged or was modified: its checksum differs"


def _content_faults(path: Path, content: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the finding that a JSON file differs from the checksum of its content that it holds."""
    if content.get(CHECKSUM_KEY) != content_checksum(content):
        yield failed(f"{path.name} was modified: its content differs from its {CHECKSUM_KEY}")


def _checkpoint_fault(checkpoint: Path) -> str:
    """Return the faults of a checkpoint, or an empty string if it is complete."""
    try:
        return "; ".join(checksum_faults(checkpoint, Checkpoint.read(checkpoint).sha256))
    except (UserError, OSError, ValueError) as error:
        return f"its manifest cannot be read ({error})"


def _shards(path: Path) -> Iterator[Finding]:
    try:
        DataManifest.load(path).verify()
        yield ok("every shard of the data matches its checksum")
    except UserError as error:
        yield failed(str(error))
