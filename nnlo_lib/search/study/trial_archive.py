"""Archive of trials without results, whose settings were edited before any trial had a result."""

from nnlo_lib.config.paths import RunPaths, SearchPaths
from nnlo_lib.core.json_text import load_json
from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)


def has_locking_trial(paths: SearchPaths) -> bool:
    """Return True if a trial has a finished result, or may be training now."""
    # A result that cannot be read is kept, because it may be valid.
    finished = any(_may_be_finished(path.read_bytes()) for path in paths.results())
    return finished or any(RunPaths(fold).state.lease.exists() for fold in paths.trials.glob("*/fold-*"))


def archive_trials(paths: SearchPaths) -> None:
    """Move the trials and the settings of a search to a new folder; the caller holds the search's lease."""
    former = paths.next_archive
    former.mkdir()
    # The settings come last: until then, a repeated start finds that they differ and archives the rest.
    for path in (paths.trials, paths.ended, paths.state.pool_failures, paths.settings):
        if path.exists():
            path.rename(former / path.name)
    logger.warning(
        f"{paths.folder}: settings of the search changed before any trial had a result; the search starts again, and "
        f"the trials so far were moved to {former}"
    )


def _may_be_finished(content: bytes) -> bool:
    try:
        return bool(load_json(content)["status"] == "finished")
    except (ValueError, KeyError, TypeError):
        return True
