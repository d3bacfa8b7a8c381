"""Findings of checks, and the folders of jobs that `nnlo verify` checks."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from nnlo_lib.config.paths import RunPaths, SearchPaths, training_folders
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.trial import FoldTask, read_result
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun, require

VERIFIED_SUMMARY_KEYS = ("config_hash", "roles", "packages", "code_version")


class Finding(NamedTuple):
    """One line of `nnlo verify`."""

    status: Literal["ok", "FAILED", "note"]
    message: str

    def __str__(self) -> str:
        return f"  {self.status:<8}{self.message}"


ok = partial(Finding, "ok")
failed = partial(Finding, "FAILED")
note = partial(Finding, "note")  # only information


def find_run_folders(folder: Path) -> Sequence[Path]:
    """Return the job folders at or below `folder`. Raises UserError if no job folder is found."""
    # A copy of a training may have any name. The `state/` of a search does not count.
    found = [
        job
        for job in (sorted({folder, *training_folders(folder)}) if folder.is_dir() else ())
        if RunPaths(job).summary.exists()
        or (RunPaths(job).state.folder.is_dir() and not SearchPaths(job).trials.is_dir())
    ]
    if not found:
        problem = "no training found" if folder.is_dir() else "folder not found"
        raise UserError(f"{folder}: {problem}; pass results/<experiment>/<run>/seed-<s> or a folder above it")
    return found


def load_finished_run(folder: Path) -> FinishedRun:
    """Load a finished job. Raises UserError if the job is not finished, or its summary is damaged."""
    run = FinishedRun(folder)
    path = run.paths.summary
    if not path.exists():
        attempts = read_attempts(run.paths.state.folder)
        error = attempts[-1].error if attempts else None
        last = f" ({attempts[-1].reason}: {error})" if error else ""
        raise UserError(
            f"{folder}: the training is not finished: {path.name} is missing{last}; to finish it: {_resume_command(folder)}"
        )
    try:
        require(path, VERIFIED_SUMMARY_KEYS, run.summary)
    except UserError as error:
        raise UserError(f"{error}; repeat the training") from error
    _ = run.config  # validates the configuration here, so that a damaged summary does not fail in a check
    return run


def _resume_command(folder: Path) -> str:
    job = re.search(r"([^/]+)/seed-(\d+)(?:/fold-(\d+))?$", str(folder.absolute()))
    if not job:
        return "nnlo search FILE" if SearchPaths.around(folder) else "nnlo run FILE"
    fold = f" --fold {job[3]}" if job[3] else ""
    return f"nnlo run FILE --run {job[1]} --seed {job[2]}{fold} (FILE: the experiment file)"


def reason_not_finished(folder: Path) -> str | None:
    """Return why a trial's fold with results is unfinished; None if it is finished, or for other folders."""
    # Result files are called epochs-<rung>.json.
    rungs = [int(path.stem.partition("-")[2]) for path in SearchPaths.results_in(folder)]
    if not rungs or RunPaths(folder).summary.exists():
        return None
    # A fold folder of a search is <search>/trials/<trial>/fold-<fold>, so the search is its third parent.
    place = re.search(r"(\d+)/fold-(\d+)$", str(folder.absolute()))
    fold_task = place and FoldTask(int(place[1]), int(place[2]), max(rungs))
    result = fold_task and read_result(folder.absolute().parents[2], fold_task)
    if result and result.status != "finished":
        return f"not finished: its result in the search is {result.status}: {result.error}"
    return f"not finished: the search paused it after epoch {max(rungs)}"
