"""How far a run has come, as its folder says."""

from pathlib import Path

from nnlo_lib.checkpoint.manifest import Manifest
from nnlo_lib.errors import UserError
from nnlo_lib.state.steps import read_steps


def standing(state: Path) -> tuple[int, int, int]:
    """Return the step that the last attempt began at, the last one that it did, and that of the newest checkpoint."""
    saved = _saved(state / "checkpoints")
    start, reached = read_steps(state) if (state / "step").exists() else (saved, saved)
    return start, reached, saved


def _saved(checkpoints: Path) -> int:
    for folder in sorted(checkpoints.glob("[0-9]" * 8), reverse=True):
        try:
            return Manifest.read(folder).step
        except (OSError, ValueError, UserError):
            continue
    return 0
