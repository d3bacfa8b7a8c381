"""Table of the stores below data/, with the experiments and results that use them."""

from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import RESULTS_FOLDER, RunPaths
from nnlo_lib.core.json_text import load_json
from nnlo_lib.core.text_format import size_text, table_lines
from nnlo_lib.data.store.inventory import list_data_folders
from nnlo_lib.workflow.plan import Plan

HEADINGS = ("folder", "samples", "size", "made", "used by")


def print_stores(experiment: Experiment | None, file: str | None) -> None:
    """Print the stores and the fetched files below data/.

    Args:
        experiment: an experiment whose stores are marked; None: only finished trainings are listed as users.
        file: name of the experiment's file.
    """
    users: dict[str, list[str]] = {}
    for store in Plan.of(experiment).stores.values() if experiment else ():
        for folder in (store.folder, store.raw):
            users.setdefault(str(folder), []).append(str(file))
    for manifest, training in _trainings():
        users.setdefault(str(Path(manifest).parent), []).append(training)
    rows = [
        (
            str(each.folder),
            each.contents,
            size_text(each.bytes),
            each.changed.strftime("%Y-%m-%d %H:%M"),
            _shortened(users.get(str(each.folder), [])),
        )
        for each in list_data_folders()
    ]
    print(*table_lines([HEADINGS, *rows], left=range(len(HEADINGS))), sep="\n")


def _trainings() -> Iterator[tuple[str, str]]:
    """Yield (manifest, folder) of each finished training below results/."""
    for path in sorted(RESULTS_FOLDER.rglob(RunPaths.summary.name)):
        try:
            yield load_json(path.read_text())["data"]["manifest"], str(path.parent)
        except (OSError, ValueError, LookupError, TypeError):
            continue  # not a summary of a training


def _shortened(users: list[str]) -> str:
    return users[0] + (f" and {len(users) - 1} more" if len(users) > 1 else "") if users else "-"
