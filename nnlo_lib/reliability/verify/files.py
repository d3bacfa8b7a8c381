"""Checks of a job's files (outputs, checkpoints, training data) against their checksums."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nnlo_lib.checkpoint.checkpoint_folder import checkpoint_folders
from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest as Checkpoint
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.state.finished_run import FinishedRun, find_data_manifest


def check_outputs(run: FinishedRun) -> Iterator[Finding]:
    """Compare the published outputs with the checksums in the summary."""
    expected = run.summary.get("outputs")
    if not expected:
        yield failed("summary.json has no checksums of the outputs; an older version of nnlo wrote it")
        return
    faults = list(checksum_faults(run.folder, expected))
    yield from (failed(f"output {fault}") for fault in faults)
    if not faults:
        yield ok(f"{len(expected)} outputs match their checksums in summary.json")
    if not run.paths.evaluation.exists():
        # Another job evaluates the model, and it may not have run yet.
        yield note("evaluation.json is missing: the model was not evaluated after the training")


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
