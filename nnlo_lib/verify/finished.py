"""A finished training: its folder and what its summary says of it."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nnlo_lib.config import Run
from nnlo_lib.config.strict import RECORDED
from nnlo_lib.errors import UserError
from nnlo_lib.search.trial import Leaf, read_result
from nnlo_lib.state.tally import Tally

SUMMARY = "summary.json"
KEYS = {"config", "config_hash", "seed", "roles", "epochs", "seconds", "packages", "code_version"}


@dataclass(frozen=True)
class Finished:
    """summary: what was published last, when all else was there; run: the configuration in it."""

    folder: Path
    summary: dict[str, Any]
    run: Run

    @classmethod
    def load(cls, folder: Path) -> "Finished":
        """Read a training's summary. Raises UserError if it is not finished, or its summary is damaged."""
        path = folder / SUMMARY
        if not path.exists():
            raise UserError(
                f"{folder} is not finished: {SUMMARY} is missing; to finish it: {_command(folder)}"
            )
        try:
            summary = json.loads(path.read_text())
            if missing := KEYS - summary.keys():
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            return cls(folder, summary, Run.model_validate(summary["config"], context=RECORDED))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise UserError(
                f"{path}: config: {where}: {fault['msg']}; verify it from the folder it was trained in, with the nnlo "
                f"that wrote it, {summary.get('code_version')}"
            ) from error
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{path} is cut short or damaged ({error}); train this run again") from error

    @property
    def state(self) -> Path:
        """Folder of what survives a failed attempt."""
        return self.folder / "state"

    @property
    def epochs(self) -> int:
        """Epochs that were trained."""
        return int(self.summary["epochs"])

    @property
    def legs(self) -> list[dict[str, Any]]:
        """Which nnlo trained it on how many ranks, from which step on; nothing where an older one wrote it."""
        return list(self.summary.get("legs", []))

    @property
    def resized(self) -> bool:
        """Whether it went on with another number of ranks."""
        older = {each.ranks for each in self.tally.attempts} if self.tally and not self.legs else set()
        return len({leg["ranks"] for leg in self.legs} | older) > 1

    @cached_property
    def tally(self) -> Tally | None:
        """What its attempts come to, where they were recorded."""
        return Tally.read(self.state, self.summary)


def trainings(folder: Path) -> Sequence[Path]:
    """Return the folders of trainings in `folder`, itself perhaps. Raises UserError if there are none."""
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}; name results/<experiment>/<run>/seed-<s>, or one above it"
        )
    jobs = [folder, *sorted(folder.rglob("seed-*")), *sorted(folder.rglob("fold-*"))]
    found = [job for job in jobs if (job / SUMMARY).exists() or _has_state(job)]
    if not found:
        raise UserError(
            f"{folder} holds no training; name results/<experiment>/<run>/seed-<s>, or one above it"
        )
    return found


def _has_state(folder: Path) -> bool:
    """Tell whether a training left its state in a folder; a search has one, too."""
    return (folder / "state").is_dir() and not (folder / "trials").is_dir()


def paused(folder: Path) -> str | None:
    """Say why a fold of a search's trial, which has a result, is not trained to the end; None: it is, or is no fold."""
    rungs = [int(path.stem.partition("-")[2]) for path in folder.glob("epochs-*.json")]
    if not rungs or (folder / SUMMARY).exists():
        return None
    place = re.search(r"(\d+)/fold-(\d+)$", str(folder.absolute()))
    leaf = place and Leaf(int(place[1]), int(place[2]), max(rungs))
    result = leaf and read_result(folder.absolute().parents[2], leaf)
    if result and result.status != "finished":
        return f"not finished: to the search it is {result.status}: {result.error}"
    return f"not finished: the search paused it after epoch {max(rungs)}"


def _command(folder: Path) -> str:
    job = re.search(r"([^/]+)/seed-(\d+)(?:/fold-(\d+))?$", str(folder.absolute()))
    if not job:
        return "nnlo search FILE" if "/search/trials/" in str(folder.absolute()) else "nnlo run FILE"
    fold = f" --fold {job[3]}" if job[3] else ""
    return f"nnlo run FILE --run {job[1]} --seed {job[2]}{fold}, FILE being the experiment's file"
