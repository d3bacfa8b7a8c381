"""Recognition of a search that has ended, so that its command is not repeated."""

from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.search.study.frozen_settings import verify_settings
from nnlo_lib.search.study.storage import config_text
from nnlo_lib.search.study.study import Study


def is_finished(folder: Path, experiment: Experiment) -> bool:
    """Return True if a search has ended with the settings of an experiment, and its outputs are written.

    Raises UserError if the search was started with other settings.
    """
    paths = SearchPaths(folder)
    if not paths.settings.exists() or not _outputs_are_current(paths):
        return False
    experiment = verify_settings(folder, experiment)
    if paths.config.read_text() != config_text(experiment):
        return False
    study = Study.of(folder, experiment)
    return bool(study.decisions) and study.has_ended


def _outputs_are_current(paths: SearchPaths) -> bool:
    """Return True if all outputs exist and were written after the results."""
    outputs = paths.table, paths.best, paths.report, paths.config
    if not all(path.exists() for path in outputs):
        return False
    # A result may have been deleted and trained again since the page was written.
    newest = max((path.stat().st_mtime_ns for path in paths.results()), default=0)
    return paths.report.stat().st_mtime_ns >= newest
