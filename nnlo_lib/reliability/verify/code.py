"""Checks of the user's files: the kept copies of the code, and the files of the project."""

from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.reliability.verify.finding import Finding, failed, note, ok
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import copy_of, has_copy


def check_code(run: FinishedRun) -> Iterator[Finding]:
    """Compare the copies of the user's code with the summary; note files of the project that differ now."""
    copies = [path for path in run.input_checksums if has_copy(path)]
    faults = [fault for path in copies if (fault := _copy_fault(run, path))]
    yield from (failed(f"code: {fault}") for fault in faults)
    if copies and not faults:
        yield ok(f"code: {', '.join(copies)}: the copies in code/ match their checksums in summary.json")
    for path, checksum in run.input_checksums.items():
        # The file in the project may be edited or moved after the training, or belong to another project.
        if Path(path).is_file() and file_sha256(Path(path)) != checksum:
            yield note(
                f"code: {path} differs from the file that this training used; train again to use the present file"
            )


def _copy_fault(run: FinishedRun, path: str) -> str:
    copy = copy_of(run.paths.code, path)
    if not copy.is_file():
        return f"{copy} is missing"
    return (
        "" if file_sha256(copy) == run.input_checksums[path] else f"{copy} was modified: its checksum differs"
    )
