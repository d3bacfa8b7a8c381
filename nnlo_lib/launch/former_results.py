"""Results that a training would replace: set aside before it starts, and moved back when their settings return.

`results/t/a/seed-0/` is set aside as `results/t/a/former/<n>-seed-0/`. Files are renamed, never copied, under the lease of
the training's folder. While files are on their way, the folder in `former/` has a suffix that names the direction; the
next start completes the move. Must not import torch.
"""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from nnlo_lib.config.paths import RunPaths, SearchPaths
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.launch.attempt_recovery import leased
from nnlo_lib.train.freshness import Freshness, continues, status
from nnlo_lib.train.task import Task

AWAY, BACK = ".away", ".back"  # suffixes during a move
REPEATED = ".repeated"  # suffix of results that the user forced to train again: they do not move back

logger = get_logger(__name__)


def find_former(task: Task) -> Path | None:
    """Return the folder in `former/` with results of the task, else with a training that the task resumes, else None."""
    former = [replace(task, folder=folder) for folder in _former_folders(task.folder)]
    found = [(each, status(each)) for each in former]
    finished = [each.folder for each, its in found if its.kind == "finished"]
    return next(iter([*finished, *(each.folder for each, its in found if continues(each, its))]), None)


def set_aside(task: Task, repeated: bool = False) -> Path | None:
    """Set results aside which a training of the task would replace; return their new folder, or None.

    If `repeated`, results of the task's own settings are set aside, too, and the next training does not find them.

    Raises UserError if a launcher holds the lease of the folder.
    """
    wanted = ("outdated", "finished") if repeated else ("outdated",)
    # The lease would create the folder.
    if status(task).kind not in wanted and not _former_folders(task.folder, AWAY, BACK):
        return None
    with leased(task.state, task.run.parallel.ranks):
        _complete_moves(task.folder)
        found = status(task)
        if found.kind == "finished" and repeated:
            return _set_aside(task.folder, REPEATED)
        return _set_aside(task.folder) if found.kind == "outdated" and not continues(task, found) else None


def exchange_results(task: Task) -> Freshness:
    """Set aside what a training of the task would replace, move back what it would repeat; return the new status.

    The caller holds the lease of the folder. Trials of a search have the same settings always.
    """
    if SearchPaths.around(task.folder):
        return status(task)
    _complete_moves(task.folder)
    found = status(task)
    if found.kind not in ("missing", "outdated"):
        return found
    former = find_former(task)
    if found.kind == "outdated" and (former or not continues(task, found)):
        logger.info(f"{found.reason}; set aside in {_set_aside(task.folder)}")
    if former:
        published = [path for path in former.iterdir() if path.is_file()]
        # New times, in the same order: for Snakemake, results that are older than a file of the user are outdated.
        for path in sorted(published, key=lambda path: path.stat().st_mtime_ns):
            os.utime(path)
        former.rename(former.with_name(former.name + BACK))
        _complete_moves(task.folder)
        logger.info(f"{task.folder}: results of these settings were moved back from {former}")
    return status(task)


def _former_folders(folder: Path, *suffixes: str) -> list[Path]:
    """Return the folders in which results of `folder` are set aside, the newest first; with suffixes, those with one of them."""
    repeated = f"(?:{re.escape(REPEATED)})?" if suffixes else ""
    names = re.compile(rf"(\d+)-{re.escape(folder.name)}{repeated}({'|'.join(suffixes)})")
    paths = RunPaths(folder).former.glob("*")
    found = [(int(match[1]), path) for path in paths if (match := names.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def _set_aside(folder: Path, suffix: str = "") -> Path:
    newest = next(iter(_former_folders(folder, "", AWAY)), None)
    number = 1 + int(newest.name.partition("-")[0]) if newest else 1
    target = RunPaths(folder).former / f"{number}-{folder.name}{suffix}"
    target.with_name(target.name + AWAY).mkdir(parents=True, exist_ok=True)
    _complete_moves(folder)
    return target


def _complete_moves(folder: Path) -> None:
    """Complete the moves to and from `former/` that began."""
    for moving in _former_folders(folder, AWAY):
        _move(folder, moving)
        moving.rename(moving.with_suffix(""))
    for moving in _former_folders(folder, BACK):
        _move(moving, folder)
        shutil.rmtree(moving)


def _move(source: Path, target: Path) -> None:
    # Not its lease, nor the folders of the folds of the same seed.
    paths = RunPaths(source)
    state = paths.state
    inside = [path for path in source.iterdir() if path.name not in (state.folder.name, paths.former.name)]
    moved = [path for path in inside if not path.name.startswith("fold-")]
    moved += [path for path in state.folder.glob("[!.]*") if path != state.lease]
    for path in moved:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Left by attempts that saved no checkpoint.
        if place.is_dir():
            shutil.rmtree(place)
        path.rename(place)
