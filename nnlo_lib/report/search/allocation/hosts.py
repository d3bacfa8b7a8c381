"""Hosts of the fold tasks of a search, and their hardware."""

from collections.abc import Iterator

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.report.formatting import listing, plural
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.sections.origin.provenance import hardware_texts
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun


def host_sentences(data: StudyData) -> list[str]:
    """Return the hosts on which the folds of the trials were trained last, with their number, and the known hardware of each host.

    The summary of a training records the hardware: a search without any finished training shows host names only.
    """
    runs = list(_runs(data))
    launched = [attempts[-1].host for run in runs if (attempts := read_attempts(run.paths.state.folder))]
    if not launched:
        return []
    counts = [f"{host} ({plural(launched.count(host), 'training')})" for host in dict.fromkeys(launched)]
    return [f"Trained on {listing(counts)}.", *(f"{text}." for text in _hardware(runs))]


def _runs(data: StudyData) -> Iterator[FinishedRun]:
    """Yield the folder of each fold of each trial."""
    fold_tasks = (decision.task for trial in data.study.snapshot.trials for decision in trial.decisions)
    for folder in dict.fromkeys(task.run_folder(data.study.folder) for task in fold_tasks):
        yield FinishedRun(folder)


def _hardware(runs: list[FinishedRun]) -> list[str]:
    return hardware_texts(
        run.summary.get("hardware", {}) for run in runs if RunPaths(run.folder).summary.exists()
    )
