"""Discovery of job folders below a folder, and loading of the results of finished jobs."""

import re
from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.config.paths import RunPaths, SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.trial import FoldTask, read_result
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_file import require

VERIFIED_SUMMARY_KEYS = ("config_hash", "roles", "packages", "code_version")


def load_finished_run(folder: Path) -> FinishedRun:
    """Load a finished job. Raises UserError if the job is not finished, or its summary is damaged."""
    run = FinishedRun(folder)
    path = run.paths.summary
    if not path.exists():
        raise UserError(
            f"{folder}: the training is not finished: {path.name} is missing{_last_error(run)}; to finish it: {_resume_command(folder)}"
        )
    try:
        require(path, VERIFIED_SUMMARY_KEYS, run.summary)
    except UserError as error:
        raise UserError(f"{error}; repeat the training") from error
    _ = run.config  # validates the configuration here, so that a damaged summary does not fail in a check
    return run


def find_run_folders(folder: Path) -> Sequence[Path]:
    """Return the job folders at or below `folder`. Raises UserError if no job folder is found."""
    if not folder.is_dir():
        raise UserError(
            f"folder not found: {folder}; pass results/<experiment>/<run>/seed-<s> or a folder above it"
        )
    # rglob omits the folder itself. Seed folders that only contain folds have no summary and are filtered
    # out.
    jobs = [folder, *sorted(folder.rglob("seed-*")), *sorted(folder.rglob("fold-*"))]
    found = [job for job in jobs if RunPaths(job).summary.exists() or _has_state(job)]
    if not found:
        raise UserError(
            f"{folder}: no training found; pass results/<experiment>/<run>/seed-<s> or a folder above it"
        )
    return found


def _has_state(folder: Path) -> bool:
    """Return True if the folder has the `state/` of a job; the `state/` of a search does not count."""
    return RunPaths(folder).state.folder.is_dir() and not SearchPaths(folder).trials.is_dir()


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


def _last_error(run: FinishedRun) -> str:
    """Return the error of the last attempt, in parentheses, or an empty string."""
    attempts = read_attempts(run.paths.state.folder)
    last = attempts[-1] if attempts else None
    return f" ({last.reason}: {last.error})" if last and last.error else ""


def _resume_command(folder: Path) -> str:
    job = re.search(r"([^/]+)/seed-(\d+)(?:/fold-(\d+))?$", str(folder.absolute()))
    if not job:
        return "nnlo search FILE" if SearchPaths.around(folder) else "nnlo run FILE"
    fold = f" --fold {job[3]}" if job[3] else ""
    return f"nnlo run FILE --run {job[1]} --seed {job[2]}{fold} (FILE: the experiment file)"
