"""Checksums of the user's files that a training reads, and copies of the code among them, kept with the run."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.config.paths import RunPaths, StatePaths
from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import read_json_object

Checksums = Mapping[str, str]  # SHA-256 by path, in the order of Run.input_files
COPIED_SUFFIXES = (".py", ".json")  # weights are not copied: they can be large


def input_checksums(run: Run) -> dict[str, str]:
    """Return the SHA-256 of each user's file of a run that exists."""
    return {path: file_sha256(Path(path)) for path in run.input_files if Path(path).is_file()}


def changed_files(recorded: Checksums, current: Checksums) -> list[str]:
    """Return the paths whose files differ or are in only one record; none if the whole project was moved."""
    if list(recorded.values()) == list(current.values()):
        return []
    return [path for path in {**recorded, **current} if recorded.get(path) != current.get(path)]


def has_copy(path: str) -> bool:
    """Return True if a copy of the file is kept with the run."""
    return Path(path).suffix in COPIED_SUFFIXES


def copy_of(code: Path, path: str) -> Path:
    """Return the path of a file's copy in the folder `code`."""
    return code / path.lstrip("/")  # files outside of the project have absolute paths


def read_input_record(state: StatePaths) -> dict[str, str]:
    """Return the checksums of the training that `state/` belongs to; empty if there are none."""
    return dict(read_json_object(state.input_files, ())) if state.input_files.exists() else {}


def keep_input_record(state: StatePaths, checksums: Checksums, of_data: Checksums) -> None:
    """Write the checksums and copy the code to `state/`, unless `state/` has them.

    `of_data` are files that read or adapted the samples of the store; one that was edited since is not copied.

    Raises UserError if a file of the training was edited after its checksum was computed.
    """

    def is_copy(path: Path, checksum: str) -> bool:
        return path.is_file() and file_sha256(path) == checksum

    unchanged = [path for path in filter(has_copy, of_data) if is_copy(Path(path), of_data[path])]
    has_copies = all(is_copy(copy_of(state.code, path), of_data[path]) for path in unchanged)
    if has_copies and state.input_files.exists() and read_input_record(state) == checksums:
        return
    shutil.rmtree(state.code, ignore_errors=True)
    for path in dict.fromkeys([*filter(has_copy, checksums), *unchanged]):
        content = Path(path).read_bytes()
        if path in checksums and hashlib.sha256(content).hexdigest() != checksums[path]:
            raise UserError(
                f"{path}: the file was edited while the training started; start the training again"
            )
        with atomic_write(copy_of(state.code, path)) as part:
            part.write_bytes(content)
    with atomic_write(state.input_files) as part:
        part.write_text(json.dumps(dict(checksums), indent=1))


def publish_code(paths: RunPaths) -> None:
    """Replace `code/` of a run by the copies of its training; a run without code has no such folder."""
    part = paths.folder / f".{paths.code.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    if paths.state.code.exists():
        shutil.copytree(paths.state.code, part)
    shutil.rmtree(paths.code, ignore_errors=True)
    if part.exists():
        part.rename(paths.code)


def refuse_changed_code(run: Run, folder: Path) -> None:
    """Raise UserError if files that the model or its metrics need differ from those of the training in `folder`."""
    paths = RunPaths(folder)
    if not paths.summary.exists():
        return
    used, current = read_json_object(paths.summary, ("input_files",))["input_files"], input_checksums(run)
    for checksums in (used, current):
        checksums.pop(run.model.weights or "", None)  # the published weights replace the initial ones
    if changed := changed_files(used, current):
        state = "differs from the file" if changed[0] in current else "is missing; it is a file"
        copy = copy_of(paths.code, changed[0])
        kept = f" (kept as {copy})" if copy.exists() else ""
        raise UserError(
            f"{changed[0]}: the file {state} that trained {paths.model}{kept}; restore the file, or train again, so that the "
            "weights and the code belong together"
        )
